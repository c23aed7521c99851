//! The spans of a process: `run` from the request to the end of the tree, and below it `start`, `wait` and `stop`.
//!
//! The ids of `run` and `start` are derived from the process's mark, which is random and in its record: a daemon that takes the
//! process over sends the same ids, and the program gets the id of its `run` before that span ends.

use std::path::Path;

use pinfold_api::types::{Survivor, WaitReason};
use pinfold_model::facts::{History, Intent};
use pinfold_model::outcome::Outcome;
use pinfold_model::spec::{Program, Spec};
use pinfold_model::trace::TraceParent;
use pinfold_model::units::Moment;
use sha2::{Digest, Sha256};

use super::Telemetry;
use crate::clock::now;
use crate::request_error::RequestError;

/// Bytes of a text attribute.
const MAX_TEXT: usize = 1024;

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Text(String),
    Number(u64),
}

/// One span, ended.
#[derive(Clone, Debug)]
pub(super) struct Span {
    pub(super) name: String,
    pub(super) trace_id: [u8; 16],
    pub(super) span_id: [u8; 8],
    pub(super) parent: Option<[u8; 8]>,
    pub(super) from: Moment,
    pub(super) to: Moment,
    pub(super) attributes: Vec<(&'static str, Value)>,
    /// The kind of failure, if it failed.
    pub(super) error: Option<String>,
}

impl Span {
    pub(super) fn new(
        name: &str,
        (trace_id, span_id): ([u8; 16], [u8; 8]),
        parent: Option<[u8; 8]>,
        (from, to): (Moment, Moment),
    ) -> Self {
        let to = to.max(from);
        Self { name: name.to_owned(), trace_id, span_id, parent, from, to, attributes: vec![], error: None }
    }

    fn text(mut self, key: &'static str, text: impl Into<String>) -> Self {
        let text: String = text.into();
        self.attributes.push((key, Value::Text(cut(text))));
        self
    }

    fn number(mut self, key: &'static str, number: u64) -> Self {
        self.attributes.push((key, Value::Number(number)));
        self
    }

    fn failed(mut self, kind: Option<String>) -> Self {
        if let Some(kind) = kind {
            self.attributes.push(("error.type", Value::Text(kind.clone())));
            self.error = Some(kind);
        }
        self
    }
}

fn cut(mut text: String) -> String {
    if text.len() > MAX_TEXT {
        let end = (0..=MAX_TEXT).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
    }
    text
}

/// The ids of a process's spans.
struct Ids {
    trace: [u8; 16],
    run: [u8; 8],
    start: [u8; 8],
}

impl Ids {
    fn of(parent: Option<&TraceParent>, mark: &str) -> Self {
        let digest = Sha256::digest(mark.as_bytes());
        let (mut trace, mut run, mut start) = ([0; 16], [0; 8], [0; 8]);
        trace.copy_from_slice(&digest[..16]);
        run.copy_from_slice(&digest[16..24]);
        start.copy_from_slice(&digest[24..]);
        Self { trace: parent.map_or(trace, |parent| parent.trace_id), run, start }
    }
}

/// The trace context that a program is started with: its `run` span if spans are sent, else the span that the start named.
pub(crate) fn run_context(telemetry: Option<&Telemetry>, spec: &Spec, mark: &str) -> Option<TraceParent> {
    let parent = spec.traceparent.as_ref();
    match telemetry {
        Some(_) if is_sampled(parent) => {
            let ids = Ids::of(parent, mark);
            Some(TraceParent::new(ids.trace, ids.run))
        }
        _ => parent.copied(),
    }
}

/// A start whose caller records no spans gets none either.
fn is_sampled(parent: Option<&TraceParent>) -> bool {
    parent.is_none_or(TraceParent::is_sampled)
}

impl Telemetry {
    /// A process was started, or could not be.
    pub(crate) fn started(&self, history: &History) {
        let intent = &history.intent;
        let Some(ids) = ids(intent) else { return };
        let to = history.start.as_ref().map(|start| start.at).or(history.ended_at()).unwrap_or(intent.at);
        let span = Span::new("start", (ids.trace, ids.start), Some(ids.run), (intent.at, to));
        let failed = history.start.is_none().then(|| "failed_to_start".to_owned());
        self.push(identified(span, history).failed(failed));
    }

    /// A process ended.
    pub(crate) fn ended(&self, history: &History) {
        let intent = &history.intent;
        let Some(ids) = ids(intent) else { return };
        let spec = &intent.spec;
        let name = spec.tool.as_ref().map_or("run".to_owned(), |tool| format!("execute_tool {tool}"));
        let parent = spec.traceparent.as_ref().map(|parent| parent.span_id);
        let times = (intent.at, history.ended_at().unwrap_or(intent.at));
        let mut span = identified(Span::new(&name, (ids.trace, ids.run), parent, times), history);
        if let Some(tool) = &spec.tool {
            span = span.text("gen_ai.operation.name", "execute_tool").text("gen_ai.tool.name", tool);
            span = span.text("gen_ai.conversation.id", history.owner());
        }
        if self.settings.commands {
            span = span.text("process.command_line", spec.command_text());
        }
        if let Some(start) = &history.start {
            span = span.number("process.pid", u64::from(start.pid));
        }
        if let Some(cause) = history.cause() {
            span = span.text("pinfold.cause", cause.kind().name());
        }
        if let Some(finish) = &history.finish {
            span =
                span.number("pinfold.output_bytes", finish.output_bytes).number("pinfold.cpu_ms", finish.usage.cpu_ms);
            span = span.number("pinfold.max_rss_bytes", finish.usage.max_rss_bytes);
        }
        let (outcome, failed) = match history.outcome() {
            Some(Outcome::Exited { code }) => {
                span = span.number("process.exit.code", u64::from(code));
                ("exited", (code != 0).then(|| code.to_string()))
            }
            Some(Outcome::Signaled { signal, .. }) => ("signaled", Some(signal.name())),
            Some(Outcome::FailedToStart { .. }) => ("failed_to_start", Some("failed_to_start".to_owned())),
            Some(Outcome::Lost { .. }) | None => ("lost", Some("lost".to_owned())),
        };
        self.push(span.text("pinfold.outcome", outcome).failed(failed));
        if history.start.is_none() {
            self.started(history);
        }
    }

    /// A stop was answered.
    pub(crate) fn stopped(&self, history: &History, from: Moment, stopped: &Result<Vec<Survivor>, RequestError>) {
        let survivors = stopped.as_ref().map_or(0, Vec::len) as u64;
        let failed = match stopped {
            Ok(survivors) if survivors.is_empty() => None,
            Ok(_) => Some("survivors".to_owned()),
            Err(error) => name_of(error.0.code),
        };
        self.below_run("stop", history, from, |span| span.number("pinfold.survivors", survivors).failed(failed));
    }

    /// A wait was answered.
    pub(crate) fn waited(&self, history: &History, from: Moment, (until, reason): (&str, WaitReason)) {
        self.below_run("wait", history, from, |span| {
            span.text("pinfold.wait.until", until).text("pinfold.wait.reason", name_of(reason).unwrap_or_default())
        });
    }

    fn below_run(&self, name: &str, history: &History, from: Moment, finish: impl FnOnce(Span) -> Span) {
        let Some(ids) = ids(&history.intent) else { return };
        let to = now();
        let mut digest = Sha256::new();
        digest.update(history.intent.mark.as_bytes());
        digest.update(name.as_bytes());
        digest.update(self.next_number().to_le_bytes());
        digest.update(to.0.to_le_bytes());
        let mut id = [0; 8];
        id.copy_from_slice(&digest.finalize()[..8]);
        self.push(finish(identified(Span::new(name, (ids.trace, id), Some(ids.run), (from, to)), history)));
    }
}

/// The name of a unit variant on the wire.
fn name_of(variant: impl serde::Serialize) -> Option<String> {
    serde_json::to_value(variant).ok().and_then(|name| name.as_str().map(str::to_owned))
}

fn ids(intent: &Intent) -> Option<Ids> {
    let parent = intent.spec.traceparent.as_ref();
    is_sampled(parent).then(|| Ids::of(parent, &intent.mark))
}

/// Adds what names the process.
fn identified(span: Span, history: &History) -> Span {
    let spec = &history.intent.spec;
    let program = match &spec.program {
        Program::Shell { shell, .. } => shell,
        Program::Argv { argv } => argv.first().map_or("", String::as_str),
    };
    let executable = Path::new(program).file_name().map(|name| name.to_string_lossy().into_owned());
    let mut span = span.text("pinfold.process.id", history.intent.id.as_str()).text("pinfold.owner", history.owner());
    if let Some(name) = &spec.name {
        span = span.text("pinfold.process.name", name);
    }
    span.text("process.executable.name", executable.unwrap_or_default())
}
