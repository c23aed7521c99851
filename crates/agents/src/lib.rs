//! The protocols of hosted agents: parses an agent's messages into events, and turns requests into messages to it.
//!
//! Pure: no I/O, no clock, no process. [`Adapter`] is one protocol; to add an agent, add a file beside [`codex`] and
//! [`claude`] and a line in [`kind`]. [`Conversation`] runs the turns of one agent, whatever its protocol, and
//! [`Frames`] splits its output into messages.
//!
//! Invariants of this crate, each with a test of its name:
//! - G1 a conversation that is saved and restored behaves like one that was not: messages that are processed again after
//!   the point where it was saved have the same effects, under the same keys ([`conversation`]).
//! - G2 every message, list and text of an agent has a bound, and says how much was left out ([`bounds`]).

pub mod adapter;
pub mod bounds;
pub mod claude;
pub mod codex;
pub mod conversation;
pub mod frames;
pub mod kind;

pub use adapter::{Adapter, AgentMessage, Settings, TurnEnd};
pub use conversation::{Conversation, Effect, Phase};
pub use frames::{Frame, Frames};
pub use kind::{Kind, UnknownKind};
