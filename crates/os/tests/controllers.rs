//! Real cgroup controllers. Where this machine does not let us use one, the test prints `skipped` and passes.

use std::ffi::CString;
use std::os::fd::AsFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pinfold_os::controllers::{Bounds, Controller, Limited, existing, find, remove_unused};
use pinfold_os::spawn::{Child, Launch, Spawner};
use pinfold_os::wait::{self, ExitStatus};
use pinfold_os::{fsio, proc};

/// Held while a child is started: during a start this process's own OOM score is raised.
fn lock_starts() -> MutexGuard<'static, ()> {
    static STARTS: Mutex<()> = Mutex::new(());
    STARTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The cgroup directories of one test, removed with everything in them.
struct Places {
    name: String,
    places: Vec<pinfold_os::controllers::Place>,
}

impl Places {
    fn find(test: &str) -> Self {
        let name = format!("pinfold-test-{}-{test}-limits", std::process::id());
        Self { places: find(&name), name }
    }

    fn has(&self, controller: Controller) -> bool {
        let has = self.places.iter().any(|place| place.controller == controller);
        if !has {
            println!("skipped: no {} controller can be used here", controller.name());
        }
        has
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        remove_unused(&existing(&self.name), |_| false);
        assert_eq!(existing(&self.name), Vec::<std::path::PathBuf>::new());
    }
}

fn start(limited: &Limited, script: &str) -> Child {
    let strings = |texts: &[&str]| texts.iter().map(|text| CString::new(*text).expect("no NUL")).collect::<Vec<_>>();
    let null = fsio::dev_null().expect("null");
    let launch = Launch {
        programs: &strings(&["/bin/sh"]),
        argv: &strings(&["sh", "-c", script]),
        env: &[c"PATH=/usr/bin:/bin"],
        cwd: c"/",
        stdin: null.as_fd(),
        stdout: null.as_fd(),
        stderr: null.as_fd(),
        terminal: false,
        cgroup: limited.v2().map(|cgroup| cgroup.fd()),
        entries: &limited.entries(),
        lock: None,
        sandbox: None,
    };
    let _one_at_a_time = lock_starts();
    let mut spawner = Spawner::new();
    let child = spawner.spawn(&launch).expect("started");
    spawner.settle();
    child
}

fn end(child: &Child) -> ExitStatus {
    wait::reap(&child.pidfd).expect("waited").expect("ended").status
}

#[test]
fn a_tree_that_exceeds_its_memory_limit_is_killed_and_counted() {
    let places = Places::find("memory");
    if !places.has(Controller::Memory) {
        return;
    }
    let bounds = Bounds { memory_bytes: Some(32 << 20), ..Bounds::default() };
    let limited = Limited::make(&places.places, "leaf", &bounds);
    assert!(limited.enforces(Controller::Memory) && !limited.enforces(Controller::Pids));
    assert_eq!(end(&start(&limited, "exit 3")), ExitStatus::Exited { code: 3 });
    assert_eq!(limited.oom_kills(), 0);
    let eater = start(&limited, "exec tail /dev/zero");
    assert_eq!(end(&eater), ExitStatus::Signaled { signal: libc::SIGKILL, core_dumped: false });
    assert_eq!(limited.oom_kills(), 1);
    limited.remove();
}

#[test]
fn a_fork_beyond_the_limit_is_refused_and_counted() {
    let places = Places::find("pids");
    if !places.has(Controller::Pids) {
        return;
    }
    let bounds = Bounds { pids: Some(2), ..Bounds::default() };
    let limited = Limited::make(&places.places, "leaf", &bounds);
    assert_eq!(end(&start(&limited, "(exit 0); exit 0")), ExitStatus::Exited { code: 0 });
    assert_eq!(limited.refused_forks(), 0);
    assert_eq!(end(&start(&limited, "(:; (exit 0); exit 5); exit $?")), ExitStatus::Exited { code: 2 });
    assert!(limited.refused_forks() > 0);
    limited.remove();
}

#[test]
fn leaves_in_use_stay_and_the_others_go() {
    let places = Places::find("unused");
    if !places.has(Controller::Pids) {
        return;
    }
    let bounds = Bounds { pids: Some(2), ..Bounds::default() };
    Limited::make(&places.places, "used", &bounds);
    Limited::make(&places.places, "unused", &bounds);
    let directories = existing(&places.name);
    remove_unused(&directories, |leaf| leaf == "used");
    let left = |leaf: &str| directories.iter().filter(|place| place.join(leaf).exists()).count();
    assert_eq!((left("used"), left("unused")), (1, 0));
}

/// The children of a child inherit its score; the parent keeps its own.
#[test]
fn the_oom_killer_prefers_children_to_their_parent() {
    let oom_score = |pid: u32| -> i32 {
        let _no_start_now = lock_starts();
        let text = std::fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).expect("a score");
        text.trim().parse().expect("a number")
    };
    let own = oom_score(std::process::id());
    let nothing = Limited::make(&[], "leaf", &Bounds::default());
    let child = start(&nothing, "sleep 300");
    assert!(proc::stat(child.pid).is_ok());
    assert_eq!((oom_score(child.pid), oom_score(std::process::id())), ((own + 200).min(1000), own));
    pinfold_os::tree::kill_group(&child);
    assert_eq!(end(&child), ExitStatus::Signaled { signal: libc::SIGKILL, core_dumped: false });
}
