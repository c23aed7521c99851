//! Authentication: what a connection or a token proves, and which owner a request may act as.
//!
//! `caller` is the author of a request (D5); `origin` determines whether a socket connection comes from inside a kept
//! process; `tokens` are for TCP; `parents` decides who may set an owner's parent; `sandboxed` what a
//! sandboxed process may ask for; `closable` is a connection that is
//! closed when its authentication is withdrawn.
//!
//! May use: registry; by exception: events, agents.

pub(crate) mod caller;
pub(crate) mod closable;
pub(crate) mod origin;
mod parents;
pub(crate) mod sandboxed;
pub(crate) mod tokens;
