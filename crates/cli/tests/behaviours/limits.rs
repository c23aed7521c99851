//! Limits of a whole tree and of an owner: with and without cgroup controllers, for root and for ordinary users.

mod hung;
mod owners;
mod pids;
mod refusals;
mod shortage;

use std::path::{Path, PathBuf};

use pinfold_api::types::{Cause, LimitsShown, Outcome, Record, StartRequest, Status, WaitReason};
use pinfold_testkit::{Pidfd, Pinfold, Setup, alive, until, until_some};

use crate::PINFOLD;
use crate::containment::with_each_containment;
use crate::records::intent;
use crate::requests::{Gate, request};
use crate::signals::killed;

/// Reads endless zeros into memory, because the line never ends.
fn eater() -> StartRequest {
    let argv = Some(["tail", "/dev/zero"].map(str::to_owned).into());
    StartRequest { argv, memory_limit: Some("48M".into()), time_limit: Some("60s".into()), ..StartRequest::default() }
}

/// What enforces a limit here, according to the doctor.
fn kept_by_controller(pinfold: &Pinfold, limit: &str) -> bool {
    let report = pinfold.cli(&["doctor", "--json"]).stdout;
    let findings: serde_json::Value = serde_json::from_str(&report).expect("a report");
    let list = findings.as_array().or_else(|| findings["findings"].as_array()).expect("a list");
    let finding = list.iter().find(|finding| finding["topic"] == limit).expect("a finding for each limit");
    let by_controller = finding["text"].as_str().expect("a text").contains("controller");
    assert_eq!(finding["level"] == "good", by_controller, "{finding}");
    assert!(by_controller || finding["remedy"].is_string(), "{finding}");
    by_controller
}

fn oom_score_adj(pid: u32) -> i32 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).expect("a standing");
    text.trim().parse().expect("a number")
}

#[test]
fn memory_limit_isolated() {
    with_each_containment(|pinfold| {
        let bystander = pinfold.sh("sleep 300; :");
        let (daemon, keeper) = (pinfold.daemon_pid(), pinfold.keeper_pid(&bystander.id));
        let eaten = pinfold.wait_finished(&pinfold.start_request(&eater()).record.id);
        assert_eq!((eaten.outcome, eaten.cause, eaten.note), (killed(), Some(Cause::OutOfMemory), None));
        assert_eq!(eaten.limits.and_then(|limits| limits.memory_bytes), Some(48 << 20));

        let after = pinfold.show(&bystander.id);
        assert_eq!((after.status, after.tree.len()), (Status::Running, 2));
        assert_eq!((pinfold.daemon_pid(), alive(keeper)), (daemon, true));
        // With or without a limit, the OOM killer chooses processes before their keepers.
        let first = after.tree.iter().map(|member| oom_score_adj(member.pid)).min().expect("a tree");
        for keeping in [daemon, keeper] {
            assert!(first > oom_score_adj(keeping), "{first}");
        }
    });
}

#[test]
fn a_kill_that_the_leader_survives_is_noted_and_is_not_the_cause() {
    with_each_containment(|pinfold| {
        let command = "tail /dev/zero; echo code $?; exit 3";
        let limited = StartRequest { memory_limit: Some("48M".into()), ..request(command) };
        let record = pinfold.wait_finished(&pinfold.start_request(&limited).record.id);
        if kept_by_controller(pinfold, "memory_limit") {
            // The kernel chooses the largest of the tree.
            assert_eq!((record.outcome, record.cause), (Some(Outcome::Exited { code: 3 }), Some(Cause::OnItsOwn)));
            assert!(record.note.expect("a note").contains("memory ran out"));
            assert_eq!(pinfold.text(&record.id).lines().last(), Some("code 137"));
        } else {
            assert_eq!((record.outcome, record.cause), (killed(), Some(Cause::OutOfMemory)));
        }
    });
}

/// A KILL from outside is not reported as out of memory, with or without a limit.
#[test]
fn a_kill_by_another_is_not_out_of_memory() {
    with_each_containment(|pinfold| {
        let limited = StartRequest { memory_limit: Some("64M".into()), ..request("echo ready; exec sleep 300") };
        let record = pinfold.start_request(&limited).record;
        until("it runs", || pinfold.text(&record.id) == "ready\n");
        Pidfd::open(record.pid.expect("a leader")).expect("a leader").kill();
        let record = pinfold.wait_finished(&record.id);
        assert_eq!((record.outcome, record.cause), (killed(), Some(Cause::OnItsOwn)));
    });
}

/// Memory that ten processes share is counted once.
#[test]
fn shared_memory_is_counted_once() {
    if !Path::new("/usr/bin/python3").exists() {
        return println!("skipped: no python3 to share memory");
    }
    let script = "import os, time\nheld = bytearray(b'x' * (24 << 20))\n\
                  for _ in range(9):\n  if os.fork() == 0: time.sleep(300)\nprint('ten', flush=True); time.sleep(1)";
    let argv = Some(["/usr/bin/python3", "-c", script].map(str::to_owned).into());
    with_each_containment(|pinfold| {
        let memory_limit = Some("150M".into());
        let limited = StartRequest { argv: argv.clone(), memory_limit, ..StartRequest::default() };
        let record = pinfold.wait_exit(&pinfold.start_request(&limited).record.id);
        assert_eq!((record.outcome, record.cause), (Some(Outcome::Exited { code: 0 }), Some(Cause::OnItsOwn)));
        assert_eq!(record.tree.len(), 9);
        pinfold.stop(&record.id);
    });
}

#[test]
fn cpu_time_of_the_whole_tree_is_limited() {
    with_each_containment(|pinfold| {
        let burn = "while :; do :; done";
        let many_short = "while :; do sh -c 'i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done'; done";
        for command in [burn, many_short, "setsid -f sh -c 'while :; do :; done'; sleep 300"] {
            let (cpu_time_limit, time_limit) = (Some("300ms".into()), Some("60s".into()));
            let limited = StartRequest { cpu_time_limit, time_limit, ..request(command) };
            let record = pinfold.wait_finished(&pinfold.start_request(&limited).record.id);
            assert_eq!(record.cause, Some(Cause::CpuTimeLimit), "{command}");
            assert!(record.usage.cpu_ms >= 250, "{command}: {:?}", record.usage);
        }
        // Sleeping uses no CPU time.
        let limited = StartRequest { cpu_time_limit: Some("300ms".into()), ..request("sleep 0.5") };
        let record = pinfold.wait_finished(&pinfold.start_request(&limited).record.id);
        assert_eq!(record.cause, Some(Cause::OnItsOwn));
    });
}

#[test]
fn a_share_of_cores_is_kept_or_refused() {
    with_each_containment(|pinfold| {
        let limited = StartRequest { cpus: Some(0.25), ..request("sleep 300; :") };
        if !kept_by_controller(pinfold, "cpus") {
            let refusal = pinfold.try_start(&limited).expect_err("refused");
            assert!(refusal.message.contains("cpus") && refusal.message.contains("pinfold doctor"), "{refusal:?}");
            assert_eq!(refusal.id, None, "nothing is left of it");
            return;
        }
        let record = pinfold.start_request(&limited).record;
        let cgroup = cgroup_of(record.pid.expect("a leader"), "cpu").expect("a cgroup");
        let quota = std::fs::read_to_string(cgroup.join("cpu.max"))
            .or_else(|_| std::fs::read_to_string(cgroup.join("cpu.cfs_quota_us")));
        assert!(quota.expect("a quota").starts_with("25000"));
        assert_eq!(pinfold.show(&record.id).limits.and_then(|limits| limits.millicpus), Some(250));
        pinfold.stop(&record.id);
    });
}

/// The directory of a process's cgroup that has this controller, wherever that is mounted.
fn cgroup_of(pid: u32, controller: &str) -> Option<PathBuf> {
    let own = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let named =
        |line: &&str| line.split(':').nth(1).is_some_and(|names| names.split(',').any(|name| name == controller));
    let line = own.lines().find(named).or_else(|| own.lines().find(|line| line.starts_with("0::")))?;
    let below = line.splitn(3, ':').nth(2)?.trim_start_matches('/');
    mounts().into_iter().map(|mount| mount.join(below)).find(|path| {
        path.join("cgroup.procs").exists()
            && (path.join(format!("{controller}.max")).exists() || path.join("cpu.cfs_quota_us").exists())
    })
}

/// Where cgroups of either version are mounted.
fn mounts() -> Vec<PathBuf> {
    let table = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let cgroups = table.lines().filter(|line| matches!(line.split(' ').nth(2), Some("cgroup" | "cgroup2")));
    cgroups.filter_map(|line| line.split(' ').nth(1)).map(PathBuf::from).collect()
}

/// Every directory of this name below the mounts.
fn directories_called(name: &str) -> Vec<PathBuf> {
    let mut found = vec![];
    let mut pending: Vec<(PathBuf, u32)> = mounts().into_iter().map(|mount| (mount, 0)).collect();
    while let Some((directory, depth)) = pending.pop() {
        let entries = std::fs::read_dir(&directory).into_iter().flatten().flatten();
        for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            if entry.file_name() == name {
                found.push(entry.path());
            } else if depth < 6 {
                pending.push((entry.path(), depth + 1));
            }
        }
    }
    found
}

#[test]
fn no_limiting_cgroup_is_left_behind() {
    let pinfold = Pinfold::start(PINFOLD);
    let limited = |command: &str| {
        let (memory_limit, pids_limit) = (Some("64M".into()), Some(50));
        pinfold.start_request(&StartRequest { memory_limit, pids_limit, ..request(command) }).record
    };
    let ended = pinfold.wait_finished(&limited("exit 0").id);
    let Some(cgroup) = intent(&pinfold, &ended.id).keeper.cgroup else {
        return println!("skipped: no cgroup can be made here");
    };
    let name = cgroup.parent().and_then(Path::file_name).and_then(|name| name.to_str()).expect("a name");
    let name = format!("{name}-limits");
    let places = directories_called(&name);
    let leaves = || {
        let entries = places.iter().flat_map(|place| std::fs::read_dir(place).into_iter().flatten().flatten());
        entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).count()
    };
    if places.is_empty() {
        return println!("skipped: no controller can be used here");
    }
    until("an end removes its cgroups", || leaves() == 0);
    let stopped = limited("setsid sleep 300 & sleep 300; :");
    assert_eq!(leaves(), 2);
    pinfold.stop(&stopped.id);
    until("a stop removes its cgroups", || leaves() == 0);
    let lost = limited("setsid sleep 300 & sleep 300; :");
    let tree = pinfold.until_tree(&lost.id, 3);
    Pidfd::open(pinfold.keeper_pid(&lost.id)).expect("a keeper").kill();
    assert_eq!(pinfold.wait_finished(&lost.id).status, Status::Lost);
    assert!(!tree.into_iter().any(alive));
    until("a lost one's cgroups are removed", || leaves() == 0);
    limited("sleep 300");
    pinfold.crash_and_restart();
    drop(pinfold);
    until("all is gone", || directories_called(&name).is_empty());
}

/// Only the keeper is left to remove the cgroup with the limit.
#[test]
fn no_limiting_cgroup_is_left_by_an_end_without_a_daemon() {
    let pinfold = Pinfold::start(PINFOLD);
    let gate = Gate::new(&pinfold, "gate");
    let limited = StartRequest { pids_limit: Some(50), ..request(&format!("{}; exit 3", gate.wait())) };
    let id = pinfold.start_request(&limited).record.id;
    let Some(cgroup) = intent(&pinfold, &id).keeper.cgroup else {
        return println!("skipped: no cgroup can be made here");
    };
    let name = cgroup.parent().and_then(Path::file_name).and_then(|name| name.to_str()).expect("a name");
    let name = format!("{name}-limits");
    pinfold.kill_daemon();
    gate.open();
    until("all is gone", || directories_called(&name).is_empty());
    until("the keeper leaves", || pinfold.keepers().is_empty());
    pinfold.start_daemon();
    assert_eq!(pinfold.show(&id).outcome, Some(Outcome::Exited { code: 3 }));
}

#[test]
fn the_configuration_limits_processes_without_own_limits() {
    let config = "[limits]\nmemory_limit = \"48M\"\npids_limit = 100\ntime_limit = \"1h\"\n".to_owned();
    let pinfold = Pinfold::start_with(PINFOLD, Setup { config, ..Setup::default() });
    let argv = Some(["tail", "/dev/zero"].map(str::to_owned).into());
    let started = pinfold.start_request(&StartRequest { argv, ..StartRequest::default() }).record;
    let (memory_bytes, pids, time_ms) = (Some(48 << 20), Some(100), Some(3_600_000));
    let shown = LimitsShown { memory_bytes, pids, time_ms, ..LimitsShown::default() };
    assert_eq!(started.limits, Some(shown.clone()));
    assert_eq!(pinfold.wait_finished(&started.id).cause, Some(Cause::OutOfMemory));
    let asked = StartRequest { pids_limit: Some(7), ..request("exit 0") };
    let record = pinfold.start_request(&asked).record;
    assert_eq!(record.limits, Some(LimitsShown { pids: Some(7), ..shown }), "a request goes before it");
}

#[test]
fn limits_that_make_no_sense_are_refused_by_name() {
    let pinfold = Pinfold::start(PINFOLD);
    let refuse = |request: StartRequest| pinfold.try_start(&request).expect_err("refused").message;
    assert!(refuse(StartRequest { memory_limit: Some("12".into()), ..request("true") }).contains("memory_limit"));
    assert!(refuse(StartRequest { memory_limit: Some("much".into()), ..request("true") }).contains("not a size"));
    assert!(refuse(StartRequest { pids_limit: Some(0), ..request("true") }).contains("pids_limit"));
    assert!(refuse(StartRequest { cpus: Some(-1.0), ..request("true") }).contains("cpus"));
    assert!(refuse(StartRequest { cpu_time_limit: Some("0".into()), ..request("true") }).contains("cpu_time_limit"));
}

#[test]
fn the_command_line_sets_limits_and_says_which_was_reached() {
    let pinfold = Pinfold::start(PINFOLD);
    let run = pinfold.cli(&["run", "--memory-limit", "48M", "--", "tail", "/dev/zero"]);
    assert_eq!(run.code, Some(137));
    assert!(run.stderr.contains("memory limit"), "{}", run.stderr);
    let id = pinfold.cli(&["run", "-d", "--pids-limit", "20", "--cpu-time-limit", "1h", "sleep 300"]).stdout;
    let shown = pinfold.cli(&["show", id.trim()]).stdout;
    assert!(shown.contains("20 pids") && shown.contains("cpu 1h"), "{shown}");
}

/// The record in the response to a wait, once the leader exited or the wait timed out.
fn ended(pinfold: &Pinfold, record: &Record) -> Record {
    let query = pinfold_api::types::WaitQuery { timeout: Some("60s".into()), ..Default::default() };
    let answer = pinfold.wait(&record.id, &query);
    assert_ne!(answer.reason, WaitReason::Timeout);
    until_some("it is over", || Some(pinfold.show(&record.id)).filter(|record| record.tree.is_empty()))
}
