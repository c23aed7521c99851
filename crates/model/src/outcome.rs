//! How a process ended, as reported by the kernel, and why. Never reduced to one integer.
//!
//! Invariant L1, *no outcome is invented*: an [`Outcome`] is built from a wait status, from the error of a
//! failed start, or is `Lost` with its evidence. There is no default and no conversion from a bare number.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::signal::Signal;

/// How the leader ended, as reported by the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Outcome {
    /// It called `exit` with this code.
    Exited { code: u8 },
    /// A signal ended it.
    Signaled { signal: Signal, core_dumped: bool },
    /// It never ran: this step of the start failed with this error.
    FailedToStart { step: StartStep, error: String },
    /// Its end was not observed; the evidence says what is known.
    Lost { evidence: String },
}

/// The step of a start that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StartStep {
    /// Making its pipes or its process.
    Spawn,
    /// Making its terminal.
    Pty,
    /// Entering its working directory.
    Cwd,
    /// Executing its shell or program.
    Exec,
}

/// Why it ended, as far as pinfold knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Cause {
    /// Pinfold did nothing to end it.
    OnItsOwn,
    /// A client requested a stop, or sent the signal that ended it.
    StopRequested { by: String },
    /// Its `time_limit` passed.
    TimeLimit,
    /// It produced no output for longer than its `idle_limit`.
    IdleLimit,
    /// Its tree reached its `memory_limit` and was killed by the kernel or the keeper.
    OutOfMemory,
    /// Its tree reached its `pids_limit`.
    PidsLimit,
    /// Its tree used up its `cpu_time_limit`.
    CpuTimeLimit,
    /// Its owner was ended, or had no contact for longer than its `owner_grace`.
    OwnerEnded,
}

/// Why it ended.
// A `Cause` without its details: this is what goes over the wire. Its docs are those of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Cause")]
pub enum CauseKind {
    OnItsOwn,
    StopRequested,
    TimeLimit,
    /// It produced no output for longer than its `idle_limit`.
    IdleLimit,
    /// Its tree reached its `memory_limit` and was killed by the kernel or the keeper.
    OutOfMemory,
    /// Its tree reached its `pids_limit`.
    PidsLimit,
    /// Its tree used up its `cpu_time_limit`.
    CpuTimeLimit,
    /// Its owner was ended, or had no contact for longer than its `owner_grace`.
    OwnerEnded,
}

impl Cause {
    pub fn kind(&self) -> CauseKind {
        match self {
            Cause::OnItsOwn => CauseKind::OnItsOwn,
            Cause::StopRequested { .. } => CauseKind::StopRequested,
            Cause::TimeLimit => CauseKind::TimeLimit,
            Cause::IdleLimit => CauseKind::IdleLimit,
            Cause::OutOfMemory => CauseKind::OutOfMemory,
            Cause::PidsLimit => CauseKind::PidsLimit,
            Cause::CpuTimeLimit => CauseKind::CpuTimeLimit,
            Cause::OwnerEnded => CauseKind::OwnerEnded,
        }
    }

    /// Who requested the stop, if that is the cause.
    pub fn stopped_by(&self) -> Option<&str> {
        match self {
            Cause::StopRequested { by } => Some(by),
            _ => None,
        }
    }
}

impl CauseKind {
    /// The name in records and on the wire.
    pub fn name(self) -> &'static str {
        match self {
            CauseKind::OnItsOwn => "on_its_own",
            CauseKind::StopRequested => "stop_requested",
            CauseKind::TimeLimit => "time_limit",
            CauseKind::IdleLimit => "idle_limit",
            CauseKind::OutOfMemory => "out_of_memory",
            CauseKind::PidsLimit => "pids_limit",
            CauseKind::CpuTimeLimit => "cpu_time_limit",
            CauseKind::OwnerEnded => "owner_ended",
        }
    }
}

impl StartStep {
    /// The name in records and on the wire.
    pub fn name(self) -> &'static str {
        match self {
            StartStep::Spawn => "spawn",
            StartStep::Pty => "pty",
            StartStep::Cwd => "cwd",
            StartStep::Exec => "exec",
        }
    }
}

impl Outcome {
    /// The exit code that a shell would report: the code, or 128 plus the signal.
    pub fn shell_code(&self) -> Option<u8> {
        match self {
            Outcome::Exited { code } => Some(*code),
            Outcome::Signaled { signal, .. } => Some((128 + signal.number()) as u8),
            Outcome::FailedToStart { .. } | Outcome::Lost { .. } => None,
        }
    }
}
