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
    /// Where it listens for TCP, if the configuration says so.
    #[serde(default)]
    pub tcp: Option<String>,
    pub started_at: String,
    /// Live processes.
    pub live: u64,
    /// How trees are contained: `cgroup` or `subreaper`.
    pub containment: String,
    /// Why there is no cgroup, where there is none.
    pub no_cgroup: Option<String>,
    /// What is wrong, where something is.
    pub troubles: Vec<String>,
    /// Whether it still takes up what an earlier daemon left; `notes` says how far it is.
    #[serde(default)]
    pub recovering: bool,
    /// What passes by itself, for people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
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
