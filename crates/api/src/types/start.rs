//! Starting a process.

use std::collections::BTreeMap;

use pinfold_model::sandbox::SandboxRequest;
use pinfold_model::spec;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{OutputPage, Port, Pty, Ready, Record, Restart, Stdin, Strays, Streams, WaitReason};
use crate::input::{Size, Span};

/// `POST /v1/processes`: what to run, and how.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StartRequest {
    /// A shell command as one string. Give either this or `argv`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// A program and its arguments, started without a shell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub argv: Option<Vec<String>>,
    /// The shell for `command`: a path, or a name found in PATH. Default `/bin/sh`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell: Option<String>,
    /// The working directory: absolute, or starting with `~`. Default: the home directory of the daemon's user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Environment variables to set; null unsets one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, Option<String>>,
    /// Whether to start from the daemon's own environment (default) or from an empty one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inherit_env: Option<bool>,
    /// The chat, session or agent it belongs to. Default `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The owner's parent, which also sees its processes. The first parent given for an owner is final.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// What happens to it when its owner is ended. `keep` (default): it runs on. `owner`: it is stopped. `parent`: it is
    /// handed over to the owner's parent, and stopped if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifetime: Option<Lifetime>,
    /// With `lifetime` `owner` or `parent`: the owner counts as ended if there was no contact for this long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner_grace: Option<Span>,
    /// A name to find it by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What it is for, in a few words for people. Has no effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intent: Option<String>,
    /// Labels to find it by.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// `merged` (default): stdout and stderr share one pipe, in exact order. `separate`: they can be read separately.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streams: Option<Streams>,
    /// `null` (default): `/dev/null`. `pipe`: a pipe that clients can write to until they close it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<Stdin>,
    /// A terminal for all three streams: `true`, or `{"rows": 24, "cols": 80}`. Cannot be combined with `stdin` or
    /// `streams`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pty: Option<Pty>,
    /// What happens to descendants that outlive the command: `keep` (default) or `stop`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strays: Option<Strays>,
    /// The first signal of a stop. Default `TERM`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_signal: Option<String>,
    /// Time between the first signal of a stop and KILL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace: Option<Span>,
    /// Stop the whole tree after this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_limit: Option<Span>,
    /// Stop the whole tree after this long without output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_limit: Option<Span>,
    /// Maximum memory of the whole tree. A tree that exceeds it is killed, with the cause `out_of_memory`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit: Option<Size>,
    /// Maximum number of processes and threads in the tree. A tree that exceeds it is killed, with the cause
    /// `pids_limit`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pids_limit: Option<u32>,
    /// Maximum number of CPU cores that the tree may use, such as 0.5. The start fails without a cgroup with the cpu
    /// controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<f64>,
    /// Stop the whole tree when it has used this much CPU time in total.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_time_limit: Option<Span>,
    /// What it may do: `read-only`, `workspace-write`, text such as `read-only,network=none`, or an object with the
    /// parts. Default: no sandbox, unless the configuration has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxRequest>,
    /// What to notify the owner of, and how.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notify: Option<Notify>,
    /// The condition under which the process counts as ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<Ready>,
    /// Whether it is restarted when it ends. Default: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart: Option<Restart>,
    /// Loopback ports to reserve, by the environment variable that gets the number: `lease` for any free port, or a
    /// number. No other process is given the same port while this one runs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ports: BTreeMap<String, Port>,
    /// Maximum output stored on disk. Beyond it, the first and the latest bytes are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_limit: Option<Size>,
    /// Two requests with the same owner and key start only one process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// The span that it is started from, as in W3C Trace Context. Also taken from the header `traceparent`. The process gets
    /// the trace in TRACEPARENT.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// The name of the model's tool that starts it, for traces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// Wait at most this long for the command to exit (with `ready`: to be ready) before responding. The response then
    /// includes the output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<Span>,
    /// What to do when the `wait` times out: `keep` the process running (default) or `stop` it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_wait_timeout: Option<OnWaitTimeout>,
    /// Maximum bytes of output text in the response to a `wait`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Size>,
    /// With `wait`: the `news.last` of an earlier response, or 0. The response then says whether there may be news of the
    /// owner's other processes since then, so that a client need not ask `/v1/events` after each command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub news_after: Option<u64>,
}

/// What happens to a process when its owner is ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Lifetime {
    /// It runs until it finishes or is stopped.
    #[default]
    Keep,
    /// It is stopped.
    Owner,
    /// It is handed over to the owner's parent.
    Parent,
}

impl From<spec::Lifetime> for Lifetime {
    fn from(lifetime: spec::Lifetime) -> Self {
        match lifetime {
            spec::Lifetime::Keep => Lifetime::Keep,
            spec::Lifetime::Owner { .. } => Lifetime::Owner,
            spec::Lifetime::Parent { .. } => Lifetime::Parent,
        }
    }
}

/// What the owner of a process is notified of, and how. It keeps working when the daemon restarts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Notify {
    /// Announce its end. Default true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_complete: Option<bool>,
    /// At most 8 regular expressions: announce each line of output that matches one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub patterns: Vec<String>,
    /// Never announce lines that match this regular expression.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclude: Option<String>,
    /// Minimum time between two announced matches (default 5s). Matches in between are only counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cooldown: Option<Span>,
    /// Stop watching the output after this many announced matches (default 20). The process runs on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_events: Option<u32>,
    /// Announce at this interval (at least 1s) that it is alive, with its new output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heartbeat: Option<Span>,
    /// An http or https URL that each announcement is sent to, as a signed POST.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<String>,
    /// A shell command to run for each announcement, with the event in PINFOLD_EVENT.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}

/// What happens to the process when a start's `wait` times out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnWaitTimeout {
    Keep,
    Stop,
}

/// The response to a start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Started {
    #[serde(flatten)]
    pub record: Record,
    /// False if a process with this idempotency key already existed.
    pub created: bool,
    /// How the `wait` ended, if one was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waited: Option<Waited>,
    /// The output so far, if a `wait` was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_page: Option<OutputPage>,
    /// Whether the owner's other processes may have news, if `news_after` was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub news: Option<NewsState>,
    /// Things worth knowing about this start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hints: Vec<String>,
}

/// Whether there may be events of an owner's other processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NewsState {
    /// Pass it as `news_after` of the next start, once the events up to now have been read.
    pub last: u64,
    /// False if there is none since `news_after`; otherwise ask `/v1/events`.
    pub pending: bool,
}

/// How a wait inside a start ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Waited {
    pub reason: WaitReason,
    /// The timeout that was used, in milliseconds.
    pub limit_ms: u64,
    /// Whether the requested timeout was out of range and was changed.
    pub clamped: bool,
}
