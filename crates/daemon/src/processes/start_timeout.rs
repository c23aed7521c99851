//! A start that its keeper does not decide in time is given up.
//!
//! Invariant D8, *no path that a request names is touched by the daemon*: not on the event loop, and not on another thread,
//! which would keep the daemon from ending while the kernel waits for a file system that does not answer. A directory is
//! entered and a program looked up by the keeper's child, so that a dead mount holds up that one start. The keeper gives
//! such a child up by itself; what is here is for a keeper that hangs.

use std::time::Duration;

use pinfold_api::error::ErrorCode;
use pinfold_model::facts::Status;
use pinfold_model::spec::Program;
use pinfold_os::tree;

use crate::core::Core;
use crate::registry::Entry;
use crate::request_error::RequestError;

/// How long a keeper may take from the request to a running leader, or to the reason why there is none. It gives a leader
/// 10 s to execute its program.
const START_TIMEOUT: Duration = Duration::from_secs(30);

impl Core {
    /// Waits until the keeper has decided the start (D1), or gives it up.
    pub(super) async fn decided(&self, entry: &Entry) -> Result<(), RequestError> {
        let mut state = entry.state.subscribe();
        let decided = state.wait_for(|state| state.history.status() != Status::Starting || state.refused.is_some());
        match tokio::time::timeout(START_TIMEOUT, decided).await {
            Ok(Ok(state)) => state.refused.clone().map_or(Ok(()), Err),
            _ => Err(self.give_up_start(entry)),
        }
    }

    /// Ends a start that takes too long. Its keeper is killed, so that nothing runs after the caller got the answer that
    /// nothing does, and so that this keeper is never given another process; the entry is settled when it is dead.
    pub(super) fn give_up_start(&self, entry: &Entry) -> RequestError {
        let intent = entry.snapshot().history.intent;
        let keeper = &intent.keeper;
        tracing::warn!(process = %entry.id, keeper = keeper.pid, "a start took too long and is given up");
        if let Err(error) = tree::kill_exactly(keeper.pid, keeper.start_time) {
            tracing::error!(keeper = keeper.pid, %error, "a keeper whose start hangs cannot be killed");
        }
        let program = match &intent.spec.program {
            Program::Shell { shell, .. } => shell.as_str(),
            Program::Argv { argv } => argv.first().map_or("", String::as_str),
        };
        let message = format!(
            "its keeper neither started it nor said why not, and was killed: nothing runs; see whether the directory \
             `{}` and the program `{program}` can be reached, and try again",
            intent.spec.cwd.display()
        );
        RequestError::new(ErrorCode::KeeperSilent, message).about(&entry.id)
    }
}
