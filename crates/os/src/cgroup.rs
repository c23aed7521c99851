//! cgroup v2 as a container for one process tree: found without configuration, killed and frozen as a whole.
//!
//! Owns the search for a directory where cgroups can be made, and the `cgroup.*` files of the cgroups it made. It sets
//! no limits and enables no controller, so the kernel's "no internal processes" rule does not apply, and a child of our
//! own cgroup can be used. Whether a directory works is tested by starting a process in it: a successful mkdir proves
//! nothing (on a hybrid host `/sys/fs/cgroup` is a tmpfs), and permission to enter depends on ancestors we cannot see.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;

use crate::controllers::value_of;
use crate::mounts::{self, CGROUP2_SUPER_MAGIC};

/// clone3: start the child in the cgroup of `clone_args.cgroup`. `libc::CLONE_INTO_CGROUP` is an `int` that overflows
/// to 0.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
/// clone3: return a pidfd of the child.
const CLONE_PIDFD: u64 = 0x1000;
/// Maximum number of cgroups visited below one; processes in further ones are not listed.
const MAX_SUBGROUPS: usize = 4096;
/// Maximum time to wait for a change of a cgroup; a longer deadline is cut to this.
const MAX_WAIT: Duration = Duration::from_secs(24 * 3600);

/// Why processes cannot be put into a cgroup here. Each message says what would help.
#[derive(Debug, thiserror::Error)]
pub enum Unavailable {
    /// There is no cgroup v2 at all.
    #[error("no cgroup v2 hierarchy is mounted; mount one with `mount -t cgroup2 none /sys/fs/cgroup/unified`")]
    NoMount,
    /// Our own cgroup is outside of what the mount shows, as in some containers.
    #[error(
        "our own cgroup {own} is not visible below the cgroup v2 mount {mount}; start the container with its own cgroup namespace"
    )]
    NotVisible {
        /// Where cgroup v2 is mounted.
        mount: PathBuf,
        /// Our own cgroup, as the kernel names it.
        own: String,
    },
    /// No cgroup can be made in our own cgroup or in any ancestor.
    #[error(
        "no cgroup can be made at {path} ({error}); run as root, or delegate one: `systemd-run --user --scope -p Delegate=yes`"
    )]
    NotWritable {
        /// The nearest directory tried.
        path: PathBuf,
        /// What the kernel said.
        error: io::Error,
    },
    /// The kernel has no `cgroup.kill`.
    #[error("{path} has no cgroup.kill; Linux 5.14 or newer has it")]
    NoKill {
        /// The cgroup that was tried.
        path: PathBuf,
    },
    /// A cgroup can be made, but no process can be started in it.
    #[error(
        "no process can be started in {path} ({error}); start pinfold inside the delegated cgroup, and allow clone3 in the sandbox"
    )]
    CannotEnter {
        /// The cgroup that was tried.
        path: PathBuf,
        /// What the kernel said.
        error: io::Error,
    },
}

/// A cgroup in which child cgroups can be made, entered and killed, as a probe has shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Base(PathBuf);

/// One cgroup, held open.
#[derive(Debug)]
pub struct Cgroup {
    path: PathBuf,
    dir: OwnedFd,
    /// `cgroup.events`, kept open because it is read often.
    events: File,
}

/// Makes or reuses the cgroup `name` in our own cgroup or the nearest ancestor where it works.
///
/// Tests each one by starting a child in it that exits at once (fork semantics, no SIGCHLD). The child makes a single
/// system call, so a process with threads may call this too.
pub fn open_base(name: &str) -> Result<Base, Unavailable> {
    let mount = mounts::find_v2().ok_or(Unavailable::NoMount)?;
    let own = mounts::own_v2().unwrap_or_default();
    let Some(below) = mounts::visible_below(&mount.root, &own) else {
        return Err(Unavailable::NotVisible { mount: mount.point, own });
    };
    let mut nearest = None;
    for place in below.ancestors() {
        match try_base(&mount.point.join(place), name) {
            Ok(base) => return Ok(base),
            Err(refusal) => nearest = nearest.or(Some(refusal)),
        }
    }
    Err(nearest.unwrap_or(Unavailable::NoMount))
}

impl Base {
    /// The directory in which leaf cgroups are made.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// A base that another process made. Not probed: only for removing what is in it.
    pub fn existing(path: &Path) -> Base {
        Base(path.to_owned())
    }

    /// Makes the leaf cgroup, or opens it if it exists.
    pub fn make(&self, leaf: &str) -> io::Result<Cgroup> {
        let path = self.0.join(single_component(leaf)?);
        make_dir(&path)?;
        Cgroup::open(&path)
    }

    /// Removes the empty leaf cgroups that are not in use: those whose keepers were killed.
    pub fn remove_unused(&self, is_used: impl Fn(&str) -> bool) {
        let Ok(entries) = std::fs::read_dir(&self.0) else { return };
        let leaves = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        for leaf in leaves.filter(|leaf| !leaf.file_name().to_str().is_some_and(&is_used)) {
            let _ = Cgroup::open(&leaf.path()).and_then(|unused| unused.remove());
        }
    }

    /// Removes the base if there is no cgroup in it.
    pub fn remove_if_empty(&self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

impl Cgroup {
    /// Opens an existing cgroup; fails for a directory of any other file system.
    pub fn open(path: &Path) -> io::Result<Cgroup> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(path, flags, Mode::empty())?;
        if !is_cgroup2(&dir)? {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a cgroup v2 directory"));
        }
        let events = openat(&dir, "cgroup.events", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?.into();
        Ok(Cgroup { path: path.to_owned(), dir, events })
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The descriptor to pass to clone3 to start a child in this cgroup.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// Kills every process in this cgroup and below, including forks in progress. Does not wait until they have exited.
    pub fn kill(&self) -> io::Result<()> {
        self.write("cgroup.kill", b"1")
    }

    /// Asks the kernel to freeze or thaw every process here and below; [`Cgroup::wait_frozen`] waits until it is frozen.
    pub fn freeze(&self, on: bool) -> io::Result<()> {
        self.write("cgroup.freeze", if on { b"1" } else { b"0" })
    }

    /// Whether there is a living process here or below. Zombies do not count; a removed cgroup is empty.
    pub fn is_populated(&self) -> io::Result<bool> {
        Ok(flags_of(&self.events)?.0)
    }

    /// Whether the cgroup is empty and not frozen, so that a new process can run in it. Thaws it first if needed: a
    /// cgroup whose last process was killed while frozen stays frozen. One below a frozen cgroup cannot be thawed.
    pub fn is_vacant(&self) -> io::Result<bool> {
        let (mut populated, mut frozen) = flags_of(&self.events)?;
        if frozen {
            self.freeze(false)?;
            (populated, frozen) = flags_of(&self.events)?;
        }
        Ok(!populated && !frozen)
    }

    /// Waits until there is no living process here or below; false if the deadline passed first.
    pub fn wait_empty(&self, deadline: Duration) -> io::Result<bool> {
        self.wait_until(deadline, |(populated, _)| !populated)
    }

    /// Waits until every process here and below is frozen; false if the deadline passed first.
    pub fn wait_frozen(&self, deadline: Duration) -> io::Result<bool> {
        self.wait_until(deadline, |(_, frozen)| frozen)
    }

    /// Waits until the flags (populated, frozen) satisfy the condition.
    fn wait_until(&self, deadline: Duration, is_reached: impl Fn((bool, bool)) -> bool) -> io::Result<bool> {
        let end = Instant::now() + deadline.min(MAX_WAIT);
        // The kernel signals POLLPRI when the file has changed since the last read.
        while !is_reached(flags_of(&self.events)?) {
            let remaining = end.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                return Ok(false);
            }
            let timeout = Timespec { tv_sec: remaining.as_secs() as i64, tv_nsec: i64::from(remaining.subsec_nanos()) };
            match poll(&mut [PollFd::new(&self.events, PollFlags::PRI)], Some(&timeout)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(true)
    }

    /// The processes here and in all cgroups below, each once. Processes outside of our pid namespace are left out.
    pub fn members(&self) -> io::Result<Vec<u32>> {
        let mut pids = BTreeSet::new();
        for group in with_subgroups(&self.path)? {
            match std::fs::read_to_string(group.join("cgroup.procs")) {
                Ok(list) => pids.extend(list.lines().filter_map(|line| line.parse::<u32>().ok())),
                // A threaded cgroup: its processes are listed in its domain cgroup.
                Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {}
                Err(error) if is_removed(&error) => {}
                Err(error) => return Err(error),
            }
        }
        pids.remove(&0);
        Ok(pids.into_iter().collect())
    }

    /// Removes this cgroup and all below it; EBUSY while there is a living process in any of them.
    pub fn remove(&self) -> io::Result<()> {
        remove_tree(&self.path)
    }

    /// Removes this cgroup and all below it. Waits at most `timeout` for a last process that is still exiting.
    pub fn remove_when_empty(&self, timeout: Duration) -> io::Result<()> {
        self.wait_empty(timeout)?;
        self.remove()
    }

    /// CPU time of everything that ran here and below since the cgroup was made. Needs no controller.
    pub fn cpu_time(&self) -> io::Result<Duration> {
        let mut text = String::new();
        self.open_file("cpu.stat", OFlags::RDONLY)?.read_to_string(&mut text)?;
        Ok(Duration::from_micros(value_of(&text, "usage_usec").unwrap_or(0)))
    }

    fn open_file(&self, name: &str, flags: OFlags) -> io::Result<File> {
        Ok(openat(&self.dir, name, flags | OFlags::CLOEXEC, Mode::empty())?.into())
    }

    fn write(&self, name: &str, value: &[u8]) -> io::Result<()> {
        self.open_file(name, OFlags::WRONLY)?.write_all(value)
    }
}

/// Removes a cgroup of either version and all below it; EBUSY while there is a living process in any of them.
pub(crate) fn remove_tree(path: &Path) -> io::Result<()> {
    for group in with_subgroups(path)?.iter().rev() {
        match std::fs::remove_dir(group) {
            Err(error) if !is_removed(&error) => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// A cgroup and all below it, parents before children.
fn with_subgroups(path: &Path) -> io::Result<Vec<PathBuf>> {
    let mut groups = vec![path.to_owned()];
    let mut next = 0;
    while next < groups.len() {
        match std::fs::read_dir(&groups[next]) {
            Ok(entries) => {
                let below = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
                groups.extend(below.map(|entry| entry.path()).take(MAX_SUBGROUPS.saturating_sub(groups.len())));
            }
            Err(error) if is_removed(&error) => {}
            Err(error) => return Err(error),
        }
        next += 1;
    }
    Ok(groups)
}

fn try_base(place: &Path, name: &str) -> Result<Base, Unavailable> {
    let path = place.join(name);
    let refused = |error: io::Error| Unavailable::NotWritable { path: path.clone(), error };
    single_component(name).map_err(refused)?;
    let created = make_dir(&path).map_err(refused)?;
    let base = Base(path.clone());
    let result = base.make(&format!("probe-{}", std::process::id())).map_err(refused).and_then(|probe| {
        let result = try_probe(&probe);
        // If the removal fails, the empty probe stays until the next process with this pid reuses it.
        let _ = probe.remove();
        result
    });
    if result.is_err() && created {
        let _ = std::fs::remove_dir(&path);
    }
    result.map(|()| base)
}

fn try_probe(probe: &Cgroup) -> Result<(), Unavailable> {
    let path = probe.path().to_owned();
    match probe.open_file("cgroup.kill", OFlags::WRONLY) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(Unavailable::NoKill { path });
        }
        Err(error) => return Err(Unavailable::NotWritable { path, error }),
        Ok(_) => {}
    }
    enter_once(probe.fd()).map_err(|error| Unavailable::CannotEnter { path, error })
}

/// Starts a child in the cgroup that exits at once, and reaps it.
pub(crate) fn enter_once(cgroup: BorrowedFd<'_>) -> io::Result<()> {
    let mut pidfd: libc::c_int = -1;
    // SAFETY: `clone_args` is a plain C structure of integers, for which all zeroes is a valid value.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = CLONE_INTO_CGROUP | CLONE_PIDFD;
    args.pidfd = &raw mut pidfd as u64;
    args.cgroup = cgroup.as_raw_fd() as u64;
    // exit_signal stays 0: no SIGCHLD is raised, and no `wait` for any child without __WALL reaps this one.
    // SAFETY: without CLONE_VM the child has its own copy of memory; the arguments outlive the call.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of::<libc::clone_args>()) };
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    if pid == 0 {
        // SAFETY: `_exit` is async-signal-safe, so the child of a process with threads may call it.
        unsafe { libc::_exit(0) }
    }
    // SAFETY: clone3 succeeded with CLONE_PIDFD, so `pidfd` is a new descriptor that nothing else owns.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    reap(&pidfd)
}

fn reap(pidfd: &OwnedFd) -> io::Result<()> {
    loop {
        let id = pidfd.as_raw_fd() as libc::id_t;
        let options = libc::WEXITED | libc::__WALL;
        // SAFETY: the descriptor is open; a null siginfo is allowed and means that none is returned.
        let answer = unsafe { libc::waitid(libc::P_PIDFD, id, std::ptr::null_mut(), options) };
        if answer == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Makes the directory; `false` if it already exists.
pub(crate) fn make_dir(path: &Path) -> io::Result<bool> {
    match std::fs::create_dir(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

pub(crate) fn single_component(name: &str) -> io::Result<&str> {
    let mut parts = Path::new(name).components();
    let plain = matches!((parts.next(), parts.next()), (Some(Component::Normal(part)), None) if part == name);
    if plain && !name.contains('\n') {
        return Ok(name);
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "the name of a cgroup must be a single file name"))
}

fn is_cgroup2(dir: impl AsFd) -> io::Result<bool> {
    Ok(rustix::fs::fstatfs(dir)?.f_type == CGROUP2_SUPER_MAGIC)
}

fn is_removed(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENODEV))
}

/// The flags (populated, frozen) in `cgroup.events`; both false if the cgroup was removed.
fn flags_of(events: &File) -> io::Result<(bool, bool)> {
    let mut text = [0u8; 256];
    let length = match events.read_at(&mut text, 0) {
        Err(error) if is_removed(&error) => return Ok((false, false)),
        read => read?,
    };
    let text = String::from_utf8_lossy(&text[..length]);
    let is_set = |name: &str| text.lines().any(|line| line.split_once(' ') == Some((name, "1")));
    Ok((is_set("populated"), is_set("frozen")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_would_leave_the_base_is_refused() {
        for name in ["", ".", "..", "a/b", "/a", "a/", "a\nb"] {
            assert!(single_component(name).is_err(), "{name:?}");
        }
        assert!(single_component("k3v9x2").is_ok());
    }

    #[test]
    fn a_directory_of_another_filesystem_is_no_cgroup() {
        assert_eq!(Cgroup::open(Path::new("/proc")).expect_err("procfs").kind(), io::ErrorKind::InvalidInput);
    }
}
