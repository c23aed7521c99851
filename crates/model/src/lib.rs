//! What states, requests and outcomes mean, and every policy decision.
//!
//! Pure: no I/O, no clock, no logging, no async; time comes in as a value. Other crates carry out what is decided
//! here.

pub mod admission;
pub mod cached_json;
pub mod clock_steps;
pub mod environment;
pub mod event;
pub mod facts;
pub mod id;
pub mod input;
pub mod keyboard;
pub mod lifecycle;
pub mod lifecycle_table;
pub mod limits;
pub mod link;
pub mod loss;
pub mod notify;
pub mod outcome;
pub mod output_view;
pub mod owner;
pub mod reach;
pub mod ready;
pub mod restart;
pub mod sandbox;
pub mod service;
pub mod signal;
pub mod spec;
pub mod trace;
pub mod units;
