//! Waiting for processes: until one exits, closes its output, prints something, falls quiet, listens or is ready.

pub(crate) mod wait;
