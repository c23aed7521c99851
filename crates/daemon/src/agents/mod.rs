//! Hosted agents: agent programs that run as managed processes and are controlled through their own protocols.
//!
//! A second product inside the daemon, and a client of the rest: an agent's process has a stdin pipe, and its stdout is
//! read by cursor, so that it runs on without a daemon. A fault here cannot reach the keeping of processes:
//! - Only `host` knows the rest of the daemon, and offers what any client can do. Only `exports`, `recover` and the
//!   routes are reachable from outside. `cargo xtask tidy` checks both.
//! - All code here runs on a thread of its own (`own_thread`), so that it cannot block the daemon's event loop.
//! - If the driver of an agent panics, that agent fails and nothing else does (`supervise`).
//!
//! `driver` is the task of one agent; `starting`, `turns` and `publish` are parts of it, `agent_process` its process.
//! `spec` is the request, `state` what is stored, `handle` what everything else knows of an agent. `interrupt` and
//! `leftovers` interrupt a turn, `ends` stops an agent. `service` is behind `routes`; `observe`, `recent_events`,
//! `agent_socket` and `received` carry messages of agents.
//!
//! Invariants that live here, each with a test of its name:
//! - D11 a finished turn is never run again: its result is on disk before any client gets it, and its idempotency key
//!   finds it as long as the agent is kept.
//! - D12 an agent has at most one running turn: the next starts after the previous one has ended.
//!
//! Bounds: [`requests::MAX_AGENTS`] agents that have not ended, [`spec::MAX_QUEUE`] waiting turns for each,
//! [`spec::MAX_PROMPT`] bytes of a prompt, [`recent_events::MAX_EVENTS`] events in memory; what an agent sends is bounded
//! in [`pinfold_agents::bounds`].
//!
//! May use: registry, waits, access, events, services, processes.

mod agent_process;
mod agent_socket;
mod driver;
mod ends;
mod exports;
mod handle;
mod host;
mod interrupt;
mod leftovers;
mod observe;
mod own_thread;
mod publish;
mod received;
mod recent_events;
mod recover;
mod requests;
mod routes;
mod spec;
mod starting;
mod state;
mod supervise;
mod turns;

pub(crate) use handle::Agents;
pub(crate) use host::{Hosting, routes};
