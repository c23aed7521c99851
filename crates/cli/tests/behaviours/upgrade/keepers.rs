//! Keepers of another protocol version: an older one is adopted, a newer one is left alone. The keeper is scripted, on a
//! real socket; the record beside it is a real one.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use pinfold_api::error::ErrorCode;
use pinfold_api::types::{EventKind, Outcome, Record, Status};
use pinfold_model::facts::{Fact, Finish, History, Usage};
use pinfold_model::lifecycle::End;
use pinfold_model::link::{FromKeeper, KeeperIdentity, Kept, VERSION, encode};
use pinfold_model::{outcome, units::Moment};
use pinfold_testkit::{Pidfd, Pinfold, until, until_some};

use crate::PINFOLD;
use crate::records::{facts, intent_of, rewrite};

/// A keeper played by this test: its own process is the one whose pid the record names.
struct Scripted {
    pinfold: Pinfold,
    id: String,
    listener: UnixListener,
    identity: KeeperIdentity,
}

impl Scripted {
    /// A process that runs according to its record, with this test as its keeper.
    fn new() -> Self {
        let pinfold = Pinfold::start(PINFOLD);
        let id = pinfold.sh("echo kept; exec sleep 300").id;
        until("some output", || pinfold.show(&id).output.bytes > 0);
        let keeper = Pidfd::open(pinfold.keeper_pid(&id)).expect("a keeper");
        pinfold.kill_daemon();
        keeper.kill();
        let pid = std::process::id();
        let start_time = pinfold_os::proc::start_time(pid).expect("our own");
        let identity = KeeperIdentity { pid, start_time, cgroup: None };
        rewrite(&pinfold, &id, |facts| intent_of(facts).keeper = identity.clone());
        let path = pinfold.home().join("keepers").join(pid.to_string());
        let listener = UnixListener::bind(path).expect("a socket");
        Self { pinfold, id, listener, identity }
    }

    fn hello(&self, version: u32) -> FromKeeper {
        let mut facts = facts(&self.pinfold, &self.id).into_iter();
        let Some(Fact::Intended(intent)) = facts.next() else { panic!("no intent") };
        let mut history = History::new(*intent);
        facts.for_each(|fact| history.add(fact));
        let kept = Some(Box::new(Kept {
            history,
            paused: false,
            output_bytes: 5,
            terminal: None,
            waiting: Default::default(),
        }));
        FromKeeper::Hello { version, keeper: self.identity.clone(), kept }
    }

    /// Starts a daemon, which connects to this keeper, and answers its hello.
    fn meet(&self, version: u32) -> UnixStream {
        let hello = encode(&self.hello(version));
        std::thread::scope(|scope| {
            let met = scope.spawn(|| {
                let (mut daemon, _) = self.listener.accept().expect("a daemon");
                daemon.write_all(&hello).expect("a hello");
                daemon
            });
            self.start_daemon_elsewhere();
            met.join().expect("they met")
        })
    }

    /// Starts a daemon that is not a descendant of this test: pinfold considers descendants of this keeper part of its
    /// process.
    fn start_daemon_elsewhere(&self) {
        let start = self.pinfold.command(&["daemon", "start"]);
        let mut orphan = Command::new("sh");
        // As soon as the shell exits, its child is adopted by init.
        orphan.args(["-c", "(while kill -0 $$ 2>/dev/null; do sleep 0.01; done; exec \"$0\" \"$@\") &"]);
        orphan.arg(start.get_program()).args(start.get_args()).current_dir("/");
        orphan.envs(start.get_envs().filter_map(|(name, value)| Some((name, value?))));
        orphan.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        assert!(orphan.status().expect("sh").success());
        let client = self.pinfold.client();
        until("a daemon answers", || self.pinfold.block(client.health()).is_ok());
    }

    fn finished(&self) -> Fact {
        let end = End { outcome: outcome::Outcome::Exited { code: 6 }, cause: outcome::Cause::OnItsOwn };
        let at = Moment(1_900_000_000_000_000);
        let (output_bytes, output_lost, usage) = (5, 0, Usage::default());
        Fact::Finished(Finish { end, exited_at: at, at, closed: true, output_bytes, output_lost, usage })
    }

    fn assert_finished(&self, record: &Record) {
        assert_eq!((record.status, &record.outcome), (Status::Finished, &Some(Outcome::Exited { code: 6 })));
        assert_eq!(self.pinfold.text(&self.id), "kept\n");
        let events = self.pinfold.events(0).events;
        let kinds: Vec<_> = events.iter().filter(|event| event.process == self.id).map(|event| event.kind).collect();
        assert_eq!(kinds, [EventKind::Started, EventKind::Finished]);
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        let own = self.pinfold.home().join("keepers").join(self.identity.pid.to_string());
        std::fs::remove_file(own).expect("a keeper removes its socket");
    }
}

#[test]
fn a_keeper_of_an_older_protocol_is_adopted() {
    let keeper = Scripted::new();
    let mut daemon = keeper.meet(VERSION - 1);
    let record = keeper.pinfold.show(&keeper.id);
    assert_eq!((record.status, record.note), (Status::Running, None));
    let fact = keeper.finished();
    rewrite(&keeper.pinfold, &keeper.id, |facts| facts.push(fact.clone()));
    let id = facts_id(&keeper);
    daemon.write_all(&encode(&FromKeeper::Fact { id, fact })).expect("a fact");
    let record = keeper.pinfold.wait_finished(&keeper.id);
    keeper.assert_finished(&record);
}

fn facts_id(keeper: &Scripted) -> pinfold_model::id::ProcessId {
    pinfold_model::id::ProcessId::parse(&keeper.id).expect("an id")
}

/// The daemon sends it nothing, does not consider its process lost, and reads its end from the record.
#[test]
fn a_keeper_of_a_newer_protocol_is_left_alone() {
    let keeper = Scripted::new();
    let mut daemon = keeper.meet(VERSION + 1);
    let record = until_some("a note", || Some(keeper.pinfold.show(&keeper.id)).filter(|record| record.note.is_some()));
    assert_eq!(record.status, Status::Running, "{record:?}");
    let error = keeper.pinfold.signal(&keeper.id, "TERM").expect_err("it cannot be spoken to");
    assert_eq!(error.code, ErrorCode::KeeperSilent, "{error:?}");
    daemon.set_read_timeout(Some(Duration::from_millis(200))).expect("a timeout");
    let said = daemon.read(&mut [0; 64]).expect_err("nothing is said to it");
    assert_eq!(said.kind(), ErrorKind::WouldBlock);

    let fact = keeper.finished();
    rewrite(&keeper.pinfold, &keeper.id, |facts| facts.push(fact));
    drop(daemon);
    let record = keeper.pinfold.wait_finished(&keeper.id);
    keeper.assert_finished(&record);
}
