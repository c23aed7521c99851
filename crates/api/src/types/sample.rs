//! What live processes use, sampled while a client asks for it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `GET /v1/processes/{id}/samples`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SamplesQuery {
    /// Only samples taken after this time: RFC 3339, such as the `at` of the last sample received, or a duration such
    /// as `30s`, which means that long ago.
    pub after: Option<String>,
}

/// The latest samples of one process, oldest first, at most 300.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Samples {
    pub id: String,
    /// Time between samples. Samples are taken from the first request until 10 seconds after the last one.
    pub interval_ms: u64,
    /// Empty for a process that has ended.
    pub samples: Vec<Sample>,
}

/// What a whole tree used at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Sample {
    pub at: String,
    /// CPU use since the previous sample, in thousandths of a core; null if there is no recent previous sample.
    pub millicpus: Option<u64>,
    /// The sum of the resident memory of its processes. Memory that they share counts once for each.
    pub memory_bytes: u64,
    /// Living processes.
    pub processes: u32,
}
