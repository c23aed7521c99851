//! Exit codes, and the exit code for the outcome of a process.

use pinfold_api::types::Outcome;

/// Something failed that another request would not fix, or processes survived a stop.
pub(crate) const FAILED: u8 = 1;
/// The command line or the request is invalid.
pub(crate) const USAGE: u8 = 2;
/// `hook wake`: there is a notice, wake the agent. Claude Code expects this code.
pub(crate) const WAKE_AGENT: u8 = 2;
/// `daemon status`: no daemon is running.
pub(crate) const NO_DAEMON: u8 = 3;
/// `agent loop`: the limit was reached without a pass.
pub(crate) const NOT_PASSED: u8 = 3;
/// `daemon run --background`: another daemon owns this home. Read by `daemon_on_demand`.
pub(crate) const OTHER_DAEMON: u8 = 4;
/// Timeout; the code of coreutils' `timeout`.
pub(crate) const TIMED_OUT: u8 = 124;
/// `run`, `wait`: pinfold itself failed, or the outcome of the command is lost.
pub(crate) const PINFOLD_FAILED: u8 = 125;
/// `run`: the command was found but could not be executed.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// `run`: command not found.
pub(crate) const NOT_FOUND: u8 = 127;
/// Our stdout was closed: what a shell shows for a program killed by SIGPIPE.
pub(crate) const OUTPUT_CLOSED: u8 = 128 + 13;
/// Interrupted by Ctrl-C.
pub(crate) const INTERRUPTED: u8 = 128 + 2;
/// Left with Ctrl-\.
pub(crate) const QUIT: u8 = 128 + 3;
/// Terminated by SIGTERM.
pub(crate) const TERMINATED: u8 = 128 + 15;
/// Terminated by SIGHUP: the terminal was closed.
pub(crate) const HUNG_UP: u8 = 128 + 1;

/// The exit code that a shell would report for this outcome.
pub(crate) fn code_of(outcome: &Outcome) -> u8 {
    match outcome {
        Outcome::Exited { code } => *code,
        Outcome::Signaled { signal, .. } => u8::try_from(128 + signal).unwrap_or(u8::MAX),
        Outcome::FailedToStart { step, error } if step == "exec" => code_of_exec(error),
        Outcome::FailedToStart { .. } | Outcome::Lost { .. } => PINFOLD_FAILED,
    }
}

/// As in shells: 126 if the file exists but cannot be executed, otherwise 127.
pub(crate) fn code_of_exec(error: &str) -> u8 {
    let there = ["Permission denied", "not an executable", "Exec format", "is a directory", "Is a directory"];
    if there.iter().any(|words| error.contains(words)) { NOT_EXECUTABLE } else { NOT_FOUND }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(step: &str, error: &str) -> Outcome {
        Outcome::FailedToStart { step: step.into(), error: error.into() }
    }

    #[test]
    fn outcomes_have_the_codes_that_shells_show() {
        assert_eq!(code_of(&Outcome::Exited { code: 3 }), 3);
        assert_eq!(code_of(&Outcome::Signaled { signal: 15, name: "TERM".into(), core_dumped: false }), 143);
        assert_eq!(code_of(&Outcome::Lost { evidence: "e".into() }), 125);
        assert_eq!(code_of(&failed("exec", "/x: No such file or directory")), 127);
        assert_eq!(code_of(&failed("exec", "/x: Permission denied")), 126);
        assert_eq!(code_of(&failed("cwd", "/x: No such file or directory")), 125);
    }
}
