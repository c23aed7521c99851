//! Exit codes: one list, and the code that stands for an outcome.

use pinfold_api::types::Outcome;

/// Something failed that the caller cannot ask better for; or a stop left survivors.
pub(crate) const TROUBLE: u8 = 1;
/// The command line or the request was refused.
pub(crate) const REFUSED: u8 = 2;
/// `hook wake`: something was told, and the agent is to wake. Agents know this code.
pub(crate) const WAKES: u8 = 2;
/// `daemon status`: none runs.
pub(crate) const NO_DAEMON: u8 = 3;
/// `agent loop`: the limit was reached and nothing was passed.
pub(crate) const NOT_PASSED: u8 = 3;
/// `daemon run --background`: another daemon owns this home. Read by `connect`.
pub(crate) const OTHER_DAEMON: u8 = 4;
/// What was waited for did not happen in time, as `timeout` says it.
pub(crate) const TIMED_OUT: u8 = 124;
/// `run`, `wait`: pinfold itself failed, or nobody saw the command's end.
pub(crate) const PINFOLD_FAILED: u8 = 125;
/// `run`: the command was found and could not be executed.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// `run`: there is no such command.
pub(crate) const NOT_FOUND: u8 = 127;
/// The reader of our output left: what a shell shows for a program that SIGPIPE ended.
pub(crate) const OUTPUT_CLOSED: u8 = 128 + 13;
/// Interrupted by Ctrl-C.
pub(crate) const INTERRUPTED: u8 = 128 + 2;
/// Ended by TERM.
pub(crate) const TERMINATED: u8 = 128 + 15;
/// Ended with its terminal.
pub(crate) const HUNG_UP: u8 = 128 + 1;

/// The code that a shell would show for this outcome.
pub(crate) fn code_of(outcome: &Outcome) -> u8 {
    match outcome {
        Outcome::Exited { code } => *code,
        Outcome::Signaled { signal, .. } => u8::try_from(128 + signal).unwrap_or(u8::MAX),
        Outcome::FailedToStart { step, error } if step == "exec" => code_of_exec(error),
        Outcome::FailedToStart { .. } | Outcome::Lost { .. } => PINFOLD_FAILED,
    }
}

/// 126 if it is there and may not be executed, else 127, as shells tell them apart.
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
