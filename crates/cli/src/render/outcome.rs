//! Status, outcome and cause of a process in a few words.

use pinfold_api::types::{Cause, Outcome, Record, Status};

use super::paint::Tone;

/// The status as in the API.
pub(crate) fn render_status(record: &Record) -> String {
    let name = record.status.name();
    if record.paused { format!("{name}, paused") } else { name.to_owned() }
}

/// The tone of a status.
pub(crate) fn status_tone(record: &Record) -> Tone {
    match record.status {
        Status::Starting | Status::Running | Status::Lingering => Tone::Busy,
        Status::Finished => Tone::Plain,
        Status::Lost => Tone::Bad,
    }
}

/// `exit 0`, `signal TERM`, `failed to start`, `lost`; with the cause if pinfold ended it.
pub(crate) fn render_outcome(outcome: &Outcome, cause: Option<Cause>) -> String {
    let what = match outcome {
        Outcome::Exited { code } => format!("exit {code}"),
        Outcome::Signaled { name, core_dumped, .. } => {
            format!("signal {name}{}", if *core_dumped { ", core dumped" } else { "" })
        }
        Outcome::FailedToStart { .. } => "failed to start".to_owned(),
        Outcome::Lost { .. } => "lost".to_owned(),
    };
    match cause.and_then(cause_name) {
        Some(cause) => format!("{what} ({cause})"),
        None => what,
    }
}

/// Why pinfold ended it; `None` if it ended on its own.
pub(crate) fn cause_name(cause: Cause) -> Option<&'static str> {
    match cause {
        Cause::StopRequested => Some("stopped"),
        Cause::TimeLimit => Some("time limit"),
        Cause::IdleLimit => Some("idle limit"),
        Cause::OutOfMemory => Some("out of memory"),
        Cause::PidsLimit => Some("pids limit"),
        Cause::CpuTimeLimit => Some("cpu time limit"),
        Cause::OwnerEnded => Some("owner ended"),
        Cause::OnItsOwn => None,
    }
}

/// Details of an outcome: the error of a failed start, the evidence of a loss.
pub(crate) fn render_details(outcome: &Outcome) -> Option<String> {
    match outcome {
        Outcome::FailedToStart { step, error } => Some(format!("{step}: {error}")),
        Outcome::Lost { evidence } => Some(evidence.clone()),
        Outcome::Exited { .. } | Outcome::Signaled { .. } => None,
    }
}

/// The tone of an outcome.
pub(crate) fn outcome_tone(outcome: Option<&Outcome>) -> Tone {
    match outcome {
        None => Tone::Faint,
        Some(Outcome::Exited { code: 0 }) => Tone::Good,
        Some(_) => Tone::Bad,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcome_and_cause_are_shown_separately() {
        let signal = Outcome::Signaled { signal: 9, name: "KILL".into(), core_dumped: false };
        assert_eq!(render_outcome(&Outcome::Exited { code: 0 }, Some(Cause::OnItsOwn)), "exit 0");
        assert_eq!(render_outcome(&Outcome::Exited { code: 143 }, Some(Cause::StopRequested)), "exit 143 (stopped)");
        assert_eq!(render_outcome(&signal, Some(Cause::TimeLimit)), "signal KILL (time limit)");
        assert_eq!(outcome_tone(Some(&signal)), Tone::Bad);
    }
}
