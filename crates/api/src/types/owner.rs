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
    /// How long before KILL. Default: each process's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace: Option<Span>,
}

/// What the end of an owner did to the processes of it and its descendants.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EndAnswer {
    pub owner: String,
    pub stopped: Vec<String>,
    pub kept: Vec<String>,
    pub handed_over: Vec<String>,
    /// Hosted agents that end with it: they take no further turn, whether they run or rest.
    #[serde(default)]
    pub agents_stopped: Vec<String>,
    #[serde(default)]
    pub agents_handed_over: Vec<String>,
    /// Processes of the stopped ones that could not be ended. Empty means: verified empty.
    pub survivors: Vec<Survivor>,
}

/// `POST /v1/owners/{owner}/release`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReleaseAnswer {
    /// Waits that were open and answered `cancelled`.
    pub released: u64,
}

/// One owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Owner {
    pub owner: String,
    pub parent: Option<String>,
    /// Its live processes, without those of its descendants.
    pub live: u64,
    /// When it was last heard of, since the daemon started.
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
    /// The one owner it acts as. Without: an operator, who sees all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// What it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// It ends after this time. Default: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Span>,
}

/// A new token. Its text is shown this once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TokenAnswer {
    /// The token itself: `Authorization: Bearer …`.
    pub token: String,
    #[serde(flatten)]
    pub shown: Token,
}

/// A token as it is listed: without its text, which is not kept.
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
