//! The disk: quotas, a full one, and how long ended processes are kept.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use pinfold_api::error::ErrorCode;
use pinfold_api::types::{Cause, EventKind, GcRequest, ListQuery, Outcome, OutputQuery, Range, StartRequest, Status};
use pinfold_testkit::{Pinfold, Setup, alive, until, until_some};

use super::gate::Gate;
use super::{assert_shows, lines_of_eight, read, start_limited, view, wait_beyond};
use crate::PINFOLD;

/// The files of a directory and their sizes at one moment: no file was created or removed while they were measured.
fn sizes(directory: &Path) -> BTreeMap<String, u64> {
    let names = || -> Vec<String> {
        let entries = std::fs::read_dir(directory).expect("a directory").flatten();
        let mut names: Vec<_> = entries.map(|entry| entry.file_name().into_string().expect("a name")).collect();
        names.sort();
        names
    };
    until_some("a quiet moment", || {
        let before = names();
        let size = |name: &String| Some((name.clone(), directory.join(name).metadata().ok()?.len()));
        let sizes: BTreeMap<_, _> = before.iter().filter_map(size).collect();
        (names() == before && sizes.len() == before.len()).then_some(sizes)
    })
}

/// The size of the output, which the limit bounds, and of the record beside it, which stays small.
fn output_size(directory: &Path) -> u64 {
    let mut sizes = sizes(directory);
    assert!(sizes.remove("record").expect("a record") < 8192);
    sizes.values().sum()
}

#[test]
fn output_quota_caps_disk() {
    const LIMIT: u64 = 8 << 20;
    let pinfold = Pinfold::start(PINFOLD);
    let id = start_limited(&pinfold, "exec yes 0123456", "8M").id;
    let directory = pinfold.directory(&id);
    let mut bytes = 0;
    while bytes < 20 * LIMIT {
        let size = output_size(&directory);
        assert!(size <= LIMIT, "{size} bytes on disk, after {bytes} bytes of output");
        bytes = pinfold.show(&id).output.bytes;
    }
    assert_eq!(pinfold.show(&id).status, Status::Running, "the limit does not stop it");
    let output = pinfold.stop(&id).record.output;
    let size = output_size(&directory);
    assert!((LIMIT / 2..=LIMIT).contains(&size), "{size} bytes on disk at the end");
    assert!(output.dropped > 0 && output.bytes - output.dropped <= size, "{output:?}");
    assert_shows(&view(&pinfold, &id, "4k"), &lines_of_eight(0, output.bytes as usize));
}

/// A small filesystem, unmounted and removed when dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// `None` if mounting is not permitted.
    fn mount(name: &str, size: &str) -> Option<Self> {
        let path = std::env::temp_dir().join(format!("pinfold-disk-{}-{name}", std::process::id()));
        std::fs::create_dir(&path).expect("a place to mount at");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o700)).expect("its mode");
        let options = format!("size={size},mode=700");
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(&path).output();
        if mount.is_ok_and(|mount| mount.status.success()) {
            return Some(Self(path));
        }
        println!("skipped: a filesystem can be mounted by root only");
        let _ = std::fs::remove_dir(&path);
        None
    }

    /// A daemon whose home is here.
    fn pinfold(&self) -> Pinfold {
        let pinfold = Pinfold::prepare(PINFOLD, Setup::default());
        std::os::unix::fs::symlink(&self.0, pinfold.home().join("processes")).expect("a link");
        pinfold.start_daemon();
        pinfold
    }

    /// Uses up all free space.
    fn fill(&self) {
        use std::io::Write;
        let mut file = std::fs::File::create(self.0.join("filler")).expect("a file");
        while file.write_all(&[0; 4096]).is_ok() {}
    }

    fn free(&self) {
        std::fs::remove_file(self.0.join("filler")).expect("no file");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(&self.0).status().is_ok_and(|status| status.success());
        if unmounted {
            let _ = std::fs::remove_dir(&self.0);
        } else {
            eprintln!("{} is still mounted", self.0.display());
        }
    }
}

/// Events that cannot be committed while the disk is full are kept, and committed once there is space, without a
/// restart.
#[test]
fn events_wait_for_room() {
    let Some(disk) = SmallDisk::mount("index", "4M") else { return };
    let pinfold = Pinfold::prepare(PINFOLD, Setup::default());
    std::os::unix::fs::symlink(disk.0.join("index.db"), pinfold.home().join("index.db")).expect("a link");
    pinfold.start_daemon();
    disk.fill();
    let (started, mut ids) = (Instant::now(), vec![]);
    // Longer than a failed commit is retried immediately.
    while started.elapsed() < Duration::from_secs(3) {
        // No more than fit on a page of events, however fast the machine is.
        ids.push(pinfold.wait_finished(&pinfold.sh("sleep 0.03; exit 5").id).id);
    }
    let ended = || {
        let events = pinfold.events(0).events.into_iter().filter(|event| event.kind == EventKind::Finished);
        events.map(|event| event.process).collect::<Vec<_>>()
    };
    assert!(ended().len() < ids.len(), "the disk was not full");
    disk.free();
    until("every end is reported", || ended().len() == ids.len());
    assert_eq!(ended(), ids);
    drop(pinfold);
}

/// Checks that every ended process is listed once, by id and by name, whether the index has it or not.
fn assert_all_listed(pinfold: &Pinfold, ids: &[String]) {
    let mut query = ListQuery { name: Some("ended".into()), limit: Some(7), ..ListQuery::default() };
    let mut listed = Vec::new();
    loop {
        let list = pinfold.list(&query);
        assert_eq!(list.total, ids.len() as u64, "{:?}", list.notes);
        listed.extend(list.processes.into_iter().map(|record| record.id));
        query.page = list.next;
        if query.page.is_none() {
            break;
        }
    }
    listed.reverse();
    assert_eq!(listed, ids, "each once, newest first");
    for id in ids {
        assert_eq!(pinfold.show(id).outcome, Some(Outcome::Exited { code: 5 }));
    }
}

fn ended(pinfold: &Pinfold, count: usize) -> Vec<String> {
    let request = StartRequest { name: Some("ended".into()), ..crate::requests::request("exit 5") };
    (0..count).map(|_| pinfold.wait_finished(&pinfold.start_request(&request).record.id).id).collect()
}

/// Runs a test during which the index cannot be written, until it can be written again.
fn without_index(pinfold: &Pinfold, in_the_way: impl FnOnce(), out_of_the_way: impl FnOnce()) {
    let mut ids = ended(pinfold, 10);
    assert_eq!((pinfold.health().status.as_str(), pinfold.health().troubles), ("ok", vec![]));
    in_the_way();
    ids.extend(ended(pinfold, 20));
    until("health reports it", || {
        let health = pinfold.health();
        health.status == "degraded" && health.troubles.iter().any(|trouble| trouble.contains("index"))
    });
    assert_all_listed(pinfold, &ids);
    let shown = pinfold.cli(&["daemon", "status"]).stdout;
    assert!(shown.contains("problem: the index cannot be written"), "{shown}");
    out_of_the_way();
    until("health is good again", || pinfold.health().troubles.is_empty());
    assert_all_listed(pinfold, &ids);
    let events = pinfold.events(0).events.into_iter().filter(|event| event.kind == EventKind::Finished);
    assert_eq!(events.map(|event| event.process).collect::<Vec<_>>(), ids, "each end is reported, in order");
    pinfold.crash_and_restart();
    assert_all_listed(pinfold, &ids);
}

#[test]
fn processes_that_ended_while_the_index_disk_was_full_stay_listed() {
    let Some(disk) = SmallDisk::mount("listed", "4M") else { return };
    let pinfold = Pinfold::prepare(PINFOLD, Setup::default());
    std::os::unix::fs::symlink(disk.0.join("index.db"), pinfold.home().join("index.db")).expect("a link");
    pinfold.start_daemon();
    without_index(&pinfold, || disk.fill(), || disk.free());
    drop(pinfold);
}

#[test]
fn processes_that_ended_while_the_index_was_locked_stay_listed() {
    let pinfold = Pinfold::start(PINFOLD);
    let other = rusqlite::Connection::open(pinfold.home().join("index.db")).expect("a second connection");
    other.busy_timeout(pinfold_testkit::DEADLINE).expect("patience");
    let execute = |sql: &str| other.execute_batch(sql).expect(sql);
    without_index(&pinfold, || execute("BEGIN EXCLUSIVE"), || execute("ROLLBACK"));
}

/// If the log file cannot be written, the daemon still starts, works and reports it.
#[test]
fn a_full_disk_under_the_log_affects_no_request() {
    let Some(disk) = SmallDisk::mount("log", "64k") else { return };
    disk.fill();
    let pinfold = Pinfold::prepare(PINFOLD, Setup::default());
    std::os::unix::fs::symlink(disk.0.join("daemon.log"), pinfold.home().join("daemon.log")).expect("a link");
    pinfold.start_daemon();
    let daemon = pinfold.daemon_pid();
    let ids: Vec<_> = (0..3).map(|code| pinfold.wait_finished(&pinfold.sh(&format!("exit {code}")).id).id).collect();
    let ended = pinfold.events(0).events.into_iter().filter(|event| event.kind == EventKind::Finished);
    assert_eq!(ended.map(|event| event.process).collect::<Vec<_>>(), ids);
    assert_eq!(
        (pinfold.daemon_pid(), std::fs::metadata(disk.0.join("daemon.log")).map_or(0, |log| log.len())),
        (daemon, 0)
    );
    drop(pinfold);
}

#[test]
fn disk_full() {
    let Some(disk) = SmallDisk::mount("output", "2M") else { return };
    let pinfold = disk.pinfold();
    let gates = ["full", "freed", "end"].map(|name| Gate::new(&pinfold, name));
    let [full, freed, end] = gates.each_ref().map(Gate::wait);
    let print = |count| format!("yes 0123456 | head -c {count}");
    let command = format!("{}; {full}; {}; {freed}; {}; {end}; exit 7", print(800), print(80_000), print(800));
    let id = pinfold.sh(&command).id;
    wait_beyond(&pinfold, &id, 799);
    disk.fill();
    gates[0].open();
    // The process is not blocked: it reaches the next gate although its bytes could not be written. They are counted.
    let held = gates[1].reached();
    wait_beyond(&pinfold, &id, 80_799);
    let output = pinfold.show(&id).output;
    assert!(output.bytes == 80_800 && (70_000..=80_000).contains(&output.dropped), "{output:?}");
    // A client that follows gets one gap.
    let kept = read(&pinfold, &id, 0, "1M");
    assert_eq!((kept.next_cursor, kept.text), (80_800 - output.dropped, lines_of_eight(0, kept.next_cursor as usize)));
    let lost = read(&pinfold, &id, kept.next_cursor, "1M");
    assert_eq!(lost.gap, Some(Range { from: kept.next_cursor, to: 80_800 }));
    assert_eq!((lost.text.as_str(), lost.next_cursor), ("", 80_800));
    // With free space again, bytes are stored again at their true offset.
    disk.free();
    held.open();
    wait_beyond(&pinfold, &id, 81_599);
    gates[2].open();
    let record = pinfold.wait_finished(&id);
    assert_eq!((record.outcome, record.output.bytes), (Some(Outcome::Exited { code: 7 }), 81_600));
    assert_eq!(record.output.dropped, output.dropped);
    let last = read(&pinfold, &id, 80_800, "1k");
    assert_eq!((last.cursor, last.text), (80_800, lines_of_eight(0, 800)));
    assert!(record.note.expect("a note").contains(&format!("{} bytes", output.dropped)), "the trouble is said");
}

#[test]
fn disk_full_refuses_a_start_and_says_why() {
    let Some(disk) = SmallDisk::mount("start", "512k") else { return };
    let pinfold = disk.pinfold();
    disk.fill();
    let request = StartRequest { command: Some("echo hello".into()), ..StartRequest::default() };
    let refusal = pinfold.try_start(&request).expect_err("no room");
    assert_eq!(refusal.code, ErrorCode::StoreUnwritable);
    assert!(refusal.message.contains("No space left") && refusal.message.contains("free some space"), "{refusal}");
    assert_eq!(pinfold.list(&ListQuery::default()).total, 0, "nothing is left of it");
    disk.free();
    let (record, text) = pinfold.run("echo hello again");
    assert_eq!((record.outcome, text.as_str()), (Some(Outcome::Exited { code: 0 }), "hello again\n"));
}

/// Bytes that are lost at the very end are in no file, but are counted.
#[test]
fn disk_full_at_the_end_loses_only_output() {
    let Some(disk) = SmallDisk::mount("end", "512k") else { return };
    let pinfold = disk.pinfold();
    let gate = Gate::new(&pinfold, "end");
    let id = pinfold.sh(&format!("{}; echo last; exit 5", gate.wait())).id;
    let held = gate.reached();
    disk.fill();
    held.open();
    let record = pinfold.wait_finished(&id);
    assert_eq!((record.outcome, record.output.bytes), (Some(Outcome::Exited { code: 5 }), 5));
    assert_eq!((record.output.dropped, record.output.closed), (5, true));
    let page = pinfold.output(&id, &OutputQuery::default());
    assert_eq!((page.text.as_str(), page.gap, page.next_cursor), ("", Some(Range { from: 0, to: 5 }), 5));
    assert!(record.note.expect("a note").contains("5 bytes"), "the trouble is said");
}

/// The end of a process is reported once it is written, not before.
#[test]
fn disk_full_delays_the_end_until_it_is_written() {
    let Some(disk) = SmallDisk::mount("record", "512k") else { return };
    let pinfold = disk.pinfold();
    let gates = ["measure", "end"].map(|name| Gate::new(&pinfold, name));
    let record_size = |id: &str| pinfold.directory(id).join("record").metadata().expect("a record").len();
    // The record fills its block except for a few bytes, so that the next line does not fit.
    let measured = pinfold.sh(&gates[0].wait()).id;
    let padding = "#".repeat((4096 - 40 - record_size(&measured)) as usize);
    let started = pinfold.sh(&format!("{}; exit 5 {padding}", gates[1].wait()));
    let size = record_size(&started.id);
    assert!((3900..4096).contains(&size), "{size}");
    let held = gates[1].reached();
    disk.fill();
    held.open();
    let pid = started.pid.expect("a pid");
    until("it ends", || !alive(pid));
    let record = pinfold.show(&started.id);
    assert_eq!((record.status, record.outcome), (Status::Running, None), "what is not durable is not reported");
    disk.free();
    let record = pinfold.wait_finished(&started.id);
    assert_eq!((record.outcome, record.cause), (Some(Outcome::Exited { code: 5 }), Some(Cause::OnItsOwn)));
    gates[0].open();
}

fn gc(pinfold: &Pinfold, older_than: Option<&str>, dry_run: bool) -> Vec<String> {
    let request = GcRequest { older_than: older_than.map(Into::into), dry_run };
    let mut removed = pinfold.block(pinfold.client().gc(&request)).expect("a gc").removed;
    removed.sort();
    removed
}

#[test]
fn retention_from_end() {
    let config = "[limits]\nretention = \"1h\"\n".to_owned();
    let pinfold = Pinfold::start_with(PINFOLD, Setup { config, ..Setup::default() });
    let live = pinfold.sh("exec sleep 300").id;
    let long = pinfold.sh("echo long; exec sleep 3").id;
    let record = pinfold.wait_finished(&long);
    // It started before this time and ended after it: it is kept.
    let started: jiff::Timestamp = record.started_at.expect("a start").parse().expect("a time");
    let since = format!("{}ms", jiff::Timestamp::now().duration_since(started).as_millis());
    assert_eq!(gc(&pinfold, Some(&since), false), Vec::<String>::new());
    assert_eq!(gc(&pinfold, None, false), Vec::<String>::new(), "an hour has not passed");
    assert_eq!(pinfold.text(&long), "long\n");
    // Reading and listing change nothing; a live process is never removed.
    assert_eq!(gc(&pinfold, Some("0s"), true), std::slice::from_ref(&long));
    assert_eq!(pinfold.text(&long), "long\n", "a dry run removes nothing");
    let cli = pinfold.cli(&["gc", "--older-than", "0s"]);
    assert!(cli.code == Some(0) && cli.stdout.contains(&long) && !cli.stdout.contains(&live), "{cli:?}");
    assert_eq!(pinfold.try_show(&long).expect_err("removed").code, ErrorCode::NotFound);
    assert!(!pinfold.directory(&long).exists());
    assert_eq!(pinfold.show(&live).status, Status::Running);
}

#[test]
fn retention_keeps_all_of_200_at_once() {
    let pinfold = Pinfold::start(PINFOLD);
    let requests = (0..200).map(|number| {
        let (client, command) = (pinfold.client().clone(), Some(format!("echo {number}")));
        let request = StartRequest { command, wait: Some("60s".into()), ..StartRequest::default() };
        async move { (number, client.start(&request).await.expect("it starts").record.id) }
    });
    let all = pinfold.block(async { requests.collect::<tokio::task::JoinSet<_>>().join_all().await });
    assert_eq!(gc(&pinfold, None, false), Vec::<String>::new());
    for (number, id) in &all {
        assert_eq!(pinfold.text(id), format!("{number}\n"));
    }
    let mut ids: Vec<String> = all.into_iter().map(|(_, id)| id).collect();
    ids.iter().for_each(|id| drop(pinfold.wait_finished(id)));
    ids.sort();
    assert_eq!(gc(&pinfold, Some("0s"), false), ids);
}
