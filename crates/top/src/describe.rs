//! Statuses, outcomes, events and agents in words.

use pinfold_api::types::{
    Agent, AgentStatus, Cause, EventKind, InboxItem, InboxKind, Outcome, Record, Status, TurnStatus, Verdict,
};

use crate::processes::status_word;
use crate::text::one_line;

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

/// A process's standing in one or two words, with its tone.
pub(crate) fn standing(record: &Record) -> (String, Tone) {
    let life = record.life.as_ref();
    let restarts = life.is_some_and(|life| life.restarting_at.is_some());
    let text = match (&record.outcome, record.status) {
        _ if restarts => "restarting".to_owned(),
        _ if record.paused => "paused".to_owned(),
        (_, Status::Lingering) => "strays".to_owned(),
        (Some(outcome), _) => outcome_words(outcome, record.cause),
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

/// The name of a process in a list: its name, else the beginning of its command.
pub(crate) fn title(record: &Record) -> String {
    one_line(record.name.as_deref().unwrap_or(&record.command))
}

pub(crate) fn verdict_word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Allow => "allowed",
        Verdict::Deny => "denied",
    }
}
