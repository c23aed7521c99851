//! Keepers: what is reused, what is given up, and what counts as a keeper's death.

mod daemons;
mod links;
mod orders;
mod reuse;
