//! Heartbeats: a live process's owner is told every so often that it lives, with what is new of its output.
//!
//! They are numbered from the start of the process on, so that a later daemon repeats none; those that fell into a
//! time without a daemon are left out. They end with the leader.

use std::sync::Arc;
use std::time::Duration;

use pinfold_api::types::Event;
use pinfold_model::event::EventKind;
use pinfold_model::output_view::{Options, Source, View, render as render_text};
use pinfold_model::units::Moment;
use pinfold_store::reader::OutputReader;

use crate::clock::now;
use crate::core::{Core, blocking};
use crate::events::compose::told;
use crate::refusal::Refusal;
use crate::registry::Entry;
use crate::registry::records;
use crate::waits::{has_exited, until_exit};

/// The most bytes of new output in one; the latest.
const TEXT_MOST: usize = 2000;

/// Tells of one process until its leader ends.
pub(super) async fn beat(core: Arc<Core>, entry: Arc<Entry>, every: Duration) {
    if let Err(refusal) = run(&core, &entry, every).await {
        tracing::warn!(process = %entry.id, error = %refusal.0, "no more heartbeats");
    }
}

async fn run(core: &Arc<Core>, entry: &Arc<Entry>, every: Duration) -> Result<(), Refusal> {
    let mut state = entry.state.subscribe();
    let begun = state.wait_for(|state| state.history.start.is_some() || has_exited(state)).await;
    let Some(start) = begun.ok().and_then(|state| state.history.start.as_ref().map(|start| start.at)) else {
        return Ok(());
    };
    let id = entry.id.clone();
    let latest = core.query(move |queries| queries.latest_of(&id, EventKind::Heartbeat)).await?;
    let mut number = latest.as_ref().map_or(0, |event| event.n);
    let before: Option<Event> = latest.and_then(|event| serde_json::from_str(&event.payload).ok());
    let mut cursor = before.and_then(|event| event.cursor).unwrap_or(0);
    loop {
        number = next_number(start, every, now()).max(number + 1);
        let due = start.0.saturating_add((every.as_micros() as u64).saturating_mul(number));
        until_exit(entry, Duration::from_micros(due.saturating_sub(now().0))).await;
        if has_exited(&entry.state.borrow()) || entry.stop_asked() {
            return Ok(());
        }
        let (snapshot, directory) = (entry.snapshot(), core.home.process(&entry.id));
        let history = snapshot.history.clone();
        let from = cursor.max(entry.shown());
        let news = blocking(move || news(&records::reader(&snapshot, &directory), from)).await?;
        let news = news.map_err(Refusal::internal)?;
        cursor = news.next;
        let text = Some(news.text).filter(|text| !text.is_empty());
        let at = now();
        let event = Event { cursor: Some(cursor), text, ..records::event(&history, EventKind::Heartbeat, at) };
        core.ledger.apply(vec![told(&history, event, (EventKind::Heartbeat, number, at))]).await;
    }
}

/// The number of the first heartbeat after this moment.
fn next_number(start: Moment, every: Duration, now: Moment) -> u64 {
    now.0.saturating_sub(start.0) / (every.as_micros() as u64).max(1) + 1
}

/// What has come behind a cursor: the latest of it, whole lines where there are any.
fn news(reader: &OutputReader, from: u64) -> std::io::Result<View> {
    let end = reader.extent()?.end;
    let mut at = from.max(end.saturating_sub(TEXT_MOST as u64));
    let is_cut = at > from;
    let mut bytes = Vec::new();
    loop {
        let piece = reader.read(at, (end.saturating_sub(at)) as usize)?;
        if piece.gap.is_some() {
            bytes.clear();
        }
        at = piece.next;
        if piece.bytes.is_empty() {
            break;
        }
        bytes.extend(piece.bytes);
    }
    let skipped = if is_cut { first_whole(&bytes) } else { 0 };
    let bytes = &bytes[skipped..];
    let source = Source { start: at - bytes.len() as u64, head: bytes, tail: &[], end: at, more_may_come: true };
    let mut view = render_text(&source, &Options { budget: usize::MAX, strip_ansi: true, collapse_cr: true });
    // Bytes that are no text take more room as text.
    let surplus = view.text.ceil_char_boundary(view.text.len().saturating_sub(TEXT_MOST));
    view.text.drain(..surplus);
    Ok(view)
}

/// Where the first line begins that is there as a whole, or else the first character.
fn first_whole(bytes: &[u8]) -> usize {
    let line = bytes.iter().position(|byte| *byte == b'\n').map(|newline| newline + 1);
    let character = bytes.iter().position(|byte| byte & 0xC0 != 0x80).unwrap_or(bytes.len());
    line.filter(|line| *line < bytes.len()).unwrap_or(character)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heartbeats_are_numbered_from_the_start() {
        let (start, every) = (Moment(1_000_000), Duration::from_secs(2));
        let number = |micros| next_number(start, every, Moment(micros));
        assert_eq!((number(1_000_000), number(2_999_999), number(3_000_000)), (1, 1, 2));
        assert_eq!(number(0), 1, "a clock that was set back");
    }

    #[test]
    fn a_cut_falls_between_lines_or_else_between_characters() {
        assert_eq!(first_whole(b"half\nwhole\n"), 5);
        assert_eq!(first_whole("ä half".as_bytes().split_at(1).1), 1);
        assert_eq!(first_whole(b"half\n"), 0, "better half a line than nothing");
        assert_eq!(first_whole(&[0x80, 0x80]), 2);
    }
}
