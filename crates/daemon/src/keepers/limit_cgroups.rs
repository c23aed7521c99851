//! What limits a process on this machine: which controllers there are, and what may be asked for without them.

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
use crate::refusal::Refusal;

/// The name of the places for limited cgroups, beside that for keepers' own.
pub(crate) fn place_name(cgroup_name: &str) -> String {
    format!("{cgroup_name}-limits")
}

impl Core {
    /// Where controllers can limit this process: looked for when the first one needs it.
    pub(crate) async fn limit_places(self: &Arc<Self>, spec: &Spec) -> Result<Vec<LimitPlace>, Refusal> {
        let limits = &spec.limits;
        if limits.memory.is_none() && limits.pids.is_none() && limits.millicpus.is_none() {
            return Ok(vec![]);
        }
        let core = Arc::clone(self);
        let places = blocking(move || core.places().to_vec()).await?;
        if limits.millicpus.is_some() && !places.iter().any(|place| place.controller == Controller::Cpu) {
            return Err(self.no_cpu_controller());
        }
        Ok(places.iter().map(told).collect())
    }

    fn places(&self) -> &[Place] {
        let find = || match self.config.containment {
            Containment::Auto => controllers::find(&self.limit_name),
            Containment::Subreaper => vec![],
        };
        self.limit_places.get_or_init(find)
    }

    fn no_cpu_controller(&self) -> Refusal {
        let why = match self.config.containment {
            Containment::Subreaper => "`containment = \"subreaper\"` switches cgroups off",
            Containment::Auto => "no cgroup with the cpu controller can be made by this user",
        };
        let message = format!(
            "`cpus` cannot be kept here: {why}: leave it out, bound the processor time with `cpu_time_limit` instead, or \
             see `pinfold doctor` for what would give the controller"
        );
        Refusal::new(ErrorCode::InvalidRequest, message)
    }

    /// Removes the limiting cgroups whose keepers are dead, wherever this home may have made them; and the places, once
    /// nobody uses them.
    pub(super) fn remove_dead_limits(&self) {
        if self.config.containment == Containment::Auto {
            controllers::remove_unused(&controllers::existing(&self.limit_name), |leaf| {
                maker(leaf).is_some_and(|pid| proc::stat(pid).is_ok_and(|stat| stat.is_living()))
            });
        }
    }

    /// Whether a keeper that keeps nothing any more still has cgroups that limited its last tree: it is about to remove
    /// them.
    pub(super) fn has_ended_limits(&self) -> bool {
        let kept: HashSet<u32> =
            self.registry.live().iter().map(|entry| entry.state.borrow().history.intent.keeper.pid).collect();
        let leaves = self.limit_leaves();
        leaves.iter().any(|leaf| maker_of(leaf).is_some_and(|pid| !kept.contains(&pid)))
    }

    /// The cgroups that limit trees, by the pid of the keeper that made them.
    pub(super) fn limits_by_keeper(&self) -> HashMap<u32, Vec<PathBuf>> {
        let mut by_keeper: HashMap<u32, Vec<PathBuf>> = HashMap::new();
        for leaf in self.limit_leaves() {
            if let Some(pid) = maker_of(&leaf) {
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

fn maker_of(leaf: &Path) -> Option<u32> {
    leaf.file_name()?.to_str().and_then(maker)
}

/// The pid of whoever made a leaf.
pub(super) fn maker(leaf: &str) -> Option<u32> {
    leaf.rsplit_once('-').and_then(|(_, pid)| pid.parse().ok())
}

fn told(place: &Place) -> LimitPlace {
    LimitPlace {
        controller: place.controller.name().to_owned(),
        v2: place.version == Version::V2,
        path: place.path.clone(),
    }
}
