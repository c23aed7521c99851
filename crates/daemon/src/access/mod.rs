//! Who is asking, and what they may see: the proof that a connection or token gives, and the view that follows from it.
//!
//! `scope` is the view of a caller (D5), `origin` finds out whether a socket connection comes from inside a kept process,
//! `tokens` are for TCP, and `closable` is a connection that is closed when its proof no longer holds.

pub(crate) mod closable;
pub(crate) mod origin;
pub(crate) mod scope;
pub(crate) mod tokens;
