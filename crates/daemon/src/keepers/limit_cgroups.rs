//! The cgroups that limit processes: which controllers this machine has, and which limits are refused without them.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pinfold_api::error::ErrorCode;
use pinfold_model::link::LimitPlace;
use pinfold_model::spec::Spec;
use pinfold_os::controllers::{self, Controller, Place, Version};
use pinfold_os::proc;

use crate::config::Containment;
use crate::core::{Core, blocking};
use crate::request_error::RequestError;

/// The name of the parent cgroups of limited trees, beside that of the keepers' own.
pub(crate) fn place_name(cgroup_name: &str) -> String {
    format!("{cgroup_name}-limits")
}

impl Core {
    /// The parent cgroups for the limits of this process; searched for when first needed.
    pub(crate) async fn limit_places(self: &Arc<Self>, spec: &Spec) -> Result<Vec<LimitPlace>, RequestError> {
        let limits = &spec.limits;
        if limits.memory.is_none() && limits.pids.is_none() && limits.millicpus.is_none() {
            return Ok(vec![]);
        }
        let core = Arc::clone(self);
        let places = blocking(move || core.places().to_vec()).await?;
        if limits.millicpus.is_some() && !places.iter().any(|place| place.controller == Controller::Cpu) {
            return Err(self.no_cpu_controller());
        }
        Ok(places.iter().map(link_place).collect())
    }

    fn places(&self) -> &[Place] {
        let find = || match self.config.containment {
            Containment::Auto => controllers::find(&self.limit_name),
            Containment::Subreaper => vec![],
        };
        self.limit_places.get_or_init(find)
    }

    fn no_cpu_controller(&self) -> RequestError {
        let why = match self.config.containment {
            Containment::Subreaper => "`containment = \"subreaper\"` switches cgroups off",
            Containment::Auto => "no cgroup with the cpu controller can be made by this user",
        };
        let message = format!(
            "`cpus` cannot be enforced here: {why}: leave it out, limit the processor time with `cpu_time_limit` instead, or \
             run `pinfold doctor` to see how to get the controller"
        );
        RequestError::new(ErrorCode::InvalidRequest, message)
    }

    /// Removes the limiting cgroups of dead keepers, and their parents once unused.
    pub(super) fn remove_dead_limits(&self) {
        if self.config.containment == Containment::Auto {
            controllers::remove_unused(&controllers::existing(&self.limit_name), is_creator_alive);
        }
    }

    /// Whether an idle keeper still has the cgroups of its last tree: it is about to remove them.
    pub(super) fn has_ended_limits(&self) -> bool {
        let in_use: HashSet<u32> =
            self.registry.live().iter().map(|entry| entry.state.borrow().history.intent.keeper.pid).collect();
        let leaves = self.limit_leaves();
        leaves.iter().any(|leaf| keeper_pid_of(leaf).is_some_and(|pid| !in_use.contains(&pid)))
    }

    /// The cgroups that limit trees, by the pid of their keeper.
    pub(super) fn limits_by_keeper(&self) -> HashMap<u32, Vec<PathBuf>> {
        let mut by_keeper: HashMap<u32, Vec<PathBuf>> = HashMap::new();
        for leaf in self.limit_leaves() {
            if let Some(pid) = keeper_pid_of(&leaf) {
                by_keeper.entry(pid).or_default().push(leaf);
            }
        }
        by_keeper
    }

    fn limit_leaves(&self) -> Vec<PathBuf> {
        if self.config.containment == Containment::Subreaper {
            return vec![];
        }
        let places = controllers::existing(&self.limit_name).into_iter();
        let entries = places.flat_map(|place| std::fs::read_dir(place).into_iter().flatten().flatten());
        entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()).collect()
    }
}

fn keeper_pid_of(leaf: &Path) -> Option<u32> {
    leaf.file_name()?.to_str().and_then(keeper_pid)
}

/// The pid of the keeper or nursery that created a cgroup, from its name.
fn keeper_pid(leaf: &str) -> Option<u32> {
    leaf.rsplit_once('-').and_then(|(_, pid)| pid.parse().ok())
}

/// The start time of the keeper that created a cgroup, from its name; a probe of the nursery has none.
fn keeper_start_time(leaf: &str) -> Option<u64> {
    leaf.strip_prefix("keeper-")?.split('-').next()?.parse().ok()
}

/// Whether the keeper or nursery that created a cgroup is alive. A pid alone proves nothing: it may have been reused.
pub(super) fn is_creator_alive(leaf: &str) -> bool {
    let Some(Ok(stat)) = keeper_pid(leaf).map(proc::stat) else { return false };
    stat.is_living() && keeper_start_time(leaf).is_none_or(|start_time| start_time == stat.start_time)
}

fn link_place(place: &Place) -> LimitPlace {
    LimitPlace {
        controller: place.controller.name().to_owned(),
        v2: place.version == Version::V2,
        path: place.path.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reused_pid_does_not_keep_the_cgroup_of_a_dead_keeper() {
        let pid = std::process::id();
        let start_time = proc::start_time(pid).expect("our own start time");
        assert!(is_creator_alive(&format!("keeper-{start_time}-{pid}")));
        assert!(is_creator_alive(&format!("keeper-{start_time}-7-{pid}")));
        assert!(is_creator_alive(&format!("probe-{pid}")));
        assert!(!is_creator_alive(&format!("keeper-{}-{pid}", start_time + 1)));
        assert!(!is_creator_alive(&format!("keeper-{}-7-{pid}", start_time + 1)));
        assert!(!is_creator_alive("keeper-1-x"));
    }
}
