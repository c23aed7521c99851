//! What a keeper does with orders of its daemon. The test itself is the daemon: it holds the lock of the home.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use pinfold_api::types::{Outcome, Status};
use pinfold_model::cached_json::CachedJson;
use pinfold_model::facts::{Fact, Intent};
use pinfold_model::id::ProcessId;
use pinfold_model::link::{Decoder, FromKeeper, Order, ToKeeper, encode};
use pinfold_model::signal::Signal;
use pinfold_model::spec::Program;
use pinfold_store::layout::{Home, HomeLock};
use pinfold_testkit::{DEADLINE, Pinfold, alive, until_some};

use crate::PINFOLD;
use crate::records::{facts, intent};

/// The daemon of a home, played by this test.
struct Played {
    stream: UnixStream,
    decoder: Decoder,
    _lock: HomeLock,
}

impl Played {
    /// Kills the real daemon and takes its place.
    fn instead_of(pinfold: &Pinfold, keeper: u32) -> Self {
        pinfold.kill_daemon();
        let home = Home::open(pinfold.home()).expect("a home");
        let lock = until_some("the home's lock", || home.try_lock().ok());
        let stream = UnixStream::connect(home.keepers().join(keeper.to_string())).expect("a keeper");
        stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
        Self { stream, decoder: Decoder::default(), _lock: lock }
    }

    fn send(&mut self, message: &ToKeeper) {
        self.stream.write_all(&encode(message)).expect("sent");
    }

    /// Reads messages of the keeper until one is wanted.
    fn receive<T>(&mut self, mut wanted: impl FnMut(FromKeeper) -> Option<T>) -> T {
        loop {
            while let Some(message) = self.decoder.try_next().expect("messages") {
                if let Some(found) = wanted(message) {
                    return found;
                }
            }
            let mut bytes = [0; 4096];
            let count = self.stream.read(&mut bytes).expect("it answers");
            assert!(count > 0, "the keeper hung up");
            self.decoder.extend(&bytes[..count]);
        }
    }
}

/// An order like that of an earlier process, for another program.
fn order(like: &Intent, number: u64, program: &Path) -> (ProcessId, Order) {
    let mut intent = like.clone();
    intent.id = ProcessId::from_number(0, number);
    intent.spec.program = Program::Argv { argv: vec![program.to_str().expect("text").to_owned()] };
    let id = intent.id.clone();
    (id, Order { intent: Arc::new(CachedJson::from(intent)), env: BTreeMap::new(), limit_places: vec![], next: None })
}

fn start(order: &Order) -> ToKeeper {
    ToKeeper::Start(Box::new(order.clone()))
}

#[test]
fn a_keeper_that_runs_a_process_refuses_another() {
    let pinfold = Pinfold::start(PINFOLD);
    let kept = pinfold.sh("exec sleep 300");
    let (keeper, like) = (pinfold.keeper_pid(&kept.id), intent(&pinfold, &kept.id));
    let mut daemon = Played::instead_of(&pinfold, keeper);
    let current = daemon.receive(|message| match message {
        FromKeeper::Hello { kept, .. } => kept,
        _ => None,
    });
    assert_eq!(current.history.intent.id.as_str(), kept.id);
    let (id, order) = order(&like, 7, Path::new("/bin/true"));
    daemon.send(&start(&order));
    let (refused, error) = daemon.receive(|message| match message {
        FromKeeper::Refused { id, error, .. } => Some((id, error)),
        _ => None,
    });
    assert_eq!(refused, id);
    assert!(error.contains(&kept.id), "{error}");
    assert!(!pinfold.directory(id.as_str()).exists());
    drop(daemon);
    pinfold.start_daemon();
    let record = pinfold.show(&kept.id);
    assert_eq!((record.status, record.pid), (Status::Running, kept.pid));
}

/// A program that the kernel cannot execute.
fn garbage(pinfold: &Pinfold) -> PathBuf {
    let path = pinfold.home().join("garbage");
    std::fs::write(&path, [0x7f; 64]).expect("a file");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("a mode");
    path
}

/// K1: a fact is written to the record before it is sent. A failed start whose record cannot be written is not
/// reported.
#[test]
fn k1_a_failed_start_that_cannot_be_written_is_not_sent() {
    let pinfold = Pinfold::start(PINFOLD);
    let kept = pinfold.sh("exec sleep 300");
    let (keeper, like) = (pinfold.keeper_pid(&kept.id), intent(&pinfold, &kept.id));
    let id = ProcessId::parse(&kept.id).expect("an id");
    let mut daemon = Played::instead_of(&pinfold, keeper);
    let (signal, by) = (Signal::KILL, "a test".to_owned());
    daemon.send(&ToKeeper::Signal { request: 1, id, signal, by });
    let idle = |message| matches!(message, FromKeeper::Idle).then_some(());
    daemon.receive(idle);

    let program = garbage(&pinfold);
    let (written, whole) = order(&like, 8, &program);
    daemon.send(&start(&whole));
    let fact = daemon.receive(|message| match message {
        FromKeeper::Fact { id, fact } if id == written => Some(fact),
        _ => None,
    });
    assert!(matches!(fact, Fact::Finished(_)), "{fact:?}");
    assert_eq!(facts(&pinfold, written.as_str()).last(), Some(&fact), "what is sent is what is written");
    daemon.receive(idle);

    // From here on there is room for the intent, which is as long as the last one, and for part of the next line.
    let record = std::fs::read(pinfold.directory(written.as_str()).join("record")).expect("a record");
    let first = record.iter().position(|byte| *byte == b'\n').expect("a line") + 1;
    let room = |max: &str| {
        let limit = ["--pid", &keeper.to_string(), &format!("--fsize={max}:")];
        Command::new("prlimit").args(limit).status().is_ok_and(|status| status.success())
    };
    if !room(&(first + 10).to_string()) {
        return println!("skipped: there is no prlimit here");
    }
    let (unwritten, torn) = order(&like, 9, &program);
    daemon.send(&start(&torn));
    let error = daemon.receive(|message| match message {
        FromKeeper::Fact { id, fact } if id == unwritten => panic!("sent, and not written: {fact:?}"),
        FromKeeper::Refused { id, error, .. } if id == unwritten => Some(error),
        _ => None,
    });
    assert!(error.contains("could not be written"), "{error}");
    daemon.receive(idle);
    assert!(!pinfold.directory(unwritten.as_str()).exists(), "nothing is left of it");

    assert!(room("unlimited") && alive(keeper));
    let (last, order) = order(&like, 10, Path::new("/bin/true"));
    daemon.send(&start(&order));
    daemon.receive(idle);
    assert!(matches!(facts(&pinfold, last.as_str()).last(), Some(Fact::Finished(_))));
    drop(daemon);
    pinfold.start_daemon();
    assert_eq!(pinfold.show(last.as_str()).outcome, Some(Outcome::Exited { code: 0 }));
}
