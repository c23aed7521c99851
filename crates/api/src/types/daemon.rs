//! The daemon itself: health, retention, shutdown.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Survivor;
use crate::input::Span;

/// `GET /healthz` and `pinfold daemon status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Health {
    pub status: String,
    pub version: String,
    pub pid: u32,
    pub home: String,
    pub socket: String,
    /// The TCP address it listens on, if configured.
    #[serde(default)]
    pub tcp: Option<String>,
    pub started_at: String,
    /// Live processes.
    pub live: u64,
    /// How trees are contained: `cgroup` or `subreaper`.
    pub containment: String,
    /// Why no cgroup is used, if `containment` is `subreaper`.
    pub no_cgroup: Option<String>,
    /// Problems that need attention.
    pub troubles: Vec<String>,
    /// Whether it is still recovering the processes of the previous daemon; `notes` has the progress.
    #[serde(default)]
    pub recovering: bool,
    /// Temporary conditions that need no action, for people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// `POST /v1/gc`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GcRequest {
    /// Remove processes that ended longer ago than this. Default: the configured retention.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub older_than: Option<Span>,
    /// Only report what would be removed.
    #[serde(default)]
    pub dry_run: bool,
}

/// What a garbage collection removed.
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
    /// Stop every process first. Otherwise they run on with their keepers.
    #[serde(default)]
    pub stop_processes: bool,
}

/// What a shutdown did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ShutdownAnswer {
    /// Number of processes that were stopped.
    pub stopped: u64,
    /// Number of processes that run on with their keepers.
    pub left_running: u64,
    pub survivors: Vec<Survivor>,
}

/// `DELETE /v1/processes/{id}`: what was removed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Removed {
    pub id: String,
    pub freed_bytes: u64,
}
