//! Runs one process: turns kernel events and orders into inputs of `model::lifecycle::step`, and carries out its
//! effects.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pinfold_model::cached_json::CachedJson;
use pinfold_model::facts::{Exit, Fact, Finish, Handover, History, Intent, Start, Usage};
use pinfold_model::id::ProcessId;
use pinfold_model::lifecycle::{self, Effect, End, Input, Milestone, Phase, Stop};
use pinfold_model::link::{FromKeeper, Kept};
use pinfold_model::outcome::{Cause, Outcome, StartStep};
use pinfold_model::ready::Readiness;
use pinfold_model::signal::Signal;
use pinfold_model::spec::StopManner;
use pinfold_model::units::Moment;
use pinfold_os::crash_point;
use pinfold_os::wait::{EndedChild, ExitStatus};
use pinfold_store::record::{self, RecordWriter};

use crate::daemon_link::Link;
use crate::limit_watch::LimitWatch;
use crate::pump::{OutputStream, Pump};
use crate::sandbox::RunningSandbox;
use crate::stdin::StdinWriter;
use crate::system::{Leader, Socket, System};
use crate::usage::UsageTotals;

/// How often the number of running processes is sampled, for the peak.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(10);
/// After this many KILLs a stop is answered with the survivors' names; killing continues.
const KILLS_BEFORE_REPLY: u32 = 4;
/// How often the list of children is re-read while reaping changes it.
const MAX_REAP_PASSES: u32 = 16;
/// How often a refused write is retried.
const WRITE_RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// What the keeper lends to its driver.
#[derive(Debug)]
pub(crate) struct KeeperContext<'a, S: System> {
    pub(crate) link: &'a mut Option<Link<S::Socket>>,
    pub(crate) system: &'a mut S,
}

/// What a successful start created.
#[derive(Debug)]
pub struct StartedParts<S: System> {
    pub(crate) leader: S::Leader,
    pub(crate) pump: Pump<S::Pipe, S::Output>,
    pub(crate) stdin: Option<StdinWriter>,
    pub(crate) limits: Option<LimitWatch>,
    pub(crate) sandbox: Option<RunningSandbox>,
}

impl<S: System> StartedParts<S> {
    /// A leader without stdin and limits.
    pub fn new(leader: S::Leader, sources: Vec<OutputStream<S::Pipe>>, output: S::Output) -> Self {
        Self { leader, pump: Pump::new(sources, output), stdin: None, limits: None, sandbox: None }
    }
}

/// One process, from start to end.
#[derive(Debug)]
pub struct Driver<S: System> {
    phase: Phase,
    pub(crate) history: History,
    record: RecordWriter<S::File>,
    pub(crate) leader: Option<S::Leader>,
    pub(crate) pump: Pump<S::Pipe, S::Output>,
    /// Its stdin, if it has a pipe or a terminal.
    pub(crate) stdin: Option<StdinWriter>,
    /// Whether a tracer has not yet released the leader's exit status to us.
    leader_withheld: bool,
    /// When the leader's exit was observed.
    pub(crate) exited_at: Option<Moment>,
    pub(crate) usage: UsageTotals,
    pub(crate) paused: bool,
    /// Its resource limits, if it has any.
    pub(crate) limits: Option<LimitWatch>,
    /// What its sandbox has, if it has one.
    pub(crate) sandbox: Option<RunningSandbox>,
    grace_at: Option<Instant>,
    drain_at: Option<Instant>,
    limit_at: Option<Instant>,
    /// When `idle_limit` would be reached without further output. Output only sets `last_output_at`; this is
    /// recomputed when it is due.
    idle_at: Option<Instant>,
    last_output_at: Instant,
    sample_at: Option<Instant>,
    /// Facts not written yet, in order: none is sent before it is written (K1).
    pub(crate) unwritten: Vec<Fact>,
    write_retry_at: Option<Instant>,
    /// Whether another program wrote the end into the record.
    superseded: bool,
    /// Stop requests to answer when the tree is empty.
    pending_stops: Vec<u64>,
    kills: u32,
    /// The daemon wants an `Output` message when there are more bytes than this.
    output_watch: Option<u64>,
}

impl<S: System> Driver<S> {
    pub(crate) fn started(
        intent: Arc<CachedJson<Intent>>,
        record: RecordWriter<S::File>,
        StartedParts { leader, pump, stdin, limits, sandbox }: StartedParts<S>,
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
            stdin,
            leader_withheld: false,
            exited_at: None,
            usage: UsageTotals::new(),
            paused: false,
            limits,
            sandbox,
            grace_at: None,
            drain_at: None,
            limit_at,
            idle_at,
            last_output_at: now,
            sample_at: now.checked_add(SAMPLE_INTERVAL),
            unwritten: Vec::new(),
            write_retry_at: None,
            superseded: false,
            pending_stops: Vec::new(),
            kills: 0,
            output_watch: None,
        };
        driver.apply(Input::LeaderStarted { pid, start_time }, context);
        driver
    }

    /// The `finished` fact of a process whose leader never ran.
    pub(crate) fn failed_start(step: StartStep, error: String, at: Moment) -> Fact {
        let end = End { outcome: Outcome::FailedToStart { step, error }, cause: Cause::OnItsOwn };
        let usage = Usage::default();
        Fact::Finished(Finish { end, exited_at: at, at, closed: true, output_bytes: 0, output_lost: 0, usage })
    }

    pub fn id(&self) -> &ProcessId {
        &self.history.intent.id
    }

    /// Whether its end is in the record.
    pub fn is_over(&self) -> bool {
        self.is_finished() && self.unwritten.is_empty()
    }

    fn is_finished(&self) -> bool {
        matches!(self.phase, Phase::Finished { .. })
    }

    /// Whether a stop is in progress.
    pub(crate) fn is_stopping(&self) -> bool {
        let (Phase::Running { stop, .. } | Phase::Lingering { stop, .. }) = &self.phase else { return false };
        !matches!(stop, Stop::NotRequested { .. })
    }

    /// Whether another program wrote its end.
    pub(crate) fn is_superseded(&self) -> bool {
        self.superseded
    }

    pub(crate) fn has_killed(&self) -> bool {
        self.kills > 0
    }

    pub(crate) fn kept(&self) -> Kept {
        let (terminal, waiting) = self.stdin.as_ref().map(StdinWriter::facts).unwrap_or_default();
        let (history, output_bytes) = (self.history.clone(), self.pump.total());
        Kept { history, paused: self.paused, output_bytes, terminal, waiting }
    }

    /// The leader whose pidfd is to be polled. Not while a tracer holds its exit status: the pidfd is readable then,
    /// but wait gives nothing. SIGCHLD comes when the tracer releases it.
    pub fn awaited_leader(&self) -> Option<&S::Leader> {
        self.running_leader().filter(|_| !self.leader_withheld)
    }

    /// Removes the cgroups of its limits, after the end.
    pub(crate) fn release_limits(&self) {
        self.limits.as_ref().inspect(|watch| watch.remove());
    }

    /// The leader, until its exit is observed.
    pub(crate) fn running_leader(&self) -> Option<&S::Leader> {
        self.leader.as_ref().filter(|_| self.exited_at.is_none())
    }

    pub fn next_timer(&self) -> Option<Instant> {
        let poll_at = self.limits.as_ref().filter(|_| !self.is_finished()).map(LimitWatch::next_poll);
        let check_at = self.stdin.as_ref().filter(|_| !self.is_finished()).map(StdinWriter::check_at);
        let own = [self.grace_at, self.drain_at, self.limit_at, self.idle_at, self.sample_at, self.write_retry_at];
        own.into_iter().chain([poll_at, check_at]).flatten().min()
    }

    /// The open pipes, with their indexes.
    pub fn open_pipes(&self) -> impl Iterator<Item = (usize, &S::Pipe)> {
        self.pump.open_pipes()
    }

    /// Copies output from one pipe.
    pub(crate) fn output_ready(&mut self, index: usize, context: &mut KeeperContext<'_, S>) {
        self.pump.copy(index, context.system.moment());
        if self.idle_at.is_some() {
            self.last_output_at = context.system.now();
        }
        if let Some(stdin) = &mut self.stdin {
            stdin.note_activity();
        }
        self.after_output(context);
    }

    fn after_output(&mut self, context: &mut KeeperContext<'_, S>) {
        if let Some(beyond) = self.output_watch
            && self.pump.total() > beyond
        {
            self.output_watch = None;
            let (id, bytes) = (self.history.intent.id.clone(), self.pump.total());
            send(context.link, FromKeeper::Output { id, bytes });
        }
        if self.pump.is_closed() && !self.knows_closed() {
            // If the leader exited too, its exit implies that the output is closed.
            match self.observed_end(context) {
                Some(ended) => self.leader_exited(&ended, context),
                None => self.apply(Input::OutputClosed, context),
            }
        }
    }

    /// The leader's exit, the first time it is observed.
    fn observed_end(&self, context: &KeeperContext<'_, S>) -> Option<EndedChild> {
        self.running_leader().and_then(|leader| context.system.observe_exit(leader))
    }

    fn knows_closed(&self) -> bool {
        match &self.phase {
            Phase::Running { closed, .. } | Phase::Lingering { closed, .. } => *closed,
            Phase::Finished { .. } => true,
            Phase::Starting | Phase::Draining { .. } => false,
        }
    }

    /// The leader's pidfd is readable.
    pub(crate) fn leader_ready(&mut self, context: &mut KeeperContext<'_, S>) {
        self.children_changed(context);
        self.leader_withheld = self.running_leader().is_some();
    }

    /// A child ended: the leader, or an orphan reparented to this keeper.
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
            self.note_stray_limits(context);
            self.note_refusals(None, context);
            self.apply(Input::TreeEmptied, context);
        }
    }

    fn leader_exited(&mut self, ended: &EndedChild, context: &mut KeeperContext<'_, S>) {
        let at = context.system.moment();
        self.exited_at = Some(at);
        self.usage.add(ended);
        // The leader's output is in the pipe by now: `exited` implies that it is complete.
        crash_point!("keeper.exit_observed");
        self.pump.drain(at);
        crash_point!("keeper.output_drained");
        let strays_alive = self.reap_orphans(Some(ended.pid), context);
        let outcome = outcome(ended.status);
        self.note_refusals(Some(&outcome), context);
        let out_of_memory = self.finish_limits(&outcome, context);
        let output_closed = self.pump.is_closed();
        let spec = &self.history.intent.spec;
        let policy = (spec.strays, spec.stop);
        self.apply(Input::LeaderExited { outcome, out_of_memory, output_closed, strays_alive, policy }, context);
        self.after_output(context);
    }

    /// Reaps ended orphans; true if any child but the leader is left.
    fn reap_orphans(&mut self, leader: Option<u32>, context: &mut KeeperContext<'_, S>) -> bool {
        let leaders = u32::from(self.exited_at.is_none());
        for _ in 0..MAX_REAP_PASSES {
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
            // A child that ended after the list was read has left its own children to us: only a pass that reaps
            // nothing is complete.
            if alive > 0 || !reaped {
                return alive > 0;
            }
        }
        // Orphans end and leave children as fast as they are reaped: the next SIGCHLD continues.
        true
    }

    /// Handles every timer that is due.
    pub(crate) fn timers_elapsed(&mut self, context: &mut KeeperContext<'_, S>) {
        let now = context.system.now();
        let due = |timer: &mut Option<Instant>| timer.take_if(|at| *at <= now).is_some();
        let (grace, drain, limit) = (due(&mut self.grace_at), due(&mut self.drain_at), due(&mut self.limit_at));
        let (sample, write) = (due(&mut self.sample_at), due(&mut self.write_retry_at));
        if limit {
            self.stop_because(Cause::TimeLimit, context);
        }
        if due(&mut self.idle_at) {
            self.check_idle_limit(context);
        }
        if self.limits.as_ref().is_some_and(|watch| watch.next_poll() <= now) && !self.is_finished() {
            self.poll_limits(context);
        }
        if self.stdin.as_ref().is_some_and(|stdin| stdin.check_at() <= now) && !self.is_finished() {
            self.check_waiting(context);
        }
        if grace {
            self.children_changed(context);
            self.apply(Input::GraceElapsed, context);
        }
        if drain {
            self.apply(Input::DrainElapsed, context);
        }
        if sample {
            self.sample(context);
        }
        if write {
            self.write_pending(context);
        }
    }

    /// Stops the process if it was silent for `idle_limit`. The time during a pause does not count.
    fn check_idle_limit(&mut self, context: &mut KeeperContext<'_, S>) {
        let Some(limit) = self.history.intent.spec.idle_limit else { return };
        let now = context.system.now();
        let since = if self.paused { now } else { self.last_output_at };
        match since.checked_add(limit).filter(|at| *at > now) {
            Some(later) => self.idle_at = Some(later),
            None => self.stop_because(Cause::IdleLimit, context),
        }
    }

    /// Records the new owner.
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
            send_fact(context.link, &self.history.intent.id, json);
            self.history.add(fact);
        }
        send(context.link, FromKeeper::HandedOver { request, done });
    }

    /// Records the readiness that the daemon observed; the first result is final (L8).
    pub(crate) fn note_readiness(&mut self, readiness: Readiness, context: &mut KeeperContext<'_, S>) {
        let fact = Fact::Readiness(readiness);
        let open = !self.is_finished() && self.history.readiness.is_none() && self.unwritten.is_empty();
        if open && let Ok(json) = self.record.append(&fact) {
            send_fact(context.link, &self.history.intent.id, json);
            self.history.add(fact);
        }
    }

    fn sample(&mut self, context: &KeeperContext<'_, S>) {
        self.usage.note_alive(context.system.count_descendants());
        self.sample_at = context.system.now().checked_add(SAMPLE_INTERVAL);
    }

    pub(crate) fn stop(&mut self, request: u64, cause: Cause, manner: StopManner, context: &mut KeeperContext<'_, S>) {
        self.pending_stops.push(request);
        crash_point!("keeper.stop_received");
        self.thaw(context);
        self.apply(Input::Stop { cause, manner }, context);
        self.answer_stops(context);
    }

    pub(crate) fn watch_output(&mut self, beyond: u64, context: &mut KeeperContext<'_, S>) {
        self.output_watch = Some(beyond);
        self.after_output(context);
    }

    /// The daemon that sent the requests is gone.
    pub(crate) fn forget_requests(&mut self) {
        self.pending_stops.clear();
        self.output_watch = None;
    }

    pub(crate) fn apply(&mut self, input: Input, context: &mut KeeperContext<'_, S>) {
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
                self.write_pending(context);
            }
            Effect::SignalTree(signal) => {
                context.system.signal_tree(&[signal.number(), Signal::CONT.number()]);
                crash_point!("keeper.tree_signalled");
            }
            Effect::KillTree => {
                let by_cgroup = context.system.kill_cgroup(self.limits.as_ref());
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

    /// Adds times to a milestone, and resource use to the last one.
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
        }
    }

    /// Writes facts and then sends them, in order. If a write fails, it and all later facts wait (K1).
    pub(crate) fn write_pending(&mut self, context: &mut KeeperContext<'_, S>) {
        while let Some(fact) = self.unwritten.first() {
            let json = match self.record.append(fact) {
                Ok(json) => json,
                Err(error) if record::is_over(&error) => {
                    // Another program wrote the end, which is never replaced: nothing is left to write or send.
                    self.superseded = true;
                    return self.unwritten.clear();
                }
                Err(_) => {
                    self.write_retry_at = context.system.now().checked_add(WRITE_RETRY_INTERVAL);
                    return;
                }
            };
            crash_point!("keeper.fact_written");
            send_fact(context.link, &self.history.intent.id, json);
            self.history.add(self.unwritten.remove(0));
        }
    }

    /// The tree is empty: reaps the leader (K2) and answers stops.
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
        if self.pending_stops.is_empty() || !over && self.kills < KILLS_BEFORE_REPLY {
            return;
        }
        let survivors = if over { vec![] } else { context.system.survivors() };
        for request in self.pending_stops.drain(..) {
            send(context.link, FromKeeper::Stopped { request, survivors: survivors.clone() });
        }
    }
}

fn outcome(status: ExitStatus) -> Outcome {
    match status {
        ExitStatus::Exited { code } => Outcome::Exited { code },
        ExitStatus::Signaled { signal, core_dumped } => match Signal::from_number(signal) {
            Some(signal) => Outcome::Signaled { signal, core_dumped },
            None => Outcome::Lost { evidence: format!("the kernel reported signal {signal}, which does not exist") },
        },
    }
}

pub(crate) fn send<K: Socket>(link: &mut Option<Link<K>>, message: FromKeeper) {
    if let Some(link) = link {
        link.send(&message);
    }
}

/// Sends a fact that is written.
fn send_fact<K: Socket>(link: &mut Option<Link<K>>, id: &ProcessId, json: &str) {
    if let Some(link) = link {
        link.send_fact(id, json);
    }
}
