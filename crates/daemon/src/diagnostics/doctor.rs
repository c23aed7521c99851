//! `pinfold doctor`: what this machine gives, what is missing, and what to do about it.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;

use pinfold_os::controllers::{self, Controller, Version};
use pinfold_os::{cgroup, daemonize, fsio, socket};
use serde::Serialize;

use crate::config::{Config, Containment, Paths};
use crate::keepers::limit_cgroups;
use crate::refusal::way_out;

/// Less room than this on the state directory's disk is worth a word.
const ROOM_LEAST: u64 = 1 << 30;
/// Fewer descriptors than this limit how many processes can be kept.
const DESCRIPTORS_LEAST: u64 = 4096;

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub level: Level,
    pub topic: String,
    pub text: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// How good it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    Good,
    /// Works, with less than there could be.
    Note,
    Bad,
}

fn finding(level: Level, topic: &str, text: impl Into<String>, remedy: Option<&str>) -> Finding {
    Finding { level, topic: topic.to_owned(), text: text.into(), remedy: remedy.map(str::to_owned) }
}

/// What came of asking the daemon how it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DaemonSeen {
    /// There is none.
    Absent,
    /// It answered, with what troubles it.
    Answers { pid: u32, troubles: Vec<String> },
    /// It takes connections and says nothing, for so many seconds.
    Silent { seconds: u64 },
    /// It cannot be asked.
    Unreachable { why: String },
}

/// Looks at the machine and at the state directory; changes nothing.
pub fn examine(paths: &Paths, config: &Config, seen: &DaemonSeen) -> Vec<Finding> {
    let mut findings = vec![containment(config), subreaper()];
    findings.extend(limits(config));
    findings.extend([kernel(), state(paths)]);
    findings.extend(disk(paths));
    findings.extend([descriptors(), processes(), shell(), daemon(paths, seen), configuration(paths)]);
    findings
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

/// By what each limit of a process is kept.
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
    let kept = |topic: &str, controller, without: &str| match by(controller) {
        Some(text) => finding(Level::Good, topic, text, None),
        None => finding(Level::Note, topic, without, Some(remedy)),
    };
    let cpu_time = "by the keeper's accounting, to a fraction of a second";
    vec![
        kept("memory_limit", Controller::Memory, "by the keeper's accounting, looked at every 20 to 200 ms"),
        kept("pids_limit", Controller::Pids, "by the keeper's accounting, looked at every 20 to 200 ms"),
        kept("cpus", Controller::Cpu, "cannot be kept: a start that asks for it is refused"),
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

fn state(paths: &Paths) -> Finding {
    let home = paths.home.display();
    match std::fs::metadata(&paths.home) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            // Where it will be made.
            let place = paths.home.ancestors().find(|place| place.exists());
            match place.map(|place| (place, fsio::check_writable(place))) {
                Some((place, Err(error))) => {
                    let text = format!("{home} cannot be made: {}: {error}", place.display());
                    finding(Level::Bad, "state", text, Some("set PINFOLD_HOME to a directory of your own"))
                }
                _ => finding(Level::Good, "state", format!("{home} will be made by the first command"), None),
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
                finding(Level::Bad, "state", text, Some(way_out(&error)))
            }
        },
    }
}

/// Whether the directories that are written to can be: each may be a mount of its own.
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
    Some(match free >= ROOM_LEAST {
        true => finding(Level::Good, "disk", text, None),
        false => {
            finding(Level::Note, "disk", text, Some("free some space, or lower limits.store in the configuration"))
        }
    })
}

fn descriptors() -> Finding {
    let most = daemonize::raise_descriptor_limit();
    let text = format!("{most} open files: one for each process, one for each connection");
    match most >= DESCRIPTORS_LEAST {
        true => finding(Level::Good, "descriptors", text, None),
        false => {
            finding(Level::Note, "descriptors", text, Some("raise the hard limit (ulimit -Hn) to keep more processes"))
        }
    }
}

fn processes() -> Finding {
    let most = std::fs::read_to_string("/proc/sys/kernel/pid_max").unwrap_or_default();
    let text =
        format!("pid_max {}: pids return soon, so nothing is ever signalled by a remembered number", most.trim());
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
            let text = format!("pid {pid} answers on {socket}, and is in trouble: {}", troubles.join("; "));
            finding(Level::Bad, "daemon", text, Some(&format!("see {}", paths.log().display())))
        }
        DaemonSeen::Silent { seconds } => {
            let text = format!("takes connections on {socket} and did not answer within {seconds}s");
            let remedy = "it may be stopped (`ps -o pid,stat,args -C pinfold` shows T; `kill -CONT PID` wakes it) or overloaded; \
                          killing it loses nothing, and the next command starts another";
            finding(Level::Bad, "daemon", text, Some(remedy))
        }
        DaemonSeen::Unreachable { why } => finding(
            Level::Bad,
            "daemon",
            format!("cannot be asked: {why}"),
            Some("check the permissions of the socket"),
        ),
    }
}

fn configuration(paths: &Paths) -> Finding {
    let path = paths.config.display();
    match paths.config.exists() {
        true => finding(Level::Good, "configuration", format!("{path}"), None),
        false => finding(Level::Good, "configuration", format!("built-in defaults; {path} would change them"), None),
    }
}
