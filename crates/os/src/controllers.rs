//! Limits a whole process tree with the kernel's cgroup controllers, on v2 or v1, whichever hierarchy has them.
//!
//! Owns the search for directories where limited cgroups can be made, and the limit and event files of the cgroups it
//! made. Each limited tree gets a new cgroup, so its counters start at zero and only count this tree. On v2 the tree is
//! started inside it; on v1 the first process writes itself into `cgroup.procs` before exec.
//!
//! On v2 a controller is used only where the children of a cgroup already have it, or at the root of the hierarchy.
//! Enabling it in any other cgroup that contains processes would fail, or would keep processes from entering that cgroup.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::cgroup::{self, Cgroup};
use crate::mounts;

/// The period over which the CPU quota is measured, in microseconds: the kernel's default.
const CPU_PERIOD_US: u64 = 100_000;
/// Attempts to remove a cgroup whose last process is still exiting, and the pause between them.
const MAX_REMOVE_ATTEMPTS: u32 = 50;
const REMOVE_RETRY_DELAY: Duration = Duration::from_millis(2);

/// A resource that the kernel can limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Controller {
    Memory,
    Pids,
    Cpu,
}

/// The version of the hierarchy that a controller is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    V1,
    V2,
}

/// A directory where cgroups with one controller can be made; a probe cgroup was made there successfully.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub controller: Controller,
    pub version: Version,
    /// The directory in which one leaf cgroup is made per limited tree.
    pub path: PathBuf,
}

/// The limits of a tree; `None` means unlimited.
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

    /// The kernel's name of the controller.
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

    /// The files to write for these limits, in order.
    fn settings(self, version: Version, bounds: &Bounds) -> Vec<Setting> {
        let required = |file, value: String| Setting { file, value, required: true };
        let optional = |file, value: String| Setting { file, value, required: false };
        let limit = self.limit_file(version);
        match (self, version) {
            (Controller::Memory, _) => bounds.memory_bytes.map_or(vec![], |bytes| {
                // Swap counts too, if the kernel accounts for it.
                let swap = match version {
                    Version::V2 => optional("memory.swap.max", "0".to_owned()),
                    Version::V1 => optional("memory.memsw.limit_in_bytes", bytes.to_string()),
                };
                vec![required(limit, bytes.to_string()), swap]
            }),
            (Controller::Pids, _) => bounds.pids.map_or(vec![], |pids| vec![required(limit, pids.to_string())]),
            (Controller::Cpu, _) => bounds.millicpus.map_or(vec![], |millis| {
                let quota = u64::from(millis) * CPU_PERIOD_US / 1000;
                match version {
                    Version::V2 => vec![required(limit, format!("{quota} {CPU_PERIOD_US}"))],
                    Version::V1 => vec![
                        optional("cpu.cfs_period_us", CPU_PERIOD_US.to_string()),
                        required(limit, quota.to_string()),
                    ],
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
    /// Whether the limit fails if this file cannot be written.
    required: bool,
}

/// Finds or makes a directory called `name` for every controller that is usable; v2 is preferred over v1.
pub fn find(name: &str) -> Vec<Place> {
    let mut places = find_v2(name);
    let missing = Controller::ALL.into_iter().filter(|wanted| !places.iter().any(|place| place.controller == *wanted));
    let v1: Vec<Place> = missing.filter_map(|controller| find_v1(controller, name)).collect();
    places.extend(v1);
    places
}

/// The existing directories called `name` in every place where [`find`] could have made one.
pub fn existing(name: &str) -> Vec<PathBuf> {
    let v1 = Controller::ALL.into_iter().filter_map(|controller| mounts::own_v1_place(controller.name()));
    let places: BTreeSet<PathBuf> = mounts::own_v2_places().into_iter().chain(v1).collect();
    places.into_iter().map(|place| place.join(name)).filter(|path| path.is_dir()).collect()
}

/// Removes the unused leaf cgroups below these directories, and each directory that is then empty.
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

/// Of our own cgroup and its ancestors, the nearest one with the largest number of usable controllers.
fn find_v2(name: &str) -> Vec<Place> {
    let mut best: Vec<Controller> = vec![];
    let mut base: Option<PathBuf> = None;
    for place in mounts::own_v2_places() {
        let available = controllers_of_children(&place);
        if available.len() <= best.len() {
            continue;
        }
        let path = place.join(name);
        let enabled = try_v2(&path, &available);
        if enabled.len() > best.len() {
            let previous = base.replace(path);
            previous.map(std::fs::remove_dir);
            best = enabled;
        }
    }
    let place = |controller| base.clone().map(|path| Place { controller, version: Version::V2, path });
    best.into_iter().filter_map(place).collect()
}

/// The controllers that the children of a cgroup have. At the root of the hierarchy, enables the missing ones first.
fn controllers_of_children(place: &Path) -> Vec<Controller> {
    if !place.join("cgroup.type").exists() {
        enable(place, &listed(&place.join("cgroup.controllers")));
    }
    listed(&place.join("cgroup.subtree_control"))
}

/// Makes the directory, enables these controllers for its children and starts a probe process in a child cgroup.
/// Returns the controllers that work there.
fn try_v2(path: &Path, wanted: &[Controller]) -> Vec<Controller> {
    let Ok(created) = cgroup::make_dir(path) else { return vec![] };
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
    if created {
        let _ = std::fs::remove_dir(path);
    }
    vec![]
}

/// Enables controllers for the children of a cgroup, one write each: the kernel may refuse one and accept the others.
fn enable(place: &Path, wanted: &[Controller]) {
    let enabled = listed(&place.join("cgroup.subtree_control"));
    for controller in wanted.iter().filter(|controller| !enabled.contains(controller)) {
        let _ = write(&place.join("cgroup.subtree_control"), &format!("+{}", controller.name()));
    }
}

/// The controllers named in a file.
fn listed(file: &Path) -> Vec<Controller> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.split_ascii_whitespace().filter_map(Controller::parse).collect()
}

/// A directory in our own cgroup of the controller's v1 hierarchy, if processes can be limited there.
fn find_v1(controller: Controller, name: &str) -> Option<Place> {
    let path = mounts::own_v1_place(controller.name())?.join(name);
    let created = cgroup::make_dir(&path).ok()?;
    let probe = path.join(format!("probe-{}", std::process::id()));
    let files = [controller.limit_file(Version::V1), "cgroup.procs"];
    let works = cgroup::make_dir(&probe).is_ok() && files.iter().all(|file| is_writable(&probe.join(file)));
    let _ = std::fs::remove_dir(&probe);
    if !works && created {
        let _ = std::fs::remove_dir(&path);
    }
    works.then_some(Place { controller, version: Version::V1, path })
}

/// The cgroups of one limited tree.
#[derive(Debug)]
pub struct Limited {
    /// The directories made for it, without duplicates.
    directories: Vec<PathBuf>,
    enforced: Vec<(Controller, PathBuf, Version)>,
    v2: Option<Cgroup>,
    /// `cgroup.procs` of the v1 cgroups, open until the tree has entered them.
    entries: Vec<File>,
}

impl Limited {
    /// Makes the leaf cgroup for every controller with a limit. A limit that cannot be set is not enforced: check with
    /// [`Self::enforces`].
    pub fn make(places: &[Place], leaf: &str, bounds: &Bounds) -> Limited {
        let mut limited = Limited { directories: vec![], enforced: vec![], v2: None, entries: vec![] };
        for place in places.iter().filter(|place| place.controller.is_bound(bounds)) {
            // On failure the directory stays in `directories`, and `remove` removes it.
            let _ = limited.add(place, leaf, bounds);
        }
        limited
    }

    fn add(&mut self, place: &Place, leaf: &str, bounds: &Bounds) -> io::Result<()> {
        let path = place.path.join(cgroup::single_component(leaf)?);
        if !self.directories.contains(&path) {
            // Another process may have removed the directory because it was empty.
            if !place.path.exists() {
                cgroup::make_dir(&place.path)?;
            }
            cgroup::make_dir(&path)?;
            self.directories.push(path.clone());
        }
        for setting in place.controller.settings(place.version, bounds) {
            match write(&path.join(setting.file), &setting.value) {
                Err(error) if setting.required => return Err(error),
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

    /// The v2 cgroup that the first process must be started in.
    pub fn v2(&self) -> Option<&Cgroup> {
        self.v2.as_ref()
    }

    /// The `cgroup.procs` files that the first process must write itself into before exec.
    pub fn entries(&self) -> Vec<BorrowedFd<'_>> {
        self.entries.iter().map(AsFd::as_fd).collect()
    }

    /// Closes the `cgroup.procs` files. Call it when the first process has entered the cgroups.
    pub fn entered(&mut self) {
        self.entries.clear();
    }

    /// How many processes of the tree the OOM killer has killed.
    pub fn oom_kills(&self) -> u64 {
        self.count(Controller::Memory, |version| match version {
            Version::V2 => ("memory.events", "oom_kill"),
            Version::V1 => ("memory.oom_control", "oom_kill"),
        })
    }

    /// How often the kernel refused the tree a new process or thread.
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

    /// Removes the cgroups of a tree that has ended. Retries while the last process is still exiting (EBUSY).
    pub fn remove(&self) {
        for path in &self.directories {
            for _ in 0..MAX_REMOVE_ATTEMPTS {
                match cgroup::remove_tree(path) {
                    Err(error) if error.raw_os_error() == Some(libc::EBUSY) => std::thread::sleep(REMOVE_RETRY_DELAY),
                    _ => break,
                }
            }
        }
    }
}

/// The number of a key in a text of `key number` lines.
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
