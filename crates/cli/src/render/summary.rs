//! One process in a few lines that stand for themselves: what `wait` and `stop` print.

use jiff::Timestamp;
use pinfold_api::plain::is_steering;
use pinfold_api::types::{Record, SignalAnswer, StopAnswer, Survivor, WaitReason};

use super::list::ran;
use super::outcome::{outcome_tone, render_details, render_outcome, render_status, status_tone};
use super::paint::{Paint, Tone};
use super::quantity::{render_count, render_duration};
use super::table::{cut, one_line};

/// Commands longer than this are cut in a summary.
const COMMAND_MOST: usize = 120;

/// Where there is no terminal, a line of output is cut here.
const LINE_MOST: usize = 200;
/// However narrow the terminal is, so much of a line is shown.
const LINE_LEAST: usize = 20;
/// What stands before a line of output.
const MARGIN: &str = "  | ";

/// `k3v9x2  exit 0 after 3.2s  npm test`, and the last lines of output below it, as wide as the terminal is.
pub(crate) fn render_summary(
    record: &Record,
    last_lines: &str,
    now: Timestamp,
    width: Option<usize>,
    paint: Paint,
) -> String {
    let outcome = record.outcome.as_ref();
    let (state, tone) = match outcome {
        Some(outcome) => (render_outcome(outcome, record.cause), outcome_tone(Some(outcome))),
        None => (render_status(record), status_tone(record)),
    };
    let (word, took) = match (outcome, ran(record, now)) {
        (_, None) => ("", String::new()),
        (Some(_), Some(ran)) => (" after ", render_duration(ran)),
        (None, Some(ran)) => (" for ", render_duration(ran)),
    };
    let id = paint.apply(Tone::Strong, &record.id);
    let command = cut(&one_line(&record.command), COMMAND_MOST);
    let mut text = format!("{id}  {}{word}{took}  {command}\n", paint.apply(tone, &state));
    if let Some(details) = outcome.and_then(render_details) {
        text.push_str(&format!("  {}\n", one_line(&details)));
    }
    if let Some(strays) = render_strays(record) {
        text.push_str(&format!("  {strays}\n"));
    }
    let room = width.map_or(LINE_MOST, |width| width.saturating_sub(MARGIN.len()).max(LINE_LEAST));
    for line in last_lines.lines() {
        text.push_str(&format!("{MARGIN}{}\n", cut(&printable(line), room)));
    }
    text
}

/// A line of output without what a terminal would obey: bytes that are no text come as one sign for many.
fn printable(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    for c in line.trim_end().chars() {
        match c {
            '\t' => text.push_str("    "),
            c if is_steering(c) && text.ends_with('\u{fffd}') => {}
            c if is_steering(c) => text.push('\u{fffd}'),
            c => text.push(c),
        }
    }
    text
}

/// `1 stray lives on: pid 4713 node …  (pinfold stop k3v9x2)`, if the leader is gone and others are not.
pub(crate) fn render_strays(record: &Record) -> Option<String> {
    if record.outcome.is_none() || record.tree.is_empty() {
        return None;
    }
    let count = render_count(record.tree.len() as u64, "stray lives", "strays live");
    let named =
        record.tree.iter().take(3).map(|member| format!("pid {} {}", member.pid, cut(&one_line(&member.command), 60)));
    let named: Vec<_> = named.collect();
    let more = if record.tree.len() > 3 { ", …" } else { "" };
    Some(format!("{count} on: {}{more}  (pinfold stop {})", named.join(", "), record.id))
}

/// What a wait waited for and got, where the record does not say it; `None` where it does.
pub(crate) fn render_reason(reason: WaitReason, matched: Option<&str>, port: Option<u16>) -> Option<String> {
    match reason {
        WaitReason::Matched => Some(format!("matched: {}", matched.unwrap_or_default().trim_end())),
        WaitReason::Port => Some(match port {
            Some(port) => format!("listening on port {port}"),
            None => "listening".to_owned(),
        }),
        WaitReason::Output => Some("new output".to_owned()),
        WaitReason::Quiet => Some("quiet".to_owned()),
        WaitReason::Ready => Some(match port {
            Some(port) => format!("ready, on port {port}"),
            None => "ready".to_owned(),
        }),
        WaitReason::NotReady => Some("not ready in time: it goes on".to_owned()),
        WaitReason::Input => Some("waits for input".to_owned()),
        WaitReason::EndedBefore => Some("ended before what was waited for".to_owned()),
        WaitReason::Timeout => Some("timeout: not there yet".to_owned()),
        WaitReason::Cancelled => Some("released: it goes on".to_owned()),
        WaitReason::Exited | WaitReason::Closed | WaitReason::Finished => None,
    }
}

/// How a stop ended, with the survivors.
pub(crate) fn render_stop(answer: &StopAnswer, now: Timestamp, paint: Paint) -> String {
    let record = &answer.record;
    let id = paint.apply(Tone::Strong, &record.id);
    let outcome = record.outcome.as_ref().map(|outcome| render_outcome(outcome, record.cause));
    let outcome = outcome.unwrap_or_else(|| render_status(record));
    let ran = ran(record, now).map(|ran| format!(" after {}", render_duration(ran))).unwrap_or_default();
    let stopped = match (answer.already_over, answer.survivors.is_empty()) {
        (true, _) => "was over already",
        (false, true) => "stopped, tree empty",
        (false, false) => "not all of it could be stopped",
    };
    let mut text = format!("{id}  {stopped}: {outcome}{ran}\n");
    text.push_str(&render_survivors(&answer.survivors, "lives on", paint));
    text
}

/// What a signal reached, and what it did not.
pub(crate) fn render_signal(answer: &SignalAnswer, verb: &str, paint: Paint) -> String {
    let reached = render_count(answer.reached.into(), "process", "processes");
    let mut text = format!("{}  {verb} {reached}\n", paint.apply(Tone::Strong, &answer.record.id));
    text.push_str(&render_survivors(&answer.refused, "not reached", paint));
    text
}

/// Those that would not end, or could not be reached.
pub(super) fn render_survivors(survivors: &[Survivor], word: &str, paint: Paint) -> String {
    let line = |survivor: &Survivor| {
        let command = cut(&one_line(&survivor.command), 60);
        let text = format!("pid {} {command} {word}: {}", survivor.pid, survivor.reason);
        format!("  {}\n", paint.apply(Tone::Bad, &text))
    };
    survivors.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use pinfold_api::types::{Cause, Outcome, Status};

    use super::super::sample;
    use super::*;

    fn ended() -> Record {
        Record {
            status: Status::Lingering,
            exited_at: Some("2026-01-01T00:55:03.2Z".into()),
            outcome: Some(Outcome::Exited { code: 0 }),
            cause: Some(Cause::OnItsOwn),
            tree: vec![sample::member(4713, 1, "node vite", &[3000])],
            ..sample::record()
        }
    }

    #[test]
    fn a_summary_stands_for_itself() {
        let text = render_summary(&ended(), "up\nready\n", sample::now(), None, Paint::Plain);
        let expected = "\
k3v9x2  exit 0 after 3.2s  npm run dev
  1 stray lives on: pid 4713 node vite  (pinfold stop k3v9x2)
  | up
  | ready
";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_live_process_has_no_strays_and_says_for_how_long() {
        let text = render_summary(&sample::record(), "", sample::now(), None, Paint::Plain);
        assert_eq!(text, "k3v9x2  running for 5m00s  npm run dev\n");
    }

    #[test]
    fn survivors_are_named_with_the_reason() {
        let survivor = Survivor { pid: 9, command: "dd".into(), reason: "stuck in the kernel".into() };
        let answer = StopAnswer { record: ended(), already_over: false, survivors: vec![survivor] };
        let text = render_stop(&answer, sample::now(), Paint::Plain);
        assert_eq!(
            text,
            "k3v9x2  not all of it could be stopped: exit 0 after 3.2s\n  pid 9 dd lives on: stuck in the kernel\n"
        );
    }

    #[test]
    fn lines_of_output_fit_and_hold_nothing_that_a_terminal_obeys() {
        let long = format!("{}\u{1b}[1m\0\0\0end", "x".repeat(500));
        let text = render_summary(&ended(), &long, sample::now(), Some(40), Paint::Plain);
        let line = text.lines().last().expect("a line");
        assert_eq!((line.chars().count(), line.ends_with('…')), (40, true), "{line}");
        let text = render_summary(&ended(), "a\tb\0\0\0c\u{7}", sample::now(), None, Paint::Plain);
        assert!(text.ends_with("  | a    b\u{fffd}c\u{fffd}\n"), "{text:?}");
    }
}
