//! One process, and lists of them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{LifeShown, Lifetime, PtySize, ReadyShown, Stdin};

/// The status of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Starting,
    Running,
    /// The leader has exited; descendants are still running.
    Lingering,
    Finished,
    /// Its keeper died, so its end was not observed.
    Lost,
}

/// How the leader ended, as reported by the kernel.
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
    /// It produced no output for longer than its `idle_limit`.
    IdleLimit,
    /// Its tree reached its `memory_limit` and was killed by the kernel or the keeper.
    OutOfMemory,
    /// Its tree reached its `pids_limit`.
    PidsLimit,
    /// Its tree used up its `cpu_time_limit`.
    CpuTimeLimit,
    /// Its owner was ended, or had no contact for longer than its `owner_grace`.
    OwnerEnded,
}

/// One process: a command and its whole tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Record {
    pub id: String,
    pub name: Option<String>,
    pub command: String,
    /// The shell that runs `command`; null if it was started with `argv`.
    pub shell: Option<String>,
    pub cwd: String,
    pub owner: String,
    /// The owner's parent, which also sees it.
    #[serde(default)]
    pub parent: Option<String>,
    /// What happens to it when its owner is ended.
    #[serde(default)]
    pub lifetime: Lifetime,
    /// What it is for, as given at the start.
    #[serde(default)]
    pub intent: Option<String>,
    pub labels: BTreeMap<String, String>,
    /// Its standard input.
    #[serde(default)]
    pub stdin: Stdin,
    /// The size of its terminal, if it has one. The terminal is then its stdin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pty: Option<PtySize>,
    /// Whether a process of its tree waits for input; null if that is unknown.
    #[serde(default)]
    pub waiting_for_input: Option<bool>,
    pub status: Status,
    /// Whether the tree is paused, by a pause or a STOP signal.
    pub paused: bool,
    /// The leader's pid.
    pub pid: Option<u32>,
    pub created_at: String,
    pub started_at: Option<String>,
    pub exited_at: Option<String>,
    pub finished_at: Option<String>,
    pub outcome: Option<Outcome>,
    pub cause: Option<Cause>,
    /// Who requested the stop, if that is the cause.
    pub stopped_by: Option<String>,
    /// Its living processes.
    pub tree: Vec<TreeMember>,
    pub output: OutputSummary,
    pub usage: Usage,
    /// What its owner is notified of, if that is not just its end. Only the host of a webhook is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notify: Option<NotifyShown>,
    /// Its limits, if it has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<LimitsShown>,
    /// Its readiness, if it was started with `ready`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<ReadyShown>,
    /// The loopback ports reserved for it, by environment variable.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ports: BTreeMap<String, u16>,
    /// Its place in the chain of restarts, if it has a restart policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub life: Option<LifeShown>,
    /// An explanation, if the record may be unexpected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// The limits of a process; those on memory, processes and CPU are for its whole tree.
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

/// What the owner of a process is notified of.
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
    /// The kernel's state letter: R running, S sleeping, D uninterruptible sleep, T stopped.
    pub state: String,
    pub cpu_ms: u64,
    pub rss_bytes: u64,
    /// TCP ports it listens on.
    pub ports: Vec<u16>,
}

/// How much output there is, and how much of it is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OutputSummary {
    /// Bytes written since the start, stored or not.
    pub bytes: u64,
    /// The first cursor after the dropped middle part; 0 if nothing was dropped.
    pub retained_from: u64,
    /// Bytes of the middle part that were dropped to stay within the limit, or because the disk was full.
    pub dropped: u64,
    /// Whether the output is complete: all of its writers have closed it.
    pub closed: bool,
}

/// What the whole tree has used so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Usage {
    pub cpu_ms: u64,
    pub max_rss_bytes: u64,
    /// Maximum number of processes seen alive at once.
    pub processes: u32,
}

/// `GET /v1/processes`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListQuery {
    pub owner: Option<String>,
    /// Comma-separated statuses; `live` means starting, running and lingering.
    pub status: Option<String>,
    pub name: Option<String>,
    /// `key=value`.
    pub label: Option<String>,
    /// At most this many (1 to 500, default 50).
    pub limit: Option<u32>,
    /// The `next` of the previous page.
    pub page: Option<String>,
}

/// One page of processes: live ones first, then newest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessList {
    pub processes: Vec<Record>,
    /// How many processes match the filter in total.
    pub total: u64,
    /// Pass it as `page` to get the next page; null on the last page.
    pub next: Option<String>,
    /// Process directories that cannot be read, with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<Unreadable>,
    /// Why the list may be incomplete or about to change, for people; usually empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// A process directory that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Unreadable {
    pub id: String,
    pub reason: String,
}
