//! Commands about processes: list, show, wait, stop, restart, rerun, signal, pause, remove, count; up and down for project files.

pub(crate) mod gc;
pub(crate) mod pause;
pub(crate) mod ps;
pub(crate) mod rerun;
pub(crate) mod restart;
pub(crate) mod rm;
pub(crate) mod sandbox;
pub(crate) mod show;
pub(crate) mod signal;
pub(crate) mod stats;
pub(crate) mod stop;
pub(crate) mod up;
pub(crate) mod wait;
