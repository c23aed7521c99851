//! How a process ended: what the kernel said, and why we think so. Never folded into one integer.
//!
//! Invariant L1, *no outcome is invented*: an [`Outcome`] is built from a wait status, from the error of a
//! failed start, or is `Lost` with its evidence. There is no default and no conversion from a bare number.

use serde::{Deserialize, Serialize};

use crate::signal::Signal;

/// What the kernel reported of the leader.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Outcome {
    /// It called `exit` with this code.
    Exited { code: u8 },
    /// A signal ended it.
    Signaled { signal: Signal, core_dumped: bool },
    /// It never ran: this step of the start failed with this error.
    FailedToStart { step: StartStep, error: String },
    /// Nobody saw its end; this is what is known.
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

/// Why it ended, as far as pinfold had a part in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Cause {
    /// Nobody asked pinfold to end it.
    OnItsOwn,
    /// A client asked for a stop, or for the very signal that ended it.
    StopRequested { by: String },
    /// Its `time_limit` passed.
    TimeLimit,
    /// It was silent for longer than its `idle_limit`.
    IdleLimit,
    /// Its tree reached its `memory_limit`, and the kernel or the keeper killed it for that.
    OutOfMemory,
    /// Its tree reached its `pids_limit`.
    PidsLimit,
    /// Its tree used up its `cpu_time_limit`.
    CpuTimeLimit,
    /// Its owner was ended, or was not heard of for its `owner_grace`.
    OwnerEnded,
}

impl Cause {
    /// Who asked for it, where that is the cause.
    pub fn asked_by(&self) -> Option<&str> {
        match self {
            Cause::StopRequested { by } => Some(by),
            _ => None,
        }
    }
}

impl Outcome {
    /// The exit code that a shell would show for it: the code, or 128 plus the signal.
    pub fn shell_code(&self) -> Option<u8> {
        match self {
            Outcome::Exited { code } => Some(*code),
            Outcome::Signaled { signal, .. } => Some((128 + signal.number()) as u8),
            Outcome::FailedToStart { .. } | Outcome::Lost { .. } => None,
        }
    }
}
