//! One process, and lists of them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{LifeShown, Lifetime, PtySize, ReadyShown, Stdin};

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
    /// It was silent for longer than its `idle_limit`.
    IdleLimit,
    /// Its tree reached its `memory_limit`, and the kernel or the keeper killed it for that.
    OutOfMemory,
    /// Its tree reached its `pids_limit`.
    PidsLimit,
    /// Its tree used up its `cpu_time_limit`.
    CpuTimeLimit,
    /// Its owner was ended, or was not heard of for its `owner_grace`.
    OwnerEnded,
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
    /// The owner's parent, which sees it too.
    #[serde(default)]
    pub parent: Option<String>,
    /// What becomes of it when its owner is ended.
    #[serde(default)]
    pub lifetime: Lifetime,
    /// What it is for, as its starter said.
    #[serde(default)]
    pub intent: Option<String>,
    pub labels: BTreeMap<String, String>,
    /// What it reads as its standard input.
    #[serde(default)]
    pub stdin: Stdin,
    /// The size of its terminal, where it has one: that is its stdin then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pty: Option<PtySize>,
    /// Whether some process of its tree sleeps until input is sent; null where that cannot be told.
    #[serde(default)]
    pub waiting_for_input: Option<bool>,
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
    /// What its owner is told of it, where more than its end, or not even that. Of a webhook only the host is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notify: Option<NotifyShown>,
    /// What it may use, where that is limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<LimitsShown>,
    /// How it stands with its readiness, where that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<ReadyShown>,
    /// The loopback ports it is lent, by the variable that tells it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ports: BTreeMap<String, u16>,
    /// Which life it is, where it is restarted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub life: Option<LifeShown>,
    /// Why the record is not what one would expect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// What a process may use: time, and what its whole tree holds together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LimitsShown {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Processes and threads alive at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pids: Option<u32>,
    /// Thousandths of a core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub millicpus: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_time_ms: Option<u64>,
}

/// What the owner of a process is told of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NotifyShown {
    pub on_complete: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub patterns: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heartbeat_ms: Option<u64>,
    /// Scheme and host of the webhook.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
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
    /// Why the list may be incomplete or about to change, for people; usually nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// A process directory that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Unreadable {
    pub id: String,
    pub reason: String,
}
