//! One process's life: feeds what the kernel says into `model::lifecycle::step` and carries out its effects.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use pinfold_model::event::EventKind;
use pinfold_model::facts::{Exit, Fact, Finish, Handover, History, Intent, Start, Usage};
use pinfold_model::id::ProcessId;
use pinfold_model::lifecycle::{self, Effect, End, Input, Phase, Stop};
use pinfold_model::link::{FromKeeper, Kept, Survivor};
use pinfold_model::outcome::{Cause, Outcome, StartStep};
use pinfold_model::ready::Readiness;
use pinfold_model::signal::Signal;
use pinfold_model::spec::StopManner;
use pinfold_model::spelled::Spelled;
use pinfold_model::units::Moment;
use pinfold_os::cgroup::Cgroup;
use pinfold_os::spawn::Child;
use pinfold_os::tree::{self, OwnChildren};
use pinfold_os::wait::{self, Ended, Status};
use pinfold_os::{crash_point, daemonize, proc};
use pinfold_store::record::{self, RecordWriter};

use crate::feed::Feed;
use crate::link::Link;
use crate::pump::Pump;
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
pub(crate) struct Means<'a> {
    pub(crate) link: &'a mut Option<Link>,
    pub(crate) children: &'a OwnChildren,
    pub(crate) cgroup: Option<&'a Cgroup>,
}

/// What a start gave.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) leader: Child,
    pub(crate) pump: Pump,
    pub(crate) feed: Option<Feed>,
    pub(crate) watch: Option<Watch>,
}

#[derive(Debug)]
pub(crate) struct Driver {
    phase: Phase,
    pub(crate) history: History,
    record: RecordWriter,
    pub(crate) leader: Option<Child>,
    pub(crate) pump: Pump,
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

impl Driver {
    /// The process whose leader was just started.
    pub(crate) fn started(
        intent: Arc<Spelled<Intent>>,
        record: RecordWriter,
        Begun { leader, pump, feed, watch }: Begun,
        means: &mut Means<'_>,
    ) -> Self {
        let now = Instant::now();
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
        driver.feed(Input::LeaderStarted, means);
        driver
    }

    /// The fact that a process never ran.
    pub(crate) fn failed_start(step: StartStep, error: String) -> Fact {
        let at = now();
        let end = End { outcome: Outcome::FailedToStart { step, error }, cause: Cause::OnItsOwn };
        let usage = Usage::default();
        Fact::Finished(Finish { end, exited_at: at, at, closed: true, output_bytes: 0, output_lost: 0, usage })
    }

    pub(crate) fn id(&self) -> &ProcessId {
        &self.history.intent.id
    }

    pub(crate) fn is_over(&self) -> bool {
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
    pub(crate) fn awaited_leader(&self) -> Option<&Child> {
        self.running_leader().filter(|_| !self.leader_withheld)
    }

    /// The cgroup of the tree: one made for its limits, or the keeper's own.
    pub(crate) fn cgroup<'m>(&'m self, means: &'m Means<'_>) -> Option<&'m Cgroup> {
        self.watch.as_ref().and_then(Watch::cgroup).or(means.cgroup)
    }

    /// Removes what limits needed; for a process that is over.
    pub(crate) fn release_limits(&self) {
        self.watch.as_ref().inspect(|watch| watch.remove());
    }

    /// The leader, while it has not been seen to end.
    pub(crate) fn running_leader(&self) -> Option<&Child> {
        self.leader.as_ref().filter(|_| self.exited_at.is_none())
    }

    /// When the next timer is due.
    pub(crate) fn next_timer(&self) -> Option<Instant> {
        let look_at = self.watch.as_ref().filter(|_| !self.is_finished()).map(Watch::next);
        let input_at = self.feed.as_ref().filter(|_| !self.is_finished()).map(Feed::look_at);
        let own = [self.grace_at, self.drain_at, self.limit_at, self.idle_at, self.sample_at, self.write_at];
        own.into_iter().chain([look_at, input_at]).flatten().min()
    }

    /// Takes output from one pipe.
    pub(crate) fn output_ready(&mut self, place: usize, means: &mut Means<'_>) {
        self.pump.take_turn(place, now());
        if self.idle_at.is_some() {
            self.heard_at = Instant::now();
        }
        if let Some(feed) = &mut self.feed {
            feed.stirred();
        }
        self.after_output(means);
    }

    fn after_output(&mut self, means: &mut Means<'_>) {
        if let Some(beyond) = self.watched
            && self.pump.total() > beyond
        {
            self.watched = None;
            let (id, bytes) = (self.history.intent.id.clone(), self.pump.total());
            say(means.link, FromKeeper::Output { id, bytes });
        }
        if self.pump.is_closed() && !self.knows_closed() {
            // Output that closes with the leader's own end is told by that end.
            match self.observed_end() {
                Some(ended) => self.leader_exited(&ended, means),
                None => self.feed(Input::OutputClosed, means),
            }
        }
    }

    /// The leader's end, when it is first seen.
    fn observed_end(&self) -> Option<Ended> {
        self.running_leader().and_then(|leader| wait::observe_exit(&leader.pidfd).ok().flatten())
    }

    fn knows_closed(&self) -> bool {
        match &self.phase {
            Phase::Running { closed, .. } | Phase::Lingering { closed, .. } => *closed,
            Phase::Finished { .. } | Phase::Lost { .. } => true,
            Phase::Starting | Phase::Draining { .. } => false,
        }
    }

    /// The leader ended, says its pidfd.
    pub(crate) fn leader_ready(&mut self, means: &mut Means<'_>) {
        self.children_changed(means);
        self.leader_withheld = self.running_leader().is_some();
    }

    /// Some child ended: the leader, or an orphan that became ours.
    pub(crate) fn children_changed(&mut self, means: &mut Means<'_>) {
        let leader_pid = self.leader.as_ref().map(|leader| leader.pid);
        if let Some(ended) = self.observed_end() {
            self.leader_exited(&ended, means);
            return;
        }
        let alive = self.reap_orphans(leader_pid, means);
        if !alive && matches!(self.phase, Phase::Lingering { .. }) {
            self.pump.drain(now());
            self.after_output(means);
            self.look_at_remains(means);
            self.feed(Input::TreeEmptied, means);
        }
    }

    fn leader_exited(&mut self, ended: &Ended, means: &mut Means<'_>) {
        let at = now();
        self.exited_at = Some(at);
        self.usage.add(ended);
        // What the leader wrote is in the pipe by now: `exited` implies its complete output.
        crash_point!("keeper.exit_observed");
        self.pump.drain(at);
        crash_point!("keeper.output_drained");
        let strays_alive = self.reap_orphans(Some(ended.pid), means);
        let outcome = outcome(ended.status);
        let out_of_memory = self.last_look(&outcome, means);
        if self.pump.is_closed() && !strays_alive {
            self.note_closed();
        }
        let spec = &self.history.intent.spec;
        let policy = (spec.strays, spec.stop);
        self.feed(Input::LeaderExited { outcome, out_of_memory, strays_alive, policy }, means);
        self.after_output(means);
    }

    /// The output closed with the end of all: no fact of its own.
    fn note_closed(&mut self) {
        if let Phase::Running { closed, .. } = &mut self.phase {
            *closed = true;
        }
    }

    /// Reaps orphans that ended; whether any child but the leader is left.
    fn reap_orphans(&mut self, leader: Option<u32>, means: &Means<'_>) -> bool {
        let leaders = u32::from(self.exited_at.is_none());
        for _ in 0..REAPS {
            let Ok(children) = means.children.pids() else { return true };
            let (mut alive, mut reaped) = (0, false);
            for pid in children.into_iter().filter(|pid| Some(*pid) != leader) {
                match wait::reap_if_ended(pid) {
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
    pub(crate) fn timers_elapsed(&mut self, means: &mut Means<'_>) {
        let now = Instant::now();
        let due = |timer: &mut Option<Instant>| timer.take_if(|at| *at <= now).is_some();
        let (grace, drain, limit) = (due(&mut self.grace_at), due(&mut self.drain_at), due(&mut self.limit_at));
        let (sample, write) = (due(&mut self.sample_at), due(&mut self.write_at));
        if limit {
            self.stop_because(Cause::TimeLimit, means);
        }
        if due(&mut self.idle_at) {
            self.look_for_silence(means);
        }
        if self.watch.as_ref().is_some_and(|watch| watch.next() <= now) && !self.is_finished() {
            self.look(means);
        }
        if self.feed.as_ref().is_some_and(|feed| feed.look_at() <= now) && !self.is_finished() {
            self.look_for_waiting(means);
        }
        if grace {
            self.children_changed(means);
            self.feed(Input::GraceElapsed, means);
        }
        if drain {
            self.feed(Input::DrainElapsed, means);
        }
        if sample {
            self.sample();
        }
        if write {
            self.write_again(means);
        }
    }

    /// Output since the last look puts the end off, and so does a pause.
    fn look_for_silence(&mut self, means: &mut Means<'_>) {
        let Some(limit) = self.history.intent.spec.idle_limit else { return };
        let now = Instant::now();
        let since = if self.paused { now } else { self.heard_at };
        match since.checked_add(limit).filter(|at| *at > now) {
            Some(later) => self.idle_at = Some(later),
            None => self.stop_because(Cause::IdleLimit, means),
        }
    }

    /// Writes down the new owner.
    pub(crate) fn hand_over(
        &mut self,
        request: u64,
        to: String,
        ancestors: Vec<String>,
        purpose: String,
        means: &mut Means<'_>,
    ) {
        let fact = Fact::HandedOver(Handover { to, ancestors, purpose, at: now() });
        let over = self.is_finished();
        let written = if !over && self.unwritten.is_empty() { self.record.append(&fact).ok() } else { None };
        let done = written.is_some();
        if let Some(json) = written {
            crash_point!("keeper.handover_written");
            say_fact(means.link, &self.history.intent.id, json);
            self.history.add(fact);
        }
        say(means.link, FromKeeper::HandedOver { request, done });
    }

    /// Writes down what the daemon saw of its readiness; the first verdict stands (L8).
    pub(crate) fn note_readiness(&mut self, readiness: Readiness, means: &mut Means<'_>) {
        let fact = Fact::Readiness(readiness);
        let open = !self.is_finished() && self.history.readiness.is_none() && self.unwritten.is_empty();
        if open && let Ok(json) = self.record.append(&fact) {
            say_fact(means.link, &self.history.intent.id, json);
            self.history.add(fact);
        }
    }

    fn sample(&mut self) {
        let alive = tree::descendants(daemonize::own_pid()).len() as u32;
        self.usage.note_alive(alive);
        self.sample_at = Instant::now().checked_add(SAMPLE);
    }

    pub(crate) fn stop(&mut self, request: u64, cause: Cause, manner: StopManner, means: &mut Means<'_>) {
        self.stops.push(request);
        crash_point!("keeper.stop_received");
        self.thaw(means);
        self.feed(Input::Stop { cause, manner }, means);
        self.answer_stops(means);
    }

    pub(crate) fn watch_output(&mut self, beyond: u64, means: &mut Means<'_>) {
        self.watched = Some(beyond);
        self.after_output(means);
    }

    /// The daemon that asked is gone; nobody waits for answers.
    pub(crate) fn forget_requests(&mut self) {
        self.stops.clear();
        self.watched = None;
    }

    pub(crate) fn feed(&mut self, input: Input, means: &mut Means<'_>) {
        let phase = std::mem::replace(&mut self.phase, Phase::Starting);
        let (phase, effects) = lifecycle::step(phase, input);
        self.phase = phase;
        for effect in effects {
            self.perform(effect, means);
        }
        if self.is_finished() {
            self.finish(means);
        }
    }

    fn perform(&mut self, effect: Effect, means: &mut Means<'_>) {
        let own = daemonize::own_pid();
        match effect {
            Effect::Record(kind) => {
                if let Some(fact) = self.fact(kind) {
                    self.unwritten.push(fact);
                    self.write_again(means);
                }
            }
            Effect::SignalTree(signal) => {
                tree::signal_descendants(own, &[signal.number(), Signal::CONT.number()]);
                crash_point!("keeper.tree_signalled");
            }
            Effect::KillTree => {
                let by_cgroup = self.cgroup(means).is_some_and(|cgroup| cgroup.kill().is_ok());
                if !by_cgroup || self.kills > 0 {
                    self.leader.as_ref().inspect(|leader| tree::kill_group(leader));
                    tree::kill_descendants(own);
                }
                self.kills += 1;
                crash_point!("keeper.tree_killed");
                self.answer_stops(means);
            }
            Effect::ArmGrace(time) => self.grace_at = Instant::now().checked_add(time),
            Effect::ArmDrain(time) => self.drain_at = Instant::now().checked_add(time),
        }
    }

    /// The fact behind an event, as things stand.
    fn fact(&self, kind: EventKind) -> Option<Fact> {
        let at = now();
        match kind {
            EventKind::Started => {
                let leader = self.leader.as_ref()?;
                Some(Fact::Started(Start { pid: leader.pid, start_time: leader.start_time, at }))
            }
            EventKind::Exited => {
                let (end, at) = (self.end()?.clone(), self.exited_at.unwrap_or(at));
                Some(Fact::Exited(Exit { end, at, told_apart: true }))
            }
            EventKind::Closed => Some(Fact::Closed { at }),
            EventKind::Finished => Some(Fact::Finished(Finish {
                end: self.end()?.clone(),
                exited_at: self.exited_at.unwrap_or(at),
                at,
                closed: self.pump.is_closed(),
                output_bytes: self.pump.total(),
                output_lost: self.pump.lost(),
                usage: self.usage.usage(),
            })),
            // Nobody records its own death, and the rest is none of the lifecycle's.
            EventKind::Lost
            | EventKind::Matched
            | EventKind::WatchEnded
            | EventKind::WaitingForInput
            | EventKind::Heartbeat
            | EventKind::HandedOver
            | EventKind::Ready
            | EventKind::NotReady
            | EventKind::GaveUp => None,
        }
    }

    fn end(&self) -> Option<&End> {
        match &self.phase {
            Phase::Lingering { end, .. } | Phase::Draining { end } | Phase::Finished { end, .. } => Some(end),
            Phase::Starting | Phase::Running { .. } | Phase::Lost { .. } => None,
        }
    }

    /// Writes facts, then tells them, in order; one that the disk refuses waits, and all behind it (K1).
    pub(crate) fn write_again(&mut self, means: &mut Means<'_>) {
        while let Some(fact) = self.unwritten.first() {
            let json = match self.record.append(fact) {
                Ok(json) => json,
                Err(error) if record::is_over(&error) => {
                    // Written in our stead, and never replaced: there is nothing left to write or to tell.
                    self.superseded = true;
                    return self.unwritten.clear();
                }
                Err(_) => {
                    self.write_at = Instant::now().checked_add(WRITE_AGAIN);
                    return;
                }
            };
            crash_point!("keeper.fact_written");
            say_fact(means.link, &self.history.intent.id, json);
            self.history.add(self.unwritten.remove(0));
        }
    }

    /// Nothing is left of the tree: the leader may be reaped now (K2), and stops are answered.
    fn finish(&mut self, means: &mut Means<'_>) {
        if let Some(leader) = self.leader.take() {
            let _ = wait::reap(&leader.pidfd);
            crash_point!("keeper.leader_reaped");
        }
        (self.grace_at, self.drain_at, self.limit_at, self.idle_at, self.sample_at) = (None, None, None, None, None);
        self.answer_stops(means);
    }

    fn answer_stops(&mut self, means: &mut Means<'_>) {
        let over = self.is_finished();
        if self.stops.is_empty() || !over && self.kills < KILLS_BEFORE_ANSWER {
            return;
        }
        let survivors = if over { vec![] } else { survivors() };
        for request in self.stops.drain(..) {
            say(means.link, FromKeeper::Stopped { request, survivors: survivors.clone() });
        }
    }
}

/// This moment.
pub(crate) fn now() -> Moment {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Moment(since.as_micros() as u64)
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

pub(crate) fn say(link: &mut Option<Link>, message: FromKeeper) {
    if let Some(link) = link {
        link.say(&message);
    }
}

/// Tells a fact that is written.
fn say_fact(link: &mut Option<Link>, id: &ProcessId, json: &str) {
    if let Some(link) = link {
        link.say_fact(id, json);
    }
}

/// Who is left after KILL, and what keeps them.
fn survivors() -> Vec<Survivor> {
    let left = tree::descendants(daemonize::own_pid());
    left.into_iter()
        .map(|member| {
            let reason = match member.stat.state {
                'D' => "waits inside the kernel and cannot be killed until it returns",
                _ => "did not end after KILL (another user's process?)",
            };
            let command = proc::command_line(member.pid).unwrap_or_default();
            Survivor { pid: member.pid, command, reason: reason.to_owned() }
        })
        .collect()
}
