//! Commands that show what processes print and what happened to them: logs, terminals, events, and `top` with all of them.

pub(crate) mod copy_output;
pub(crate) mod events;
mod interleave;
pub(crate) mod logs;
pub(crate) mod terminal;
pub(crate) mod top;
