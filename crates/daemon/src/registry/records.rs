//! Renders state for clients: records, events, live trees.

use std::path::Path;
use std::time::{Duration, Instant};

use pinfold_api::types::{Event, LimitsShown, NotifyShown, OutputSummary, Record, SandboxShown, TreeMember};
use pinfold_model::event::EventKind;
use pinfold_model::facts::{History, Usage};
use pinfold_model::notify::{Notify, webhook_host};
use pinfold_model::outcome::{Cause, Outcome};
use pinfold_model::spec::{Program, Spec};
use pinfold_model::units::Moment;
use pinfold_os::{ports, proc, tree};
use pinfold_store::layout::Home;
use pinfold_store::reader::OutputReader;
use pinfold_store::retention::process_bytes;

use crate::clock::rfc3339;
use crate::registry::entries::State;
use crate::registry::service_records;

/// Estimated size of a directory and its record, besides the output.
const DIRECTORY_BYTES: u64 = 8192;

/// A process younger than this may be between fork and exec. Reading a tree waits at most [`EXEC_WAIT`] for it: a
/// subshell never execs, and a list must not wait for each of them.
const JUST_FORKED: Duration = Duration::from_millis(200);
const EXEC_WAIT: Duration = Duration::from_millis(20);
const RETRY_INTERVAL: Duration = Duration::from_millis(2);

/// Whether a record includes the live tree, which takes reads of /proc.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TreeDetail {
    Skip,
    Read,
}

/// The record of a process.
pub(crate) fn record(state: &State, directory: &Path, detail: TreeDetail) -> Record {
    let history = &state.history;
    let spec = &history.intent.spec;
    let members = if detail == TreeDetail::Read { tree_members(history) } else { vec![] };
    let stopped = !members.is_empty() && members.iter().all(|member| member.state == "T");
    let cause = history.cause();
    Record {
        id: history.intent.id.to_string(),
        name: spec.name.clone(),
        command: spec.command_text(),
        shell: match &spec.program {
            Program::Shell { shell, .. } => Some(shell.clone()),
            Program::Argv { .. } => None,
        },
        cwd: spec.cwd.to_string_lossy().into_owned(),
        owner: history.owner().to_owned(),
        parent: history.ancestors().first().cloned(),
        lifetime: spec.lifetime.into(),
        intent: spec.intent.clone(),
        labels: spec.labels.clone(),
        stdin: spec.stdin,
        pty: state.size,
        waiting_for_input: waiting(state),
        status: history.status(),
        paused: !history.status().is_over() && (state.paused || stopped),
        pid: history.start.as_ref().map(|start| start.pid),
        created_at: rfc3339(history.intent.at),
        started_at: history.start.as_ref().map(|start| rfc3339(start.at)),
        exited_at: history.exit.as_ref().map(|exit| rfc3339(exit.at)),
        finished_at: history.ended_at().map(rfc3339),
        outcome: history.outcome().map(Into::into),
        stopped_by: cause.as_ref().and_then(Cause::stopped_by).map(str::to_owned),
        cause: cause.as_ref().map(Cause::kind),
        output: summary(state, directory, detail),
        usage: usage(history, &members),
        sample: None,
        tree: members,
        notify: notify_shown(&spec.notify),
        limits: limits_shown(spec),
        sandbox: sandbox_shown(history),
        ready: service_records::ready_shown(state),
        ports: service_records::ports_shown(spec),
        life: service_records::life_shown(history),
        traceparent: spec.traceparent.as_ref().map(ToString::to_string),
        tool: spec.tool.clone(),
        request: None,
        note: note(state),
    }
}

/// Whether it waits for input, if known.
pub(crate) fn waiting(state: &State) -> Option<bool> {
    let history = &state.history;
    if history.status().is_over() || !history.intent.spec.takes_input() {
        return Some(false);
    }
    state.waiting.now
}

/// The notifications of a process, if they are not the default. An address may hold secrets: only its host is shown.
fn notify_shown(notify: &Notify) -> Option<NotifyShown> {
    (*notify != Notify::default()).then(|| NotifyShown {
        on_complete: notify.on_complete,
        patterns: notify.patterns.clone(),
        heartbeat_ms: notify.heartbeat.map(|every| every.as_millis() as u64),
        webhook: notify.webhook.as_deref().and_then(webhook_host),
        command: notify.command.clone(),
    })
}

/// The limits of a process, if it has any.
fn limits_shown(spec: &Spec) -> Option<LimitsShown> {
    let millis = |limit: Option<Duration>| limit.map(|limit| limit.as_millis() as u64);
    let shown = LimitsShown {
        time_ms: millis(spec.time_limit),
        idle_ms: millis(spec.idle_limit),
        memory_bytes: spec.limits.memory,
        pids: spec.limits.pids,
        millicpus: spec.limits.millicpus,
        cpu_time_ms: millis(spec.limits.cpu_time),
    };
    (shown != LimitsShown::default()).then_some(shown)
}

/// The sandbox of a process, with a hint if it failed by itself.
fn sandbox_shown(history: &History) -> Option<SandboxShown> {
    let enforcement = history.intent.spec.sandbox.as_ref()?;
    let failed = match history.outcome() {
        Some(Outcome::Exited { code }) => code != 0,
        Some(Outcome::Signaled { .. }) => history.cause() == Some(Cause::OnItsOwn),
        _ => false,
    };
    Some(SandboxShown::new(enforcement, history.refusals.as_ref(), failed))
}

/// A note about a sandbox that is weaker than requested.
fn weak_sandbox(history: &History) -> Option<String> {
    let enforcement = history.intent.spec.sandbox.as_ref().filter(|enforcement| !enforcement.missing.is_empty())?;
    Some(format!("sandbox {}", enforcement.label()))
}

/// All notes, in one line.
fn note(state: &State) -> Option<String> {
    let notes: Vec<String> = state
        .note
        .clone()
        .into_iter()
        .chain(state.history.notes.iter().cloned())
        .chain(lost_output(&state.history))
        .chain(weak_sandbox(&state.history))
        .collect();
    (!notes.is_empty()).then(|| notes.join("; "))
}

/// A note about output lost to a full disk.
fn lost_output(history: &History) -> Option<String> {
    let lost = history.finish.as_ref().map(|finish| finish.output_lost).filter(|lost| *lost > 0)?;
    Some(format!(
        "{lost} bytes of output were lost: they could not be written to the state directory (is the disk full?)"
    ))
}

/// The live processes of a tree: everything below its keeper, if the keeper's pid was not reused.
fn tree_members(history: &History) -> Vec<TreeMember> {
    let keeper = &history.intent.keeper;
    if proc::start_time(keeper.pid).ok() != Some(keeper.start_time) {
        return vec![];
    }
    let members = after_exec(|| tree::descendants(keeper.pid));
    let pids: Vec<u32> = members.iter().map(|member| member.pid).collect();
    let mut listening = ports::listening_ports(&pids);
    let show = |member: tree::Member| TreeMember {
        pid: member.pid,
        ppid: member.stat.ppid,
        command: proc::command_line(member.pid).unwrap_or_else(|_| format!("[{}]", member.stat.comm)),
        state: member.stat.state.to_string(),
        cpu_ms: member.stat.cpu_ms(),
        rss_bytes: member.stat.rss_bytes(),
        ports: listening.remove(&member.pid).unwrap_or_default(),
    };
    members.into_iter().map(show).collect()
}

/// The members of a tree, once those just forked have called exec: until then a process shows its parent's command
/// line. After [`EXEC_WAIT`] they are returned as they are.
fn after_exec(read: impl Fn() -> Vec<tree::Member>) -> Vec<tree::Member> {
    let deadline = Instant::now() + EXEC_WAIT;
    loop {
        let members = read();
        let is_before_exec = |member: &tree::Member| {
            member.stat.age() < JUST_FORKED && (!member.stat.executed || !proc::has_arguments(member.pid))
        };
        if !members.iter().any(is_before_exec) || Instant::now() >= deadline {
            return members;
        }
        std::thread::sleep(RETRY_INTERVAL);
    }
}

fn usage(history: &History, members: &[TreeMember]) -> Usage {
    if let Some(finish) = &history.finish {
        return finish.usage;
    }
    Usage {
        cpu_ms: members.iter().map(|member| member.cpu_ms).sum(),
        max_rss_bytes: members.iter().map(|member| member.rss_bytes).max().unwrap_or(0),
        processes: members.len() as u32,
    }
}

/// The reader of a process's output. It knows the end even where no file has the last bytes.
pub(crate) fn reader(state: &State, directory: &Path) -> OutputReader {
    let recorded = state.history.finish.as_ref().map_or(0, |finish| finish.output_bytes);
    OutputReader::open(directory).with_known_end(Some(recorded.max(state.output_bytes)))
}

fn summary(state: &State, directory: &Path, detail: TreeDetail) -> OutputSummary {
    let history = &state.history;
    let closed = history.closed_at.is_some() || history.status().is_over();
    if detail == TreeDetail::Skip && !history.status().is_over() {
        return OutputSummary { bytes: state.output_bytes, closed, ..OutputSummary::default() };
    }
    if let Some(finish) = &history.finish
        && finish.output_lost == 0
        && finish.output_bytes <= history.intent.spec.output_limit / 2
    {
        // Too little output for any to have been dropped: no need to read the disk.
        return OutputSummary { bytes: finish.output_bytes, closed, ..OutputSummary::default() };
    }
    match reader(state, directory).extent() {
        Ok(extent) => OutputSummary {
            bytes: extent.end,
            // The start of the range after the gap; 0 if nothing after it is kept.
            retained_from: extent.retained.iter().map(|range| range.start).find(|start| *start > 0).unwrap_or(0),
            dropped: extent.dropped,
            closed,
            ..OutputSummary::default()
        },
        Err(_) => OutputSummary { bytes: state.output_bytes, closed, ..OutputSummary::default() },
    }
}

/// The approximate size of an ended process on disk, from its record. A lost process has no size in its record, so its
/// directory is measured.
pub(crate) fn disk_bytes(history: &History, home: &Home) -> u64 {
    let recorded = history.finish.as_ref().map(|finish| finish.output_bytes.min(history.intent.spec.output_limit));
    recorded.unwrap_or_else(|| process_bytes(&home.process(&history.intent.id))) + DIRECTORY_BYTES
}

/// An event as clients see it, without its number, which the log assigns. It shows what was known when it happened.
pub(crate) fn event(history: &History, kind: EventKind, at: Moment) -> Event {
    let ended = match kind {
        EventKind::Started | EventKind::Matched | EventKind::WaitingForInput | EventKind::Heartbeat => false,
        EventKind::Ready | EventKind::NotReady => false,
        EventKind::Closed | EventKind::WatchEnded | EventKind::HandedOver => {
            history.exit.as_ref().is_some_and(|exit| exit.at <= at)
        }
        EventKind::Exited | EventKind::Finished | EventKind::Lost | EventKind::GaveUp => true,
    };
    let completion = history.is_completion(kind);
    // The owner is notified of the restart instead of the end before it.
    let again = kind == EventKind::Started && history.intent.spec.service.life.is_some();
    let asked_for = !matches!(
        kind,
        EventKind::Started | EventKind::Exited | EventKind::Closed | EventKind::Finished | EventKind::Lost
    );
    Event {
        seq: 0,
        kind,
        process: history.intent.id.to_string(),
        owner: history.owner().to_owned(),
        at: rfc3339(at),
        command: excerpt(&history.intent.spec.command_text()),
        started_at: history.start.as_ref().map(|start| rfc3339(start.at)),
        outcome: history.outcome().filter(|_| ended).map(Into::into),
        cause: history.cause().filter(|_| ended).as_ref().map(Cause::kind),
        completion,
        announce: asked_for
            || (completion && !service_records::is_followed(history) || again)
                && history.intent.spec.notify.on_complete,
        cursor: None,
        text: None,
        suppressed: None,
    }
}

/// The beginning of a command, for an event.
fn excerpt(command: &str) -> String {
    const MAX_CHARS: usize = 500;
    match command.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}…", &command[..end]),
        None => command.to_owned(),
    }
}
