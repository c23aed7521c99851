//! Opening the web dashboard, and what `pinfold doctor` finds.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `POST /v1/dashboard`: open the dashboard's port, if it is not open, and get an address that signs one browser in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DashboardRequest {
    /// The browser may look, and change nothing.
    #[serde(default)]
    pub read_only: bool,
    /// Listen on this loopback port. Default: the port that is open, else any free one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
}

/// Where the dashboard is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DashboardAnswer {
    /// Signs in the first browser that opens it. Secret; the key in it can be used once.
    pub url: String,
    /// How long the key in the address can be used.
    pub expires_in_ms: u64,
    pub port: u16,
    pub read_only: bool,
}

/// `DELETE /v1/dashboard`: what closing it did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DashboardClosed {
    /// Number of browsers that were signed out.
    pub signed_out: u64,
}

/// `GET /v1/doctor`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DoctorAnswer {
    pub findings: Vec<DoctorFinding>,
}

/// One thing that was examined on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DoctorFinding {
    pub level: DoctorLevel,
    pub topic: String,
    pub text: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// How good it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DoctorLevel {
    Good,
    /// It works, with less than there could be.
    Note,
    Bad,
}
