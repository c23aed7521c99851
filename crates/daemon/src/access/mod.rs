//! Who is asking: what a connection or a token proves, and whom a request may act as.
//!
//! `caller` is whoever made a request (D5), `origin` finds out whether a socket connection comes from inside a kept process,
//! `tokens` are for TCP, `parents` decides who may say whose child an owner is, and `closable` is a connection that is closed
//! when its proof no longer holds.
//!
//! May use: registry; by exception: events, agents.

pub(crate) mod caller;
pub(crate) mod closable;
pub(crate) mod origin;
mod parents;
pub(crate) mod tokens;
