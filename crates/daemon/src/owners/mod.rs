//! Operations on owners: `ends` ends one with all it owns, `handover` gives a process to another, `sessions` knows
//! which client an owner belongs to and what ended sessions left running, and `silence` ends what an owner left that no
//! longer connects. The owners themselves are in `registry`.
//!
//! May use: registry, access, services, processes, agents.

mod ends;
mod handover;
pub(crate) mod sessions;
pub(crate) mod silence;
