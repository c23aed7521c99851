//! Errors as clients see them: a stable code, what was wrong, and what to do.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What went wrong, for programs. Codes are added, never renamed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// The body is not the JSON that the route takes.
    InvalidJson,
    /// The body is larger than the route takes.
    BodyTooLarge,
    /// A field or parameter has an unusable value.
    InvalidRequest,
    /// There is no such route.
    NoSuchRoute,
    /// The route does not take this method: the header `Allow` names those that it takes.
    MethodNotAllowed,
    /// No process with this id, name or prefix is visible to the caller.
    NotFound,
    /// More than one process id begins with this prefix.
    AmbiguousId,
    /// The working directory does not exist or cannot be entered.
    BadCwd,
    /// The shell or program does not exist or cannot be executed.
    NoProgram,
    /// The kernel refused to start the process.
    FailedToStart,
    /// The kernel has no more processes, threads, descriptors or memory for the daemon or its user.
    ResourceShortage,
    /// A pattern is not a regular expression, or too large.
    BadPattern,
    /// No signal has this name.
    BadSignal,
    /// The process is over: nothing is left to act on.
    AlreadyOver,
    /// The process has no stdin that could be written to.
    NoStdin,
    /// The process has no terminal.
    NoTerminal,
    /// Its stdin was ended, or nobody in its tree reads it any more.
    StdinClosed,
    /// This idempotency key was used for another request.
    KeyReused,
    /// The agent has a turn already, or too many wait for it.
    AgentBusy,
    /// A limit of the configuration is reached.
    LimitReached,
    /// The caller may not speak to this daemon, or may not ask this of it.
    Forbidden,
    /// A token is needed, and there is none, or it is unknown, revoked or expired.
    Unauthorized,
    /// The record of this process is damaged on disk.
    Damaged,
    /// The state directory cannot be written.
    StoreUnwritable,
    /// The keeper did not answer.
    KeeperSilent,
    /// The daemon has just started and does not know all processes yet: try again in a few seconds.
    Recovering,
    /// The daemon is shutting down.
    ShuttingDown,
    /// A defect of pinfold's own.
    Internal,
}

/// The body of every answer that is not a success.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// For programs.
    pub code: ErrorCode,
    /// For people: what was wrong and what to do.
    pub message: String,
    /// The process it is about, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}
