//! The text of `wait`, `stop` and `signal`: one process in a few lines.

use jiff::Timestamp;
use pinfold_api::plain::is_steering;
use pinfold_api::types::{Record, SignalAnswer, StopAnswer, Survivor, WaitReason};

use super::outcome::{outcome_tone, render_details, render_outcome, render_status, status_tone};
use super::paint::{Paint, Tone};
use super::ps::ran;
use super::quantity::{render_count, render_duration};
use super::table::{cut, one_line};

/// Longer commands are cut.
const MAX_COMMAND: usize = 120;

/// Maximum length of a line of output if stdout is not a terminal.
const MAX_LINE: usize = 200;
/// Minimum length of a line of output on a narrow terminal.
const MIN_LINE: usize = 20;
/// Prefix of a line of output.
const MARGIN: &str = "  | ";

/// `k3v9x2  exit 0 after 3.2s  npm test`, followed by the last lines of output.
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
    let command = cut(&one_line(&record.command), MAX_COMMAND);
    let mut text = format!("{id}  {}{word}{took}  {command}\n", paint.apply(tone, &state));
    if let Some(details) = outcome.and_then(render_details) {
        text.push_str(&format!("  {}\n", one_line(&details)));
    }
    if let Some(strays) = render_strays(record) {
        text.push_str(&format!("  {strays}\n"));
    }
    let room = width.map_or(MAX_LINE, |width| width.saturating_sub(MARGIN.len()).max(MIN_LINE));
    for line in last_lines.lines() {
        text.push_str(&format!("{MARGIN}{}\n", cut(&printable(line), room)));
    }
    text
}

/// A line of output with control characters replaced; several in a row become one replacement character.
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

/// `1 stray still running: pid 4713 node …`, and how to stop it; `None` if no descendant outlived the leader.
pub(crate) fn render_strays(record: &Record) -> Option<String> {
    if record.outcome.is_none() || record.tree.is_empty() {
        return None;
    }
    let count = render_count(record.tree.len() as u64, "stray", "strays");
    let named =
        record.tree.iter().take(3).map(|member| format!("pid {} {}", member.pid, cut(&one_line(&member.command), 60)));
    let named: Vec<_> = named.collect();
    let more = if record.tree.len() > 3 { ", …" } else { "" };
    Some(format!("{count} still running: {}{more}: run `pinfold stop {}`", named.join(", "), record.id))
}

/// Why a wait returned; `None` if the record already shows it.
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
        WaitReason::NotReady => Some("not ready in time; it keeps running".to_owned()),
        WaitReason::Input => Some("waiting for input".to_owned()),
        WaitReason::EndedBefore => Some("ended before that happened".to_owned()),
        WaitReason::Timeout => Some("timeout; it keeps running".to_owned()),
        WaitReason::Cancelled => Some("the wait was released; it keeps running".to_owned()),
        WaitReason::Exited | WaitReason::Closed | WaitReason::Finished => None,
    }
}

/// The result of a stop, with the survivors.
pub(crate) fn render_stop(answer: &StopAnswer, now: Timestamp, paint: Paint) -> String {
    let record = &answer.record;
    let id = paint.apply(Tone::Strong, &record.id);
    let outcome = record.outcome.as_ref().map(|outcome| render_outcome(outcome, record.cause));
    let outcome = outcome.unwrap_or_else(|| render_status(record));
    let ran = ran(record, now).map(|ran| format!(" after {}", render_duration(ran))).unwrap_or_default();
    let stopped = match (answer.already_over, answer.survivors.is_empty()) {
        (true, _) => "had already ended",
        (false, true) => "stopped, tree empty",
        (false, false) => "could not be stopped completely",
    };
    let mut text = format!("{id}  {stopped}: {outcome}{ran}\n");
    text.push_str(&render_survivors(&answer.survivors, "still runs", paint));
    text
}

/// How many processes a signal reached, and which it did not.
pub(crate) fn render_signal(answer: &SignalAnswer, verb: &str, paint: Paint) -> String {
    let reached = render_count(answer.reached.into(), "process", "processes");
    let mut text = format!("{}  {verb} {reached}\n", paint.apply(Tone::Strong, &answer.record.id));
    text.push_str(&render_survivors(&answer.refused, "not reached", paint));
    text
}

/// Processes that could not be stopped or signalled.
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
    fn a_summary_shows_outcome_strays_and_output() {
        let text = render_summary(&ended(), "up\nready\n", sample::now(), None, Paint::Plain);
        let expected = "\
k3v9x2  exit 0 after 3.2s  npm run dev
  1 stray still running: pid 4713 node vite: run `pinfold stop k3v9x2`
  | up
  | ready
";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_live_process_shows_its_run_time_and_no_strays() {
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
            "k3v9x2  could not be stopped completely: exit 0 after 3.2s\n  pid 9 dd still runs: stuck in the kernel\n"
        );
    }

    #[test]
    fn lines_of_output_are_cut_and_have_no_control_characters() {
        let long = format!("{}\u{1b}[1m\0\0\0end", "x".repeat(500));
        let text = render_summary(&ended(), &long, sample::now(), Some(40), Paint::Plain);
        let line = text.lines().last().expect("a line");
        assert_eq!((line.chars().count(), line.ends_with('…')), (40, true), "{line}");
        let text = render_summary(&ended(), "a\tb\0\0\0c\u{7}", sample::now(), None, Paint::Plain);
        assert!(text.ends_with("  | a    b\u{fffd}c\u{fffd}\n"), "{text:?}");
    }
}
