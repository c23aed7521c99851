//! The daemon: admission, views, waits, events, re-attachment. Owns no process: each has its keeper.
//!
//! Invariants that live here, each with a test of its name:
//! - D1 an acknowledged start survives the daemon: the answer comes after the keeper's record.
//! - D2 one idempotency key, one process.
//! - D3 nothing is announced before it is durable: waits end on facts that the keeper has written, events are
//!   shown when the index has committed them.
//! - D4 every wait, list, body and queue has a bound.
//! - D5 a view never widens ([`scope`]; where a connection comes from: [`origin`]).
//! - D6 a port is lent to one process at a time ([`services::lease`]).
//! - D7 no end has two successors, and none that is owed is lost ([`services::chain`]).
//! - D8 no path that a request names is touched by the daemon ([`stuck`]).
//! - D9 only an ended session's processes are shown to another session ([`sessions`]).
//!
//! `run` composes it; `service` is the core that all share; `start`, `act`, `input`, `screen` (with its `terminal`), `attach` (with its `shelf`), `wait`, `output`, `filter`, `list`, `events` and `gc` are what
//! the routes call; `attend`, `watch`, `heartbeat`, `deliver` and `webhook` tell owners more than that; `services` has readiness, leased ports and restarts; `owners`, `parents` and `silence` are who they are, whose child each is and how they end; `notes` and `loss` are what keepers tell and how they end; `registry` holds what lives, `ledger` writes the
//! index, `keepers` has the nursery and the links, `recovery` takes up what an earlier daemon left.
//! `agents` hosts agent programs, as a client of the rest.

mod act;
mod agents;
mod attach;
mod attend;
mod claim;
mod clock;
mod coder;
pub mod config;
mod consumers;
mod cut;
mod deliver;
pub mod doctor;
mod events;
mod extract;
mod filter;
mod find;
mod gc;
mod health;
mod heartbeat;
mod home;
mod http;
mod input;
mod json;
mod keepers;
mod ledger;
mod limits;
mod link;
mod list;
mod log;
mod loss;
mod metrics;
mod near;
mod notes;
mod origin;
mod output;
#[doc(hidden)]
pub mod outside;
mod owners;
mod parents;
mod recovery;
mod refusal;
mod registry;
mod relink;
mod render;
mod run;
mod scope;
mod screen;
mod service;
mod services;
mod sessions;
mod shelf;
mod silence;
mod spare;
mod start;
mod stuck;
mod tcp;
mod terminal;
mod threads;
mod tokens;
mod wait;
mod watch;
mod webhook;

pub use run::{Mount, Options, RunError, run};
