//! Errors of requests: the one place that decides HTTP status and error code.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use pinfold_api::error::{ApiError, ErrorCode};
use pinfold_model::admission;
use pinfold_model::id::ProcessId;
use pinfold_model::outcome::StartStep;
use pinfold_model::output_view::BadPattern;
use pinfold_model::sandbox::BadSandbox;
use pinfold_model::signal::BadSignal;
use pinfold_model::spec;
use pinfold_model::units::{BadDuration, BadSize};
use pinfold_os::proc;
use pinfold_store::index::IndexError;

use crate::json::Json;

/// The error of a request, with a message that the caller can act on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestError(pub(crate) ApiError);

impl RequestError {
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self(ApiError { code, message: message.into(), id: None })
    }

    pub(crate) fn about(mut self, id: &ProcessId) -> Self {
        self.0.id = Some(id.to_string());
        self
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidRequest, message)
    }

    pub(crate) fn not_found(wanted: &str) -> Self {
        let wanted: String = wanted.chars().take(60).collect();
        Self::new(ErrorCode::NotFound, format!("no process `{wanted}`: `pinfold ps --all` lists all"))
    }

    pub(crate) fn internal(what: impl std::fmt::Display) -> Self {
        tracing::error!(error = %what, "internal error");
        Self::new(ErrorCode::Internal, format!("pinfold failed: {what}: see daemon.log in the state directory"))
    }

    /// A kernel error: a shortage of some resource, or another failure.
    pub(crate) fn shortage(what: &str, error: &std::io::Error) -> Self {
        match proc::is_exhausted(error) {
            true => Self::new(ErrorCode::ResourceShortage, format!("{what}: {}", proc::explain_shortage(error))),
            false => Self::internal(format!("{what}: {error}")),
        }
    }

    /// A start that failed in the kernel.
    pub(crate) fn failed_start(step: StartStep, error: &str) -> Self {
        match step {
            StartStep::Cwd => Self::new(ErrorCode::BadCwd, error),
            StartStep::Exec => Self::new(ErrorCode::NoProgram, error),
            StartStep::Spawn | StartStep::Pty => Self::new(ErrorCode::FailedToStart, error),
        }
    }

    pub(crate) fn status(&self) -> StatusCode {
        match self.0.code {
            ErrorCode::InvalidJson
            | ErrorCode::InvalidRequest
            | ErrorCode::BadPattern
            | ErrorCode::BadSignal
            | ErrorCode::AmbiguousId => StatusCode::BAD_REQUEST,
            ErrorCode::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            ErrorCode::NoSuchRoute | ErrorCode::NotFound => StatusCode::NOT_FOUND,
            ErrorCode::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            ErrorCode::BadCwd | ErrorCode::NoProgram | ErrorCode::FailedToStart => StatusCode::UNPROCESSABLE_ENTITY,
            ErrorCode::AlreadyOver
            | ErrorCode::AgentBusy
            | ErrorCode::KeyReused
            | ErrorCode::StillRunning
            | ErrorCode::NoStdin
            | ErrorCode::NoTerminal
            | ErrorCode::StdinClosed => StatusCode::CONFLICT,
            ErrorCode::LimitReached => StatusCode::TOO_MANY_REQUESTS,
            ErrorCode::Forbidden => StatusCode::FORBIDDEN,
            ErrorCode::Unauthorized => StatusCode::UNAUTHORIZED,
            ErrorCode::Damaged | ErrorCode::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            ErrorCode::StoreUnwritable => StatusCode::INSUFFICIENT_STORAGE,
            ErrorCode::KeeperSilent | ErrorCode::Recovering | ErrorCode::ResourceShortage | ErrorCode::ShuttingDown => {
                StatusCode::SERVICE_UNAVAILABLE
            }
        }
    }
}

impl RequestError {
    /// After how many seconds the same request may succeed, for every 429 and 503.
    fn retry_after(&self) -> Option<u32> {
        match self.0.code {
            // The next daemon, or the end of recovery, is a matter of moments.
            ErrorCode::Recovering | ErrorCode::ShuttingDown | ErrorCode::KeeperSilent => Some(1),
            // Something else has to end first.
            ErrorCode::LimitReached | ErrorCode::ResourceShortage => Some(5),
            _ => None,
        }
    }
}

impl IntoResponse for RequestError {
    fn into_response(self) -> Response {
        let (status, retry_after) = (self.status(), self.retry_after());
        let mut response = (status, Json(self.0)).into_response();
        if let Some(seconds) = retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

impl From<spec::SpecError> for RequestError {
    fn from(error: spec::SpecError) -> Self {
        Self::invalid(error.to_string())
    }
}

impl From<BadSandbox> for RequestError {
    fn from(bad: BadSandbox) -> Self {
        Self::invalid(bad.to_string())
    }
}

impl From<BadDuration> for RequestError {
    fn from(bad: BadDuration) -> Self {
        Self::invalid(bad.to_string())
    }
}

impl From<BadSize> for RequestError {
    fn from(bad: BadSize) -> Self {
        Self::invalid(bad.to_string())
    }
}

impl From<BadSignal> for RequestError {
    fn from(bad: BadSignal) -> Self {
        Self::new(ErrorCode::BadSignal, bad.to_string())
    }
}

impl From<BadPattern> for RequestError {
    fn from(bad: BadPattern) -> Self {
        Self::new(ErrorCode::BadPattern, bad.to_string())
    }
}

impl From<admission::AdmissionError> for RequestError {
    fn from(error: admission::AdmissionError) -> Self {
        Self::new(ErrorCode::LimitReached, error.to_string())
    }
}

impl From<IndexError> for RequestError {
    fn from(error: IndexError) -> Self {
        Self::internal(error)
    }
}

/// A write to the state directory failed: says why, and what helps.
pub(crate) fn unwritable(error: &str) -> RequestError {
    let message = format!("the state directory cannot be written: {error}: {}", disk_remedy(error));
    RequestError::new(ErrorCode::StoreUnwritable, message)
}

/// What helps against a disk error.
pub(crate) fn disk_remedy(error: &str) -> &'static str {
    let says = |words: &[&str]| words.iter().any(|word| error.contains(word));
    match () {
        () if says(&["No space left", "quota"]) => "free some space",
        () if says(&["Permission denied", "not permitted"]) => "check its permissions",
        () if says(&["Read-only"]) => "mount it writable, or set PINFOLD_HOME to another directory",
        () => "free some space or check its permissions",
    }
}
