//! What the keeper does at a limit: stops the tree, or notes what the kernel did.

use std::time::Duration;

use pinfold_model::facts::Fact;
use pinfold_model::lifecycle::Input;
use pinfold_model::outcome::{Cause, Outcome};
use pinfold_model::signal::Signal;
use pinfold_model::spec::StopManner;

use crate::driver::{Driver, KeeperContext};
use crate::system::System;

/// For trees that exhaust memory or processes: a grace period would let them continue.
const IMMEDIATE: StopManner = StopManner { signal: Signal::KILL, grace: Duration::ZERO };

impl<S: System> Driver<S> {
    /// Measures what the tree uses, and stops it if a limit is reached.
    pub(crate) fn poll_limits(&mut self, context: &mut KeeperContext<'_, S>) {
        let reaped = Duration::from_micros(self.usage.cpu_us);
        let Some(watch) = &mut self.limits else { return };
        let reached = watch.poll(context.system.cgroup(), reaped);
        if watch.has_oom_kill(|| self.leader.as_ref().is_some_and(|leader| context.system.is_dying(leader))) {
            self.note_oom_kill(context);
        }
        if let Some(cause) = reached {
            self.stop_because(cause, context);
        }
    }

    /// After the leader's exit: true if the OOM killer ended it. OOM kills of other members are noted.
    pub(crate) fn finish_limits(&mut self, outcome: &Outcome, context: &mut KeeperContext<'_, S>) -> bool {
        let Some(watch) = &mut self.limits else { return false };
        let killed = watch.take_oom_kills();
        let by_kill = matches!(outcome, Outcome::Signaled { signal: Signal::KILL, .. });
        if killed && !by_kill {
            self.note_oom_kill(context);
        }
        self.note_refused_forks(context);
        killed && by_kill
    }

    /// After the strays ended by themselves, such as a fork bomb that ran dry: notes what the kernel did to them.
    pub(crate) fn note_stray_limits(&mut self, context: &mut KeeperContext<'_, S>) {
        if self.limits.as_mut().is_some_and(|watch| watch.take_oom_kills()) {
            self.note_oom_kill(context);
        }
        self.note_refused_forks(context);
    }

    fn note_refused_forks(&mut self, context: &mut KeeperContext<'_, S>) {
        let refused = self.limits.as_ref().is_some_and(|watch| watch.was_refused_forks());
        if refused && !self.is_stopping() {
            self.note(
                format!("the kernel refused it more processes at {}", self.limit_text(&Cause::PidsLimit)),
                context,
            );
        }
    }

    /// Stops the tree for a limit. If the leader exited before, its cause stays and the limit is noted.
    pub(crate) fn stop_because(&mut self, cause: Cause, context: &mut KeeperContext<'_, S>) {
        let manner = match cause {
            Cause::OutOfMemory | Cause::PidsLimit => IMMEDIATE,
            _ => self.history.intent.spec.stop,
        };
        if self.exited_at.is_some() && !self.is_stopping() {
            self.note(format!("the processes it left running were stopped at {}", self.limit_text(&cause)), context);
        }
        self.thaw(context);
        self.apply(Input::Stop { cause, manner }, context);
    }

    fn note_oom_kill(&mut self, context: &mut KeeperContext<'_, S>) {
        let limit = self.limit_text(&Cause::OutOfMemory);
        self.note(format!("the kernel killed one of its processes because memory ran out ({limit})"), context);
    }

    /// Records a note, once.
    pub(crate) fn note(&mut self, text: String, context: &mut KeeperContext<'_, S>) {
        let is_queued = |fact: &Fact| matches!(fact, Fact::Noted { text: queued, .. } if *queued == text);
        if !self.history.notes.contains(&text) && !self.unwritten.iter().any(is_queued) {
            self.unwritten.push(Fact::Noted { text, at: context.system.moment() });
            self.write_pending(context);
        }
    }

    /// A limit in words.
    fn limit_text(&self, cause: &Cause) -> String {
        let spec = &self.history.intent.spec;
        let seconds = |limit: Option<Duration>| limit.unwrap_or_default().as_secs_f64();
        match cause {
            Cause::OutOfMemory => format!("its memory_limit of {} bytes", spec.limits.memory.unwrap_or(0)),
            Cause::PidsLimit => format!("its pids_limit of {}", spec.limits.pids.unwrap_or(0)),
            Cause::CpuTimeLimit => format!("its cpu_time_limit of {}s", seconds(spec.limits.cpu_time)),
            Cause::IdleLimit => format!("its idle_limit of {}s", seconds(spec.idle_limit)),
            _ => format!("its time_limit of {}s", seconds(spec.time_limit)),
        }
    }
}
