//! Files that a daemon finds and must not trust: from another boot, with a reused pid, torn, damaged, of a newer
//! version.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use pinfold_api::error::ErrorCode;
use pinfold_api::types::{EventKind, ListQuery, Outcome, Record, Status};
use pinfold_model::facts::Fact;
use pinfold_model::units::Moment;
use pinfold_store::Durability;
use pinfold_store::index::Index;
use pinfold_store::layout::Home;
use pinfold_store::record::RECORD_FORMAT;
use pinfold_testkit::{Pidfd, Pinfold, alive, until, until_some};

use super::{counting, events_of, gate, until_more_output, until_output};
use crate::PINFOLD;
use crate::clients::Bystander;
use crate::records::{files_in, intent, intent_of, rewrite};

/// Kills the daemon, then the keepers of these processes, whose records stay without an end.
fn kill_with_keepers(pinfold: &Pinfold, ids: &[&str]) {
    let keepers: Vec<_> = ids.iter().map(|id| Pidfd::open(pinfold.keeper_pid(id)).expect("a keeper")).collect();
    pinfold.kill_daemon();
    keepers.iter().for_each(Pidfd::kill);
}

/// Writes another pid into a record, as if it had belonged to the keeper and the leader.
fn set_pids(pinfold: &Pinfold, id: &str, pid: u32, start_time: u64) {
    rewrite(pinfold, id, |facts| {
        let keeper = &mut intent_of(facts).keeper;
        (keeper.pid, keeper.start_time) = (pid, start_time);
        if let Some(Fact::Started(start)) = facts.get_mut(1) {
            (start.pid, start.start_time) = (pid, start_time);
        }
    });
}

fn evidence(record: &Record) -> &str {
    match &record.outcome {
        Some(Outcome::Lost { evidence }) if record.status == Status::Lost => evidence,
        other => panic!("{other:?}"),
    }
}

#[test]
fn restart_rejects_reused_pid() {
    let pinfold = Pinfold::start(PINFOLD);
    let mut bystander = Bystander::start();
    let (job, other) = (pinfold.sh("sleep 300"), pinfold.sh("sleep 300"));
    kill_with_keepers(&pinfold, &[&job.id, &other.id]);
    let bystanders_own = intent(&pinfold, &job.id).keeper.start_time + 1_000_000;
    set_pids(&pinfold, &job.id, bystander.pid(), 1);
    set_pids(&pinfold, &other.id, bystander.pid(), bystanders_own);
    pinfold.start_daemon();
    for id in [&job.id, &other.id] {
        let record = pinfold.show(id);
        assert!(evidence(&record).contains("none is left") && record.tree.is_empty(), "{record:?}");
    }
    assert!(bystander.lives());
}

/// A new keeper may have the pid of a dead one, with the same socket and cgroup names.
#[test]
fn a_keeper_that_has_the_pid_of_a_dead_one_is_left_alone() {
    let pinfold = Pinfold::start(PINFOLD);
    let (dead, living) = (pinfold.sh("sleep 300"), pinfold.sh(&counting(&gate(&pinfold))));
    kill_with_keepers(&pinfold, &[&dead.id]);
    set_pids(&pinfold, &dead.id, intent(&pinfold, &living.id).keeper.pid, 1);
    pinfold.start_daemon();
    evidence(&pinfold.show(&dead.id));
    pinfold.crash_and_restart();
    until_more_output(&pinfold, &pinfold.show(&living.id));
    super::assert_counted_to_the_end(&pinfold, &living.id);
}

#[test]
fn reboot_marks_lost() {
    let pinfold = Pinfold::start(PINFOLD);
    let mut bystander = Bystander::start();
    // One process, which ends when its keeper dies: after a reboot the daemon searches for no remains.
    let job = pinfold.sh("echo before the reboot; exec sleep 300");
    until_output(&pinfold, &job.id);
    kill_with_keepers(&pinfold, &[&job.id]);
    until("the leader ends with its keeper", || !job.pid.is_some_and(alive));
    set_pids(&pinfold, &job.id, bystander.pid(), 1);
    rewrite(&pinfold, &job.id, |facts| intent_of(facts).boot_id = "of an earlier boot".into());
    pinfold.start_daemon();
    let record = pinfold.show(&job.id);
    assert!(evidence(&record).contains("the machine was restarted"), "{record:?}");
    assert!(record.finished_at.is_some() && bystander.lives());
    pinfold.wait_finished(&job.id);
    assert_eq!(pinfold.show(&job.id), record);
    assert_eq!(pinfold.text(&job.id), "before the reboot\n");
    assert_eq!(events_of(&pinfold, &job.id), [EventKind::Started, EventKind::Lost]);
}

#[test]
fn torn_state_tolerated() {
    let pinfold = Pinfold::start(PINFOLD);
    let ended = |command: &str| {
        let id = pinfold.sh(&format!("{command}; exit 3")).id;
        pinfold.wait_finished(&id);
        pinfold.show(&id)
    };
    let [garbage, cut, stub, whole] = ["echo garbage", "echo cut", ":", "echo whole"].map(ended);
    // The keeper of the torn one now runs another process.
    let keeper = |of: &Record| intent(&pinfold, &of.id).keeper;
    let (torn, running) = until_some("a keeper's next process", || {
        let (torn, running) = (ended("echo torn"), pinfold.sh(&counting(&gate(&pinfold))));
        (keeper(&running) == keeper(&torn)).then_some((torn, running))
    });
    pinfold.kill_daemon();
    std::fs::remove_file(pinfold.home().join("index.db")).expect("no index: all is read from the records");
    let record = |of: &Record| pinfold.directory(&of.id).join("record");
    let bytes = std::fs::read(record(&torn)).expect("a record");
    std::fs::write(record(&torn), &bytes[..bytes.len() - 10]).expect("a torn last line");
    std::fs::write(record(&garbage), b"\xff\x00 not a record\nat all").expect("garbage");
    [&stub, &cut].iter().for_each(|of| std::fs::write(record(of), &bytes[..20]).expect("a torn first line"));
    pinfold.start_daemon();

    let list = pinfold.list(&ListQuery { limit: Some(500), ..ListQuery::default() });
    assert_eq!(pinfold.show(&whole.id), whole);
    assert!(evidence(&pinfold.wait_finished(&torn.id)).contains("without an exit record"));
    assert_eq!(pinfold.text(&torn.id), "torn\n");
    // A torn first line means that the process was never started; but one with output did run.
    assert_eq!(pinfold.try_show(&stub.id).expect_err("nothing is left of it").code, ErrorCode::NotFound);
    let error = pinfold.try_show(&cut.id).expect_err("unreadable");
    assert!(error.code == ErrorCode::Damaged && error.message.contains("it ran"), "{error:?}");
    assert!(pinfold.directory(&cut.id).join("out.00000000000000000000").exists());
    super::assert_counted_to_the_end(&pinfold, &running.id);

    let error = pinfold.try_show(&garbage.id).expect_err("unreadable");
    assert!(error.code == ErrorCode::Damaged && error.message.contains("line 1"), "{error:?}");
    let unreadable: BTreeSet<_> = list.unreadable.iter().map(|one| &one.id).collect();
    assert_eq!(unreadable, BTreeSet::from([&garbage.id, &cut.id]));
    assert!(pinfold.health().troubles.iter().any(|trouble| trouble.contains(&garbage.id)));
    let log = std::fs::read_to_string(pinfold.home().join("daemon.log")).expect("a log");
    assert!(log.lines().any(|line| line.contains("WARN") && line.contains(&garbage.id)), "{log}");
}

#[test]
fn newer_schema_refused() {
    let pinfold = Pinfold::start(PINFOLD);
    let [kept, newer] = [4, 5].map(|code| {
        let id = pinfold.wait_finished(&pinfold.sh(&format!("exit {code}")).id).id;
        pinfold.show(&id)
    });
    pinfold.kill_daemon();
    until("idle keepers leave", || pinfold.keepers().is_empty());
    let refused = |name: &str, change: &dyn Fn(&mut Vec<u8>)| {
        let path = pinfold.home().join(name);
        let before = std::fs::read(&path).expect("a file of the home");
        let mut changed = before.clone();
        change(&mut changed);
        std::fs::write(&path, &changed).expect("a newer file");
        let found = everything_in(pinfold.home());
        let start = pinfold.cli(&["daemon", "start"]);
        let left = everything_in(pinfold.home());
        std::fs::write(&path, before).expect("the old file");
        assert_eq!(start.code, Some(1), "{name}");
        assert!(start.stderr.contains("newer pinfold") && start.stderr.contains("upgrade"), "{}", start.stderr);
        assert!(start.stderr.contains(&*path.to_string_lossy()), "{name} is not named: {}", start.stderr);
        let touched: Vec<_> = found.iter().filter(|(path, sum)| left.get(*path) != Some(*sum)).collect();
        assert!(touched.is_empty(), "{name}: touched {touched:?}");
    };
    refused("format", &|text| *text = b"2\n".to_vec());
    refused("ids", &|text| *text = br#"{"format":2,"seed":1,"reserved":2}"#.to_vec());
    fold_log_into_index(pinfold.home());
    refused("index.db", &|database| database[60..64].copy_from_slice(&9_u32.to_be_bytes()));

    // A record of a newer version affects only its own process.
    std::fs::remove_file(pinfold.home().join("index.db")).expect("no index: all is read from the records");
    rewrite(&pinfold, &newer.id, |facts| intent_of(facts).format = RECORD_FORMAT + 1);
    let record = std::fs::read(pinfold.directory(&newer.id).join("record")).expect("a record");
    pinfold.start_daemon();
    assert_eq!(pinfold.show(&kept.id), kept);
    let error = pinfold.try_show(&newer.id).expect_err("unreadable");
    assert!(error.message.contains("newer pinfold") && error.message.contains("upgrade"), "{error:?}");
    assert_eq!(std::fs::read(pinfold.directory(&newer.id).join("record")).expect("a record"), record);
}

/// Closing the last connection moves the write-ahead log into the database file, so that its header is complete.
pub(crate) fn fold_log_into_index(home: &Path) {
    let home = Home::open(home).expect("a home");
    drop(Index::open(&home, Durability::Programs, Moment(1)).expect("an index"));
    assert!(!home.root().join("index.db-wal").exists());
}

/// Every file with a checksum, except the lock, the log and shared memory, which every start writes.
fn everything_in(home: &Path) -> BTreeMap<PathBuf, u64> {
    let written =
        |path: &PathBuf| ["lock", "holder", "daemon.log", "index.db-shm"].iter().any(|name| path.ends_with(name));
    let sum = |path: PathBuf| {
        let mut sum = DefaultHasher::new();
        std::fs::read(&path).expect("a file").hash(&mut sum);
        (path, sum.finish())
    };
    files_in(home).into_iter().filter(|path| !written(path)).map(sum).collect()
}

#[test]
fn a_torn_tokens_file_grants_nothing_and_does_not_prevent_a_start() {
    let pinfold = Pinfold::start(PINFOLD);
    assert_eq!(pinfold.cli(&["token", "add"]).code, Some(0));
    pinfold.kill_daemon();
    let path = pinfold.home().join("tokens.json");
    let whole = std::fs::read(&path).expect("a file");
    std::fs::write(&path, &whole[..whole.len() / 2]).expect("a torn file");
    pinfold.start_daemon();
    assert_eq!(pinfold.run("echo usable").1, "usable\n");
    let health = pinfold.health();
    assert!(health.status == "degraded" && health.troubles[0].contains("tokens.json"), "{health:?}");
    let refused = pinfold.cli(&["token", "add"]);
    assert!(refused.code != Some(0) && refused.stderr.contains("tokens.json"), "{}", refused.stderr);
    assert_eq!(std::fs::read(&path).expect("a file"), &whole[..whole.len() / 2], "nothing is written over it");
    std::fs::write(&path, &whole).expect("restored");
    assert_eq!(pinfold.health().troubles, Vec::<String>::new());
    assert_eq!(pinfold.cli(&["token", "add"]).code, Some(0));
}
