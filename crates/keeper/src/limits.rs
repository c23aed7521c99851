//! What the keeper does when a limit is reached: stops the tree, or notes what the kernel did.

use std::time::Duration;

use pinfold_model::facts::Fact;
use pinfold_model::lifecycle::Input;
use pinfold_model::outcome::{Cause, Outcome};
use pinfold_model::signal::Signal;
use pinfold_model::spec::StopManner;

use crate::driver::{Driver, KeeperContext};
use crate::system::System;

/// How a tree is stopped that eats memory or forks: whatever it was given time for, it would use to go on.
const AT_ONCE: StopManner = StopManner { signal: Signal::KILL, grace: Duration::ZERO };

impl<S: System> Driver<S> {
    /// Looks at what the tree uses, and ends it if that is too much.
    pub(crate) fn look(&mut self, context: &mut KeeperContext<'_, S>) {
        let reaped = Duration::from_micros(self.usage.cpu_us);
        let Some(watch) = &mut self.watch else { return };
        let reached = watch.look(context.system.cgroup(), reaped);
        if watch.saw_kill(|| self.leader.as_ref().is_some_and(|leader| context.system.is_dying(leader))) {
            self.note_kill(context);
        }
        if let Some(cause) = reached {
            self.stop_because(cause, context);
        }
    }

    /// The leader ended: whether the kernel had killed for want of memory. If that was not its end, it is noted.
    pub(crate) fn last_look(&mut self, outcome: &Outcome, context: &mut KeeperContext<'_, S>) -> bool {
        let Some(watch) = &mut self.watch else { return false };
        let killed = watch.settle_kills();
        let by_kill = matches!(outcome, Outcome::Signaled { signal: Signal::KILL, .. });
        if killed && !by_kill {
            self.note_kill(context);
        }
        self.note_refusal(context);
        killed && by_kill
    }

    /// What the leader left has ended by itself: a fork bomb, say, that nothing feeds any more. What the kernel did to it
    /// meanwhile is noted.
    pub(crate) fn look_at_remains(&mut self, context: &mut KeeperContext<'_, S>) {
        if self.watch.as_mut().is_some_and(|watch| watch.settle_kills()) {
            self.note_kill(context);
        }
        self.note_refusal(context);
    }

    fn note_refusal(&mut self, context: &mut KeeperContext<'_, S>) {
        let refused = self.watch.as_ref().is_some_and(|watch| watch.was_refused_forks());
        if refused && !self.is_stopping() {
            self.note(format!("it was refused more processes at {}", self.limit_text(&Cause::PidsLimit)), context);
        }
    }

    /// Stops the tree for a limit. An end that came before keeps its own cause, so this one is noted.
    pub(crate) fn stop_because(&mut self, cause: Cause, context: &mut KeeperContext<'_, S>) {
        let manner = match cause {
            Cause::OutOfMemory | Cause::PidsLimit => AT_ONCE,
            _ => self.history.intent.spec.stop,
        };
        if self.exited_at.is_some() && !self.is_stopping() {
            self.note(format!("what it left running was stopped at {}", self.limit_text(&cause)), context);
        }
        self.thaw(context);
        self.feed(Input::Stop { cause, manner }, context);
    }

    fn note_kill(&mut self, context: &mut KeeperContext<'_, S>) {
        let limit = self.limit_text(&Cause::OutOfMemory);
        self.note(format!("the kernel killed a process of its tree for want of memory ({limit})"), context);
    }

    /// Writes a note down, once.
    fn note(&mut self, text: String, context: &mut KeeperContext<'_, S>) {
        let waits = |fact: &Fact| matches!(fact, Fact::Noted { text: waiting, .. } if *waiting == text);
        if !self.history.notes.contains(&text) && !self.unwritten.iter().any(waits) {
            self.unwritten.push(Fact::Noted { text, at: context.system.moment() });
            self.write_again(context);
        }
    }

    /// A limit, for people.
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
