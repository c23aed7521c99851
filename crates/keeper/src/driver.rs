//! One process's life: feeds what the kernel says into `model::lifecycle::step` and carries out its effects.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pinfold_model::facts::{Exit, Fact, Finish, Handover, History, Intent, Start, Usage};
use pinfold_model::id::ProcessId;
use pinfold_model::lifecycle::{self, Effect, End, Input, Milestone, Phase, Stop};
use pinfold_model::link::{FromKeeper, Kept};
use pinfold_model::outcome::{Cause, Outcome, StartStep};
use pinfold_model::ready::Readiness;
use pinfold_model::signal::Signal;
use pinfold_model::spec::StopManner;
use pinfold_model::spelled::Spelled;
use pinfold_model::units::Moment;
use pinfold_os::crash_point;
use pinfold_os::wait::{Ended, Status};
use pinfold_store::record::{self, RecordWriter};

use crate::feed::Feed;
use crate::link::Link;
use crate::pump::{Pump, Source};
use crate::system::{Leader, Socket, System};
use crate::tally::Tally;
use crate::watch::Watch;

/// How often the number of living processes is sampled, for the peak.
const SAMPLE: Duration = Duration::from_secs(10);
/// A stop that still has survivors after so many KILLs answers with their names, and goes on killing.
const KILLS_BEFORE_ANSWER: u32 = 4;
/// How often the list of children is read anew while their ends change it.
const REAPS: u32 = 16;
/// How often a fact that the disk refused is tried again.
const WRITE_AGAIN: Duration = Duration::from_millis(500);

/// What the keeper lends to the process it keeps.
#[derive(Debug)]
pub(crate) struct KeeperContext<'a, S: System> {
    pub(crate) link: &'a mut Option<Link<S::Socket>>,
    pub(crate) system: &'a mut S,
}

/// What a start gave.
#[derive(Debug)]
pub struct Begun<S: System> {
    pub(crate) leader: S::Leader,
    pub(crate) pump: Pump<S::Pipe, S::Output>,
    pub(crate) feed: Option<Feed>,
    pub(crate) watch: Option<Watch>,
}

impl<S: System> Begun<S> {
    /// A leader without stdin and without limits.
    pub fn new(leader: S::Leader, sources: Vec<Source<S::Pipe>>, output: S::Output) -> Self {
        Self { leader, pump: Pump::new(sources, output), feed: None, watch: None }
    }
}

/// One process, from its start to its end.
#[derive(Debug)]
pub struct Driver<S: System> {
    phase: Phase,
    pub(crate) history: History,
    record: RecordWriter<S::File>,
    pub(crate) leader: Option<S::Leader>,
    pub(crate) pump: Pump<S::Pipe, S::Output>,
    /// Its stdin, where it has one.
    pub(crate) feed: Option<Feed>,
    /// Whether a tracer withholds the leader's end from us.
    leader_withheld: bool,
    /// When the leader was seen to have ended.
    pub(crate) exited_at: Option<Moment>,
    pub(crate) usage: Tally,
    pub(crate) paused: bool,
    /// What it may use, where that is limited.
    pub(crate) watch: Option<Watch>,
    grace_at: Option<Instant>,
    drain_at: Option<Instant>,
    limit_at: Option<Instant>,
    /// When silence becomes too long, as last reckoned; output since then is seen when it is due.
    idle_at: Option<Instant>,
    heard_at: Instant,
    sample_at: Option<Instant>,
    /// Facts that the disk refused, in order; nothing is told before it is written (K1).
    pub(crate) unwritten: Vec<Fact>,
    write_at: Option<Instant>,
    /// Whether the record holds an end that is not ours.
    superseded: bool,
    /// Stop requests to answer when the tree is empty.
    stops: Vec<u64>,
    kills: u32,
    /// Tell the daemon when there is more output than this.
    watched: Option<u64>,
}

impl<S: System> Driver<S> {
    /// The process whose leader was just started.
    pub(crate) fn started(
        intent: Arc<Spelled<Intent>>,
        record: RecordWriter<S::File>,
        Begun { leader, pump, feed, watch }: Begun<S>,
        context: &mut KeeperContext<'_, S>,
    ) -> Self {
        let now = context.system.now();
        let (pid, start_time) = (leader.pid(), leader.start_time());
        let after = |limit: Option<Duration>| limit.and_then(|limit| now.checked_add(limit));
        let (limit_at, idle_at) = (after(intent.spec.time_limit), after(intent.spec.idle_limit));
        let mut driver = Self {
            phase: Phase::Starting,
            history: History::of(intent),
            record,
            leader: Some(leader),
            pump,
            feed,
            leader_withheld: false,
            exited_at: None,
            usage: Tally::of_leader(),
            paused: false,
            watch,
            grace_at: None,
            drain_at: None,
            limit_at,
            idle_at,
            heard_at: now,
            sample_at: now.checked_add(SAMPLE),
            unwritten: Vec::new(),
            write_at: None,
            superseded: false,
            stops: Vec::new(),
            kills: 0,
            watched: None,
        };
        driver.feed(Input::LeaderStarted { pid, start_time }, context);
        driver
    }

    /// The fact that a process never ran.
    pub(crate) fn failed_start(step: StartStep, error: String, at: Moment) -> Fact {
        let end = End { outcome: Outcome::FailedToStart { step, error }, cause: Cause::OnItsOwn };
        let usage = Usage::default();
        Fact::Finished(Finish { end, exited_at: at, at, closed: true, output_bytes: 0, output_lost: 0, usage })
    }

    pub fn id(&self) -> &ProcessId {
        &self.history.intent.id
    }

    /// Whether its end is written, or somebody else has written one.
    pub fn is_over(&self) -> bool {
        self.is_finished() && self.unwritten.is_empty()
    }

    fn is_finished(&self) -> bool {
        matches!(self.phase, Phase::Finished { .. })
    }

    /// Whether the tree is being ended.
    pub(crate) fn is_stopping(&self) -> bool {
        let (Phase::Running { stop, .. } | Phase::Lingering { stop, .. }) = &self.phase else { return false };
        !matches!(stop, Stop::Unasked { .. })
    }

    /// Whether somebody else has written its end.
    pub(crate) fn is_superseded(&self) -> bool {
        self.superseded
    }

    /// Whether the tree had to be killed.
    pub(crate) fn has_killed(&self) -> bool {
        self.kills > 0
    }

    pub(crate) fn kept(&self) -> Kept {
        let (terminal, waiting) = self.feed.as_ref().map(Feed::facts).unwrap_or_default();
        let (history, output_bytes) = (self.history.clone(), self.pump.total());
        Kept { history, paused: self.paused, output_bytes, terminal, waiting }
    }

    /// The leader's end, to wait for. Not while somebody traces it who has not waited for it himself: then it is
    /// dead, and still not to be seen; SIGCHLD comes when the tracer lets go.
    pub fn awaited_leader(&self) -> Option<&S::Leader> {
        self.running_leader().filter(|_| !self.leader_withheld)
    }

    /// Removes what limits needed; for a process that is over.
    pub(crate) fn release_limits(&self) {
        self.watch.as_ref().inspect(|watch| watch.remove());
    }

    /// The leader, while it has not been seen to end.
    pub(crate) fn running_leader(&self) -> Option<&S::Leader> {
        self.leader.as_ref().filter(|_| self.exited_at.is_none())
    }

    /// When the next timer is due.
    pub fn next_timer(&self) -> Option<Instant> {
        let look_at = self.watch.as_ref().filter(|_| !self.is_finished()).map(Watch::next);
        let input_at = self.feed.as_ref().filter(|_| !self.is_finished()).map(Feed::look_at);
        let own = [self.grace_at, self.drain_at, self.limit_at, self.idle_at, self.sample_at, self.write_at];
        own.into_iter().chain([look_at, input_at]).flatten().min()
    }

    /// The pipes that are still read, with their places.
    pub fn open_pipes(&self) -> impl Iterator<Item = (usize, &S::Pipe)> {
        self.pump.open_pipes()
    }

    /// Takes output from one pipe.
    pub(crate) fn output_ready(&mut self, place: usize, context: &mut KeeperContext<'_, S>) {
        self.pump.take_turn(place, context.system.moment());
        if self.idle_at.is_some() {
            self.heard_at = context.system.now();
        }
        if let Some(feed) = &mut self.feed {
            feed.stirred();
        }
        self.after_output(context);
    }

    fn after_output(&mut self, context: &mut KeeperContext<'_, S>) {
        if let Some(beyond) = self.watched
            && self.pump.total() > beyond
        {
            self.watched = None;
            let (id, bytes) = (self.history.intent.id.clone(), self.pump.total());
            say(context.link, FromKeeper::Output { id, bytes });
        }
        if self.pump.is_closed() && !self.knows_closed() {
            // Output that closes with the leader's own end is told by that end.
            match self.observed_end(context) {
                Some(ended) => self.leader_exited(&ended, context),
                None => self.feed(Input::OutputClosed, context),
            }
        }
    }

    /// The leader's end, when it is first seen.
    fn observed_end(&self, context: &KeeperContext<'_, S>) -> Option<Ended> {
        self.running_leader().and_then(|leader| context.system.observe_exit(leader))
    }

    fn knows_closed(&self) -> bool {
        match &self.phase {
            Phase::Running { closed, .. } | Phase::Lingering { closed, .. } => *closed,
            Phase::Finished { .. } | Phase::Lost { .. } => true,
            Phase::Starting | Phase::Draining { .. } => false,
        }
    }

    /// The leader ended, says its pidfd.
    pub(crate) fn leader_ready(&mut self, context: &mut KeeperContext<'_, S>) {
        self.children_changed(context);
        self.leader_withheld = self.running_leader().is_some();
    }

    /// Some child ended: the leader, or an orphan that became ours.
    pub(crate) fn children_changed(&mut self, context: &mut KeeperContext<'_, S>) {
        let leader_pid = self.leader.as_ref().map(Leader::pid);
        if let Some(ended) = self.observed_end(context) {
            self.leader_exited(&ended, context);
            return;
        }
        let alive = self.reap_orphans(leader_pid, context);
        if !alive && matches!(self.phase, Phase::Lingering { .. }) {
            self.pump.drain(context.system.moment());
            self.after_output(context);
            self.look_at_remains(context);
            self.feed(Input::TreeEmptied, context);
        }
    }

    fn leader_exited(&mut self, ended: &Ended, context: &mut KeeperContext<'_, S>) {
        let at = context.system.moment();
        self.exited_at = Some(at);
        self.usage.add(ended);
        // What the leader wrote is in the pipe by now: `exited` implies its complete output.
        crash_point!("keeper.exit_observed");
        self.pump.drain(at);
        crash_point!("keeper.output_drained");
        let strays_alive = self.reap_orphans(Some(ended.pid), context);
        let outcome = outcome(ended.status);
        let out_of_memory = self.last_look(&outcome, context);
        let output_closed = self.pump.is_closed();
        let spec = &self.history.intent.spec;
        let policy = (spec.strays, spec.stop);
        self.feed(Input::LeaderExited { outcome, out_of_memory, output_closed, strays_alive, policy }, context);
        self.after_output(context);
    }

    /// Reaps orphans that ended; whether any child but the leader is left.
    fn reap_orphans(&mut self, leader: Option<u32>, context: &mut KeeperContext<'_, S>) -> bool {
        let leaders = u32::from(self.exited_at.is_none());
        for _ in 0..REAPS {
            let Ok(children) = context.system.children() else { return true };
            let (mut alive, mut reaped) = (0, false);
            for pid in children.into_iter().filter(|pid| Some(*pid) != leader) {
                match context.system.reap_if_ended(pid) {
                    Ok(Some(ended)) => {
                        self.usage.add(&ended);
                        reaped = true;
                    }
                    Ok(None) => alive += 1,
                    Err(_) => {}
                }
            }
            self.usage.note_alive(alive + leaders);
            // One that ended after the list was read has left its children to us: only a list without an end is whole.
            if alive > 0 || !reaped {
                return alive > 0;
            }
        }
        // They end and leave children as fast as they are reaped: the next end wakes us again.
        true
    }

    /// Whatever is due.
    pub(crate) fn timers_elapsed(&mut self, context: &mut KeeperContext<'_, S>) {
        let now = context.system.now();
        let due = |timer: &mut Option<Instant>| timer.take_if(|at| *at <= now).is_some();
        let (grace, drain, limit) = (due(&mut self.grace_at), due(&mut self.drain_at), due(&mut self.limit_at));
        let (sample, write) = (due(&mut self.sample_at), due(&mut self.write_at));
        if limit {
            self.stop_because(Cause::TimeLimit, context);
        }
        if due(&mut self.idle_at) {
            self.look_for_silence(context);
        }
        if self.watch.as_ref().is_some_and(|watch| watch.next() <= now) && !self.is_finished() {
            self.look(context);
        }
        if self.feed.as_ref().is_some_and(|feed| feed.look_at() <= now) && !self.is_finished() {
            self.look_for_waiting(context);
        }
        if grace {
            self.children_changed(context);
            self.feed(Input::GraceElapsed, context);
        }
        if drain {
            self.feed(Input::DrainElapsed, context);
        }
        if sample {
            self.sample(context);
        }
        if write {
            self.write_again(context);
        }
    }

    /// Output since the last look puts the end off, and so does a pause.
    fn look_for_silence(&mut self, context: &mut KeeperContext<'_, S>) {
        let Some(limit) = self.history.intent.spec.idle_limit else { return };
        let now = context.system.now();
        let since = if self.paused { now } else { self.heard_at };
        match since.checked_add(limit).filter(|at| *at > now) {
            Some(later) => self.idle_at = Some(later),
            None => self.stop_because(Cause::IdleLimit, context),
        }
    }

    /// Writes down the new owner.
    pub(crate) fn hand_over(
        &mut self,
        request: u64,
        to: String,
        ancestors: Vec<String>,
        purpose: String,
        context: &mut KeeperContext<'_, S>,
    ) {
        let fact = Fact::HandedOver(Handover { to, ancestors, purpose, at: context.system.moment() });
        let over = self.is_finished();
        let written = if !over && self.unwritten.is_empty() { self.record.append(&fact).ok() } else { None };
        let done = written.is_some();
        if let Some(json) = written {
            crash_point!("keeper.handover_written");
            say_fact(context.link, &self.history.intent.id, json);
            self.history.add(fact);
        }
        say(context.link, FromKeeper::HandedOver { request, done });
    }

    /// Writes down what the daemon saw of its readiness; the first verdict stands (L8).
    pub(crate) fn note_readiness(&mut self, readiness: Readiness, context: &mut KeeperContext<'_, S>) {
        let fact = Fact::Readiness(readiness);
        let open = !self.is_finished() && self.history.readiness.is_none() && self.unwritten.is_empty();
        if open && let Ok(json) = self.record.append(&fact) {
            say_fact(context.link, &self.history.intent.id, json);
            self.history.add(fact);
        }
    }

    fn sample(&mut self, context: &KeeperContext<'_, S>) {
        self.usage.note_alive(context.system.count_descendants());
        self.sample_at = context.system.now().checked_add(SAMPLE);
    }

    pub(crate) fn stop(&mut self, request: u64, cause: Cause, manner: StopManner, context: &mut KeeperContext<'_, S>) {
        self.stops.push(request);
        crash_point!("keeper.stop_received");
        self.thaw(context);
        self.feed(Input::Stop { cause, manner }, context);
        self.answer_stops(context);
    }

    pub(crate) fn watch_output(&mut self, beyond: u64, context: &mut KeeperContext<'_, S>) {
        self.watched = Some(beyond);
        self.after_output(context);
    }

    /// The daemon that asked is gone; nobody waits for answers.
    pub(crate) fn forget_requests(&mut self) {
        self.stops.clear();
        self.watched = None;
    }

    pub(crate) fn feed(&mut self, input: Input, context: &mut KeeperContext<'_, S>) {
        let phase = std::mem::replace(&mut self.phase, Phase::Starting);
        let (phase, effects) = lifecycle::step(phase, input);
        self.phase = phase;
        for effect in effects {
            self.perform(effect, context);
        }
        if self.is_finished() {
            self.finish(context);
        }
    }

    fn perform(&mut self, effect: Effect, context: &mut KeeperContext<'_, S>) {
        match effect {
            Effect::Record(milestone) => {
                let fact = self.fact(milestone, context.system.moment());
                self.unwritten.push(fact);
                self.write_again(context);
            }
            Effect::SignalTree(signal) => {
                context.system.signal_tree(&[signal.number(), Signal::CONT.number()]);
                crash_point!("keeper.tree_signalled");
            }
            Effect::KillTree => {
                let by_cgroup = context.system.kill_cgroup(self.watch.as_ref());
                if !by_cgroup || self.kills > 0 {
                    context.system.kill_walk(self.leader.as_ref());
                }
                self.kills += 1;
                crash_point!("keeper.tree_killed");
                self.answer_stops(context);
            }
            Effect::ArmGrace(time) => self.grace_at = context.system.now().checked_add(time),
            Effect::ArmDrain(time) => self.drain_at = context.system.now().checked_add(time),
        }
    }

    /// A milestone with its times, and the last with what was used.
    fn fact(&self, milestone: Milestone, at: Moment) -> Fact {
        let exited_at = self.exited_at.unwrap_or(at);
        match milestone {
            Milestone::Started { pid, start_time } => Fact::Started(Start { pid, start_time, at }),
            Milestone::Exited(end) => Fact::Exited(Exit { end, at: exited_at, told_apart: true }),
            Milestone::Closed => Fact::Closed { at },
            Milestone::Finished { end, closed } => Fact::Finished(Finish {
                end,
                exited_at,
                at,
                closed,
                output_bytes: self.pump.total(),
                output_lost: self.pump.lost(),
                usage: self.usage.usage(),
            }),
            Milestone::Lost { evidence } => Fact::Lost { evidence, at },
        }
    }

    /// Writes facts, then tells them, in order; one that the disk refuses waits, and all behind it (K1).
    pub(crate) fn write_again(&mut self, context: &mut KeeperContext<'_, S>) {
        while let Some(fact) = self.unwritten.first() {
            let json = match self.record.append(fact) {
                Ok(json) => json,
                Err(error) if record::is_over(&error) => {
                    // Written in our stead, and never replaced: there is nothing left to write or to tell.
                    self.superseded = true;
                    return self.unwritten.clear();
                }
                Err(_) => {
                    self.write_at = context.system.now().checked_add(WRITE_AGAIN);
                    return;
                }
            };
            crash_point!("keeper.fact_written");
            say_fact(context.link, &self.history.intent.id, json);
            self.history.add(self.unwritten.remove(0));
        }
    }

    /// Nothing is left of the tree: the leader may be reaped now (K2), and stops are answered.
    fn finish(&mut self, context: &mut KeeperContext<'_, S>) {
        if let Some(leader) = self.leader.take() {
            context.system.reap(&leader);
            crash_point!("keeper.leader_reaped");
        }
        (self.grace_at, self.drain_at, self.limit_at, self.idle_at, self.sample_at) = (None, None, None, None, None);
        self.answer_stops(context);
    }

    fn answer_stops(&mut self, context: &mut KeeperContext<'_, S>) {
        let over = self.is_finished();
        if self.stops.is_empty() || !over && self.kills < KILLS_BEFORE_ANSWER {
            return;
        }
        let survivors = if over { vec![] } else { context.system.survivors() };
        for request in self.stops.drain(..) {
            say(context.link, FromKeeper::Stopped { request, survivors: survivors.clone() });
        }
    }
}

fn outcome(status: Status) -> Outcome {
    match status {
        Status::Exited { code } => Outcome::Exited { code },
        Status::Signaled { signal, core_dumped } => match Signal::from_number(signal) {
            Some(signal) => Outcome::Signaled { signal, core_dumped },
            None => Outcome::Lost { evidence: format!("the kernel reported signal {signal}, which does not exist") },
        },
    }
}

pub(crate) fn say<K: Socket>(link: &mut Option<Link<K>>, message: FromKeeper) {
    if let Some(link) = link {
        link.say(&message);
    }
}

/// Tells a fact that is written.
fn say_fact<K: Socket>(link: &mut Option<Link<K>>, id: &ProcessId, json: &str) {
    if let Some(link) = link {
        link.say_fact(id, json);
    }
}
