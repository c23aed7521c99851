//! One line of the event log.

use pinfold_api::types::{Event, EventKind};

use super::outcome::{outcome_tone, render_outcome};
use super::paint::{Paint, Tone};
use super::table::{cut, one_line};

/// Maximum length of an event's text.
const MAX_TEXT: usize = 80;

/// `12  2026-01-01T00:55:00Z  finished  k3v9x2  chat-7  exit 0  npm run dev`.
pub(crate) fn render_event(event: &Event, width: Option<usize>, paint: Paint) -> String {
    let kind = match event.kind {
        EventKind::Started => "started",
        EventKind::Exited => "exited",
        EventKind::Closed => "closed",
        EventKind::Finished => "finished",
        EventKind::Lost => "lost",
        EventKind::Matched => "matched",
        EventKind::WaitingForInput => "waiting for input",
        EventKind::WatchEnded => "watch ended",
        EventKind::Heartbeat => "heartbeat",
        EventKind::HandedOver => "handed over",
        EventKind::Ready => "ready",
        EventKind::NotReady => "not ready",
        EventKind::GaveUp => "gave up",
    };
    let outcome = event.outcome.as_ref();
    let text = event.text.as_deref().and_then(|text| text.lines().rfind(|line| !line.trim().is_empty()));
    let outcome_text = match (outcome, text) {
        (_, Some(text)) => cut(&one_line(text), MAX_TEXT),
        (Some(outcome), None) => render_outcome(outcome, event.cause),
        (None, None) => "-".to_owned(),
    };
    let front = format!("{:>6}  {:<27}  {kind:<8}  {}  {}  ", event.seq, event.at, event.process, event.owner);
    let used = front.chars().count() + outcome_text.chars().count() + 2;
    let command = one_line(&event.command);
    let command = match width {
        Some(width) => cut(&command, width.saturating_sub(used).max(12)),
        None => command,
    };
    let tone = if outcome.is_some() { outcome_tone(outcome) } else { Tone::Faint };
    format!("{front}{}  {command}\n", paint.apply(tone, &outcome_text))
}

#[cfg(test)]
mod tests {
    use pinfold_api::types::{Cause, Outcome};

    use super::*;

    #[test]
    fn an_event_is_one_line() {
        let event = Event {
            seq: 12,
            kind: EventKind::Finished,
            process: "k3v9x2".into(),
            owner: "chat-7".into(),
            at: "2026-01-01T00:55:00.123456Z".into(),
            command: "a\nb".into(),
            started_at: None,
            outcome: Some(Outcome::Exited { code: 0 }),
            cause: Some(Cause::OnItsOwn),
            completion: true,
            announce: true,
            cursor: None,
            text: None,
            suppressed: None,
        };
        assert_eq!(
            render_event(&event, None, Paint::Plain),
            "    12  2026-01-01T00:55:00.123456Z  finished  k3v9x2  chat-7  exit 0  a b\n"
        );
    }
}
