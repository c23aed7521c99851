//! The protocols of hosted agents: what an agent says becomes events, what it is to be told becomes messages.
//!
//! Pure: no I/O, no clock, no process. [`Adapter`] is one protocol; a new agent is a file beside [`codex`] and
//! [`claude`] and a line in [`kind`]. [`Conversation`] leads one agent through its turns whatever it speaks, and
//! [`Frames`] cuts what it prints into messages.
//!
//! Invariants that live here, each with a test of its name:
//! - G1 a conversation that is saved and taken up again behaves as the one that was not: what is heard again after
//!   the place at which it was saved has the same effects, under the same keys ([`conversation`]).
//! - G2 every message, list and text of an agent has a bound, and says what is left out ([`bounds`]).

pub mod adapter;
pub mod bounds;
pub mod claude;
pub mod codex;
pub mod conversation;
pub mod frames;
pub mod kind;

pub use adapter::{Adapter, Ended, Heard, Settings};
pub use conversation::{Conversation, Effect, Phase};
pub use frames::{Frame, Frames};
pub use kind::{Kind, UnknownKind};
