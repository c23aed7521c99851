//! `pinfold doctor`: what this machine supports, what is missing, and what to do about it.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::Arc;

use pinfold_api::types::DoctorAnswer;
pub use pinfold_api::types::{DoctorFinding as Finding, DoctorLevel as Level};
use pinfold_model::sandbox::{Kernel, Part};
use pinfold_os::controllers::{self, Controller, Version};
use pinfold_os::{cgroup, daemonize, fsio, socket};

use crate::config::{Config, Containment, Paths};
use crate::core::{Core, blocking};
use crate::keepers::limit_cgroups;
use crate::registry::Viewer;
use crate::request_error::{RequestError, disk_remedy};

/// Less free space than this on the state directory's disk is noted.
const MIN_ROOM: u64 = 1 << 30;
/// Fewer descriptors than this limit how many processes can be kept.
const MIN_DESCRIPTORS: u64 = 4096;

fn finding(level: Level, topic: &str, text: impl Into<String>, remedy: Option<&str>) -> Finding {
    Finding { level, topic: topic.to_owned(), text: text.into(), remedy: remedy.map(str::to_owned) }
}

/// The daemon as a client found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DaemonSeen {
    /// Not running.
    Absent,
    /// It answered, with its problems.
    Answers { pid: u32, troubles: Vec<String> },
    /// It accepts connections and did not answer within this time.
    Silent { seconds: u64 },
    /// It cannot be connected to.
    Unreachable { why: String },
}

/// Examines the machine and the state directory; changes nothing.
pub fn examine(paths: &Paths, config: &Config, seen: &DaemonSeen) -> Vec<Finding> {
    let mut findings = vec![containment(config), subreaper()];
    findings.extend(limits(config));
    findings.extend([kernel(), sandbox(), state(paths)]);
    findings.extend(disk(paths));
    findings.extend([descriptors(), processes(), shell(), daemon(paths, seen), configuration(paths)]);
    findings
}

impl Core {
    /// The findings of `pinfold doctor`, for clients.
    pub(crate) async fn doctor(self: &Arc<Self>) -> Result<DoctorAnswer, RequestError> {
        let troubles = self.health(&Viewer::Operator).await.troubles;
        let (paths, config) = (Paths::at(self.home.root().to_owned()), self.config.clone());
        let seen = DaemonSeen::Answers { pid: std::process::id(), troubles };
        Ok(DoctorAnswer { findings: blocking(move || examine(&paths, &config, &seen)).await? })
    }
}

fn containment(config: &Config) -> Finding {
    if config.containment == Containment::Subreaper {
        let text = "off by configuration; trees are contained by subreaper and tree walk";
        return finding(Level::Note, "cgroup", text, Some("set containment = \"auto\" to use cgroups"));
    }
    let name = format!("pinfold-doctor-{}", daemonize::own_pid());
    match cgroup::open_base(&name) {
        Ok(base) => {
            let text = format!("cgroup v2 under {}: trees are killed and frozen atomically", base.path().display());
            base.remove_if_empty();
            finding(Level::Good, "cgroup", text, None)
        }
        Err(unavailable) => {
            let text = format!("{unavailable}; trees are contained by subreaper and tree walk");
            let remedy = "nothing is lost without it; for atomic kills run as root, or in a delegated cgroup \
                          (systemd-run --user --scope -p Delegate=yes)";
            finding(Level::Note, "cgroup", text, Some(remedy))
        }
    }
}

/// How each limit of a process is enforced.
fn limits(config: &Config) -> Vec<Finding> {
    let name = limit_cgroups::place_name(&format!("pinfold-doctor-{}", daemonize::own_pid()));
    let places = if config.containment == Containment::Auto { controllers::find(&name) } else { vec![] };
    controllers::remove_unused(&controllers::existing(&name), |_| false);
    let remedy = match config.containment {
        Containment::Subreaper => "set containment = \"auto\" to use the kernel's controllers",
        Containment::Auto => {
            "for exact limits run as root, or where this user's cgroups have controllers (`systemctl --user` units on \
             cgroup v2 have memory and pids; Delegate=cpu adds cpu)"
        }
    };
    let by = |controller: Controller| {
        let place = places.iter().find(|place| place.controller == controller)?;
        let version = if place.version == Version::V2 { "v2" } else { "v1" };
        let parent = place.path.parent().unwrap_or(&place.path);
        Some(format!("by the {} controller of cgroup {version} in {}", controller.name(), parent.display()))
    };
    let enforced = |topic: &str, controller, without: &str| match by(controller) {
        Some(text) => finding(Level::Good, topic, text, None),
        None => finding(Level::Note, topic, without, Some(remedy)),
    };
    let cpu_time = "by the keeper's accounting, to a fraction of a second";
    vec![
        enforced("memory_limit", Controller::Memory, "by the keeper's accounting, checked every 20 to 200 ms"),
        enforced("pids_limit", Controller::Pids, "by the keeper's accounting, checked every 20 to 200 ms"),
        enforced("cpus", Controller::Cpu, "cannot be enforced: a start with it is refused"),
        finding(Level::Good, "cpu_time_limit", cpu_time, None),
    ]
}

fn subreaper() -> Finding {
    match std::path::Path::new("/proc/thread-self/children").exists() {
        true => {
            finding(Level::Good, "tree", "subreaper and /proc/PID/task/TID/children: escapes are found at once", None)
        }
        false => {
            finding(Level::Note, "tree", "no /proc/PID/task/TID/children: trees are found by scanning /proc", None)
        }
    }
}

fn kernel() -> Finding {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let release = release.trim();
    let mut numbers = release.split(['.', '-']).filter_map(|part| part.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version >= (5, 14) {
        return finding(Level::Good, "kernel", format!("Linux {release}"), None);
    }
    let remedy = "pinfold needs clone3, pidfds and close_range: use Linux 5.9 or newer, 5.14 for cgroup.kill";
    let level = if version >= (5, 9) { Level::Note } else { Level::Bad };
    finding(level, "kernel", format!("Linux {release} is old"), Some(remedy))
}

/// What sandboxes can enforce here.
fn sandbox() -> Finding {
    let namespaces = pinfold_os::sandbox::try_namespaces();
    let kernel = Kernel {
        landlock_abi: pinfold_os::sandbox::landlock_abi(),
        seccomp: pinfold_os::sandbox::has_filters(),
        namespaces: namespaces.is_ok(),
    };
    let missing: Vec<_> = Part::ALL.into_iter().filter(|part| !part.is_enforced(kernel)).collect();
    let abi = kernel.landlock_abi;
    if missing.is_empty() {
        let text = format!("Landlock ABI {abi}, seccomp and namespaces: every part is enforced");
        return finding(Level::Good, "sandbox", text, None);
    }
    let list = |text: fn(Part) -> &'static str| {
        let mut texts: Vec<_> = missing.iter().map(|part| text(*part)).collect();
        texts.dedup();
        texts.join(", ")
    };
    let landlock = if abi == 0 { "no Landlock".to_owned() } else { format!("Landlock ABI {abi}") };
    let mut text = format!("{landlock}; cannot be enforced: {}", list(Part::name));
    let mut remedy = format!(
        "a start that needs these parts is refused unless it says missing=best_effort; they need {}",
        list(Part::needs)
    );
    if let Err(error) = namespaces {
        text.push_str(&format!("; namespaces: {error}"));
        remedy.push_str(
            "; in the way of namespaces can be: a container's seccomp profile, kernel.apparmor_restrict_unprivileged_userns, \
             kernel.unprivileged_userns_clone, user.max_user_namespaces, or a chroot",
        );
    }
    finding(Level::Note, "sandbox", text, Some(&remedy))
}

fn state(paths: &Paths) -> Finding {
    let home = paths.home.display();
    match std::fs::metadata(&paths.home) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            // The directory in which it will be created.
            let place = paths.home.ancestors().find(|place| place.exists());
            match place.map(|place| (place, fsio::check_writable(place))) {
                Some((place, Err(error))) => {
                    let text = format!("{home} cannot be created: {}: {error}", place.display());
                    finding(Level::Bad, "state", text, Some("set PINFOLD_HOME to a directory of your own"))
                }
                _ => finding(Level::Good, "state", format!("{home} will be created by the first command"), None),
            }
        }
        Err(error) => {
            finding(Level::Bad, "state", format!("{home}: {error}"), Some("set PINFOLD_HOME to a usable directory"))
        }
        Ok(metadata) if metadata.uid() != socket::own_uid() => {
            let remedy = "set PINFOLD_HOME to a directory of your own";
            finding(Level::Bad, "state", format!("{home} belongs to uid {}", metadata.uid()), Some(remedy))
        }
        Ok(metadata) if metadata.permissions().mode() & 0o077 != 0 => {
            let remedy = format!("chmod 700 {home}");
            finding(Level::Bad, "state", format!("{home} is open to other users"), Some(&remedy))
        }
        Ok(_) => match writable(paths) {
            Ok(()) => finding(Level::Good, "state", format!("{home}"), None),
            Err((path, error)) => {
                let error = error.to_string();
                let text = format!("{} cannot be written: {error}: nothing can be started", path.display());
                finding(Level::Bad, "state", text, Some(disk_remedy(&error)))
            }
        },
    }
}

/// Whether the directories can be written: each may be a separate mount.
fn writable(paths: &Paths) -> Result<(), (PathBuf, std::io::Error)> {
    let parts = [paths.home.clone(), paths.home.join("processes"), paths.home.join("keepers")];
    for path in parts.into_iter().filter(|path| path.exists()) {
        if let Err(error) = fsio::check_writable(&path) {
            return Err((path, error));
        }
    }
    Ok(())
}

fn disk(paths: &Paths) -> Option<Finding> {
    let place = paths.home.ancestors().find(|place| place.exists())?;
    let free = fsio::free_bytes(place).ok()?;
    let text = format!("{} MiB free for output and records", free >> 20);
    Some(match free >= MIN_ROOM {
        true => finding(Level::Good, "disk", text, None),
        false => {
            finding(Level::Note, "disk", text, Some("free some space, or lower limits.store in the configuration"))
        }
    })
}

fn descriptors() -> Finding {
    let max = daemonize::raise_descriptor_limit();
    let text = format!("{max} open files: one for each process, one for each connection");
    match max >= MIN_DESCRIPTORS {
        true => finding(Level::Good, "descriptors", text, None),
        false => {
            finding(Level::Note, "descriptors", text, Some("raise the hard limit (ulimit -Hn) to keep more processes"))
        }
    }
}

fn processes() -> Finding {
    let max = std::fs::read_to_string("/proc/sys/kernel/pid_max").unwrap_or_default();
    let text = format!("pid_max {}: pids are reused soon, so processes are only signalled through pidfds", max.trim());
    finding(Level::Good, "pids", text, None)
}

fn shell() -> Finding {
    let shell = pinfold_model::spec::DEFAULT_SHELL;
    match std::fs::canonicalize(shell) {
        Ok(real) => finding(Level::Good, "shell", format!("{shell} is {}", real.display()), None),
        Err(error) => finding(
            Level::Bad,
            "shell",
            format!("{shell}: {error}"),
            Some("install a POSIX shell, or name one with --shell"),
        ),
    }
}

fn daemon(paths: &Paths, seen: &DaemonSeen) -> Finding {
    let socket = paths.socket();
    let socket = socket.display();
    match seen {
        DaemonSeen::Absent => finding(Level::Good, "daemon", "not running; the first command starts it", None),
        DaemonSeen::Answers { troubles, .. } if troubles.is_empty() => {
            finding(Level::Good, "daemon", format!("answers on {socket}"), None)
        }
        DaemonSeen::Answers { pid, troubles } => {
            let text = format!("pid {pid} answers on {socket}, and reports problems: {}", troubles.join("; "));
            finding(Level::Bad, "daemon", text, Some(&format!("see {}", paths.log().display())))
        }
        DaemonSeen::Silent { seconds } => {
            let text = format!("accepts connections on {socket} and did not answer within {seconds}s");
            let remedy = "it may be stopped (`ps -o pid,stat,args -C pinfold` shows T; `kill -CONT PID` resumes it) or overloaded; \
                          killing it loses nothing, and the next command starts another";
            finding(Level::Bad, "daemon", text, Some(remedy))
        }
        DaemonSeen::Unreachable { why } => {
            finding(Level::Bad, "daemon", format!("cannot connect: {why}"), Some("check the permissions of the socket"))
        }
    }
}

fn configuration(paths: &Paths) -> Finding {
    let path = paths.config.display();
    match paths.config.exists() {
        true => finding(Level::Good, "configuration", format!("{path}"), None),
        false => finding(Level::Good, "configuration", format!("built-in defaults; {path} would change them"), None),
    }
}
