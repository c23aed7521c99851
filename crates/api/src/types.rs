//! The wire types: the same objects in HTTP, in `--json` and, later, in tool results.
//!
//! Fields are added, never renamed. Times are RFC 3339 in UTC.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::input::{Size, Span};

/// `POST /v1/processes`: what to run and how to keep it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StartRequest {
    /// A command for the shell, as one text. Give this or `argv`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// A program and its arguments, run without a shell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub argv: Option<Vec<String>>,
    /// The shell of `command`: a name found in PATH or a path. Default `/bin/sh`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell: Option<String>,
    /// The working directory: absolute, or beginning with `~`. Default: the home directory of the daemon's user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Environment laid over the base; null unsets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, Option<String>>,
    /// Whether the daemon's own environment is the base (default), or nothing is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inherit_env: Option<bool>,
    /// The chat, session or agent it belongs to. Default `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// A name to find it by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Labels to find it by.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// `merged` (default): one pipe, exact order. `separate`: stdout and stderr can be read apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streams: Option<Streams>,
    /// What becomes of descendants that outlive the command: `keep` (default) or `stop`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strays: Option<Strays>,
    /// The signal that a stop begins with. Default `TERM`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_signal: Option<String>,
    /// How long a stop waits before KILL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace: Option<Span>,
    /// The whole tree is stopped after this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_limit: Option<Span>,
    /// How much output is kept on disk: the first and the latest bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_limit: Option<Size>,
    /// Two requests with the same owner and key start one process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// Wait this long for the command to exit before answering; the answer then carries its output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<Span>,
    /// What to do when `wait` runs out: `keep` it running (default) or `stop` it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_wait_timeout: Option<OnWaitTimeout>,
    /// The most bytes of output text in the answer to a `wait`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Size>,
}

/// How the two output streams are captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Streams {
    Merged,
    Separate,
}

/// What becomes of descendants that outlive the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Strays {
    Keep,
    Stop,
}

/// What happens to the process when a start's `wait` runs out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnWaitTimeout {
    Keep,
    Stop,
}

/// The answer to a start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Started {
    #[serde(flatten)]
    pub record: Record,
    /// False if the idempotency key found a process that already existed.
    pub created: bool,
    /// How the asked-for `wait` ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waited: Option<Waited>,
    /// The output so far, if a `wait` was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_page: Option<OutputPage>,
    /// Things worth knowing about this start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hints: Vec<String>,
}

/// How a wait inside a start ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Waited {
    pub reason: WaitReason,
    /// The wait as it was applied, in milliseconds.
    pub limit_ms: u64,
    /// Whether the asked-for wait was outside the bounds and changed.
    pub clamped: bool,
}

/// Where a process is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Starting,
    Running,
    /// The leader exited; descendants live on.
    Lingering,
    Finished,
    /// Its keeper died; nobody saw the end.
    Lost,
}

/// How the leader ended: what the kernel reported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Outcome {
    Exited { code: u8 },
    Signaled { signal: i32, name: String, core_dumped: bool },
    FailedToStart { step: String, error: String },
    Lost { evidence: String },
}

/// Why it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    OnItsOwn,
    StopRequested,
    TimeLimit,
}

/// One process: a command and its whole tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Record {
    pub id: String,
    pub name: Option<String>,
    pub command: String,
    /// The shell that runs `command`; null for an `argv`.
    pub shell: Option<String>,
    pub cwd: String,
    pub owner: String,
    pub labels: BTreeMap<String, String>,
    pub status: Status,
    /// Whether the tree is stopped by a pause or a STOP signal.
    pub paused: bool,
    /// The leader's pid.
    pub pid: Option<u32>,
    pub created_at: String,
    pub started_at: Option<String>,
    pub exited_at: Option<String>,
    pub finished_at: Option<String>,
    pub outcome: Option<Outcome>,
    pub cause: Option<Cause>,
    /// Who asked for the stop, where that is the cause.
    pub stopped_by: Option<String>,
    /// Its living processes.
    pub tree: Vec<TreeMember>,
    pub output: OutputSummary,
    pub usage: Usage,
    /// Why the record is not what one would expect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// One living process of a tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TreeMember {
    pub pid: u32,
    pub ppid: u32,
    pub command: String,
    /// The kernel's letter: R running, S sleeping, D in the kernel, T stopped.
    pub state: String,
    pub cpu_ms: u64,
    pub rss_bytes: u64,
    /// TCP ports it listens on.
    pub ports: Vec<u16>,
}

/// How much output there is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OutputSummary {
    /// Bytes written since the start, kept or not.
    pub bytes: u64,
    /// The first cursor after the dropped middle; 0 when nothing was dropped.
    pub retained_from: u64,
    /// Bytes of the middle that were dropped to stay within the limit, or that the disk refused.
    pub dropped: u64,
    /// Whether all output ends are closed: nothing more can come.
    pub closed: bool,
}

/// What the whole tree used so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Usage {
    pub cpu_ms: u64,
    pub max_rss_bytes: u64,
    /// The most processes seen alive at once.
    pub processes: u32,
}

/// `GET /v1/processes`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListQuery {
    pub owner: Option<String>,
    /// Statuses, separated by commas; `live` means starting, running and lingering.
    pub status: Option<String>,
    pub name: Option<String>,
    /// `key=value`.
    pub label: Option<String>,
    /// At most this many (1 to 500, default 50).
    pub limit: Option<u32>,
    /// The `next` of the page before.
    pub page: Option<String>,
}

/// One page of processes: live ones first, then newest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessList {
    pub processes: Vec<Record>,
    /// How many fit the filter in all.
    pub total: u64,
    /// Give it as `page` for the next page; null on the last one.
    pub next: Option<String>,
    /// Directories in the store that cannot be read, with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<Unreadable>,
}

/// A process directory that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Unreadable {
    pub id: String,
    pub reason: String,
}

/// `GET /v1/processes/{id}/output`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OutputQuery {
    /// Read from this byte on. Default 0.
    pub cursor: Option<u64>,
    /// Read only the last so many bytes (`4k`) or lines (`20 lines`).
    pub tail: Option<String>,
    /// Read at most this many bytes from the cursor on, contiguous.
    pub max_bytes: Option<String>,
    /// Show the whole range in at most this many bytes of text: head, count of what is left out, tail.
    pub budget: Option<String>,
    /// The same in tokens, four bytes each.
    pub budget_tokens: Option<u64>,
    /// Only lines that match this regular expression.
    pub grep: Option<String>,
    /// Lines of context around each match.
    pub context: Option<u32>,
    /// `text` (default, JSON) or `raw` (the bytes themselves, facts in headers).
    pub format: Option<String>,
    /// `stdout` or `stderr`, for a process with separate streams.
    pub stream: Option<String>,
    /// Strip escape sequences from text.
    pub strip_ansi: Option<bool>,
    /// Show only the last state of lines that were rewritten with carriage returns.
    pub collapse_cr: Option<bool>,
    /// Prefix each line with the time at which it arrived.
    pub times: Option<bool>,
    /// If there is nothing at the cursor, wait this long for output or the end.
    pub wait: Option<String>,
    /// With `wait`: wait for `output` (default), or for the leader's `exit`, or for `closed`.
    pub until: Option<String>,
}

/// A stretch of output as text, with exact accounts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OutputPage {
    pub id: String,
    pub text: String,
    /// Where this text begins.
    pub cursor: u64,
    /// Where the next read continues.
    pub next_cursor: u64,
    /// How much output there is now.
    pub end: u64,
    /// Bytes below the text that are no longer kept.
    pub gap: Option<Range>,
    /// Bytes inside the range that were left out for the budget.
    pub omitted: Option<Range>,
    /// Raw bytes in the range asked for …
    pub original_bytes: u64,
    /// … shown in the text …
    pub shown_bytes: u64,
    /// … left out for the budget …
    pub omitted_bytes: u64,
    /// … and removed as escape sequences or overwritten progress.
    pub collapsed_bytes: u64,
    /// Lines found by `grep`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matches: Option<Vec<Match>>,
    /// Whether the leader has exited.
    pub exited: bool,
    /// Whether nothing more can come.
    pub closed: bool,
    pub status: Status,
    pub outcome: Option<Outcome>,
    /// Why this read is not what one would expect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// A stretch of cursors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Range {
    pub from: u64,
    pub to: u64,
}

/// One line that matched, with its context.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Match {
    /// Where the line begins.
    pub cursor: u64,
    pub text: String,
    /// Whether it is context around a match.
    pub context: bool,
}

/// `GET /v1/processes/{id}/wait`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WaitQuery {
    /// `exit` (default), `closed`, `finished`, `output`, `match`, `port` or `quiet`.
    pub until: Option<String>,
    /// At most this long (0 to 1h, default 30s); 0 does not block.
    pub timeout: Option<String>,
    /// For `output` and `match`: only what comes from this byte on. Default: now for `output`, 0 for `match`.
    pub cursor: Option<u64>,
    /// For `match`: a regular expression, matched against each line.
    pub pattern: Option<String>,
    /// For `output` and `match`: lines that match this do not count.
    pub exclude: Option<String>,
    /// For `port`: the TCP port; any listening port when left out.
    pub port: Option<u16>,
    /// For `quiet`: no output for this long. Default 2s.
    pub quiet: Option<String>,
}

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WaitReason {
    /// The leader exited, as waited for.
    Exited,
    /// All output ends are closed.
    Closed,
    /// The tree is empty and the record is final.
    Finished,
    /// There is output beyond the cursor.
    Output,
    /// The pattern was found.
    Matched,
    /// The port is listening.
    Port,
    /// There was no output for the asked-for time.
    Quiet,
    /// The process ended before what was waited for could happen.
    EndedBefore,
    /// The time ran out. Not a failure: wait again.
    Timeout,
}

/// How a wait ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WaitAnswer {
    pub reason: WaitReason,
    pub record: Record,
    /// Where the output stood, or where the matching line begins.
    pub cursor: u64,
    /// The matching line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matched: Option<String>,
    /// The listening port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    pub waited_ms: u64,
}

/// `POST /v1/wait`: any or all of many.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WaitManyRequest {
    /// Ids, prefixes or names; at most 256.
    pub ids: Vec<String>,
    /// `any` (default) or `all`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<WaitMode>,
    /// `exit` (default), `closed` or `finished`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// At most this long (0 to 1h, default 30s).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
}

/// Whether one or every process must be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WaitMode {
    Any,
    All,
}

/// How a wait for many ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WaitManyAnswer {
    pub reason: WaitReason,
    /// Those that are there.
    pub done: Vec<Record>,
    /// Those that are not.
    pub pending: Vec<Record>,
    pub waited_ms: u64,
}

/// `POST /v1/processes/{id}/stop`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StopRequest {
    /// The first signal. Default: the process's `stop_signal`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    /// How long before KILL. Default: the process's `grace`; 0 kills at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace: Option<Span>,
    /// Who asks; recorded with the cause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// How a stop ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StopAnswer {
    pub record: Record,
    /// Whether it was over before the request came.
    pub already_over: bool,
    /// Processes that could not be ended, with the reason. Empty means: verified empty.
    pub survivors: Vec<Survivor>,
}

/// A process that a signal could not end or reach.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Survivor {
    pub pid: u32,
    pub command: String,
    pub reason: String,
}

/// `POST /v1/processes/{id}/signal`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SignalRequest {
    /// `TERM`, `SIGTERM`, `15`.
    pub signal: String,
    /// Who asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// The answer to a signal, a pause or a resume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SignalAnswer {
    pub record: Record,
    /// How many processes of the tree it reached.
    pub reached: u32,
    /// Those that it could not reach.
    pub refused: Vec<Survivor>,
}

/// `GET /v1/events`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EventsQuery {
    /// Events with a higher number. Default 0; `latest` for only what is yet to come.
    pub after: Option<String>,
    pub owner: Option<String>,
    /// Only events of this process.
    pub process: Option<String>,
    /// At most this many (1 to 1000, default 100).
    pub limit: Option<u32>,
    /// If there is none, wait this long (at most 5m).
    pub wait: Option<String>,
}

/// What happened to a process. Each kind happens at most once to each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    Started,
    /// The leader ended, and strays or open output ends remain.
    Exited,
    /// All output ends are closed, and the tree is not empty yet.
    Closed,
    Finished,
    Lost,
}

/// A durable, numbered fact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    /// Rises by at least one from event to event, for ever.
    pub seq: u64,
    pub kind: EventKind,
    /// The process it is about.
    pub process: String,
    pub owner: String,
    pub at: String,
    pub command: String,
    pub started_at: Option<String>,
    pub outcome: Option<Outcome>,
    pub cause: Option<Cause>,
}

/// A stretch of the event log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EventPage {
    pub events: Vec<Event>,
    /// Give it as `after` for what follows.
    pub next: u64,
    /// True if the log no longer reaches back to the `after` asked for.
    pub truncated: bool,
}

/// `GET /healthz` and `pinfold daemon status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Health {
    pub status: String,
    pub version: String,
    pub pid: u32,
    pub home: String,
    pub socket: String,
    pub started_at: String,
    /// Live processes.
    pub live: u64,
    /// How trees are contained: `cgroup` or `subreaper`.
    pub containment: String,
    /// Why there is no cgroup, where there is none.
    pub no_cgroup: Option<String>,
    /// What is wrong, where something is.
    pub troubles: Vec<String>,
}

/// `POST /v1/gc`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GcRequest {
    /// Remove what ended longer ago than this. Default: the configured retention.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub older_than: Option<Span>,
    /// Only say what would go.
    #[serde(default)]
    pub dry_run: bool,
}

/// What a gc removed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GcAnswer {
    pub removed: Vec<String>,
    pub freed_bytes: u64,
    pub dry_run: bool,
}

/// `POST /v1/shutdown`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ShutdownRequest {
    /// Stop every process first; otherwise they live on with their keepers.
    #[serde(default)]
    pub stop_processes: bool,
}

/// What a shutdown did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ShutdownAnswer {
    /// Processes stopped, or left to their keepers.
    pub stopped: u64,
    pub left_running: u64,
    pub survivors: Vec<Survivor>,
}
