//! Checks every process, byte, outcome and event after the last fault. Every mismatch is a loss.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use pinfold_api::client::Client;
use pinfold_api::types::{Event, EventKind, EventsQuery, ListQuery, Outcome, OutputQuery, Record, Status, WaitQuery};
use tokio::runtime::Runtime;

use super::campaign_home::{pids, run};
use super::clients::{Actor, Campaign, lock};
use super::faults::Done;

/// Time for the last processes to end and the last programs to exit.
const DEADLINE: Duration = Duration::from_secs(120);

/// The results.
#[derive(Debug, Default)]
pub(super) struct CheckResult {
    pub(super) processes: u64,
    pub(super) kinds: BTreeMap<&'static str, u64>,
    pub(super) outcomes: BTreeMap<&'static str, u64>,
    pub(super) bytes: u64,
    /// Bytes lost to a full disk, all in recorded gaps.
    pub(super) gaps: u64,
    pub(super) events: u64,
    /// Torn records that were reported, or are known from the index.
    pub(super) torn: u64,
    /// Processes that were started although the client died before the answer.
    pub(super) unanswered: u64,
    /// Ends reported to agents, and how many of them twice because a server was killed or the index torn.
    pub(super) reported: u64,
    pub(super) reported_again: u64,
}

pub(super) struct Checker<'a> {
    play: &'a Campaign,
    done: &'a Done,
    runtime: Runtime,
    client: Client,
    account: CheckResult,
    /// Parents of the keepers' cgroups.
    bases: BTreeSet<PathBuf>,
}

impl<'a> Checker<'a> {
    pub(super) fn new(play: &'a Campaign, done: &'a Done) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (client, account) = (play.scene.client(), CheckResult::default());
        Ok(Self { play, done, runtime, client, account, bases: BTreeSet::new() })
    }

    /// Checks everything and records losses.
    pub(super) fn check(mut self) -> anyhow::Result<CheckResult> {
        self.wait_for_the_last();
        // Events that could not be written to a full disk are restored from the directories by the next daemon.
        if let Some((_, daemon)) = self.play.scene.daemon() {
            daemon.kill();
        }
        self.play.scene.start_daemon()?;
        self.find_unanswered()?;
        let actors = lock(&self.play.actors).clone();
        let mut ids = BTreeSet::new();
        for actor in &actors {
            if !ids.insert(actor.id.clone()) {
                self.lost(actor, "shares its id with another");
            }
            self.check_process(actor);
        }
        self.check_events(&actors)?;
        self.check_list(&ids)?;
        self.check_agents(&actors)?;
        self.check_nothing_is_left(&ids)?;
        Ok(self.account)
    }

    fn lost(&self, actor: &Actor, what: &str) {
        self.play.violation(format!("{} ({}, number {}): {what}", actor.id, actor.part.kind, actor.part.number));
    }

    fn wait_for_the_last(&self) {
        let deadline = Instant::now() + DEADLINE;
        let query = ListQuery { status: Some("live".to_owned()), limit: Some(500), ..ListQuery::default() };
        loop {
            match self.runtime.block_on(self.client.list(&query)) {
                Ok(list) if list.total == 0 => return,
                Ok(list) if Instant::now() > deadline => {
                    let left = list.processes.iter().map(|record| format!("{} {}", record.id, record.command));
                    let left: Vec<_> = left.take(5).collect();
                    return self.play.violation(format!("{} processes never ended: {left:?}", list.total));
                }
                Err(error) if Instant::now() > deadline => return self.play.violation(format!("no list: {error}")),
                _ => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    }

    fn check_process(&mut self, actor: &Actor) {
        self.account.processes += 1;
        *self.account.kinds.entry(actor.part.kind).or_default() += 1;
        let torn = self.done.torn.contains(&actor.id);
        let query =
            WaitQuery { until: Some("finished".to_owned()), timeout: Some("60s".to_owned()), ..WaitQuery::default() };
        let record = match self.runtime.block_on(self.client.wait(&actor.id, &query)) {
            Ok(answer) => answer.record,
            Err(_) if torn => return self.account.torn += 1,
            Err(error) => return self.lost(actor, &format!("was acknowledged, but now: {error}")),
        };
        if torn {
            return self.account.torn += 1;
        }
        let keeper = self.play.scene.keeper(&actor.id);
        let keeper_killed = keeper.as_ref().is_none_or(|(name, _)| self.done.keepers.contains(name));
        self.bases.extend(keeper.and_then(|(_, cgroup)| cgroup?.parent().map(PathBuf::from)));
        self.check_outcome(actor, &record, keeper_killed);
        self.check_output(actor, &record, keeper_killed);
    }

    fn check_outcome(&mut self, actor: &Actor, record: &Record, keeper_killed: bool) {
        let name = match &record.outcome {
            Some(Outcome::Exited { .. }) => "exited",
            Some(Outcome::Signaled { .. }) => "signaled",
            Some(Outcome::FailedToStart { .. }) => "failed to start",
            Some(Outcome::Lost { .. }) => "lost with their keeper",
            None => "none",
        };
        *self.account.outcomes.entry(name).or_default() += 1;
        let known = record.outcome.as_ref().is_some_and(|outcome| actor.part.ends.contains(outcome));
        let fine = match record.status {
            Status::Finished => known,
            Status::Lost => keeper_killed && (known || matches!(record.outcome, Some(Outcome::Lost { .. }))),
            _ => false,
        };
        if !fine {
            let text = format!("ended as {:?} {:?}, keeper killed: {keeper_killed}", record.status, record.outcome);
            self.lost(actor, &text);
        }
        if !record.tree.is_empty() {
            self.lost(actor, &format!("has finished, but {:?} are alive", record.tree));
        }
    }

    /// Every byte is as expected; missing bytes are in a recorded gap, or the keeper died.
    fn check_output(&mut self, actor: &Actor, record: &Record, keeper_killed: bool) {
        let (mut cursor, mut kept, mut missing) = (0, 0, 0);
        loop {
            let query = OutputQuery { cursor: Some(cursor), max_bytes: Some("1M".into()), ..OutputQuery::default() };
            let page = match self.runtime.block_on(self.client.output_raw(&actor.id, &query)) {
                Ok(page) => page,
                Err(error) => return self.lost(actor, &format!("its output cannot be read: {error}")),
            };
            if !self.play.script.has_at(page.cursor, &page.bytes) {
                return self.lost(actor, &format!("its output at {} is not what it printed", page.cursor));
            }
            missing += page.gap.as_ref().map_or(0, |gap| gap.to - gap.from);
            kept += page.bytes.len() as u64;
            if page.next_cursor <= cursor || page.next_cursor >= page.end {
                break;
            }
            cursor = page.next_cursor;
        }
        self.account.bytes += kept;
        self.account.gaps += missing;
        let total = record.output.bytes;
        if kept + missing != total {
            self.lost(actor, &format!("{kept} bytes kept and {missing} missing are not {total}"));
        }
        if missing > 0 && !self.done.disk_was_full {
            self.lost(actor, &format!("{missing} bytes are missing, and the disk was never full"));
        }
        if total < actor.read {
            self.lost(actor, &format!("it was read up to {}, and ends at {total}", actor.read));
        }
        let stopped_early = actor.part.stop.is_some() && actor.part.kind == "racing";
        let expected = actor.part.bytes(&self.play.script).filter(|_| !keeper_killed && !stopped_early);
        if expected.is_some_and(|expected| expected != total) {
            self.lost(actor, &format!("{total} bytes of output, {expected:?} expected"));
        }
    }

    /// Every event once; one end and one completion for each process; events keep their number.
    fn check_events(&mut self, actors: &[Actor]) -> anyhow::Result<()> {
        let events = self.events()?;
        self.account.events = events.len() as u64;
        let mut seen: HashMap<(&str, EventKind), u64> = HashMap::new();
        let mut completions: HashMap<&str, u64> = HashMap::new();
        for event in &events {
            *seen.entry((&event.process, event.kind)).or_default() += 1;
            *completions.entry(&event.process).or_default() += u64::from(event.completion);
        }
        for ((process, kind), count) in &seen {
            if *count > 1 {
                self.play.violation(format!("{process}: {count} times {kind:?}"));
            }
        }
        for actor in actors.iter().filter(|actor| !self.done.torn.contains(&actor.id)) {
            let count = |kind| seen.get(&(actor.id.as_str(), kind)).copied().unwrap_or(0);
            let ends = count(EventKind::Finished) + count(EventKind::Lost);
            let completions = completions.get(actor.id.as_str()).copied().unwrap_or(0);
            if (ends, completions) != (1, 1) {
                self.lost(actor, &format!("{ends} end events and {completions} completions"));
            }
        }
        let rebuilt = self.done.rebuilds.last().copied().unwrap_or(0);
        let by_seq: BTreeMap<u64, &Event> = events.iter().map(|event| (event.seq, event)).collect();
        let followed = lock(&self.play.followed);
        for (seq, event) in followed.range(rebuilt..) {
            if by_seq.get(seq).is_none_or(|now| *now != event) {
                self.play.violation(format!("event {seq} was read as {event:?} and is {:?}", by_seq.get(seq)));
            }
        }
        Ok(())
    }

    fn events(&self) -> anyhow::Result<Vec<Event>> {
        let (mut all, mut after) = (Vec::new(), 0);
        loop {
            let query =
                EventsQuery { after: Some(u64::to_string(&after)), limit: Some(1000), ..EventsQuery::default() };
            let page = self.runtime.block_on(self.client.events(&query))?;
            if page.events.is_empty() {
                return Ok(all);
            }
            after = page.next;
            all.extend(page.events);
        }
    }

    /// Starts of agents that were not answered because the server died: listed, or never started. No call runs twice.
    fn find_unanswered(&mut self) -> anyhow::Result<()> {
        let records = self.list()?.0;
        let mut actors = lock(&self.play.actors);
        let known: BTreeSet<String> = actors.iter().map(|actor| actor.id.clone()).collect();
        let chats = lock(&self.play.chats);
        let mut run = BTreeSet::new();
        for record in &records {
            let Some(part) = chats.iter().find_map(|chat| chat.asked.get(&record.command)) else { continue };
            if !run.insert(record.command.clone()) {
                self.play.violation(format!("{} runs what another call ran already: {}", record.id, record.command));
            }
            if !known.contains(&record.id) {
                self.account.unanswered += 1;
                actors.push(Actor { part: part.clone(), id: record.id.clone(), read: 0, stopped: true });
            }
        }
        Ok(())
    }

    /// Every end of an agent's process was reported to it.
    fn check_agents(&mut self, actors: &[Actor]) -> anyhow::Result<()> {
        for mut chat in std::mem::take(&mut *lock(&self.play.chats)) {
            let of_chat = |actor: &&Actor| chat.asked.contains_key(actor.part.command());
            let readable = |actor: &&Actor| !self.done.torn.contains(&actor.id);
            let ids = actors.iter().filter(of_chat).filter(readable).map(|actor| actor.id.clone()).collect();
            self.play.close_chat(&mut chat, &ids)?;
            self.account.reported += chat.reported.len() as u64;
            self.account.reported_again += chat.reported.values().map(|times| times - 1).sum::<u64>();
        }
        Ok(())
    }

    /// All listed processes: records, and ids of unreadable ones.
    fn list(&self) -> anyhow::Result<(Vec<Record>, Vec<String>)> {
        let (mut page, mut records, mut unreadable) = (None, vec![], vec![]);
        loop {
            let query = ListQuery { limit: Some(500), page, ..ListQuery::default() };
            let list = self.runtime.block_on(self.client.list(&query))?;
            records.extend(list.processes);
            unreadable.extend(list.unreadable.into_iter().map(|unreadable| unreadable.id));
            match list.next {
                Some(next) => page = Some(next),
                None => return Ok((records, unreadable)),
            }
        }
    }

    /// The list has exactly the processes that were started.
    fn check_list(&self, ids: &BTreeSet<String>) -> anyhow::Result<()> {
        let (records, unreadable) = self.list()?;
        let listed: BTreeSet<String> = records.into_iter().map(|record| record.id).chain(unreadable).collect();
        for id in ids.difference(&listed) {
            self.play.violation(format!("{id} was acknowledged and is not listed"));
        }
        for id in listed.difference(ids) {
            self.play.violation(format!("{id} is listed, but its start was never acknowledged"));
        }
        Ok(())
    }

    fn check_nothing_is_left(&self, ids: &BTreeSet<String>) -> anyhow::Result<()> {
        let scene = &self.play.scene;
        let stop = run(&mut scene.pinfold(&["daemon", "stop"]))?;
        if !stop.status.success() {
            self.play.violation(format!("the daemon does not stop: {}", String::from_utf8_lossy(&stop.stderr)));
        }
        self.none_left("programs of pinfold", || {
            scene.programs().into_iter().map(|found| format!("{found:?}")).collect()
        });
        self.none_left("processes of the campaign", || self.strays());
        self.none_left("sockets of keepers", || names_in(scene.home.join("keepers")));
        self.none_left("unknown process directories", || {
            names_in(scene.home.join("processes")).into_iter().filter(|name| !ids.contains(name)).collect()
        });
        for base in &self.bases {
            self.none_left("cgroups", || {
                let entries = std::fs::read_dir(base).into_iter().flatten().flatten();
                entries.filter(|entry| entry.path().is_dir()).map(|entry| entry.path().display().to_string()).collect()
            });
        }
        Ok(())
    }

    fn none_left(&self, what: &str, find: impl Fn() -> Vec<String>) {
        let deadline = Instant::now() + DEADLINE;
        let mut left = find();
        while !left.is_empty() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(50));
            left = find();
        }
        if !left.is_empty() {
            self.play.violation(format!("{what} are left: {left:?}"));
        }
    }

    /// Live processes with the campaign's mark in their environment or arguments.
    fn strays(&self) -> Vec<String> {
        let mark = self.play.mark.0.as_bytes();
        let has = |file: &str, pid: u32| {
            let text = std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
            text.windows(mark.len()).any(|window| window == mark)
        };
        let marked = |pid: &u32| pinfold_testkit::alive(*pid) && (has("environ", *pid) || has("cmdline", *pid));
        pids().into_iter().filter(marked).map(|pid| format!("{pid} {}", pinfold_testkit::command_line(pid))).collect()
    }
}

fn names_in(directory: PathBuf) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}
