//! What is done with owners: `ends` ends one with all it owns, `handover` gives a process to another, `sessions` knows which
//! client stands behind an owner and what ended ones left running, and `silence` ends what an
//! owner left that no longer connects. What is known of owners is in `registry`.
//!
//! May use: registry, access, services, processes, agents.

mod ends;
mod handover;
pub(crate) mod sessions;
pub(crate) mod silence;
