//! One process, and lists of them.

use std::collections::BTreeMap;

use pinfold_model::outcome;
use pinfold_model::sandbox::{Enforcement, Part, Refusals, Sandbox, Tier};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Cause, LifeShown, Lifetime, PtySize, ReadyShown, Sample, StartRequest, Status, Stdin, Usage};

/// How the leader ended, as reported by the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Outcome {
    Exited { code: u8 },
    Signaled { signal: i32, name: String, core_dumped: bool },
    FailedToStart { step: String, error: String },
    Lost { evidence: String },
}

impl From<outcome::Outcome> for Outcome {
    fn from(outcome: outcome::Outcome) -> Self {
        match outcome {
            outcome::Outcome::Exited { code } => Outcome::Exited { code },
            outcome::Outcome::Signaled { signal, core_dumped } => {
                Outcome::Signaled { signal: signal.number(), name: signal.name(), core_dumped }
            }
            outcome::Outcome::FailedToStart { step, error } => {
                Outcome::FailedToStart { step: step.name().to_owned(), error }
            }
            outcome::Outcome::Lost { evidence } => Outcome::Lost { evidence },
        }
    }
}

/// One process: a command and its whole tree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
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
    /// What its tree uses now. Only for live processes in a list with `usage=true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<Sample>,
    /// What its owner is notified of, if that is not just its end. Only the host of a webhook is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notify: Option<NotifyShown>,
    /// Its limits, if it has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<LimitsShown>,
    /// Its sandbox, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxShown>,
    /// Its readiness, if it was started with `ready`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<ReadyShown>,
    /// The loopback ports reserved for it, by environment variable.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ports: BTreeMap<String, u16>,
    /// Its place in the chain of restarts, if it has a restart policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub life: Option<LifeShown>,
    /// The span that it was started from, if the start named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// The model's tool that started it, if the start named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// A start request that repeats it, with every option that it was started with. Not in it: the environment and the
    /// webhook, which may hold secrets, and the idempotency key. Only in the record of one process, not in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Box<StartRequest>>,
    /// An explanation, if the record may be unexpected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl Record {
    /// Whether it has ended and will be restarted, by itself or on request.
    pub fn awaits_restart(&self) -> bool {
        self.life.as_ref().is_some_and(|life| life.restarting_at.is_some() || life.awaits_turn)
    }
}

/// The sandbox of a process: what was requested, and what the kernel enforces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SandboxShown {
    /// The profile in a few words, with what is missing.
    pub label: String,
    pub asked: Sandbox,
    pub tier: Tier,
    /// The version of Landlock in the kernel.
    pub landlock_abi: u32,
    /// The parts that are enforced.
    pub got: Vec<Part>,
    /// The parts that this kernel cannot enforce. Not empty only with `missing` `best_effort`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<Part>,
    /// What it refused, once the leader has exited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<Refusals>,
    /// After a failure: what the sandbox refused or may have refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl SandboxShown {
    pub fn new(enforcement: &Enforcement, refused: Option<&Refusals>, failed: bool) -> Self {
        let Enforcement { asked, tier, landlock_abi, got, missing } = enforcement.clone();
        let hint = failed.then(|| enforcement.hint(refused));
        Self { label: enforcement.label(), asked, tier, landlock_abi, got, missing, refused: refused.cloned(), hint }
    }
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
    /// The last line that is not blank, even if it is not terminated yet, without escape sequences and control characters, cut
    /// after 200 characters. Only in lists and in the record of one process. Untrusted text of the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_line: Option<String>,
    /// When the last byte was written. Only where `last_line` may be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_output_at: Option<String>,
}

/// `GET /v1/processes`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListQuery {
    pub owner: Option<String>,
    /// Comma-separated statuses; `live` means starting, running and lingering.
    pub status: Option<String>,
    pub name: Option<String>,
    /// `key=value`. May be repeated: a process must have all of these labels.
    #[serde(default)]
    pub label: Vec<String>,
    /// Created at this time or later: RFC 3339, or a duration such as `10m` for that long ago.
    pub created_after: Option<String>,
    /// Created before this time.
    pub created_before: Option<String>,
    /// Finished at this time or later; live processes are left out.
    pub finished_after: Option<String>,
    /// Finished before this time; live processes are left out.
    pub finished_before: Option<String>,
    /// Include the living tree of each process (default true). Without it a list of many live processes is much faster.
    pub tree: Option<bool>,
    /// Include what each live process uses now, as `sample` (default false).
    pub usage: Option<bool>,
    /// At most this many (1 to 2000, default 50).
    pub limit: Option<u32>,
    /// The `next` of the previous page.
    pub page: Option<String>,
}

/// One page of processes: live ones first, then newest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
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
