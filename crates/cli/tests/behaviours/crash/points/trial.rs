//! One crash at one crash point: what was promised before it, and whether it holds after it.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};

use pinfold_api::types::{Event, EventKind, ListQuery, Outcome, Record, StartRequest, Started, Status};
use pinfold_testkit::{Pinfold, Setup, alive, until};

use crate::PINFOLD;
use crate::clients::carriers_of;
use crate::records::intent;

/// Which program dies at a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Victim {
    Daemon,
    Keeper,
}

/// When the point is armed: from the first daemon on, or by the workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arm {
    AtOnce,
    Later,
}

/// A process whose start was requested.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) request: StartRequest,
    /// Known once the start was acknowledged.
    pub(super) id: Option<String>,
    /// How it ends: on its own, or by the workload.
    pub(super) outcome: Outcome,
    /// Everything that it prints, if it is not ended early.
    pub(super) text: String,
    /// What was read before the crash.
    pub(super) seen: String,
    /// Whether its end depends on a request that a crash may lose.
    pub(super) ended_by_request: bool,
    /// Whether it was removed, or may have been.
    pub(super) removal: bool,
    /// The owner of an acknowledged handover.
    pub(super) owner: Option<String>,
}

#[derive(Debug)]
pub(super) struct Trial {
    pub(super) pinfold: Pinfold,
    pub(super) jobs: Vec<Job>,
    point: String,
    victim: Victim,
    fuse: PathBuf,
    /// Events that were read, by number.
    seen_events: BTreeMap<u64, Event>,
    /// A consumer's acknowledged cursor.
    pub(super) acked: Option<u64>,
    /// Tokens that were created.
    pub(super) tokens: Vec<String>,
    /// Directories of the workload, to be removed.
    pub(super) left_over: Vec<PathBuf>,
    /// Where a hook writes the id of each process whose end was delivered to it.
    pub(super) hook: Option<PathBuf>,
    /// The workload itself killed a keeper.
    pub(super) keeper_killed: bool,
    /// The index was removed, and event numbers continue after the old ones.
    pub(super) rebuilt: bool,
}

/// The file names that a home may contain.
const KNOWN: [&str; 18] = [
    "format",
    "daemon.json",
    "lock",
    "holder",
    "socket",
    "config.toml",
    "daemon.log",
    "ids",
    "coder-key",
    "webhook.key",
    "index.db",
    "index.db-wal",
    "index.db-shm",
    "sessions.json",
    "tokens.json",
    "keepers",
    "processes",
    "fuse",
];

impl Trial {
    pub(super) fn new(point: &str, nth: u32, victim: Victim, arm: Arm) -> Self {
        let mut pinfold = Pinfold::prepare(PINFOLD, Setup::default());
        let fuse = pinfold.home().join("fuse");
        pinfold.set_env("TRIAL", Some(pinfold.home().display().to_string()));
        let armed = format!("{point}:{nth}:{}", fuse.display());
        pinfold.set_env("PINFOLD_CRASH", (arm == Arm::AtOnce).then_some(armed.clone()));
        let point = format!("{point}:{nth}");
        let (jobs, tokens, seen_events) = (vec![], vec![], BTreeMap::new());
        Self {
            pinfold,
            jobs,
            point,
            victim,
            fuse,
            seen_events,
            acked: None,
            tokens,
            left_over: vec![],
            hook: None,
            keeper_killed: false,
            rebuilt: false,
        }
    }

    /// Whether a program died at the point.
    pub(super) fn is_crashed(&self) -> bool {
        self.fuse.exists()
    }

    /// Arms the point for later daemons.
    pub(super) fn arm(&mut self) {
        self.pinfold.set_env("PINFOLD_CRASH", Some(format!("{}:{}", self.point, self.fuse.display())));
    }

    /// Starts a daemon, which may die while starting.
    pub(super) fn try_start_daemon(&self) -> bool {
        self.pinfold.cli(&["daemon", "start"]).code == Some(0)
    }

    /// Requests a process that prints this and ends like this; returns whether the start was acknowledged.
    pub(super) fn start(&mut self, request: StartRequest, text: String, outcome: Outcome) -> bool {
        let key = format!("job-{}", self.jobs.len());
        let request = StartRequest { idempotency_key: Some(key), ..request };
        let id = self.pinfold.try_start(&request).ok().map(|started: Started| started.record.id);
        let acknowledged = id.is_some();
        let (seen, owner) = (String::new(), None);
        self.jobs.push(Job { request, id, outcome, text, seen, ended_by_request: false, removal: false, owner });
        acknowledged
    }

    /// Reads all state, and remembers it.
    pub(super) fn look(&mut self) {
        for job in &mut self.jobs {
            let Some(id) = &job.id else { continue };
            let query = pinfold_api::types::OutputQuery { max_bytes: Some("16M".into()), ..Default::default() };
            if let Ok(page) = self.pinfold.try_output(id, &query) {
                job.seen = page.text;
            }
        }
        let query = pinfold_api::types::EventsQuery { limit: Some(1000), ..Default::default() };
        if let Ok(page) = self.pinfold.block(self.pinfold.client().events(&query)) {
            self.seen_events.extend(page.events.into_iter().map(|event| (event.seq, event)));
        }
    }

    /// Waits until a process ends, or the daemon does.
    pub(super) fn wait(&mut self, job: usize) -> Option<Record> {
        let id = self.jobs[job].id.clone()?;
        let query = pinfold_api::types::WaitQuery {
            until: Some("finished".into()),
            timeout: Some("20s".into()),
            ..Default::default()
        };
        self.pinfold.try_wait(&id, &query).ok().map(|answer| answer.record)
    }

    /// After the crash: starts a new daemon, checks every promise, and that nothing is left running.
    pub(super) fn check(mut self) {
        let point = self.point.clone();
        let dead = || std::fs::read_to_string(&self.fuse).is_ok_and(|pid| pid.parse().is_ok_and(|pid| !alive(pid)));
        until(&format!("the crash at {point}"), dead);
        self.pinfold.set_env("PINFOLD_CRASH", None);
        match self.victim {
            // The program that was about to start it may have started another.
            Victim::Daemon => {}
            // The surviving daemon handles it on its own.
            Victim::Keeper => {
                (0..self.jobs.len()).for_each(|job| drop(self.wait(job)));
                self.look();
                if let Ok(health) = self.pinfold.block(self.pinfold.client().health()) {
                    pinfold_testkit::Pidfd::open(health.pid).expect("the daemon lives").kill();
                }
            }
        }
        self.pinfold.start_daemon();
        for place in 0..self.jobs.len() {
            self.check_job(place);
        }
        self.check_events();
        self.check_the_rest();
        self.check_nothing_is_left();
    }

    fn check_job(&mut self, place: usize) {
        let point = &self.point;
        let job = &self.jobs[place];
        if job.removal && job.id.as_ref().is_some_and(|id| self.pinfold.try_show(id).is_err()) {
            return;
        }
        let lost_is_fine = self.victim == Victim::Keeper || self.keeper_killed;
        // Requested again with its idempotency key, it is the same process.
        let again = self.pinfold.try_start(&job.request);
        let id = match (&job.id, again) {
            (Some(id), Ok(again)) => {
                assert_eq!(
                    (again.record.id.as_str(), again.created),
                    (id.as_str(), false),
                    "{point}: {:?}",
                    job.request
                );
                id.clone()
            }
            (None, Ok(again)) => again.record.id,
            (_, Err(error)) => {
                let fails = matches!(job.outcome, Outcome::FailedToStart { .. });
                assert!(fails, "{point}: {error:?}");
                error.id.expect("a failed start has a record")
            }
        };
        if job.ended_by_request && self.pinfold.show(&id).outcome.is_none() {
            self.pinfold.stop(&id);
        }
        let record = self.pinfold.wait_finished(&id);
        let text = self.pinfold.text(&id);
        match &record.outcome {
            Some(Outcome::Lost { evidence }) if lost_is_fine => {
                assert!(evidence.contains("keeper"), "{point}: {evidence}");
                assert_prefix(point, &text, &job.text);
            }
            outcome if matches!(job.outcome, Outcome::FailedToStart { .. }) => {
                assert!(matches!(outcome, Some(Outcome::FailedToStart { .. })), "{point}: {record:?}");
            }
            outcome => {
                assert_eq!(outcome.as_ref(), Some(&job.outcome), "{point}: {record:?}");
                // A keeper that died after the leader's exit may not have captured the output of strays.
                let whole = record.status == Status::Finished;
                assert!(record.status == Status::Finished || lost_is_fine, "{point}: {record:?}");
                match whole && !job.ended_by_request && record.output.dropped == 0 {
                    true => assert_eq!(text, job.text, "{point}"),
                    false if record.output.dropped == 0 => assert_prefix(point, &text, &job.text),
                    false => {}
                }
            }
        }
        assert!(record.output.dropped > 0 || text.starts_with(&job.seen), "{point}: read before, and gone");
        assert_segments(point, &self.pinfold.directory(&id), &job.text);
        if let Some(owner) = &job.owner {
            assert_eq!(&record.owner, owner, "{point}");
        }
        self.jobs[place].id = Some(id);
    }

    /// Every event once, with the number under which it was first read; one `finished` for each known process.
    fn check_events(&self) {
        let point = &self.point;
        let events = self.pinfold.events(0).events;
        assert!(events.windows(2).all(|pair| pair[0].seq < pair[1].seq), "{point}");
        let content = |event: &Event| (event.process.clone(), event.kind, event.text.clone());
        let distinct: HashSet<_> = events.iter().map(content).collect();
        assert_eq!(distinct.len(), events.len(), "{point}: an event twice in {events:?}");
        let removed: HashSet<&str> =
            self.jobs.iter().filter(|job| job.removal).filter_map(|job| job.id.as_deref()).collect();
        for (seq, seen) in &self.seen_events {
            // Events that the crashed daemon showed after it had rebuilt the index stay as they were.
            if self.rebuilt && !events.contains(seen) {
                assert!(events.iter().all(|event| event.seq > *seq), "{point}: numbers ran backwards");
                assert!(removed.contains(&*seen.process) || distinct.contains(&content(seen)), "{point}: {seen:?}");
            } else {
                assert!(events.contains(seen), "{point}: {seen:?} was read, and is gone or changed");
            }
        }
        for job in self.jobs.iter().filter(|job| !job.removal) {
            let id = job.id.as_deref().expect("every job is known by now");
            let of_it: Vec<_> = events.iter().filter(|event| event.process == id).collect();
            let completions = of_it.iter().filter(|event| event.completion).count();
            let ends = [EventKind::Finished, EventKind::Lost];
            let ends = of_it.iter().filter(|event| ends.contains(&event.kind)).count();
            assert_eq!((completions, ends), (1, 1), "{point}: {of_it:?}");
        }
    }

    fn check_the_rest(&self) {
        if let Some(acked) = self.acked {
            let consumers = self.pinfold.block(self.pinfold.client().consumers()).expect("a list").consumers;
            let cursor = consumers.iter().find(|consumer| consumer.name == "reader").map(|consumer| consumer.cursor);
            assert!(cursor.is_some_and(|cursor| cursor >= acked), "{}: an ack is lost: {consumers:?}", self.point);
        }
        if let Some(hook) = &self.hook {
            let delivered = || std::fs::read_to_string(hook).unwrap_or_default();
            until(&format!("{}: the hook runs", self.point), || !delivered().is_empty());
            let ids: Vec<_> = self.jobs.iter().filter_map(|job| job.id.as_deref()).collect();
            assert_eq!(delivered().lines().collect::<Vec<_>>(), ids, "{}: once each", self.point);
            std::fs::remove_file(hook).expect("removed");
        }
        self.left_over.iter().for_each(|path| std::fs::remove_dir(path).expect("removed"));
        let tokens = self.pinfold.block(self.pinfold.client().tokens()).expect("a list").tokens;
        for id in &self.tokens {
            assert!(tokens.iter().any(|token| &token.id == id), "{}: a token is lost", self.point);
        }
    }

    /// Stops the daemon; then there are only the files that the list says.
    fn check_nothing_is_left(self) {
        let Self { pinfold, point, .. } = &self;
        let list = pinfold.list(&ListQuery { limit: Some(500), ..ListQuery::default() });
        assert!(list.unreadable.is_empty(), "{point}: {list:?}");
        let listed: BTreeSet<String> = list.processes.iter().map(|record| record.id.clone()).collect();
        let asked = self.jobs.iter().filter(|job| !job.removal || listed.contains(job.id.as_deref().unwrap_or("")));
        let mut asked: BTreeSet<String> = asked.filter_map(|job| job.id.clone()).collect();
        let hooks = list.processes.iter().filter(|record| self.hook.is_some() && !record.labels.is_empty());
        asked.extend(hooks.map(|record| record.id.clone()));
        assert_eq!(listed, asked, "{point}: one process for each key");
        let bases: BTreeSet<PathBuf> =
            listed.iter().filter_map(|id| Some(intent(pinfold, id).keeper.cgroup?.parent()?.to_owned())).collect();
        let stop = pinfold.cli(&["daemon", "stop"]);
        assert_eq!(stop.code, Some(0), "{point}: {}", stop.stderr);
        until(&format!("{point}: no keeper is left"), || names_in(&pinfold.home().join("keepers")).is_empty());
        until(&format!("{point}: no process is left"), || {
            carriers_of(&format!("TRIAL={}", pinfold.home().display())).is_empty()
        });
        assert_eq!(names_in(&pinfold.home().join("processes")), listed, "{point}: list and directories");
        let home = names_in(pinfold.home());
        let unknown: Vec<_> = home.iter().filter(|name| !KNOWN.contains(&name.as_str())).collect();
        let aside = |name: &&&String| !(self.rebuilt && name.starts_with("index.db.damaged-"));
        assert!(!unknown.iter().any(|name| aside(&name)), "{point}: {unknown:?}");
        for base in bases {
            until(&format!("{point}: {} is empty", base.display()), || {
                let Ok(entries) = std::fs::read_dir(&base) else { return true };
                !entries.flatten().any(|entry| entry.path().is_dir())
            });
        }
    }
}

fn names_in(directory: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(directory).expect("a directory").flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[track_caller]
fn assert_prefix(point: &str, text: &str, whole: &str) {
    assert!(whole.starts_with(text), "{point}: {text:?} is no beginning of {whole:?}");
}

/// Every byte on disk is at its true offset.
fn assert_segments(point: &str, directory: &Path, whole: &str) {
    for name in names_in(directory) {
        let Some(offset) = name.strip_prefix("out.").and_then(|digits| digits.parse::<usize>().ok()) else { continue };
        let bytes = std::fs::read(directory.join(&name)).expect("a segment");
        let there = whole.as_bytes().get(offset..).unwrap_or_default();
        assert!(there.starts_with(&bytes), "{point}: {name} is not what was written at {offset}");
    }
}
