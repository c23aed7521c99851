//! The last line of output, for records and lists.
//!
//! It is read from disk on request: keepers report output only while a client waits for it. What was read is remembered,
//! so that a repeated list costs two `stat` calls per live process and none per ended one. Bounds: [`TAIL_BYTES`] are read
//! per process, [`GENERATION`] lines are remembered twice, and all are forgotten after a minute without requests.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use pinfold_api::plain::is_steering;
use pinfold_api::types::{OutputSummary, Record};
use pinfold_model::id::ProcessId;
use pinfold_model::output_view::{Options, ViewInput, render};
use pinfold_model::units::Moment;
use pinfold_store::tail::{Stamp, Tail};

use crate::clock::{now, rfc3339};
use crate::core::{Core, blocking};
use crate::mutex::lock;
use crate::registry::records::reader;
use crate::registry::{FoundProcess, State};
use crate::request_error::RequestError;

/// Bytes read from the end of the output. A line that starts earlier is shown from there on.
const TAIL_BYTES: usize = 4096;
/// Characters shown of a line.
const MAX_CHARS: usize = 200;
/// Lines that are remembered before the older generation is forgotten.
const GENERATION: usize = 4096;

/// The last lines that were read recently.
#[derive(Debug, Default)]
pub(crate) struct LastLines {
    generations: Mutex<Generations>,
}

#[derive(Debug, Default)]
struct Generations {
    young: HashMap<ProcessId, Arc<LastLine>>,
    old: HashMap<ProcessId, Arc<LastLine>>,
}

#[derive(Debug)]
struct LastLine {
    text: Option<String>,
    written_at: Option<Moment>,
    /// Bytes of output so far.
    end: u64,
    /// `None` if the process has ended: it will not change.
    stamp: Option<Stamp>,
}

impl LastLines {
    fn get(&self, id: &ProcessId) -> Option<Arc<LastLine>> {
        let mut generations = lock(&self.generations);
        if let Some(known) = generations.young.get(id) {
            return Some(Arc::clone(known));
        }
        let known = generations.old.remove(id)?;
        generations.young.insert(id.clone(), Arc::clone(&known));
        Some(known)
    }

    fn put(&self, id: &ProcessId, line: &Arc<LastLine>) {
        let mut generations = lock(&self.generations);
        if generations.young.len() >= GENERATION {
            generations.old = std::mem::take(&mut generations.young);
        }
        generations.young.insert(id.clone(), Arc::clone(line));
    }

    /// Forgets lines that were not requested since the previous call.
    pub(crate) fn forget_unused(&self) {
        let mut generations = lock(&self.generations);
        generations.old = std::mem::take(&mut generations.young);
    }
}

impl Core {
    /// The record of one process, with its last line.
    pub(crate) async fn record_with_last_line(self: &Arc<Self>, found: &FoundProcess) -> Result<Record, RequestError> {
        let mut record = self.record(found).await?;
        let (core, state) = (Arc::clone(self), found.snapshot());
        let add = move || {
            core.add_last_line(&mut record.output, &state);
            record
        };
        blocking(add).await
    }

    /// Adds the last line to what is shown of the output. Reads files: not for the event loop.
    pub(crate) fn add_last_line(&self, output: &mut OutputSummary, state: &State) {
        let Some(line) = self.last_line(state) else { return };
        output.last_line = line.text.clone();
        output.last_output_at = line.written_at.map(rfc3339);
        output.bytes = output.bytes.max(line.end);
    }

    /// The text of the last line. Reads files: not for the event loop.
    pub(crate) fn last_line_text(&self, state: &State) -> Option<String> {
        self.last_line(state)?.text.clone()
    }

    fn last_line(&self, state: &State) -> Option<Arc<LastLine>> {
        let id = &state.history.intent.id;
        let directory = self.home.process(id);
        let over = state.history.status().is_over();
        let is_current = |line: &Arc<LastLine>| match &line.stamp {
            None => over,
            Some(stamp) => !over && stamp.is_current(&directory),
        };
        if let Some(known) = self.last_lines.get(id).filter(is_current) {
            return Some(known);
        }
        // A directory that was removed meanwhile has no last line.
        let Tail { bytes, written_at, end, stamp } = reader(state, &directory).tail(TAIL_BYTES, now()).ok()?;
        let text = last_line(&bytes);
        let line = Arc::new(LastLine { text, written_at, end, stamp: (!over).then_some(stamp) });
        self.last_lines.put(id, &line);
        Some(line)
    }
}

/// The last line that is not blank, as plain text.
fn last_line(bytes: &[u8]) -> Option<String> {
    bytes.rsplit(|byte| *byte == b'\n').find_map(plain_line)
}

/// A line without escape sequences, overwritten states and control characters; `None` if nothing is left of it.
fn plain_line(line: &[u8]) -> Option<String> {
    let start = line.iter().take(3).take_while(|byte| (0x80..0xC0).contains(*byte)).count();
    let line = &line[start..];
    if line.is_empty() {
        return None;
    }
    let source = ViewInput { start: 0, head: line, tail: &[], end: line.len() as u64, more_may_come: false };
    let options = Options { budget: usize::MAX, strip_ansi: true, collapse_cr: true };
    let text = render(&source, &options).text;
    let plain: String = text.replace('\t', " ").chars().filter(|c| !is_steering(*c)).collect();
    let plain = plain.trim();
    match plain.char_indices().nth(MAX_CHARS) {
        _ if plain.is_empty() => None,
        Some((end, _)) => Some(format!("{}…", &plain[..end])),
        None => Some(plain.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_is_the_last_that_is_not_blank() {
        let shown = |text: &str| last_line(text.as_bytes());
        assert_eq!(shown(""), None);
        assert_eq!(shown("\n \t\n\x1b[0m\n"), None);
        assert_eq!(shown("one\ntwo\n").as_deref(), Some("two"));
        assert_eq!(shown("one\ntwo\n\n  \n").as_deref(), Some("two"));
        assert_eq!(shown("one\ntwo\nPassword: ").as_deref(), Some("Password:"), "an unfinished line counts");
    }

    #[test]
    fn it_has_no_control_characters_and_shows_what_a_terminal_would() {
        let shown = |text: &str| last_line(text.as_bytes());
        assert_eq!(shown("\x1b[1;32mok\x1b[0m\ta\u{7}b\u{202e}c\u{9b}d\n").as_deref(), Some("ok abcd"));
        assert_eq!(shown("10%\r50%\r100%\r\n").as_deref(), Some("100%"));
        assert_eq!(shown("10%\r50%\r").as_deref(), Some("50%"));
        assert_eq!(last_line(b"\xa9\xa9 cut \xff end").as_deref(), Some("cut \u{fffd} end"));
    }

    #[test]
    fn a_long_line_is_cut_between_characters() {
        let cut = last_line("é".repeat(3000).as_bytes()).unwrap_or_default();
        assert_eq!(cut, format!("{}…", "é".repeat(MAX_CHARS)));
    }
}
