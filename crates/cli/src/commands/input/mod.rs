//! Commands that write to a process: send, attach.

pub(crate) mod attach;
pub(crate) mod copy_stdin;
pub(crate) mod send;
