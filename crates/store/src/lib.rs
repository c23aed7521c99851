//! Everything that pinfold writes to disk: file names, formats, versions, write order, retention.
//!
//! It starts and signals no process, reads no clock and knows no HTTP. Durable means: survives the crash of any program.
//! Only with [`Durability::Power`] does it also survive a power failure.
//!
//! Each invariant is stated in the header of the module that owns it, with a test of its name:
//! - S1 at most one exit record, never replaced ([`record`])
//! - S2 a cursor names the same byte for ever ([`output`])
//! - S3 what is retained plus what is dropped is what was written ([`reader`])
//! - S4 one event per process, kind and `n`: no event is in the log under two numbers ([`index`])
//! - S5 a damaged directory harms no other ([`retention`])
//! - S6 an event that was not acked is given again ([`consumers`])
//! - S7 deliveries of one process to one target keep the order of its events ([`outbox`])
//! - S8 an agent's state is whole ([`agents`])
//! - S9 a chain's file is replaced as a whole ([`chains`])
//! - S10 no older state of the sessions is read after a write that failed ([`sessions`])

#![forbid(unsafe_code)]

pub mod agents;
pub mod chains;
pub mod consumers;
pub mod ids;
pub mod index;
pub mod layout;
pub mod marks;
pub mod outbox;
pub mod output;
pub mod queries;
pub mod reader;
pub mod record;
pub mod retention;
mod schema;
pub mod secret;
pub mod seen;
pub mod sessions;
pub mod tail;
#[cfg(test)]
mod testing;
pub mod tokens;

use serde::{Deserialize, Serialize};

/// What data survives after a write has returned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// The crash of any program. No write waits for the disk.
    #[default]
    Programs,
    /// Also a power failure: writes to records and index are synced to disk.
    Power,
}
