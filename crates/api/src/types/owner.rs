//! Owners, handovers and tokens.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Survivor;
use crate::input::Span;

/// `POST /v1/processes/{id}/handover`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HandoverRequest {
    /// The new owner. Default: the owner's parent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// What the new owner is to do with it, in a sentence.
    pub purpose: String,
}

/// `POST /v1/owners/{owner}/end`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EndRequest {
    /// Time between the first signal and KILL. Default: each process's own `grace`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace: Option<Span>,
}

/// What ending an owner did to its processes and those of its descendants.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EndAnswer {
    pub owner: String,
    pub stopped: Vec<String>,
    pub kept: Vec<String>,
    pub handed_over: Vec<String>,
    /// Hosted agents that were stopped. They accept no further turns.
    #[serde(default)]
    pub agents_stopped: Vec<String>,
    #[serde(default)]
    pub agents_handed_over: Vec<String>,
    /// Processes that could not be killed. If empty, it was verified that none is left.
    pub survivors: Vec<Survivor>,
}

/// `POST /v1/owners/{owner}/release`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReleaseAnswer {
    /// Number of open waits that were ended with `cancelled`.
    pub released: u64,
}

/// One owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Owner {
    pub owner: String,
    pub parent: Option<String>,
    /// Number of its live processes, without those of its descendants.
    pub live: u64,
    /// Its last contact since the daemon started.
    pub last_contact: Option<String>,
}

/// `GET /v1/owners`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OwnerList {
    pub owners: Vec<Owner>,
}

/// `POST /v1/tokens`: a token for TCP.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenRequest {
    /// The owner that it acts as. Default: operator, who sees everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// What it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// It expires after this time. Default: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Span>,
}

/// A new token. This is the only time that its text is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TokenAnswer {
    /// The token itself: `Authorization: Bearer …`.
    pub token: String,
    #[serde(flatten)]
    pub shown: Token,
}

/// A token without its text, which is not stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Token {
    pub id: String,
    pub owner: Option<String>,
    pub label: Option<String>,
    pub created_at: String,
    pub expires_at: Option<String>,
}

/// `GET /v1/tokens`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TokenList {
    pub tokens: Vec<Token>,
}
