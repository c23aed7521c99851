//! Keepers as the daemon sees them: forking, connecting, their messages, and their deaths.
//!
//! `pool` has the nursery and the idle keepers, `taken` is one that was taken for a start; `link` is the connection to
//! one keeper and `reconnect` what happens when it closes; `facts` records what keepers report, `death` settles what a dead
//! keeper left; `limit_cgroups` has the cgroups that limit processes.

pub(crate) mod death;
pub(crate) mod facts;
pub(crate) mod limit_cgroups;
pub(crate) mod link;
pub(crate) mod pool;
pub(crate) mod reconnect;
mod taken;
