//! Starting: what to run and how to keep it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{OutputPage, Port, Pty, Ready, Record, Restart, Stdin, WaitReason};
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
    /// The owner's parent, which sees its processes too. The first one said for an owner stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// What becomes of it when its owner is ended: `keep` (default), `owner`: it is stopped, `parent`: it is handed
    /// over to the owner's parent, and stopped if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifetime: Option<Lifetime>,
    /// With `lifetime` `owner` or `parent`: the owner counts as ended this long after its last contact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner_grace: Option<Span>,
    /// A name to find it by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What it is for, in a few words for people. Changes nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intent: Option<String>,
    /// Labels to find it by.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// `merged` (default): one pipe, exact order. `separate`: stdout and stderr can be read apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streams: Option<Streams>,
    /// `null` (default): it reads nothing. `pipe`: it reads what is sent to it, until that is ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<Stdin>,
    /// A terminal for all three streams: `true`, or `{"rows": 24, "cols": 80}`. Does not go with `stdin` or `streams`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pty: Option<Pty>,
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
    /// The whole tree is stopped after so long without output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_limit: Option<Span>,
    /// The most memory that the whole tree may use together; beyond it is killed, with the cause `out_of_memory`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit: Option<Size>,
    /// The most processes and threads that the tree may have at once; one more ends it, with the cause `pids_limit`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pids_limit: Option<u32>,
    /// How many cores the tree may keep busy, such as 0.5. Needs a cgroup with the cpu controller: refused without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<f64>,
    /// The whole tree is stopped when it has used so much processor time together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_time_limit: Option<Span>,
    /// What its owner is told, and how.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notify: Option<Notify>,
    /// What says that it is ready: it does what it was started for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<Ready>,
    /// What follows its end: another life, or nothing (default).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart: Option<Restart>,
    /// Loopback ports that it is lent, by the variable that tells it the number: `lease` for any that is free, or a
    /// number. No other process is lent the same while it lives.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ports: BTreeMap<String, Port>,
    /// How much output is kept on disk: the first and the latest bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_limit: Option<Size>,
    /// Two requests with the same owner and key start one process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// Wait this long for the command to exit, or with `ready` to be ready, before answering; the answer then carries its
    /// output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<Span>,
    /// What to do when `wait` runs out: `keep` it running (default) or `stop` it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_wait_timeout: Option<OnWaitTimeout>,
    /// The most bytes of output text in the answer to a `wait`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Size>,
}

/// What becomes of a process when its owner is ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Lifetime {
    /// It lives until it finishes or is stopped.
    #[default]
    Keep,
    /// It is stopped.
    Owner,
    /// It is handed over to the owner's parent.
    Parent,
}

/// What the owner of a process is told of it, and how. Everything here survives the daemon.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Notify {
    /// Whether its end is announced. Default true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_complete: Option<bool>,
    /// Regular expressions, at most 8: a line of output that matches one is announced.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub patterns: Vec<String>,
    /// Lines that match this are never announced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclude: Option<String>,
    /// The least time between two announced matches (default 5s); those between are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cooldown: Option<Span>,
    /// After so many announced matches (default 20) the watch ends. The process goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_events: Option<u32>,
    /// Announce every so often (at least 1s) that it lives, with its new output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heartbeat: Option<Span>,
    /// An http or https address that gets each announcement as a signed POST.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<String>,
    /// A shell command that is run for each announcement, with the event in PINFOLD_EVENT.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
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
