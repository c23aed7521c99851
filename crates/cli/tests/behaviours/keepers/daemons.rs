//! A daemon that is started from inside a managed process is not part of that process.

use std::path::PathBuf;
use std::process::Command;

use pinfold_api::types::{Outcome, StartRequest, Status};
use pinfold_testkit::environments::Environment;
use pinfold_testkit::{Pidfd, Pinfold, alive, parent_of, until, until_some};

use crate::PINFOLD;

/// The ancestors of a process, its parent first.
fn ancestors(pid: u32) -> Vec<u32> {
    let above = |pid: u32| parent_of(pid).filter(|parent| *parent != 0);
    std::iter::successors(above(pid), |parent| above(*parent)).collect()
}

/// A process that, once the gate is open, runs a command with `$P` as pinfold, and writes its exit code to `done`.
struct Inside {
    id: String,
    keeper: u32,
    gate: PathBuf,
    done: PathBuf,
}

impl Inside {
    fn start(pinfold: &Pinfold, name: &str, command: &str) -> Self {
        let (gate, done) = (pinfold.home().join(format!("gate-{name}")), pinfold.home().join(format!("done-{name}")));
        let script = format!(
            "P={}; while [ ! -e {} ]; do sleep 0.02; done; ({command}); echo $? > {done}.new; mv {done}.new {done}; \
             exec sleep 300",
            pinfold.binary().display(),
            gate.display(),
            done = done.display()
        );
        let request = StartRequest { command: Some(script), name: Some(name.into()), ..StartRequest::default() };
        let id = pinfold.start_request(&request).record.id;
        Self { keeper: pinfold.keeper_pid(&id), id, gate, done }
    }

    fn open(&self) {
        std::fs::write(&self.gate, "").expect("an open gate");
    }

    fn code(&self) -> String {
        until_some("it is done", || std::fs::read_to_string(&self.done).ok()).trim().to_owned()
    }
}

/// The pid of the daemon that answers, once one does.
fn until_daemon(pinfold: &Pinfold) -> u32 {
    until_some("a daemon", || pinfold.block(pinfold.client().health()).ok().map(|health| health.pid))
}

fn cgroup_of(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default()
}

/// Pause, stop and kill of a process affect neither the daemon that was started on its behalf, nor other processes.
fn try_on(ground: Environment) {
    let grounded = match ground.try_start(PINFOLD) {
        Ok(grounded) => grounded,
        Err(reason) => return println!("skipped on {ground}: {reason}"),
    };
    let pinfold = &grounded.pinfold;
    let agent = Inside::start(pinfold, "agent", "$P ps");
    pinfold.kill_daemon();
    agent.open();
    assert_eq!(agent.code(), "0", "{}", until_daemon(pinfold));
    let daemon = until_daemon(pinfold);
    let above = ancestors(daemon);
    assert!(!above.contains(&agent.keeper), "on {ground}: {above:?}");
    let leader = pinfold.show(&agent.id).pid.expect("a leader");
    if grounded.cgroups.is_some() {
        assert_ne!(cgroup_of(daemon), cgroup_of(leader), "on {ground}");
    }
    let bob =
        StartRequest { command: Some("exec sleep 300".into()), owner: Some("bob".into()), ..StartRequest::default() };
    let bob = pinfold.start_request(&bob).record;

    pinfold.block(pinfold.client().pause(&agent.id)).expect("paused");
    assert_eq!(pinfold.run("exit 3").0.outcome, Some(Outcome::Exited { code: 3 }), "on {ground}");
    pinfold.block(pinfold.client().resume(&agent.id)).expect("resumed");
    pinfold.stop(&agent.id);
    assert_eq!(until_daemon(pinfold), daemon, "on {ground}");
    assert_eq!(pinfold.show(&bob.id).status, Status::Running, "on {ground}");
    // Nor does the death of its keeper, after which its remains are killed.
    let agent = Inside::start(pinfold, "again", "$P ps");
    pinfold.kill_daemon();
    agent.open();
    assert_eq!(agent.code(), "0");
    let daemon = until_daemon(pinfold);
    Pidfd::open(agent.keeper).expect("a keeper").kill();
    assert!(matches!(pinfold.wait_finished(&agent.id).outcome, Some(Outcome::Lost { .. })), "on {ground}");
    assert_eq!(until_daemon(pinfold), daemon, "on {ground}");
    assert_eq!(pinfold.show(&bob.id).status, Status::Running, "on {ground}");
}

#[test]
fn a_daemon_started_from_inside_a_process_is_not_part_of_it() {
    Environment::ALL.into_iter().for_each(try_on);
}

#[test]
fn many_clients_inside_that_need_a_daemon_start_one() {
    let pinfold = Pinfold::start(PINFOLD);
    let crowd = "for i in 1 2 3 4 5; do $P ps & p=\"$p $!\"; done; for i in $p; do wait $i || exit 1; done";
    let crowds: Vec<_> = ["one", "two", "three"].map(|name| Inside::start(&pinfold, name, crowd)).into();
    pinfold.kill_daemon();
    crowds.iter().for_each(Inside::open);
    for crowd in &crowds {
        assert_eq!(crowd.code(), "0");
    }
    let daemon = until_daemon(&pinfold);
    let keepers: Vec<u32> = crowds.iter().map(|crowd| crowd.keeper).collect();
    assert!(!ancestors(daemon).iter().any(|above| keepers.contains(above)));
    for crowd in &crowds {
        assert_eq!(pinfold.show(&crowd.id).status, Status::Running);
    }
}

#[test]
fn a_daemon_refuses_to_run_inside_a_process_of_its_own_home() {
    let pinfold = Pinfold::start(PINFOLD);
    let (record, text) = pinfold.run(&format!("exec {} daemon run", pinfold.binary().display()));
    assert!(matches!(record.outcome, Some(Outcome::Exited { code: 1.. })), "{record:?}");
    assert!(text.contains("inside a pinfold process"), "{text}");
    // In another home it may.
    let other = pinfold.home().join("other");
    let script =
        format!("export PINFOLD_HOME={}; {p} ps && {p} daemon stop", other.display(), p = pinfold.binary().display());
    let (record, text) = pinfold.run(&script);
    assert_eq!(record.outcome, Some(Outcome::Exited { code: 0 }), "{text}");
}

/// A socket file that a dead keeper left does not turn the current process with its pid into a keeper.
#[test]
fn a_socket_of_a_dead_keeper_does_not_prevent_a_daemon_start() {
    let pinfold = Pinfold::prepare(PINFOLD, pinfold_testkit::Setup::default());
    let keepers = pinfold.home().join("keepers");
    std::fs::create_dir(&keepers).expect("a directory");
    for ancestor in ancestors(std::process::id()) {
        drop(std::os::unix::net::UnixListener::bind(keepers.join(ancestor.to_string())).expect("a socket"));
    }
    drop(std::os::unix::net::UnixListener::bind(keepers.join(std::process::id().to_string())).expect("a socket"));
    pinfold.start_daemon();
    assert_eq!(pinfold.run("exit 2").0.outcome, Some(Outcome::Exited { code: 2 }));
}

#[test]
fn a_keeper_that_does_not_answer_is_named_in_the_error() {
    let pinfold = Pinfold::start(PINFOLD);
    let errors = pinfold.home().join("errors");
    let agent = Inside::start(&pinfold, "agent", &format!("$P ps 2> {}", errors.display()));
    let keeper = Pidfd::open(agent.keeper).expect("a keeper");
    pinfold.kill_daemon();
    keeper.signal(19);
    agent.open();
    let code = agent.code();
    keeper.signal(18);
    let text = std::fs::read_to_string(&errors).expect("an error");
    assert_ne!(code, "0", "{text}");
    assert!(text.contains(&format!("pid {}", agent.keeper)) && text.contains("pinfold daemon start"), "{text}");
    assert!(alive(agent.keeper));
}

/// The environment of a client does not reach a daemon that others use.
#[test]
fn a_daemon_started_by_a_keeper_does_not_inherit_the_clients_environment() {
    let pinfold = Pinfold::start(PINFOLD);
    let agent = Inside::start(&pinfold, "agent", "cd /tmp; FOREIGN=1 $P ps");
    pinfold.kill_daemon();
    agent.open();
    assert_eq!(agent.code(), "0");
    let daemon = until_daemon(&pinfold);
    let environ = std::fs::read(format!("/proc/{daemon}/environ")).expect("its environment");
    let environ = String::from_utf8_lossy(&environ).into_owned();
    assert!(!environ.contains("FOREIGN=") && !environ.contains("PINFOLD_MARK="), "{environ}");
    assert_eq!(std::fs::read_link(format!("/proc/{daemon}/cwd")).expect("a directory"), PathBuf::from("/"));
    let zombies = Command::new("ps").args(["-eo", "stat,ppid,comm"]).output().expect("ps").stdout;
    let zombies = String::from_utf8_lossy(&zombies).into_owned();
    let left = |line: &&str| line.starts_with('Z') && line.split_whitespace().nth(1) == Some(&agent.keeper.to_string());
    assert_eq!(zombies.lines().find(left), None);
    until("it runs on", || pinfold.show(&agent.id).status == Status::Running);
}

/// The daemon needs many descriptors; a command that uses `select`, or closes every descriptor it could have, needs few.
#[test]
fn a_command_gets_the_descriptor_limit_that_the_daemon_was_started_with() {
    let pinfold = Pinfold::prepare(PINFOLD, pinfold_testkit::Setup::default());
    let start = format!("ulimit -Sn 256; exec {} daemon start", pinfold.binary().display());
    let started = std::process::Command::new("sh").args(["-c", &start]).env("PINFOLD_HOME", pinfold.home()).output();
    assert!(started.expect("a shell").status.success());
    assert_eq!(pinfold.run("ulimit -Sn").1, "256\n");
    let hard = std::process::Command::new("sh").args(["-c", "ulimit -Hn"]).output().expect("a shell").stdout;
    assert_eq!(pinfold.run("ulimit -Hn").1.as_bytes(), hard, "it may raise the limit itself");
}
