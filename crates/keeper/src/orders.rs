//! Dispatches the daemon's orders about the running process.

use pinfold_model::link::ToKeeper;

use crate::driver::{Driver, KeeperContext};
use crate::system::System;

impl<S: System> Driver<S> {
    /// Executes an order about this process. The keeper itself handles those that concern no process.
    pub(crate) fn handle_order(&mut self, order: ToKeeper, context: &mut KeeperContext<'_, S>) {
        match order {
            ToKeeper::Stop { request, cause, manner, .. } => self.stop(request, cause, manner, context),
            ToKeeper::Signal { request, signal, by, .. } => self.signal(request, signal, by, context),
            ToKeeper::Pause { request, .. } => self.pause(request, context),
            ToKeeper::Resume { request, .. } => self.resume(request, context),
            ToKeeper::HandOver { request, to, ancestors, purpose, .. } => {
                self.hand_over(request, to, ancestors, purpose, context);
            }
            ToKeeper::Readiness { readiness, .. } => self.note_readiness(readiness, context),
            ToKeeper::WatchOutput { beyond, .. } => self.watch_output(beyond, context),
            ToKeeper::Input { request, input, .. } => self.input(request, &input, context),
            ToKeeper::Resize { request, size, .. } => self.resize(request, size, context),
            ToKeeper::Reply { through, bytes, .. } => self.reply(through, &bytes),
            ToKeeper::Prepare { .. }
            | ToKeeper::Start(_)
            | ToKeeper::Retire
            | ToKeeper::StartDaemon { .. }
            | ToKeeper::Unknown { .. } => {}
        }
    }
}
