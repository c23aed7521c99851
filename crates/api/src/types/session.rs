//! Sessions of agents: who serves one, and what ended ones left running.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Record;

/// `POST /v1/sessions`: this program serves a session of an agent, in the name of the owner that it acts as.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionRequest {
    /// The client program, as it names itself.
    pub client: String,
    /// The directory that it works in: absolute, without links.
    pub directory: String,
    /// The program that registers the session. The session ends when this program exits.
    pub server: ServerProcess,
    /// The owner of the previous session of the same client, if this one replaces it. Its live processes move to the new owner,
    /// unless another server still serves that session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instead_of: Option<String>,
}

/// A process of this machine, identified so that no other process with the same pid is mistaken for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServerProcess {
    pub pid: u32,
    /// Field 22 of `/proc/PID/stat`.
    pub start_time: u64,
}

/// The session is registered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionAnswer {
    pub owner: String,
    /// Ids of the processes that were moved from the previous session.
    pub moved: Vec<String>,
}

/// A live process whose session has ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LeftBehind {
    pub process: Record,
    /// When its session was seen to have ended.
    pub session_ended_at: String,
    pub session_ended_seconds_ago: u64,
}

/// `GET /v1/sessions/left_behind`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LeftBehindList {
    /// Newest first, at most 20.
    pub left_behind: Vec<LeftBehind>,
    /// How many there are.
    pub total: u64,
}

/// `POST /v1/sessions/adopt`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AdoptRequest {
    /// Ids of processes that were left behind. Empty: all.
    #[serde(default)]
    pub processes: Vec<String>,
}

/// The result of an adoption.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AdoptAnswer {
    /// Ids of processes that belong to the caller now.
    pub adopted: Vec<String>,
    pub refused: Vec<AdoptRefusal>,
}

/// A process that was not taken over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AdoptRefusal {
    pub process: String,
    pub reason: String,
}
