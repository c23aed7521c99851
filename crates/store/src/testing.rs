//! Helpers for the store's tests: temporary directories and sample facts.

use std::ops::Deref;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pinfold_model::event::EventKind;
use pinfold_model::facts::{Exit, Fact, Finish, History, Intent, Start, Usage};
use pinfold_model::id::ProcessId;
use pinfold_model::lifecycle::End;
use pinfold_model::link::KeeperIdentity;
use pinfold_model::notify::Notify;
use pinfold_model::outcome::{Cause, Outcome};
use pinfold_model::signal::Signal;
use pinfold_model::spec::{Lifetime, Program, Spec, StopManner, Strays, Streams};
use pinfold_model::units::Moment;

use crate::index::NewEvent;
use crate::layout::Home;
use crate::record::RecordWriter;

/// A temporary directory, removed when dropped.
pub(crate) struct Scratch(PathBuf);

/// A home in a scratch directory.
pub(crate) struct ScratchHome {
    home: Home,
    _scratch: Scratch,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("pinfold-store-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).expect("scratch directory");
        Self(path)
    }

    pub(crate) fn home() -> ScratchHome {
        let scratch = Self::new();
        ScratchHome { home: Home::open(scratch.path()).expect("home"), _scratch: scratch }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Deref for ScratchHome {
    type Target = Home;

    fn deref(&self) -> &Home {
        &self.home
    }
}

pub(crate) fn mode_of(path: &Path) -> u32 {
    std::fs::symlink_metadata(path).expect("metadata").mode() & 0o7777
}

pub(crate) fn id(number: u64) -> ProcessId {
    ProcessId::from_number(number, 7)
}

pub(crate) fn intent(number: u64, owner: &str, key: Option<&str>) -> Intent {
    Intent {
        format: crate::record::RECORD_FORMAT,
        id: id(number),
        spec: Spec {
            program: Program::Shell { shell: "/bin/sh".into(), script: "echo \"hi\nthere ☃\"".into() },
            cwd: "/".into(),
            inherit_env: true,
            env: Default::default(),
            owner: owner.into(),
            ancestors: vec![],
            lifetime: Lifetime::Keep,
            intent: None,
            idle_limit: None,
            limits: Default::default(),
            sandbox: None,
            notify: Notify::default(),
            service: Default::default(),
            name: Some(format!("name-{number}")),
            labels: [("kind".to_owned(), format!("k{}", number % 2))].into(),
            streams: Streams::Merged,
            stdin: Default::default(),
            pty: None,
            strays: Strays::Keep,
            stop: StopManner { signal: Signal::TERM, grace: Duration::from_secs(5) },
            time_limit: None,
            output_limit: 1 << 20,
            idempotency_key: key.map(str::to_owned),
            traceparent: None,
            tool: None,
        },
        mark: "00ff".into(),
        at: Moment(1_000_000 + number),
        boot_id: "boot".into(),
        keeper: KeeperIdentity { pid: 1, start_time: 2, cgroup: None },
    }
}

/// All facts of one process: intended, started, exited, closed, finished.
pub(crate) fn all_facts(number: u64) -> Vec<Fact> {
    let end = End { outcome: Outcome::Exited { code: 3 }, cause: Cause::OnItsOwn };
    let at = Moment(2_000_000 + number);
    vec![
        Fact::Intended(Box::new(intent(number, "ann", None))),
        Fact::Started(Start { pid: 5, start_time: 6, at }),
        Fact::Exited(Exit { end: end.clone(), at, told_apart: true }),
        Fact::Closed { at },
        Fact::Finished(Finish {
            end,
            exited_at: at,
            at,
            closed: true,
            output_bytes: 10,
            output_lost: 0,
            usage: Usage::default(),
        }),
    ]
}

pub(crate) fn append_all(writer: &mut RecordWriter, facts: &[Fact]) {
    for fact in facts {
        writer.append(fact).expect("appended");
    }
}

pub(crate) fn lost(at: u64) -> Fact {
    Fact::Lost { evidence: "the keeper is gone".into(), at: Moment(at) }
}

pub(crate) fn history(number: u64, owner: &str, key: Option<&str>) -> History {
    History::new(intent(number, owner, key))
}

pub(crate) fn finished(number: u64, owner: &str) -> History {
    let mut history = history(number, owner, None);
    all_facts(number).into_iter().for_each(|fact| history.add(fact));
    history
}

/// An event of the owner `ann` that is not announced.
pub(crate) fn event(number: u64, kind: EventKind) -> NewEvent {
    NewEvent {
        process: id(number),
        owner: "ann".into(),
        kind,
        n: 0,
        announce: false,
        at: Moment(1_700_000_000_000_000),
        payload: "{}".into(),
        targets: vec![],
    }
}
