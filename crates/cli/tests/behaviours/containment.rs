//! Trees are contained with and without cgroups, for root and for ordinary users; files belong to the user of the
//! daemon.

use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pinfold_api::types::{Cause, InputRequest, Outcome, StartRequest, Status, Stdin};
use pinfold_testkit::environments::{Delegated, NOBODY, cgroup_mount, is_root, setup};
use pinfold_testkit::{Pidfd, Pinfold, Setup, alive, until, until_some};

use crate::PINFOLD;
use crate::clients::carriers_of;
use crate::records::{files_in, intent};
use crate::requests::request;

mod escapes;

/// Runs a test with every kind of containment that this machine and user support.
pub(crate) fn with_each_containment(test: impl Fn(&Pinfold)) {
    let mut users = vec![None];
    match is_root() {
        true => users.push(Some(NOBODY)),
        false => println!("skipped: only root can be several users"),
    }
    for user in users {
        for containment in ["auto", "subreaper"] {
            let pinfold = Pinfold::start_with(PINFOLD, setup(containment, user));
            println!("{containment} as {user:?}: {}", pinfold.health().containment);
            test(&pinfold);
        }
    }
    match cgroup_mount().filter(|_| is_root()) {
        Some(mount) => {
            let delegated = Delegated::make(&mount);
            let pinfold = delegated.start(PINFOLD);
            assert_eq!(pinfold.health().containment, "cgroup", "{:?}", pinfold.health().no_cgroup);
            test(&pinfold);
        }
        None => println!("skipped: no cgroup can be delegated here"),
    }
}

#[test]
fn strays_are_listed_and_stop_leaves_none() {
    with_each_containment(|pinfold| {
        let (record, text) =
            pinfold.run("(setsid sleep 300 &); setsid -f sleep 300; nohup sleep 300 & echo up; exit 3");
        assert_eq!((record.outcome, text.contains("up\n")), (Some(Outcome::Exited { code: 3 }), true));
        let strays = until_some("three strays", || {
            let tree = pinfold.show(&record.id).tree;
            Some(tree).filter(|tree| tree.len() == 3 && tree.iter().all(|member| member.command == "sleep 300"))
        });
        assert_eq!(pinfold.show(&record.id).status, Status::Lingering);
        let stopped = pinfold.stop(&record.id);
        assert_eq!((stopped.record.status, stopped.survivors.len()), (Status::Finished, 0));
        assert!(!strays.iter().any(|stray| alive(stray.pid)));
    });
}

/// Processes that ignore TERM, and that fork faster than the tree can be walked.
#[test]
fn a_stop_ends_processes_that_resist() {
    with_each_containment(|pinfold| {
        let spread = "trap '' TERM; spread() { setsid sh -c \"trap '' TERM; while :; do sleep 0.01 & done\" & }";
        let request = StartRequest {
            command: Some(format!("{spread}; spread; spread; while :; do sleep 0.05; done")),
            grace: Some("200ms".into()),
            ..StartRequest::default()
        };
        let id = pinfold.start_request(&request).record.id;
        until("it spreads", || pinfold.tree(&id).len() > 5);
        let mark = format!("PINFOLD_ID={id}");
        let stopped = pinfold.stop(&id);
        assert_eq!((stopped.record.status, stopped.survivors.len()), (Status::Finished, 0));
        assert_eq!(carriers_of(&mark), [0; 0], "somebody got away");
    });
}

/// A cgroup also holds processes that neither their environment nor their ancestors identify.
#[test]
fn a_killed_keeper_leaves_no_process_in_its_cgroup() {
    let pinfold = Pinfold::start(PINFOLD);
    if pinfold.health().containment != "cgroup" {
        return println!("skipped: no cgroup can be made here");
    }
    let (record, _) = pinfold.run("env -i setsid -f /bin/sleep 300; exit 0");
    let stray = pinfold.until_tree(&record.id, 1)[0];
    Pidfd::open(pinfold.keeper_pid(&record.id)).expect("a keeper").kill();
    assert_eq!(pinfold.wait_finished(&record.id).status, Status::Lost);
    assert!(!alive(stray));
}

/// A cgroup that pinfold did not create, like the scope of a service manager. Removed when it is empty.
struct Scope(PathBuf);

impl Scope {
    fn try_new(name: &str) -> Option<Self> {
        let path = cgroup_mount()?.join(format!("scope-{name}-{}", std::process::id()));
        let made = std::fs::create_dir(&path);
        made.inspect_err(|error| println!("skipped: {}: {error}", path.display())).ok().map(|()| Self(path))
    }

    fn move_in(&self, pid: u32) {
        std::fs::write(self.0.join("cgroup.procs"), pid.to_string()).expect("it can be moved");
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        until("the scope is empty", || std::fs::remove_dir(&self.0).is_ok());
    }
}

fn state_of(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// A process that left the cgroup is stopped by SIGSTOP, and resumed with the rest.
#[test]
fn a_pause_reaches_processes_that_left_the_cgroup() {
    let Some(scope) = Scope::try_new("pause") else { return };
    let pinfold = Pinfold::start(PINFOLD);
    let job = pinfold.sh("while :; do :; done & sleep 300; :");
    let tree = pinfold.until_tree(&job.id, 3);
    let busy = *tree.iter().find(|pid| state_of(**pid) == Some('R')).expect("one of them is busy");
    scope.move_in(busy);
    let paused = pinfold.block(pinfold.client().pause(&job.id)).expect("a pause");
    assert_eq!((paused.reached, paused.refused.len(), paused.record.paused), (3, 0, true), "{paused:?}");
    until("it is stopped", || state_of(busy) == Some('T'));
    let resumed = pinfold.block(pinfold.client().resume(&job.id)).expect("a resume");
    assert_eq!((resumed.reached, resumed.record.paused), (3, false), "{resumed:?}");
    until("it runs", || state_of(busy) == Some('R'));
    pinfold.block(pinfold.client().pause(&job.id)).expect("a pause");
    assert!(pinfold.stop(&job.id).survivors.is_empty());
}

/// CPU time of processes that left the cgroup counts.
#[test]
fn cpu_time_outside_of_the_cgroup_counts() {
    let Some(scope) = Scope::try_new("cpu") else { return };
    let pinfold = Pinfold::start(PINFOLD);
    let asked =
        StartRequest { cpu_time_limit: Some("1s".into()), ..request("exec sh -c 'read go; while :; do :; done'") };
    let job = pinfold.start_request(&StartRequest { stdin: Some(Stdin::Pipe), ..asked }).record;
    scope.move_in(job.pid.expect("it runs"));
    let input = InputRequest { text: Some("go\n".into()), ..InputRequest::default() };
    pinfold.block(pinfold.client().input(&job.id, &input)).expect("input is sent");
    assert_eq!(pinfold.wait_finished(&job.id).cause, Some(Cause::CpuTimeLimit));
}

#[test]
fn a_paused_tree_stands_still_until_it_is_resumed() {
    with_each_containment(|pinfold| {
        let job = pinfold
            .sh("setsid sh -c 'while :; do echo stray; sleep 0.01; done' & while :; do echo leader; sleep 0.01; done");
        until("both write", || ["stray", "leader"].iter().all(|word| pinfold.text(&job.id).contains(word)));
        let paused = pinfold.block(pinfold.client().pause(&job.id)).expect("a pause");
        assert!(paused.reached >= 2 && paused.refused.is_empty() && paused.record.paused, "{paused:?}");
        until("it stands still", || is_still(pinfold, &job.id));
        // Other processes run, while it does nothing.
        let others = || (0..10).for_each(|_| drop(pinfold.run("sleep 0.01")));
        others();
        let before = pinfold.show(&job.id);
        others();
        let after = pinfold.show(&job.id);
        assert_eq!((after.output.bytes, after.paused, after.status), (before.output.bytes, true, Status::Running));

        let resumed = pinfold.block(pinfold.client().resume(&job.id)).expect("a resume");
        assert!(!resumed.record.paused && resumed.refused.is_empty(), "{resumed:?}");
        until("it goes on", || pinfold.show(&job.id).output.bytes > after.output.bytes);
        pinfold.block(pinfold.client().pause(&job.id)).expect("a pause");
        pinfold.crash_and_restart();
        assert!(pinfold.show(&job.id).paused, "a new daemon knows");
        let stopped = pinfold.stop(&job.id);
        assert!(
            stopped.survivors.is_empty() && stopped.record.status == Status::Finished,
            "a paused tree can be stopped"
        );
    });
}

/// Frozen by its cgroup, or every process stopped by a signal.
fn is_still(pinfold: &Pinfold, id: &str) -> bool {
    match intent(pinfold, id).keeper.cgroup {
        Some(cgroup) => {
            std::fs::read_to_string(cgroup.join("cgroup.events")).is_ok_and(|events| events.contains("frozen 1"))
        }
        // A shell that was stopped between fork and exec of a command waits in the kernel, which counts as stopped.
        None => pinfold.show(id).tree.iter().all(|member| ["T", "D"].contains(&member.state.as_str())),
    }
}

#[test]
fn no_cgroup_is_left_behind() {
    let Some(base) = base_cgroup_after_every_kind_of_end(Pinfold::start(PINFOLD)) else {
        return println!("skipped: no cgroup can be made here");
    };
    until("its cgroups are gone", || !base.exists());
    if let Some(mount) = cgroup_mount().filter(|_| is_root()) {
        let delegated = Delegated::make(&mount);
        let base = base_cgroup_after_every_kind_of_end(delegated.start(PINFOLD)).expect("it has cgroups");
        assert!(base.starts_with(&delegated.path));
        until("its cgroups are gone", || !base.exists());
    }
}

/// Ends processes and keepers in every way, then the daemon; returns the cgroup that held them.
fn base_cgroup_after_every_kind_of_end(pinfold: Pinfold) -> Option<PathBuf> {
    let ended = pinfold.wait_finished(&pinfold.sh("exit 0").id);
    let base = intent(&pinfold, &ended.id).keeper.cgroup?.parent()?.to_owned();
    assert!(base.exists() && base.file_name()?.to_str()?.starts_with("pinfold-"));
    let lost = pinfold.sh("setsid sleep 300 & sleep 300; :").id;
    Pidfd::open(pinfold.keeper_pid(&lost)).expect("a keeper").kill();
    assert_eq!(pinfold.wait_finished(&lost).status, Status::Lost);
    // An idle keeper is killed too: no record mentions its cgroup.
    let idle = || pinfold.keepers().into_iter().find_map(Pidfd::open);
    until_some("a keeper in reserve", idle).kill();
    let running = pinfold.keeper_pid(&pinfold.sh("setsid sleep 300 & sleep 300; :").id);
    // And one while no daemon runs: the next daemon has its own cgroup elsewhere.
    let other = || pinfold.keepers().into_iter().filter(|pid| *pid != running).find_map(Pidfd::open);
    let other = until_some("another keeper in reserve", other);
    let daemon = Pidfd::open(pinfold.daemon_pid()).expect("the daemon lives");
    daemon.signal(19);
    other.kill();
    daemon.kill();
    pinfold.start_daemon();
    drop(pinfold);
    Some(base)
}

#[test]
fn all_files_belong_to_the_user() {
    let outer = Pinfold::prepare(PINFOLD, Setup::default());
    let home = outer.home().join("made/by/pinfold");
    // With umask 0.
    let in_home = |arguments: &str| {
        let script = format!("umask 0; exec {PINFOLD} --home {} {arguments}", home.display());
        let mut status = Command::new("sh");
        status.args(["-c", &script]).current_dir("/").stdout(Stdio::null()).stderr(Stdio::null());
        assert!(status.status().expect("sh").success(), "{arguments}");
    };
    in_home("run 'echo out; echo err >&2; exit 0'");
    in_home("run --streams separate 'echo out; echo err >&2; exit 0'");
    in_home("run -d 'sleep 300'");
    let (mut directories, mut modes) = (vec![home.clone()], vec![]);
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(&directory).expect("a directory").flatten() {
            let kind = entry.file_type().expect("a kind");
            directories.extend(kind.is_dir().then(|| entry.path()));
        }
        modes.push((directory, 0o700));
    }
    modes.extend(files_in(&home).into_iter().map(|path| (path, 0o600)));
    modes.push((home.join("socket"), 0o600));
    assert!(std::fs::metadata(home.join("socket")).expect("a socket").file_type().is_socket());
    let found: Vec<_> = modes.iter().map(|(path, _)| (path.clone(), mode_of(path))).collect();
    in_home("daemon stop --all");
    assert!(modes.len() > 15, "{modes:?}");
    assert_eq!(found, modes);
}

fn mode_of(path: &Path) -> u32 {
    std::fs::symlink_metadata(path).map_or(0, |metadata| metadata.permissions().mode() & 0o7777)
}

#[test]
fn another_users_connection_is_refused() {
    if !is_root() {
        return println!("skipped: only root can be several users");
    }
    let pinfold = Pinfold::start(PINFOLD);
    let id = pinfold.sh("sleep 300").id;
    let home = pinfold.home().to_str().expect("text");
    let as_nobody = |arguments: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args([&format!("--reuid={NOBODY}"), &format!("--regid={NOBODY}"), "--clear-groups", PINFOLD]);
        let output = command.args(["--home", home]).args(arguments).current_dir("/").output().expect("setpriv");
        assert_ne!(output.status.code(), Some(0), "{arguments:?}");
        assert_eq!(output.stdout, b"", "{arguments:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    for arguments in [&["ps"][..], &["show", &id], &["daemon", "status"]] {
        let said = as_nobody(arguments);
        assert!(said.contains("Permission denied") && said.contains(home), "{arguments:?}: {said}");
    }

    // Even if the files are world-writable.
    std::fs::set_permissions(home, PermissionsExt::from_mode(0o711)).expect("an open home");
    std::fs::set_permissions(pinfold.home().join("socket"), PermissionsExt::from_mode(0o666)).expect("an open socket");
    for arguments in [&["ps"][..], &["stop", &id], &["daemon", "stop", "--all"]] {
        let said = as_nobody(arguments);
        assert!(said.contains("closed the connection"), "{arguments:?}: {said}");
    }
    assert_eq!(pinfold.show(&id).status, Status::Running);
    let log = std::fs::read_to_string(pinfold.home().join("daemon.log")).expect("a log");
    assert!(log.contains("refused a connection of another user") && log.contains(&NOBODY.to_string()), "{log}");
}

/// Root can signal and use the daemon of an ordinary user; what it starts runs as that user.
#[test]
fn root_may_use_an_ordinary_users_daemon() {
    if !is_root() {
        return println!("skipped: only root can be several users");
    }
    let pinfold = Pinfold::start_with(PINFOLD, setup("auto", Some(NOBODY)));
    let (record, text) = pinfold.run("id -u; exit 2");
    assert_eq!((record.outcome, text), (Some(Outcome::Exited { code: 2 }), format!("{NOBODY}\n")));
    assert_eq!(std::fs::metadata(pinfold.directory(&record.id)).expect("a directory").uid(), NOBODY);
}
