//! Limits of a whole tree by the kernel's cgroup controllers, on v2 or on v1, whichever hierarchy has them.
//!
//! Owns the search for places where limited cgroups can be made, and the limit and event files of those it made. A
//! limited tree gets a cgroup that no other had before: its counters begin at zero, so that what they show is
//! of this tree. On v2 the tree is born into it; on v1 it enters by writing itself into `cgroup.procs` before exec.
//!
//! On v2 a controller is used only where the children of a place already have it, or at the root of the
//! hierarchy. Enabling it in any other cgroup that holds processes would fail, or keep others from entering it.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::cgroup::{self, Cgroup};
use crate::mounts;

/// The period over which a share of cores is measured, in microseconds: the kernel's own default.
const CPU_PERIOD_US: u64 = 100_000;
/// How often the removal of a cgroup whose last process is just leaving is tried, and how long between.
const REMOVALS: u32 = 50;
const REMOVE_AGAIN: Duration = Duration::from_millis(2);

/// What the kernel can be asked to limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Controller {
    Memory,
    Pids,
    Cpu,
}

/// Which kind of hierarchy a controller is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    V1,
    V2,
}

/// Where the cgroups that limit one thing are made: this was tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub controller: Controller,
    pub version: Version,
    /// The directory in which a leaf is made for each limited tree.
    pub path: PathBuf,
}

/// What a tree may use; `None` is no bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    pub memory_bytes: Option<u64>,
    /// Processes and threads.
    pub pids: Option<u32>,
    /// Thousandths of a core.
    pub millicpus: Option<u32>,
}

impl Controller {
    pub const ALL: [Controller; 3] = [Controller::Memory, Controller::Pids, Controller::Cpu];

    /// The kernel's name.
    pub fn name(self) -> &'static str {
        match self {
            Controller::Memory => "memory",
            Controller::Pids => "pids",
            Controller::Cpu => "cpu",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|controller| controller.name() == name)
    }

    /// The file that holds the limit.
    fn limit_file(self, version: Version) -> &'static str {
        match (self, version) {
            (Controller::Memory, Version::V2) => "memory.max",
            (Controller::Memory, Version::V1) => "memory.limit_in_bytes",
            (Controller::Pids, _) => "pids.max",
            (Controller::Cpu, Version::V2) => "cpu.max",
            (Controller::Cpu, Version::V1) => "cpu.cfs_quota_us",
        }
    }

    /// The files to write for these bounds, in order, each with whether the limit holds without it.
    fn settings(self, version: Version, bounds: &Bounds) -> Vec<Setting> {
        let needed = |file, value: String| Setting { file, value, needed: true };
        let extra = |file, value: String| Setting { file, value, needed: false };
        let limit = self.limit_file(version);
        match (self, version) {
            (Controller::Memory, _) => bounds.memory_bytes.map_or(vec![], |bytes| {
                // What is swapped out counts as well, where the kernel accounts for swap.
                let swap = match version {
                    Version::V2 => extra("memory.swap.max", "0".to_owned()),
                    Version::V1 => extra("memory.memsw.limit_in_bytes", bytes.to_string()),
                };
                vec![needed(limit, bytes.to_string()), swap]
            }),
            (Controller::Pids, _) => bounds.pids.map_or(vec![], |pids| vec![needed(limit, pids.to_string())]),
            (Controller::Cpu, _) => bounds.millicpus.map_or(vec![], |millis| {
                let quota = u64::from(millis) * CPU_PERIOD_US / 1000;
                match version {
                    Version::V2 => vec![needed(limit, format!("{quota} {CPU_PERIOD_US}"))],
                    Version::V1 => {
                        vec![extra("cpu.cfs_period_us", CPU_PERIOD_US.to_string()), needed(limit, quota.to_string())]
                    }
                }
            }),
        }
    }

    fn is_bound(self, bounds: &Bounds) -> bool {
        match self {
            Controller::Memory => bounds.memory_bytes.is_some(),
            Controller::Pids => bounds.pids.is_some(),
            Controller::Cpu => bounds.millicpus.is_some(),
        }
    }
}

struct Setting {
    file: &'static str,
    value: String,
    /// Without an extra one the limit holds as well.
    needed: bool,
}

/// Finds, or makes, the places called `name` for every controller that can be had; v2 goes before v1.
pub fn find(name: &str) -> Vec<Place> {
    let mut places = find_v2(name);
    let missing = Controller::ALL.into_iter().filter(|wanted| !places.iter().any(|place| place.controller == *wanted));
    let v1: Vec<Place> = missing.filter_map(|controller| find_v1(controller, name)).collect();
    places.extend(v1);
    places
}

/// The directories called `name` that exist, wherever [`find`] could have made them.
pub fn existing(name: &str) -> Vec<PathBuf> {
    let v1 = Controller::ALL.into_iter().filter_map(|controller| mounts::own_v1_place(controller.name()));
    let places: BTreeSet<PathBuf> = mounts::own_v2_places().into_iter().chain(v1).collect();
    places.into_iter().map(|place| place.join(name)).filter(|path| path.is_dir()).collect()
}

/// Removes the leaves below these directories that nobody uses any more, and the directories once they are empty.
pub fn remove_unused(directories: &[PathBuf], is_used: impl Fn(&str) -> bool) {
    for directory in directories {
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
        let leaves = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        for leaf in leaves.filter(|leaf| !leaf.file_name().to_str().is_some_and(&is_used)) {
            let _ = cgroup::remove_tree(&leaf.path());
        }
        let _ = std::fs::remove_dir(directory);
    }
}

/// The nearest place above us, ourselves included, that has the most of the controllers.
fn find_v2(name: &str) -> Vec<Place> {
    let mut best: Vec<Controller> = vec![];
    let mut base: Option<PathBuf> = None;
    for place in mounts::own_v2_places() {
        let given = given_to_children(&place);
        if given.len() <= best.len() {
            continue;
        }
        let path = place.join(name);
        let enabled = try_v2(&path, &given);
        if enabled.len() > best.len() {
            let passed_over = base.replace(path);
            passed_over.map(std::fs::remove_dir);
            best = enabled;
        }
    }
    let place = |controller| base.clone().map(|path| Place { controller, version: Version::V2, path });
    best.into_iter().filter_map(place).collect()
}

/// The controllers that the children of a cgroup have; the root of the hierarchy is asked to give more.
fn given_to_children(place: &Path) -> Vec<Controller> {
    if !place.join("cgroup.type").exists() {
        enable(place, &listed(&place.join("cgroup.controllers")));
    }
    listed(&place.join("cgroup.subtree_control"))
}

/// Makes a place and gives these controllers to its children; those that worked, once a child was born there.
fn try_v2(path: &Path, wanted: &[Controller]) -> Vec<Controller> {
    let Ok(fresh) = cgroup::make_dir(path) else { return vec![] };
    enable(path, wanted);
    let enabled: Vec<Controller> = listed(&path.join("cgroup.subtree_control"));
    let probe = path.join(format!("probe-{}", std::process::id()));
    let works = cgroup::make_dir(&probe).and_then(|_| Cgroup::open(&probe)).is_ok_and(|leaf| {
        let writable = |controller: &Controller| is_writable(&probe.join(controller.limit_file(Version::V2)));
        enabled.iter().all(writable) && cgroup::enter_once(leaf.fd()).is_ok()
    });
    let _ = std::fs::remove_dir(&probe);
    if works {
        return enabled;
    }
    if fresh {
        let _ = std::fs::remove_dir(path);
    }
    vec![]
}

/// Gives controllers to the children of a cgroup, one by one: what one of them is refused, the others may get.
fn enable(place: &Path, wanted: &[Controller]) {
    let given = listed(&place.join("cgroup.subtree_control"));
    for controller in wanted.iter().filter(|controller| !given.contains(controller)) {
        let _ = write(&place.join("cgroup.subtree_control"), &format!("+{}", controller.name()));
    }
}

/// The controllers named in a file.
fn listed(file: &Path) -> Vec<Controller> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.split_ascii_whitespace().filter_map(Controller::parse).collect()
}

/// A place in our own cgroup of the controller's v1 hierarchy, if a process can be limited there.
fn find_v1(controller: Controller, name: &str) -> Option<Place> {
    let path = mounts::own_v1_place(controller.name())?.join(name);
    let fresh = cgroup::make_dir(&path).ok()?;
    let probe = path.join(format!("probe-{}", std::process::id()));
    let files = [controller.limit_file(Version::V1), "cgroup.procs"];
    let works = cgroup::make_dir(&probe).is_ok() && files.iter().all(|file| is_writable(&probe.join(file)));
    let _ = std::fs::remove_dir(&probe);
    if !works && fresh {
        let _ = std::fs::remove_dir(&path);
    }
    works.then_some(Place { controller, version: Version::V1, path })
}

/// The cgroups of one limited tree.
#[derive(Debug)]
pub struct Limited {
    /// The directories made for it, each once.
    directories: Vec<PathBuf>,
    enforced: Vec<(Controller, PathBuf, Version)>,
    v2: Option<Cgroup>,
    /// `cgroup.procs` of the v1 ones, open until the tree has entered.
    entries: Vec<File>,
}

impl Limited {
    /// Makes the leaf wherever something is bound. A bound that cannot be set is not enforced; ask [`Self::enforces`].
    pub fn make(places: &[Place], leaf: &str, bounds: &Bounds) -> Limited {
        let mut limited = Limited { directories: vec![], enforced: vec![], v2: None, entries: vec![] };
        for place in places.iter().filter(|place| place.controller.is_bound(bounds)) {
            // One that fails leaves its directory to the removal of all.
            let _ = limited.add(place, leaf, bounds);
        }
        limited
    }

    fn add(&mut self, place: &Place, leaf: &str, bounds: &Bounds) -> io::Result<()> {
        let path = place.path.join(cgroup::single_component(leaf)?);
        if !self.directories.contains(&path) {
            // The place may have been removed by somebody who found it empty.
            if !place.path.exists() {
                cgroup::make_dir(&place.path)?;
            }
            cgroup::make_dir(&path)?;
            self.directories.push(path.clone());
        }
        for setting in place.controller.settings(place.version, bounds) {
            match write(&path.join(setting.file), &setting.value) {
                Err(error) if setting.needed => return Err(error),
                _ => {}
            }
        }
        match place.version {
            Version::V2 if self.v2.is_none() => self.v2 = Some(Cgroup::open(&path)?),
            Version::V2 => {}
            Version::V1 => self.entries.push(OpenOptions::new().write(true).open(path.join("cgroup.procs"))?),
        }
        self.enforced.push((place.controller, path, place.version));
        Ok(())
    }

    pub fn enforces(&self, controller: Controller) -> bool {
        self.enforced.iter().any(|(enforced, _, _)| *enforced == controller)
    }

    /// The v2 cgroup, into which the tree must be born.
    pub fn v2(&self) -> Option<&Cgroup> {
        self.v2.as_ref()
    }

    /// What the first process of the tree must write itself into before exec.
    pub fn entries(&self) -> Vec<BorrowedFd<'_>> {
        self.entries.iter().map(AsFd::as_fd).collect()
    }

    /// The tree has entered, and will not again.
    pub fn entered(&mut self) {
        self.entries.clear();
    }

    /// How many processes of the tree the kernel killed for want of memory.
    pub fn oom_kills(&self) -> u64 {
        self.count(Controller::Memory, |version| match version {
            Version::V2 => ("memory.events", "oom_kill"),
            Version::V1 => ("memory.oom_control", "oom_kill"),
        })
    }

    /// How often the kernel refused the tree another process or thread.
    pub fn refused_forks(&self) -> u64 {
        self.count(Controller::Pids, |_| ("pids.events", "max"))
    }

    fn count(&self, wanted: Controller, file: impl Fn(Version) -> (&'static str, &'static str)) -> u64 {
        let Some((_, path, version)) = self.enforced.iter().find(|(controller, _, _)| *controller == wanted) else {
            return 0;
        };
        let (file, key) = file(*version);
        std::fs::read_to_string(path.join(file)).ok().and_then(|text| value_of(&text, key)).unwrap_or(0)
    }

    /// Removes the cgroups of a tree that is gone. The last of it may still be leaving: tried again for a while.
    pub fn remove(&self) {
        for path in &self.directories {
            for _ in 0..REMOVALS {
                match cgroup::remove_tree(path) {
                    Err(error) if error.raw_os_error() == Some(libc::EBUSY) => std::thread::sleep(REMOVE_AGAIN),
                    _ => break,
                }
            }
        }
    }
}

/// The number behind a key in a file of `key number` lines.
pub(crate) fn value_of(text: &str, key: &str) -> Option<u64> {
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.filter(|(name, _)| *name == key).find_map(|(_, value)| value.trim().parse().ok())
}

fn write(path: &Path, value: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(path)?.write_all(value.as_bytes())
}

fn is_writable(path: &Path) -> bool {
    OpenOptions::new().write(true).open(path).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bound_is_written_as_its_hierarchy_wants_it() {
        let bounds = Bounds { memory_bytes: Some(1 << 20), pids: Some(7), millicpus: Some(1500) };
        let written = |version| -> Vec<(&str, String)> {
            let settings = Controller::ALL.into_iter().flat_map(|controller| controller.settings(version, &bounds));
            settings.map(|setting| (setting.file, setting.value)).collect()
        };
        let expected = |pairs: &[(&'static str, &str)]| -> Vec<(&str, String)> {
            pairs.iter().map(|(file, value)| (*file, (*value).to_owned())).collect()
        };
        assert_eq!(
            written(Version::V2),
            expected(&[
                ("memory.max", "1048576"),
                ("memory.swap.max", "0"),
                ("pids.max", "7"),
                ("cpu.max", "150000 100000")
            ])
        );
        assert_eq!(
            written(Version::V1),
            expected(&[
                ("memory.limit_in_bytes", "1048576"),
                ("memory.memsw.limit_in_bytes", "1048576"),
                ("pids.max", "7"),
                ("cpu.cfs_period_us", "100000"),
                ("cpu.cfs_quota_us", "150000")
            ])
        );
    }

    #[test]
    fn nothing_is_made_for_what_is_not_bound() {
        let place = Place { controller: Controller::Memory, version: Version::V1, path: "/nowhere".into() };
        let limited = Limited::make(&[place], "leaf", &Bounds { pids: Some(1), ..Bounds::default() });
        assert!(limited.directories.is_empty() && limited.v2().is_none() && limited.entries().is_empty());
        assert_eq!((limited.oom_kills(), limited.refused_forks()), (0, 0));
    }

    #[test]
    fn counters_are_read_by_their_exact_name() {
        let events = "low 0\nhigh 3\nmax 14\noom 2\noom_kill 1\noom_group_kill 9\n";
        assert_eq!((value_of(events, "oom_kill"), value_of(events, "oom")), (Some(1), Some(2)));
        assert_eq!(value_of("oom_kill_disable 0\nunder_oom 0\noom_kill 5\n", "oom_kill"), Some(5));
        assert_eq!((value_of("", "max"), value_of("max much\n", "max")), (None, None));
    }
}
