//! Errors as clients see them: a stable code, what went wrong, and what to do.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What went wrong, for programs. Codes may be added but are never renamed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// The body is not the JSON that the route expects.
    InvalidJson,
    /// The body is larger than the route accepts.
    BodyTooLarge,
    /// A field or parameter has an invalid value.
    InvalidRequest,
    /// There is no such route.
    NoSuchRoute,
    /// The route does not support this method; the `Allow` header lists those it supports.
    MethodNotAllowed,
    /// No process with this id, name or prefix is visible to the caller.
    NotFound,
    /// More than one process id starts with this prefix.
    AmbiguousId,
    /// The working directory does not exist or cannot be entered.
    BadCwd,
    /// The shell or program does not exist or cannot be executed.
    NoProgram,
    /// The kernel refused to start the process.
    FailedToStart,
    /// The daemon or its user has no processes, threads, descriptors or memory left.
    ResourceShortage,
    /// A pattern is not a valid regular expression, or is too large.
    BadPattern,
    /// No signal has this name.
    BadSignal,
    /// The process has ended: there is nothing left to act on.
    AlreadyOver,
    /// The process is live or is about to be restarted: stop it first.
    StillRunning,
    /// The process was started without a writable stdin.
    NoStdin,
    /// The process has no terminal.
    NoTerminal,
    /// Its stdin was closed, or no process in its tree has it open any more.
    StdinClosed,
    /// This idempotency key was already used for a different request.
    KeyReused,
    /// The agent is already running a turn, or its queue of turns is full.
    AgentBusy,
    /// A limit set in the configuration is reached.
    LimitReached,
    /// The caller may not use this daemon, or may not do this.
    Forbidden,
    /// A token is required, and it is missing, unknown, revoked or expired.
    Unauthorized,
    /// The record of this process is damaged on disk.
    Damaged,
    /// The daemon cannot write to its home directory.
    StoreUnwritable,
    /// The keeper of the process did not respond.
    KeeperSilent,
    /// The daemon has just started and has not found all processes yet: try again in a few seconds.
    Recovering,
    /// The daemon is shutting down.
    ShuttingDown,
    /// A bug in pinfold.
    Internal,
}

/// The body of every error response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// For programs.
    pub code: ErrorCode,
    /// For people: what went wrong and what to do.
    pub message: String,
    /// The process that the error is about, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}
