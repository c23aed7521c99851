//! What a result says of a process: one struct, from which both the structured content and the text are made.

use std::collections::BTreeMap;

use pinfold_api::plain::is_steering;
use pinfold_api::types::{
    Cause, LifeShown, Outcome, OutputPage, Range, ReadyState, Record, Screen, Status, Survivor, WaitReason,
};
use serde::Serialize;

/// The most of a command that a result repeats.
const MAX_COMMAND: usize = 300;
/// The most strays that a result lists; the rest are counted.
const MAX_STRAYS: usize = 20;

/// The most of a screen that a result shows: more than any usual one holds.
const MAX_SCREEN: usize = 16 << 10;

/// What a result says of one process. Fields that do not apply are absent: a running process has no exit code.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Facts {
    pub(crate) id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    /// What it is for, as its starter said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) label: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) command: Option<String>,
    /// Absent when an exit code, a signal or a failure says that it is over.
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
    /// Why it ended, where that was not of its own accord.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cause: Option<Cause>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stopped_by: Option<String>,
    /// Why it could not start, or what is known of one that was lost.
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
    /// How it stands with its readiness.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ready: Option<Readiness>,
    /// The ports it is lent.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) leased: BTreeMap<String, u16>,
    /// Where the next read continues. Absent when there is nothing left to read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cursor: Option<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) ports: Vec<u16>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) strays: Vec<Stray>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) more_strays: Option<usize>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) survivors: Vec<Left>,
    /// How many processes a signal reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reached: Option<u32>,
    /// Bytes of an input that are held for it or written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) accepted: Option<u64>,
    /// Whether it sleeps until input is sent.
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) waiting_for_input: bool,
    /// What its terminal shows, and where the cursor stands: row, column.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) screen: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) screen_cursor: Option<[u16; 2]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) title: Option<String>,
    #[serde(flatten)]
    pub(crate) sight: Option<OutputView>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) notes: Vec<String>,
}

/// Whether it is ready. What was seen may be a line of the process's own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Readiness {
    pub(crate) state: ReadyState,
    pub(crate) by: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) line: Option<String>,
}

/// A stretch of output, with its accounts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct OutputView {
    /// Absent where lines were searched for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) output: Option<String>,
    /// Where it begins. Absent when that is where the caller asked to begin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) output_from: Option<u64>,
    /// Bytes inside it that were left out. Absent when `omitted` says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) omitted_bytes: Option<u64>,
    /// Where they are: a read from there on shows them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) omitted: Option<Range>,
    /// Bytes that are no longer kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) gap: Option<Range>,
    /// Lines of the whole output that look like errors, where much was left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) error_lines: Vec<Line>,
    /// Lines that a search found, and lines around them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lines: Option<Vec<Line>>,
}

/// A line of output and where it begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Line {
    pub(crate) cursor: u64,
    /// Empty where the output beside it shows it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) line: String,
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) context: bool,
}

/// A process that outlives its command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Stray {
    pub(crate) pid: u32,
    pub(crate) command: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) ports: Vec<u16>,
}

/// A process that a signal could not end or reach.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Left {
    pub(crate) pid: u32,
    pub(crate) command: String,
    pub(crate) why: String,
}

impl Facts {
    /// What the record says.
    pub(crate) fn of(record: &Record) -> Self {
        let mut facts = Facts {
            id: record.id.clone(),
            name: record.name.as_deref().map(printable),
            label: record.intent.as_deref().map(printable),
            command: Some(clip(&printable(&record.command), MAX_COMMAND)),
            state: Some(state(record.status)),
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
        facts.notes.extend(record.life.as_ref().and_then(render_life));
        facts.notes.extend(record.note.clone());
        facts
    }

    /// With what a terminal shows.
    pub(crate) fn showing(mut self, screen: &Screen) -> Self {
        self.screen = Some(clip_bytes(printable(&screen.lines.join("\n")), MAX_SCREEN));
        self.screen_cursor = Some([screen.cursor.row, screen.cursor.col]);
        self.title = Some(screen.title.clone()).filter(|title| !title.is_empty());
        self.waiting_for_input = screen.waiting_for_input == Some(true);
        self
    }

    /// With a stretch of output, and the cursor behind it.
    pub(crate) fn seen(mut self, (sight, next): (OutputView, u64)) -> Self {
        self.sight = Some(sight);
        self.cursor = Some(next);
        self
    }
}

/// What a reader wants to know of its lives.
fn render_life(life: &LifeShown) -> Option<String> {
    if let Some(next) = &life.next {
        return Some(format!("it was restarted and lives on as {next}"));
    }
    if let Some(at) = &life.restarting_at {
        return Some(format!("it is restarted at {at}; process_signal stops that"));
    }
    if life.awaits_turn {
        return Some("its next life begins when it is asked for".to_owned());
    }
    let before = life.previous.as_ref().map(|previous| format!("life {} of it, after {previous}", life.number));
    life.gave_up.clone().or(before)
}

/// Whether the record tells an end: its command is over, whatever it left behind.
pub(crate) fn is_over(record: &Record) -> bool {
    record.outcome.is_some() || matches!(record.status, Status::Finished | Status::Lost)
}

/// Whether it ended in a way that wants an explanation.
pub(crate) fn has_failed(record: &Record) -> bool {
    is_over(record) && !matches!(record.outcome, Some(Outcome::Exited { code: 0 }))
}

pub(crate) fn survivors(survivors: &[Survivor]) -> Vec<Left> {
    let left =
        |one: &Survivor| Left { pid: one.pid, command: clip(&printable(&one.command), 200), why: one.reason.clone() };
    survivors.iter().take(MAX_STRAYS).map(left).collect()
}

/// A text of at most so many bytes.
fn clip_bytes(mut text: String, most: usize) -> String {
    if text.len() > most {
        let end = (0..=most).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
    }
    text
}

/// A text of at most so many characters.
pub(crate) fn clip(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some((at, _)) => format!("{}… ({} bytes in all)", &text[..at], text.len()),
    }
}

pub(crate) fn state(status: Status) -> &'static str {
    match status {
        Status::Starting => "starting",
        Status::Running => "running",
        Status::Lingering => "lingering",
        Status::Finished => "finished",
        Status::Lost => "lost",
    }
}

/// How long it ran, or has run.
fn elapsed_ms(record: &Record) -> u64 {
    let moment = |text: &String| text.parse::<jiff::Timestamp>().ok();
    let begun = record.started_at.as_ref().and_then(moment).or_else(|| moment(&record.created_at));
    let ended = record.exited_at.as_ref().or(record.finished_at.as_ref()).and_then(moment);
    let ended = ended.unwrap_or_else(jiff::Timestamp::now);
    begun.map_or(0, |begun| u64::try_from(ended.as_millisecond() - begun.as_millisecond()).unwrap_or(0))
}

/// The output of a page, as a model reads it, and where the next read continues. `asked` is the cursor that the caller gave.
pub(crate) fn sight(page: &OutputPage, asked: Option<u64>) -> (OutputView, u64) {
    let line = |found: &pinfold_api::types::Match| Line {
        cursor: found.cursor,
        line: printable(&found.text),
        context: found.context,
    };
    let lines: Option<Vec<Line>> = page.matches.as_ref().map(|matches| matches.iter().map(line).collect());
    let sight = OutputView {
        output: lines.is_none().then(|| printable(&page.text)),
        // Lines that were searched for carry their own cursors.
        output_from: Some(page.cursor).filter(|from| lines.is_none() && asked != Some(*from)),
        omitted_bytes: Some(page.omitted_bytes)
            .filter(|bytes| *bytes > 0 && page.omitted.is_none_or(|range| range.to - range.from != *bytes)),
        omitted: page.omitted,
        gap: page.gap,
        error_lines: Vec::new(),
        lines,
    };
    (sight, page.next_cursor)
}

/// Control characters, and those that turn the order of text, as a dot: they mean nothing to a reader, and escaped they would
/// burst a result's bound.
pub(crate) fn printable(text: &str) -> String {
    text.replace(|c: char| is_steering(c) && !matches!(c, '\n' | '\t'), ".")
}

fn is_false(flag: &bool) -> bool {
    !flag
}
