//! What a result contains about a process: one struct, from which both the structured content and the text are made.

use std::collections::BTreeMap;

use pinfold_api::plain::is_steering;
use pinfold_api::types::{
    Cause, LifeShown, Outcome, OutputPage, Range, ReadyState, Record, Screen, Status, WaitReason,
};
use serde::Serialize;

/// Maximum length of a command in a result.
const MAX_COMMAND: usize = 300;
/// Maximum number of strays in a result; further ones are only counted.
const MAX_STRAYS: usize = 20;

/// Maximum size of a terminal screen in a result; a usual screen is smaller.
const MAX_SCREEN_BYTES: usize = 16 << 10;

/// What a result contains about one process. Fields that do not apply are absent: a running process has no exit code.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Facts {
    pub(crate) id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    /// The purpose given when the process was started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) label: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) command: Option<String>,
    /// Absent if an exit code, signal or failure implies it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) state: Option<&'static str>,
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) paused: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) exit_code: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) signal: Option<String>,
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) core_dumped: bool,
    /// Why the process ended, if not on its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cause: Option<Cause>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stopped_by: Option<String>,
    /// Why it could not start, or the evidence that it was lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) failure: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) elapsed_ms: Option<u64>,
    /// Why the wait of this call ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<WaitReason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) matched: Option<Line>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) port: Option<u16>,
    /// The state of its readiness check.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ready: Option<Readiness>,
    /// Its sandbox, in a few words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sandbox: Option<String>,
    /// The ports that pinfold leased to it, by variable.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) leased: BTreeMap<String, u16>,
    /// The cursor for the next read. Absent if everything was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cursor: Option<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) ports: Vec<u16>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) strays: Vec<Stray>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) more_strays: Option<usize>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) survivors: Vec<Survivor>,
    /// The number of processes that received a signal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reached: Option<u32>,
    /// Bytes of input that were queued or written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) accepted: Option<u64>,
    /// Whether it is blocked reading input.
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) waiting_for_input: bool,
    /// The terminal screen, and the position of its cursor (row, column).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) screen: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) screen_cursor: Option<[u16; 2]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) title: Option<String>,
    #[serde(flatten)]
    pub(crate) output_view: Option<OutputView>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) notes: Vec<String>,
}

/// Readiness, the check that decides it, and the line of output that the check matched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Readiness {
    pub(crate) state: ReadyState,
    pub(crate) by: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) line: Option<String>,
}

/// A range of output, with what was left out of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct OutputView {
    /// Absent if the call searched for lines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) output: Option<String>,
    /// The cursor at which it starts. Absent if the caller gave that cursor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) output_from: Option<u64>,
    /// Number of bytes left out. Absent if `omitted` implies it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) omitted_bytes: Option<u64>,
    /// The range left out; the caller can read it with a cursor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) omitted: Option<Range>,
    /// The range that is no longer stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) gap: Option<Range>,
    /// Lines of the whole output that look like errors, if much was left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) error_lines: Vec<Line>,
    /// The lines that a search found, and context lines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lines: Option<Vec<Line>>,
}

/// A line of output and its cursor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Line {
    pub(crate) cursor: u64,
    /// Empty if the output in the same result contains it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) line: String,
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) context: bool,
}

/// A process that outlived the command that started it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Stray {
    pub(crate) pid: u32,
    pub(crate) command: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) ports: Vec<u16>,
}

/// A process that a stop could not end or a signal could not reach.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Survivor {
    pub(crate) pid: u32,
    pub(crate) command: String,
    pub(crate) why: String,
}

impl Facts {
    /// The facts of a record, without output.
    pub(crate) fn from_record(record: &Record) -> Self {
        let mut facts = Facts {
            id: record.id.clone(),
            name: record.name.as_deref().map(printable),
            label: record.intent.as_deref().map(printable),
            command: Some(clip(&printable(&record.command), MAX_COMMAND)),
            state: Some(record.status.name()),
            paused: record.paused,
            cause: record.cause.filter(|cause| *cause != Cause::OnItsOwn),
            stopped_by: record.stopped_by.as_deref().map(printable),
            elapsed_ms: Some(elapsed_ms(record)),
            waiting_for_input: record.waiting_for_input == Some(true),
            ..Facts::default()
        };
        match &record.outcome {
            Some(Outcome::Exited { code }) => facts.exit_code = Some(*code),
            Some(Outcome::Signaled { name, core_dumped, .. }) => {
                facts.signal = Some(name.clone());
                facts.core_dumped = *core_dumped;
            }
            Some(Outcome::FailedToStart { step, error }) => {
                facts.failure = Some(printable(&format!("{step}: {error}")))
            }
            Some(Outcome::Lost { evidence }) => facts.failure = Some(evidence.clone()),
            None => {}
        }
        let members = record.tree.iter();
        if record.status == Status::Lingering {
            let stray = |member: &pinfold_api::types::TreeMember| Stray {
                pid: member.pid,
                command: clip(&printable(&member.command), MAX_COMMAND),
                ports: member.ports.clone(),
            };
            facts.strays = members.take(MAX_STRAYS).map(stray).collect();
            facts.more_strays = Some(record.tree.len().saturating_sub(MAX_STRAYS)).filter(|more| *more > 0);
        } else {
            facts.ports = members.flat_map(|member| member.ports.iter().copied()).collect();
            facts.ports.sort_unstable();
            facts.ports.dedup();
        }
        facts.ready = record.ready.as_ref().map(|ready| Readiness {
            state: ready.state,
            by: clip(&printable(&ready.by), MAX_COMMAND),
            line: ready.text.as_ref().map(|text| clip(&printable(text), MAX_COMMAND)),
        });
        facts.port = record.ready.as_ref().and_then(|ready| ready.port);
        facts.leased = record.ports.clone();
        if let Some(sandbox) = &record.sandbox {
            facts.sandbox = Some(sandbox.label.clone());
            facts.notes.extend(sandbox.hint.clone());
        }
        facts.notes.extend(record.life.as_ref().and_then(restart_note));
        facts.notes.extend(record.note.clone());
        facts
    }

    /// Adds the terminal screen.
    pub(crate) fn with_screen(mut self, screen: &Screen) -> Self {
        self.screen = Some(clip_bytes(printable(&screen.lines.join("\n")), MAX_SCREEN_BYTES));
        self.screen_cursor = Some([screen.cursor.row, screen.cursor.col]);
        self.title = Some(screen.title.clone()).filter(|title| !title.is_empty());
        self.waiting_for_input = screen.waiting_for_input == Some(true);
        self
    }

    /// Removes an empty output.
    pub(crate) fn drop_empty_output(&mut self) {
        if let Some(view) = &mut self.output_view {
            view.output = view.output.take().filter(|output| !output.is_empty());
        }
    }

    /// Adds a range of output, and the cursor for the next read.
    pub(crate) fn with_output(mut self, (view, next): (OutputView, u64)) -> Self {
        self.output_view = Some(view);
        self.cursor = Some(next);
        self
    }
}

/// One line about restarts, if there is something to say.
fn restart_note(life: &LifeShown) -> Option<String> {
    if let Some(next) = &life.next {
        return Some(format!("it was restarted; the new process is {next}"));
    }
    if let Some(at) = &life.restarting_at {
        return Some(format!("it will be restarted at {at}; process_signal cancels the restart"));
    }
    if life.awaits_turn {
        return Some("it ended and is not restarted automatically: `pinfold restart` starts it again".to_owned());
    }
    let before = life
        .previous
        .as_ref()
        .map(|previous| format!("run {} of this service; the previous one was {previous}", life.number));
    life.gave_up.clone().or(before)
}

/// Whether the record has an outcome: the command has exited, even if strays are still running.
pub(crate) fn has_ended(record: &Record) -> bool {
    record.outcome.is_some() || matches!(record.status, Status::Finished | Status::Lost)
}

/// Whether it ended with anything but exit code 0.
pub(crate) fn has_failed(record: &Record) -> bool {
    has_ended(record) && !matches!(record.outcome, Some(Outcome::Exited { code: 0 }))
}

pub(crate) fn survivors(survivors: &[pinfold_api::types::Survivor]) -> Vec<Survivor> {
    let survivor = |one: &pinfold_api::types::Survivor| Survivor {
        pid: one.pid,
        command: clip(&printable(&one.command), 200),
        why: one.reason.clone(),
    };
    survivors.iter().take(MAX_STRAYS).map(survivor).collect()
}

/// Cuts a text to `max` bytes, at a character boundary.
fn clip_bytes(mut text: String, max: usize) -> String {
    if text.len() > max {
        let end = (0..=max).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
    }
    text
}

/// Cuts a text to `max` characters, and appends its full length in bytes if anything was cut.
pub(crate) fn clip(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        None => text.to_owned(),
        Some((at, _)) => format!("{}… ({} bytes in all)", &text[..at], text.len()),
    }
}

/// How long it ran, or has been running.
fn elapsed_ms(record: &Record) -> u64 {
    let parse = |text: &String| text.parse::<jiff::Timestamp>().ok();
    let started = record.started_at.as_ref().and_then(parse).or_else(|| parse(&record.created_at));
    let ended = record.exited_at.as_ref().or(record.finished_at.as_ref()).and_then(parse);
    let ended = ended.unwrap_or_else(jiff::Timestamp::now);
    started.map_or(0, |started| u64::try_from(ended.as_millisecond() - started.as_millisecond()).unwrap_or(0))
}

/// Returns the output of a page for a model, and the cursor for the next read. `asked` is the cursor that the caller
/// gave.
pub(crate) fn output_view(page: &OutputPage, asked: Option<u64>) -> (OutputView, u64) {
    let line = |found: &pinfold_api::types::Match| Line {
        cursor: found.cursor,
        line: printable(&found.text),
        context: found.context,
    };
    let lines: Option<Vec<Line>> = page.matches.as_ref().map(|matches| matches.iter().map(line).collect());
    let view = OutputView {
        output: lines.is_none().then(|| printable(&page.text)),
        // Found lines have cursors of their own.
        output_from: Some(page.cursor).filter(|from| lines.is_none() && asked != Some(*from)),
        omitted_bytes: Some(page.omitted_bytes)
            .filter(|bytes| *bytes > 0 && page.omitted.is_none_or(|range| range.to - range.from != *bytes)),
        omitted: page.omitted,
        gap: page.gap,
        error_lines: Vec::new(),
        lines,
    };
    (view, page.next_cursor)
}

/// Replaces control characters and those that change text direction with a dot. They mean nothing to a model, and
/// escaping them could exceed the size limit of a result.
pub(crate) fn printable(text: &str) -> String {
    text.replace(|c: char| is_steering(c) && !matches!(c, '\n' | '\t'), ".")
}

fn is_false(flag: &bool) -> bool {
    !flag
}
