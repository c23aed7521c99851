//! From what is known to what clients see: records, events, lists of living processes.

use std::path::Path;
use std::time::{Duration, Instant};

use pinfold_api::types::{
    Cause as ApiCause, Event, EventKind as ApiEventKind, Lifetime as ApiLifetime, LimitsShown, NotifyShown,
    Outcome as ApiOutcome, OutputSummary, PtySize, Record, Status as ApiStatus, Stdin as ApiStdin, TreeMember,
    Usage as ApiUsage,
};
use pinfold_model::event::EventKind;
use pinfold_model::facts::{History, Status};
use pinfold_model::notify::{Notify, host_of};
use pinfold_model::outcome::{Cause, Outcome, StartStep};
use pinfold_model::spec::{Lifetime, Program, Spec, Stdin};
use pinfold_model::units::Moment;
use pinfold_os::{ports, proc, tree};
use pinfold_store::layout::Home;
use pinfold_store::reader::OutputReader;
use pinfold_store::retention::process_bytes;

use crate::clock::rfc3339;
use crate::registry::entries::State;
use crate::registry::service_records;

/// A directory, its record and the remains of a block, whatever the output was.
const DIRECTORY_BYTES: u64 = 8192;

/// A process this young may still be between fork and exec. A look at a tree waits at most [`EXEC_WAIT`] for it: a subshell
/// never executes anything, and a list must not wait for each of them.
const YOUNG: Duration = Duration::from_millis(200);
const EXEC_WAIT: Duration = Duration::from_millis(20);
const LOOK_INTERVAL: Duration = Duration::from_millis(2);

/// Whether to look at the living tree, which takes reads of /proc.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    Away,
    Closely,
}

/// The record of a process as it stands.
pub(crate) fn record(state: &State, directory: &Path, look: Look) -> Record {
    let history = &state.history;
    let spec = &history.intent.spec;
    let members = if look == Look::Closely { living(history) } else { vec![] };
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
        lifetime: match spec.lifetime {
            Lifetime::Keep => ApiLifetime::Keep,
            Lifetime::Owner { .. } => ApiLifetime::Owner,
            Lifetime::Parent { .. } => ApiLifetime::Parent,
        },
        intent: spec.intent.clone(),
        labels: spec.labels.clone(),
        stdin: match spec.stdin {
            Stdin::Null => ApiStdin::Null,
            Stdin::Pipe => ApiStdin::Pipe,
        },
        pty: state.size.map(|size| PtySize { rows: size.rows, cols: size.cols }),
        waiting_for_input: waiting(state),
        status: api_status(history.status()),
        paused: !history.status().is_over() && (state.paused || stopped),
        pid: history.start.as_ref().map(|start| start.pid),
        created_at: rfc3339(history.intent.at),
        started_at: history.start.as_ref().map(|start| rfc3339(start.at)),
        exited_at: history.exit.as_ref().map(|exit| rfc3339(exit.at)),
        finished_at: history.ended_at().map(rfc3339),
        outcome: history.outcome().map(api_outcome),
        stopped_by: cause.as_ref().and_then(Cause::asked_by).map(str::to_owned),
        cause: cause.as_ref().map(api_cause),
        output: summary(state, directory, look),
        usage: usage(history, &members),
        tree: members,
        notify: notify_shown(&spec.notify),
        limits: limits_shown(spec),
        ready: service_records::ready_shown(state),
        ports: service_records::ports_shown(spec),
        life: service_records::life_shown(history),
        note: note(state),
    }
}

/// Whether it waits for input, as far as that can be told.
pub(crate) fn waiting(state: &State) -> Option<bool> {
    let history = &state.history;
    if history.status().is_over() || !history.intent.spec.takes_input() {
        return Some(false);
    }
    state.waiting.now
}

/// What its owner is told, where that is not just its end. An address may hold secrets: only its host is shown.
fn notify_shown(notify: &Notify) -> Option<NotifyShown> {
    (*notify != Notify::default()).then(|| NotifyShown {
        on_complete: notify.on_complete,
        patterns: notify.patterns.clone(),
        heartbeat_ms: notify.heartbeat.map(|every| every.as_millis() as u64),
        webhook: notify.webhook.as_deref().and_then(host_of),
        command: notify.command.clone(),
    })
}

/// What it may use, where that is limited.
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

/// Everything unusual, in one line.
fn note(state: &State) -> Option<String> {
    let notes: Vec<String> = state
        .note
        .clone()
        .into_iter()
        .chain(state.history.notes.iter().cloned())
        .chain(lost_output(&state.history))
        .collect();
    (!notes.is_empty()).then(|| notes.join("; "))
}

/// What a full disk cost, if it did.
fn lost_output(history: &History) -> Option<String> {
    let lost = history.finish.as_ref().map(|finish| finish.output_lost).filter(|lost| *lost > 0)?;
    Some(format!("{lost} bytes of its output are lost: the disk of the state directory refused them (is it full?)"))
}

/// The living processes of a tree: everything below its keeper, which is checked to be that keeper still.
pub(super) fn living(history: &History) -> Vec<TreeMember> {
    let keeper = &history.intent.keeper;
    if proc::start_time(keeper.pid).ok() != Some(keeper.start_time) {
        return vec![];
    }
    let members = settled(|| tree::descendants(keeper.pid));
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

/// The members of a tree, once those that were just forked have executed their program: until then a process shows the
/// command line of its parent. One that has not by then is taken as it is.
fn settled(look: impl Fn() -> Vec<tree::Member>) -> Vec<tree::Member> {
    let deadline = Instant::now() + EXEC_WAIT;
    loop {
        let members = look();
        let is_between = |member: &tree::Member| {
            member.stat.age() < YOUNG && (!member.stat.executed || !proc::has_arguments(member.pid))
        };
        if !members.iter().any(is_between) || Instant::now() >= deadline {
            return members;
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
}

fn usage(history: &History, members: &[TreeMember]) -> ApiUsage {
    if let Some(finish) = &history.finish {
        let usage = finish.usage;
        return ApiUsage { cpu_ms: usage.cpu_ms, max_rss_bytes: usage.max_rss_bytes, processes: usage.processes };
    }
    ApiUsage {
        cpu_ms: members.iter().map(|member| member.cpu_ms).sum(),
        max_rss_bytes: members.iter().map(|member| member.rss_bytes).max().unwrap_or(0),
        processes: members.len() as u32,
    }
}

/// The reader of a process's output, told of bytes that no file has.
pub(crate) fn reader(state: &State, directory: &Path) -> OutputReader {
    let told = state.history.finish.as_ref().map_or(0, |finish| finish.output_bytes);
    OutputReader::open(directory).with_known_end(Some(told.max(state.output_bytes)))
}

fn summary(state: &State, directory: &Path, look: Look) -> OutputSummary {
    let history = &state.history;
    let closed = history.closed_at.is_some() || history.status().is_over();
    if look == Look::Away && !history.status().is_over() {
        return OutputSummary { bytes: state.output_bytes, retained_from: 0, dropped: 0, closed };
    }
    if let Some(finish) = &history.finish
        && finish.output_lost == 0
        && finish.output_bytes <= history.intent.spec.output_limit / 2
    {
        // So little that nothing can have been dropped: no need to look.
        return OutputSummary { bytes: finish.output_bytes, retained_from: 0, dropped: 0, closed };
    }
    match reader(state, directory).extent() {
        Ok(extent) => OutputSummary {
            bytes: extent.end,
            // After the gap; 0 also if nothing after it is kept.
            retained_from: extent.retained.iter().map(|range| range.start).find(|start| *start > 0).unwrap_or(0),
            dropped: extent.dropped,
            closed,
        },
        Err(_) => OutputSummary { bytes: state.output_bytes, retained_from: 0, dropped: 0, closed },
    }
}

/// About what an ended process takes on disk. Looks at the disk only if its record does not tell: the process was lost.
pub(crate) fn disk_bytes(history: &History, home: &Home) -> u64 {
    let told = history.finish.as_ref().map(|finish| finish.output_bytes.min(history.intent.spec.output_limit));
    told.unwrap_or_else(|| process_bytes(&home.process(&history.intent.id))) + DIRECTORY_BYTES
}

/// An event as its readers see it; its number comes from the log. It tells what was known when it happened,
/// whenever it is written down.
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
    // Of a life that follows another its owner is told, and not of the end before it.
    let again = kind == EventKind::Started && history.intent.spec.service.life.is_some();
    let asked_for = !matches!(
        kind,
        EventKind::Started | EventKind::Exited | EventKind::Closed | EventKind::Finished | EventKind::Lost
    );
    Event {
        seq: 0,
        kind: api_kind(kind),
        process: history.intent.id.to_string(),
        owner: history.owner().to_owned(),
        at: rfc3339(at),
        command: cut(&history.intent.spec.command_text()),
        started_at: history.start.as_ref().map(|start| rfc3339(start.at)),
        outcome: history.outcome().filter(|_| ended).map(api_outcome),
        cause: history.cause().filter(|_| ended).as_ref().map(api_cause),
        completion,
        announce: asked_for
            || (completion && !service_records::is_followed(history) || again)
                && history.intent.spec.notify.on_complete,
        cursor: None,
        text: None,
        suppressed: None,
    }
}

/// A command for an event: its beginning says which it was.
fn cut(command: &str) -> String {
    const MOST: usize = 500;
    match command.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &command[..end]),
        None => command.to_owned(),
    }
}

pub(crate) fn api_status(status: Status) -> ApiStatus {
    match status {
        Status::Starting => ApiStatus::Starting,
        Status::Running => ApiStatus::Running,
        Status::Lingering => ApiStatus::Lingering,
        Status::Finished => ApiStatus::Finished,
        Status::Lost => ApiStatus::Lost,
    }
}

pub(crate) fn api_outcome(outcome: Outcome) -> ApiOutcome {
    match outcome {
        Outcome::Exited { code } => ApiOutcome::Exited { code },
        Outcome::Signaled { signal, core_dumped } => {
            ApiOutcome::Signaled { signal: signal.number(), name: signal.name(), core_dumped }
        }
        Outcome::FailedToStart { step, error } => {
            let step = match step {
                StartStep::Spawn => "spawn",
                StartStep::Pty => "pty",
                StartStep::Cwd => "cwd",
                StartStep::Exec => "exec",
            };
            ApiOutcome::FailedToStart { step: step.to_owned(), error }
        }
        Outcome::Lost { evidence } => ApiOutcome::Lost { evidence },
    }
}

pub(crate) fn api_cause(cause: &Cause) -> ApiCause {
    match cause {
        Cause::OnItsOwn => ApiCause::OnItsOwn,
        Cause::StopRequested { .. } => ApiCause::StopRequested,
        Cause::TimeLimit => ApiCause::TimeLimit,
        Cause::IdleLimit => ApiCause::IdleLimit,
        Cause::OutOfMemory => ApiCause::OutOfMemory,
        Cause::PidsLimit => ApiCause::PidsLimit,
        Cause::CpuTimeLimit => ApiCause::CpuTimeLimit,
        Cause::OwnerEnded => ApiCause::OwnerEnded,
    }
}

/// The kind on the wire.
fn api_kind(kind: EventKind) -> ApiEventKind {
    match kind {
        EventKind::Started => ApiEventKind::Started,
        EventKind::Exited => ApiEventKind::Exited,
        EventKind::Closed => ApiEventKind::Closed,
        EventKind::Finished => ApiEventKind::Finished,
        EventKind::Lost => ApiEventKind::Lost,
        EventKind::Matched => ApiEventKind::Matched,
        EventKind::WatchEnded => ApiEventKind::WatchEnded,
        EventKind::WaitingForInput => ApiEventKind::WaitingForInput,
        EventKind::Heartbeat => ApiEventKind::Heartbeat,
        EventKind::HandedOver => ApiEventKind::HandedOver,
        EventKind::Ready => ApiEventKind::Ready,
        EventKind::NotReady => ApiEventKind::NotReady,
        EventKind::GaveUp => ApiEventKind::GaveUp,
    }
}
