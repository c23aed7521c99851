//! Signal, pause and resume orders.

use pinfold_model::lifecycle::Input;
use pinfold_model::link::{FromKeeper, Survivor};
use pinfold_model::signal::Signal;
use pinfold_os::tree::Reach;

use crate::driver::{Driver, KeeperContext, send};
use crate::system::System;

impl<S: System> Driver<S> {
    pub(crate) fn signal(&mut self, request: u64, signal: Signal, by: String, context: &mut KeeperContext<'_, S>) {
        self.apply(Input::SignalSent { signal, by }, context);
        let reach = context.system.signal_tree(&[signal.number()]);
        if signal == Signal::STOP {
            self.paused = true;
        } else if signal == Signal::CONT {
            self.thaw(context);
        }
        answer_signal(request, &reach, context);
    }

    /// Freezes the cgroup, and sends STOP to descendants outside of it: those moved to another cgroup, as
    /// `systemd-run --scope` does, or never added.
    pub(crate) fn pause(&mut self, request: u64, context: &mut KeeperContext<'_, S>) {
        let reach = context.system.pause_tree(self.limits.as_ref());
        self.paused = true;
        answer_signal(request, &reach, context);
    }

    pub(crate) fn resume(&mut self, request: u64, context: &mut KeeperContext<'_, S>) {
        self.thaw(context);
        let reach = context.system.signal_tree(&[Signal::CONT.number()]);
        answer_signal(request, &reach, context);
    }

    pub(crate) fn thaw(&mut self, context: &mut KeeperContext<'_, S>) {
        if self.paused {
            context.system.thaw_tree(self.limits.as_ref());
        }
        self.paused = false;
    }
}

fn answer_signal<S: System>(request: u64, reach: &Reach, context: &mut KeeperContext<'_, S>) {
    let refused = reach.refused.iter().map(|(pid, errno)| {
        let reason = std::io::Error::from_raw_os_error(*errno).to_string();
        Survivor { pid: *pid, command: context.system.command_line(*pid), reason }
    });
    let (reached, refused) = (reach.signalled.len() as u32, refused.collect());
    send(context.link, FromKeeper::Signaled { request, reached, refused });
}
