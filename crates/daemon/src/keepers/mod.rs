//! Keepers as the daemon sees them: forking, their messages, reconnecting, and their deaths.
//!
//! `pool` has the nursery and the idle keepers, `taken` is one that was taken for a start; `facts` records what keepers
//! report; `reconnect` is what happens when a link closes, and `death` determines how the process of a dead keeper
//! ended; `limit_cgroups` has the cgroups that limit processes.
//!
//! May use: registry, telemetry, events, output, services.

pub(crate) mod death;
mod facts;
pub(crate) mod limit_cgroups;
pub(crate) mod pool;
pub(crate) mod reconnect;
mod taken;
