//! What needs a person: questions of processes and agents, and failures that were not seen yet.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Ask, Cause, Outcome};

/// `GET /v1/inbox`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InboxQuery {
    pub owner: Option<String>,
    /// At most this many items (1 to 500, default 100).
    pub limit: Option<u32>,
}

/// What needs attention: permission requests, then processes that wait for input, then failures; newest first in each.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Inbox {
    pub items: Vec<InboxItem>,
    /// How many permission requests are open, also beyond the limit.
    pub permission: u64,
    /// How many processes with a terminal wait for input, also beyond the limit.
    pub waiting_for_input: u64,
    /// How many failures were not seen yet, also beyond the limit.
    pub failed: u64,
    /// The caller's mark: it has seen the events up to this number. 0 if it never set one.
    pub seen: u64,
    /// The number of the latest event. Pass it to `POST /v1/inbox/seen` once this answer was shown.
    pub latest: u64,
    /// Whether older failures may be missing: only the latest 1000 of all owners are kept at hand.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

/// What kind of attention an item needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum InboxKind {
    /// A hosted agent asks for permission: `POST /v1/agents/{agent}/answer`.
    Permission,
    /// A process with a terminal waits for input: `POST /v1/processes/{process}/input`.
    WaitingForInput,
    /// A process failed: it ended with another code than 0, by a signal or a limit, was lost, or could not be started. Not: it was stopped
    /// on request or with its owner, or is restarted by its policy.
    Failed,
}

/// One item.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InboxItem {
    pub kind: InboxKind,
    pub owner: String,
    /// The process, or the process of the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<String>,
    /// The name of the process or agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// When it happened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// The number of its event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// Whether the caller's mark has passed its event. Failures that were seen are left out.
    pub seen: bool,
    /// What is asked, the line with the prompt, or the last line of output. Untrusted text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The cursor of the prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<u64>,
    /// The agent that asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Its request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ask: Option<Ask>,
    /// How the failed process ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// Why it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
}

/// `POST /v1/inbox/seen`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SeenRequest {
    /// The number of the last event that was seen. The mark never moves back.
    pub through: u64,
}

/// The caller's mark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SeenAnswer {
    pub seen: u64,
}
