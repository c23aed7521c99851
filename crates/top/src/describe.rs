//! Statuses, outcomes, events and agents in words.

use pinfold_api::types::{
    Agent, AgentStatus, Cause, EventKind, InboxItem, InboxKind, Outcome, Record, Status, TurnStatus, Verdict,
};

use crate::processes::status_word;
use crate::text::{one_line, width};

/// How good or bad something is; the theme gives it a colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    Faint,
    Good,
    Busy,
    /// It needs a person.
    Needs,
    Bad,
}

/// A process's standing with its tone, in at most this many columns if it has a form that short.
pub(crate) fn standing(record: &Record, columns: usize) -> (String, Tone) {
    let life = record.life.as_ref();
    let restarts = life.is_some_and(|life| life.restarting_at.is_some());
    let text = match (&record.outcome, record.status) {
        _ if restarts => "restarting".to_owned(),
        _ if record.paused => "paused".to_owned(),
        (_, Status::Lingering) => "strays".to_owned(),
        (Some(outcome), _) => {
            let full = outcome_words(outcome, record.cause);
            if width(&full) <= columns { full } else { short_outcome(outcome, record.cause) }
        }
        (None, status) => status_word(status).to_owned(),
    };
    let tone = match (&record.outcome, record.status) {
        _ if restarts || record.paused => Tone::Needs,
        (_, Status::Lingering) => Tone::Needs,
        (_, Status::Lost) => Tone::Bad,
        (Some(outcome), _) => outcome_tone(outcome, record.cause),
        (None, Status::Starting) => Tone::Busy,
        (None, _) => Tone::Good,
    };
    (text, tone)
}

/// How it ended, and why if that was not its own doing.
pub(crate) fn outcome_words(outcome: &Outcome, cause: Option<Cause>) -> String {
    let how = match outcome {
        Outcome::Exited { code } => format!("exit {code}"),
        Outcome::Signaled { name, .. } => name.trim_start_matches("SIG").to_owned(),
        Outcome::FailedToStart { .. } => "not started".to_owned(),
        Outcome::Lost { .. } => "lost".to_owned(),
    };
    match cause.and_then(cause_word) {
        Some(cause) => format!("{cause} ({how})"),
        None => how,
    }
}

/// The same in at most [`SHORT_OUTCOME`] columns: the cause if there is one, else how it ended.
fn short_outcome(outcome: &Outcome, cause: Option<Cause>) -> String {
    match (cause, outcome) {
        (Some(Cause::OutOfMemory), _) => "no memory".to_owned(),
        (Some(Cause::OwnerEnded), _) => "owner gone".to_owned(),
        (None | Some(Cause::OnItsOwn), Outcome::FailedToStart { .. }) => "no start".to_owned(),
        (cause, outcome) => match cause.and_then(cause_word) {
            Some(word) => word.to_owned(),
            None => outcome_words(outcome, None),
        },
    }
}

/// The columns of the longest short form of an outcome.
pub(crate) const SHORT_OUTCOME: usize = 10;

fn cause_word(cause: Cause) -> Option<&'static str> {
    Some(match cause {
        Cause::OnItsOwn => return None,
        Cause::StopRequested => "stopped",
        Cause::TimeLimit => "time limit",
        Cause::IdleLimit => "idle limit",
        Cause::OutOfMemory => "out of memory",
        Cause::PidsLimit => "pids limit",
        Cause::CpuTimeLimit => "cpu limit",
        Cause::OwnerEnded => "owner ended",
    })
}

pub(crate) fn outcome_tone(outcome: &Outcome, cause: Option<Cause>) -> Tone {
    match (outcome, cause) {
        (_, Some(Cause::StopRequested | Cause::OwnerEnded)) => Tone::Faint,
        (Outcome::Exited { code: 0 }, _) => Tone::Faint,
        _ => Tone::Bad,
    }
}

pub(crate) fn agent_standing(agent: &Agent) -> (&'static str, Tone) {
    match agent.status {
        AgentStatus::Starting => ("starting", Tone::Busy),
        AgentStatus::Idle => ("idle", Tone::Good),
        AgentStatus::Busy => ("busy", Tone::Busy),
        AgentStatus::Asking => ("asking", Tone::Needs),
        AgentStatus::Resting => ("resting", Tone::Faint),
        AgentStatus::Stopped => ("stopped", Tone::Faint),
        AgentStatus::Failed => ("failed", Tone::Bad),
    }
}

pub(crate) fn turn_standing(status: TurnStatus) -> (&'static str, Tone) {
    match status {
        TurnStatus::Queued => ("queued", Tone::Faint),
        TurnStatus::Running => ("running", Tone::Busy),
        TurnStatus::Completed => ("completed", Tone::Good),
        TurnStatus::Interrupted => ("interrupted", Tone::Needs),
        TurnStatus::Failed => ("failed", Tone::Bad),
        TurnStatus::Lost => ("lost", Tone::Bad),
    }
}

pub(crate) fn event_word(kind: EventKind) -> &'static str {
    match kind {
        EventKind::Started => "started",
        EventKind::Exited => "exited",
        EventKind::Closed => "closed",
        EventKind::Finished => "finished",
        EventKind::Lost => "lost",
        EventKind::Matched => "matched",
        EventKind::WatchEnded => "watch ended",
        EventKind::WaitingForInput => "waits",
        EventKind::Heartbeat => "heartbeat",
        EventKind::HandedOver => "handed over",
        EventKind::Ready => "ready",
        EventKind::NotReady => "not ready",
        EventKind::GaveUp => "gave up",
    }
}

/// What an item of the inbox wants, in a word.
pub(crate) fn inbox_word(item: &InboxItem) -> (&'static str, Tone) {
    match item.kind {
        InboxKind::Permission => ("asks", Tone::Needs),
        InboxKind::WaitingForInput => ("waits", Tone::Needs),
        InboxKind::Failed => ("failed", Tone::Bad),
    }
}

/// What an item of the inbox is about, in one line.
pub(crate) fn inbox_text(item: &InboxItem) -> String {
    let outcome = item.outcome.as_ref().map(|outcome| outcome_words(outcome, item.cause));
    let text = item.text.as_deref().or(item.command.as_deref()).unwrap_or_default();
    one_line(&match outcome {
        Some(outcome) => format!("{outcome}: {text}"),
        None => text.to_owned(),
    })
}

pub(crate) fn verdict_word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Allow => "allowed",
        Verdict::Deny => "denied",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::record;

    #[test]
    fn an_outcome_is_short_where_there_is_little_room_and_never_cut() {
        let ended = |outcome: serde_json::Value, cause: &str| {
            record("a", json!({ "status": "finished", "outcome": outcome, "cause": cause }))
        };
        let term = json!({ "kind": "signaled", "signal": 15, "name": "SIGTERM", "core_dumped": false });
        for (cause, short) in [
            ("stop_requested", "stopped"),
            ("time_limit", "time limit"),
            ("idle_limit", "idle limit"),
            ("out_of_memory", "no memory"),
            ("pids_limit", "pids limit"),
            ("cpu_time_limit", "cpu limit"),
            ("owner_ended", "owner gone"),
            ("on_its_own", "TERM"),
        ] {
            let record = ended(term.clone(), cause);
            assert_eq!(standing(&record, SHORT_OUTCOME).0, short);
            assert!(width(short) <= SHORT_OUTCOME);
        }
        assert_eq!(standing(&ended(term, "stop_requested"), 16).0, "stopped (TERM)");
        assert_eq!(
            standing(&ended(json!({ "kind": "exited", "code": 255 }), "on_its_own"), SHORT_OUTCOME).0,
            "exit 255"
        );
    }
}
