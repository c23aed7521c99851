//! Errors on their way out: the one place that decides HTTP status and error code.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use pinfold_api::error::{ApiError, ErrorCode};
use pinfold_model::admission;
use pinfold_model::id::ProcessId;
use pinfold_model::outcome::StartStep;
use pinfold_model::output_view::BadPattern;
use pinfold_model::signal::BadSignal;
use pinfold_model::spec;
use pinfold_model::units::{BadDuration, BadSize};
use pinfold_os::proc;
use pinfold_store::index::IndexError;

use crate::json::Json;

/// A request that is not fulfilled, with a reason that the caller can act on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal(pub(crate) ApiError);

impl Refusal {
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
        Self::new(ErrorCode::NotFound, format!("no process `{wanted}`: `pinfold ps --all` lists those that are kept"))
    }

    pub(crate) fn internal(what: impl std::fmt::Display) -> Self {
        tracing::error!(error = %what, "internal error");
        Self::new(ErrorCode::Internal, format!("pinfold failed: {what}: see daemon.log in the state directory"))
    }

    /// Something that the kernel refused: because it has no more of it, or for another reason.
    pub(crate) fn shortage(what: &str, error: &std::io::Error) -> Self {
        match proc::is_exhausted(error) {
            true => Self::new(ErrorCode::ResourceShortage, format!("{what}: {}", proc::explain_shortage(error))),
            false => Self::internal(format!("{what}: {error}")),
        }
    }

    /// A start that the kernel refused.
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

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.status(), Json(self.0)).into_response()
    }
}

impl From<spec::Refusal> for Refusal {
    fn from(refusal: spec::Refusal) -> Self {
        Self::invalid(refusal.to_string())
    }
}

impl From<BadDuration> for Refusal {
    fn from(bad: BadDuration) -> Self {
        Self::invalid(bad.to_string())
    }
}

impl From<BadSize> for Refusal {
    fn from(bad: BadSize) -> Self {
        Self::invalid(bad.to_string())
    }
}

impl From<BadSignal> for Refusal {
    fn from(bad: BadSignal) -> Self {
        Self::new(ErrorCode::BadSignal, bad.to_string())
    }
}

impl From<BadPattern> for Refusal {
    fn from(bad: BadPattern) -> Self {
        Self::new(ErrorCode::BadPattern, bad.to_string())
    }
}

impl From<admission::Refusal> for Refusal {
    fn from(refusal: admission::Refusal) -> Self {
        Self::new(ErrorCode::LimitReached, refusal.to_string())
    }
}

impl From<IndexError> for Refusal {
    fn from(error: IndexError) -> Self {
        Self::internal(error)
    }
}

/// The store refused a write: says which, and what helps.
pub(crate) fn unwritable(error: &str) -> Refusal {
    let message = format!("the state directory cannot be written: {error}: {}", way_out(error));
    Refusal::new(ErrorCode::StoreUnwritable, message)
}

/// What helps against an error of the disk.
pub(crate) fn way_out(error: &str) -> &'static str {
    let says = |words: &[&str]| words.iter().any(|word| error.contains(word));
    match () {
        () if says(&["No space left", "quota"]) => "free some space",
        () if says(&["Permission denied", "not permitted"]) => "check its permissions",
        () if says(&["Read-only"]) => "mount it writable, or set PINFOLD_HOME to another directory",
        () => "free some space or check its permissions",
    }
}
