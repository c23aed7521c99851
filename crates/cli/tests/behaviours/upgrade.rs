//! Other versions: a home of an older format, keepers of another protocol, a daemon replaced under load.
//!
//! That a home of a newer format is refused and left untouched is `crash::damage::newer_schema_refused`.

mod fixtures;
mod keepers;

use std::path::Path;

use pinfold_api::types::{EventKind, ListQuery, Outcome, Record, StartRequest, Status};
use pinfold_testkit::{Pinfold, Setup, place_program, until};
use serde_json::Value;

use crate::PINFOLD;
use fixtures::Fixture;

/// Long retention, because the fixtures are old.
const KEEP: &str = "[limits]\nretention = \"3650d\"\n";

/// Checks that everything in `before` is still there; more may be.
fn assert_contains(now: &Value, before: &Value, what: &str) {
    match (now, before) {
        (Value::Object(now), Value::Object(before)) => {
            for (name, value) in before {
                assert_contains(now.get(name).unwrap_or(&Value::Null), value, &format!("{what}.{name}"));
            }
        }
        _ => assert_eq!(now, before, "{what}"),
    }
}

fn assert_nothing_is_lost(pinfold: &Pinfold, before: &Value) {
    let list = pinfold.list(&ListQuery::default());
    let processes = before["processes"].as_array().expect("processes");
    assert_eq!((list.total, list.unreadable.len()), (processes.len() as u64, 0), "{list:?}");
    for process in processes {
        let id = process["id"].as_str().expect("an id");
        assert_contains(&serde_json::to_value(pinfold.show(id)).expect("json"), process, id);
        assert_eq!(Value::from(pinfold.text(id)), before["output"][id], "{id}");
    }
    let events = pinfold.events(0).events;
    let earlier = before["events"].as_array().expect("events");
    assert!(events.len() >= earlier.len());
    for (event, earlier) in events.iter().zip(earlier) {
        assert_contains(&serde_json::to_value(event).expect("json"), earlier, "an event");
    }
    if let Some(consumers) = before["consumers"].as_array() {
        let now = pinfold.block(pinfold.client().consumers()).expect("consumers").consumers;
        assert_contains(&serde_json::to_value(now).expect("json"), &consumers.clone().into(), "consumers");
    }
}

/// Every released home, with the responses of its daemon.
fn older_homes() -> impl Iterator<Item = (Pinfold, Value)> {
    Fixture::all().into_iter().map(|fixture| {
        let pinfold = Pinfold::prepare(PINFOLD, Setup { config: KEEP.into(), ..Setup::default() });
        fixture.unpack(pinfold.home());
        (pinfold, fixture.expected())
    })
}

#[test]
fn an_older_home_is_upgraded_and_loses_nothing() {
    older_homes().for_each(|(pinfold, before)| assert_taken_up(&pinfold, &before));
}

fn assert_taken_up(pinfold: &Pinfold, before: &Value) {
    pinfold.start_daemon();
    assert_nothing_is_lost(pinfold, before);
    let last = before["events"].as_array().and_then(|events| events.last()?["seq"].as_u64()).expect("a number");
    assert_eq!(pinfold.events(0).next, last, "no event is repeated");

    // An idempotency key that was used then still refers to its process.
    let plain = before["processes"].as_array().expect("processes").last().cloned().expect("the first one");
    let request = StartRequest {
        command: plain["command"].as_str().map(str::to_owned),
        cwd: Some("/".into()),
        owner: Some("chat-1".into()),
        idempotency_key: Some("key-1".into()),
        ..StartRequest::default()
    };
    let again = pinfold.start_request(&request);
    assert_eq!((again.created, Value::from(again.record.id)), (false, plain["id"].clone()));

    // Event numbers continue after the last one, and ids are not reused.
    let (record, _) = pinfold.run("exit 4");
    assert_eq!(record.outcome, Some(Outcome::Exited { code: 4 }));
    let news = pinfold.events(last).events;
    assert!(news.iter().all(|event| event.process == record.id) && news[0].seq == last + 1, "{news:?}");
    assert_eq!(news.last().map(|event| event.kind), Some(EventKind::Finished));
}

/// `store.index_upgraded`: the daemon is killed after the upgrade and before its commit.
#[cfg(debug_assertions)]
#[test]
fn an_interrupted_upgrade_is_repeated() {
    let (mut pinfold, before) = older_homes().next().expect("a home of index version 1");
    let fuse = pinfold.home().join("fuse");
    pinfold.set_env("PINFOLD_CRASH", Some(format!("store.index_upgraded:1:{}", fuse.display())));
    assert_ne!(pinfold.cli(&["daemon", "start"]).code, Some(0));
    assert!(fuse.exists(), "the crash point was not reached");
    pinfold.set_env("PINFOLD_CRASH", None);
    pinfold.start_daemon();
    assert_nothing_is_lost(&pinfold, &before);
}

/// The directories are enough: without its index, an older home still has every record and all output.
#[test]
fn an_older_home_without_its_index_keeps_its_records() {
    for (pinfold, before) in older_homes() {
        for name in ["index.db", "index.db-wal"] {
            std::fs::remove_file(pinfold.home().join(name)).expect("removed");
        }
        pinfold.start_daemon();
        for process in before["processes"].as_array().expect("processes") {
            let id = process["id"].as_str().expect("an id");
            assert_contains(&serde_json::to_value(pinfold.show(id)).expect("json"), process, id);
            assert_eq!(Value::from(pinfold.text(id)), before["output"][id], "{id}");
        }
    }
}

#[test]
fn upgrade_under_load() {
    let mut pinfold = Pinfold::start(PINFOLD);
    let gate = pinfold.home().join("gate");
    let command = format!("i=0; while [ ! -e {} ]; do i=$((i+1)); echo $i; sleep 0.005; done; exit 7", gate.display());
    let mut writers: Vec<Record> = (0..4).map(|_| pinfold.sh(&command)).collect();
    let versions = pinfold.home().with_extension("versions");
    std::fs::create_dir_all(&versions).expect("a directory");
    for version in 1..=4 {
        let binary = versions.join(format!("pinfold-{version}"));
        place_program(Path::new(PINFOLD), &binary);
        pinfold.set_binary(binary.clone());
        // By turns a clean stop and a crash.
        match version % 2 {
            0 => pinfold.kill_daemon(),
            _ => assert_eq!(pinfold.cli(&["daemon", "stop"]).code, Some(0)),
        }
        pinfold.start_daemon();
        let running = std::fs::read_link(format!("/proc/{}/exe", pinfold.daemon_pid())).expect("a daemon");
        assert_eq!(running, binary.canonicalize().expect("a path"));
        for writer in &writers {
            let before = pinfold.show(&writer.id);
            assert_eq!((before.status, before.pid), (Status::Running, writer.pid));
            until("it writes on", || pinfold.show(&writer.id).output.bytes > before.output.bytes);
        }
        let another = pinfold.sh(&command);
        until("it writes", || pinfold.show(&another.id).output.bytes > 0);
        writers.push(another);
    }
    std::fs::write(&gate, "").expect("an open gate");
    for writer in &writers {
        let record = pinfold.wait_finished(&writer.id);
        assert_eq!(record.outcome, Some(Outcome::Exited { code: 7 }));
        let text = pinfold.text(&writer.id);
        let count = text.lines().count();
        assert!(count > 0 && text == (1..=count).map(|line| format!("{line}\n")).collect::<String>(), "{text}");
        let kinds: Vec<_> = pinfold.events(0).events.into_iter().filter(|event| event.process == writer.id).collect();
        assert_eq!(kinds.iter().filter(|event| event.kind == EventKind::Finished).count(), 1);
        assert_eq!(kinds.iter().filter(|event| event.kind == EventKind::Started).count(), 1);
    }
    drop(pinfold);
    std::fs::remove_dir_all(versions).expect("nothing is left");
}
