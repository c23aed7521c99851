//! Heartbeats: at each interval, the owner of a live process gets an event with the new output.
//!
//! They are numbered from the start of the process, so that a later daemon repeats none. Those that were due while no
//! daemon ran are skipped. They end with the leader.

use std::sync::Arc;
use std::time::Duration;

use pinfold_api::types::Event;
use pinfold_model::event::EventKind;
use pinfold_model::output_view::{Options, View, ViewInput, render as render_text};
use pinfold_model::units::Moment;
use pinfold_store::reader::OutputReader;

use crate::clock::now;
use crate::core::{Core, blocking};
use crate::events::compose::event_change;
use crate::registry::Entry;
use crate::registry::records;
use crate::request_error::RequestError;
use crate::waits::{has_exited, until_exit};

/// Maximum bytes of new output in one heartbeat; older output is left out.
const MAX_TEXT: usize = 2000;

/// Sends heartbeats of one process until its leader ends.
pub(super) async fn run(core: Arc<Core>, entry: Arc<Entry>, every: Duration) {
    if let Err(error) = send_all(&core, &entry, every).await {
        tracing::warn!(process = %entry.id, error = %error.0, "heartbeats stopped");
    }
}

async fn send_all(core: &Arc<Core>, entry: &Arc<Entry>, every: Duration) -> Result<(), RequestError> {
    let mut state = entry.state.subscribe();
    let started = state.wait_for(|state| state.history.start.is_some() || has_exited(state)).await;
    let Some(start) = started.ok().and_then(|state| state.history.start.as_ref().map(|start| start.at)) else {
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
        if has_exited(&entry.state.borrow()) || entry.stop_requested() {
            return Ok(());
        }
        let (snapshot, directory) = (entry.snapshot(), core.home.process(&entry.id));
        let history = snapshot.history.clone();
        let from = cursor.max(entry.shown());
        let new_output = blocking(move || new_output(&records::reader(&snapshot, &directory), from)).await?;
        let new_output = new_output.map_err(RequestError::internal)?;
        cursor = new_output.next;
        let text = Some(new_output.text).filter(|text| !text.is_empty());
        let at = now();
        let event = Event { cursor: Some(cursor), text, ..records::event(&history, EventKind::Heartbeat, at) };
        core.index_writer.apply(vec![event_change(&history, event, (EventKind::Heartbeat, number, at))]).await;
    }
}

/// The number of the first heartbeat after this moment.
fn next_number(start: Moment, every: Duration, now: Moment) -> u64 {
    now.0.saturating_sub(start.0) / (every.as_micros() as u64).max(1) + 1
}

/// The latest output after a cursor, starting at a whole line if there is one.
fn new_output(reader: &OutputReader, from: u64) -> std::io::Result<View> {
    let end = reader.extent()?.end;
    let mut at = from.max(end.saturating_sub(MAX_TEXT as u64));
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
    let skipped = if is_cut { first_boundary(&bytes) } else { 0 };
    let bytes = &bytes[skipped..];
    let source = ViewInput { start: at - bytes.len() as u64, head: bytes, tail: &[], end: at, more_may_come: true };
    let mut view = render_text(&source, &Options { budget: usize::MAX, strip_ansi: true, collapse_cr: true });
    // Invalid UTF-8 takes more bytes once it is rendered as text.
    let surplus = view.text.ceil_char_boundary(view.text.len().saturating_sub(MAX_TEXT));
    view.text.drain(..surplus);
    Ok(view)
}

/// The start of the first complete line, or else of the first complete character.
fn first_boundary(bytes: &[u8]) -> usize {
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
        assert_eq!(first_boundary(b"half\nwhole\n"), 5);
        assert_eq!(first_boundary("ä half".as_bytes().split_at(1).1), 1);
        assert_eq!(first_boundary(b"half\n"), 0, "better half a line than nothing");
        assert_eq!(first_boundary(&[0x80, 0x80]), 2);
    }
}
