//! Hosted agents: agent programs that run as kept processes, and are spoken to in their own protocol.
//!
//! A client of the rest of the daemon: an agent is a process with a stdin of its own whose stdout is read by cursor, so
//! that it lives on without a daemon. `spec` is what was asked for, `state` what survives, `seat` what others see of an
//! agent; `driver` leads one agent, with `life` for the process it runs as, `standing` for what it shows and `turns` for what it does; `ladder`
//! interrupts, `ends` ends it with its owner or at a request, `service` is what the routes call, `routes` are they, `events` is what is heard meanwhile, `wire` the WebSocket of an
//! agent that connects to us, `observe` those of observers.
//!
//! Invariants that live here, each with a test of its name:
//! - D8 a turn that was finished is not run again: what it came to is on disk before anybody is told, and a turn's key
//!   finds it for as long as the agent is kept.
//! - D9 turns of one agent are serialised: the next begins when the one before is over.
//!
//! Bounds: [`service::AGENTS_MOST`] agents that are not over, [`spec::QUEUE_MOST`] turns that wait for each,
//! [`spec::PROMPT_MOST`] bytes of a prompt, [`events::KEPT`] events in memory.
//!
//! May use: registry, waits, access, events, processes.

mod driver;
mod ends;
mod events;
mod ladder;
mod leftovers;
mod life;
mod observe;
mod routes;
mod seat;
mod service;
mod spec;
mod standing;
mod state;
mod stream;
mod turns;
mod wire;

pub(crate) use ends::EndingAgents;
pub(crate) use routes::routes;
pub(crate) use seat::Agents;
pub(crate) use service::{recover, tend};
