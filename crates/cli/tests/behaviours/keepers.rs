//! Keepers: which are reused, which are not, and what counts as the death of one.

mod daemons;
mod links;
mod orders;
mod reuse;
