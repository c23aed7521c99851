//! The types of answers and errors, encoded as Go's encoder does.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use pinfold_api::error::ErrorCode;
use pinfold_model::facts::History;
use pinfold_model::outcome::{CauseKind, Outcome};
use serde::Serialize;

use super::buffer::Truncated;
use super::path::Id;
use crate::request_error::RequestError;

/// The exit code of a process that was lost or never started: not 0, which would report a success.
const NO_CODE: i32 = -1;

#[derive(Debug, Serialize)]
pub(super) struct Started {
    pub(super) id: String,
    /// False if an earlier request with this key started it.
    pub(super) started: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) idempotency_key: String,
    pub(super) attached: bool,
    /// In seconds since 1970.
    pub(super) started_at: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct List {
    pub(super) processes: Vec<Info>,
    /// How many there are, listed or not.
    pub(super) total: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct Info {
    pub(super) id: String,
    pub(super) command: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) workdir: String,
    pub(super) background: bool,
    pub(super) running: bool,
    #[serde(flatten)]
    pub(super) end: Option<End>,
    pub(super) started_at_unix: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) exited_at_unix: Option<u64>,
    /// The pid of the leader, until the whole tree has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pid: Option<u32>,
    pub(super) state: &'static str,
    pub(super) closed: bool,
}

#[derive(Debug, Serialize)]
pub(super) struct Output {
    pub(super) output: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) truncated: Option<Truncated>,
    pub(super) running: bool,
    #[serde(flatten)]
    pub(super) end: Option<End>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) command: String,
    pub(super) state: &'static str,
    /// Whether the output is complete.
    pub(super) closed: bool,
}

#[derive(Debug, Serialize)]
pub(super) struct Sent {
    pub(super) message: String,
}

/// How the leader ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct End {
    exit_code: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<String>,
    /// Why it ended, unless it ended by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

impl End {
    pub(super) fn of(history: &History) -> Option<Self> {
        let outcome = history.outcome()?;
        let cause =
            history.cause().map(|cause| cause.kind()).filter(|kind| *kind != CauseKind::OnItsOwn).map(CauseKind::name);
        let reason = |word: &str| Some(cause.unwrap_or(word).to_owned());
        Some(match outcome {
            Outcome::Exited { code } => Self { exit_code: code.into(), signal: None, reason: cause.map(str::to_owned) },
            Outcome::Signaled { signal, .. } => {
                Self { exit_code: 128 + signal.number(), signal: Some(signal.name()), reason: reason("signal") }
            }
            Outcome::FailedToStart { error, .. } => {
                Self { exit_code: NO_CODE, signal: None, reason: Some(format!("failed to start: {error}")) }
            }
            Outcome::Lost { evidence } => {
                Self { exit_code: NO_CODE, signal: None, reason: Some(format!("lost: {evidence}")) }
            }
        })
    }
}

/// An error as coder's clients read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    status: StatusCode,
    /// A code by which programs can distinguish errors.
    code: Option<&'static str>,
    message: String,
    detail: Option<String>,
}

#[derive(Serialize)]
struct ErrorBody<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'static str>,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'a str>,
}

impl Fault {
    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, code: None, message: message.into(), detail: None }
    }

    pub(super) fn bad(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    pub(super) fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, message)
    }

    pub(super) fn conflict(code: &'static str, message: impl Into<String>) -> Self {
        Self { code: Some(code), ..Self::new(StatusCode::CONFLICT, message) }
    }

    pub(super) fn not_found(id: &Id) -> Self {
        Self::new(StatusCode::NOT_FOUND, format!("Process {id} not found."))
    }

    pub(super) fn no_such_key() -> Self {
        let message = "No process was started with this idempotency key.";
        Self { code: Some("process_key_not_found"), ..Self::new(StatusCode::NOT_FOUND, message) }
    }

    pub(super) fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// An error of the daemon, passed on.
    pub(super) fn of(error: &RequestError) -> Self {
        let message = match error.0.code {
            ErrorCode::Internal => "Internal error.",
            _ => "The request is refused.",
        };
        Self::new(error.status(), message).detail(&error.0.message)
    }
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        reply(self.status, &ErrorBody { code: self.code, message: &self.message, detail: self.detail.as_deref() })
    }
}

/// A 200 response with this JSON body.
pub(super) fn ok(body: &impl Serialize) -> Response {
    reply(StatusCode::OK, body)
}

fn reply(status: StatusCode, body: &impl Serialize) -> Response {
    let text = match serde_json::to_string(body) {
        Ok(text) => escape(&text),
        Err(error) => return (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    };
    let json = HeaderValue::from_static("application/json; charset=utf-8");
    (status, [(header::CONTENT_TYPE, json)], text).into_response()
}

/// Escapes characters that Go escapes and serde does not (they occur only in strings), and adds Go's final newline.
fn escape(json: &str) -> String {
    let mut text = String::with_capacity(json.len() + 1);
    for c in json.chars() {
        match c {
            '<' => text.push_str("\\u003c"),
            '>' => text.push_str("\\u003e"),
            '&' => text.push_str("\\u0026"),
            '\u{2028}' => text.push_str("\\u2028"),
            '\u{2029}' => text.push_str("\\u2029"),
            _ => text.push(c),
        }
    }
    text.push('\n');
    text
}
