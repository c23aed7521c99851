//! Signals, pauses and resumes that a client asks for.

use std::collections::HashSet;
use std::time::Duration;

use pinfold_model::lifecycle::Input;
use pinfold_model::link::{FromKeeper, Survivor};
use pinfold_model::signal::Signal;
use pinfold_os::cgroup::Cgroup;
use pinfold_os::{daemonize, proc, tree};

use crate::driver::{Driver, Means, say};

/// How long a freeze may take before its members are counted. Only a process that waits inside the kernel takes so long.
const FREEZE: Duration = Duration::from_millis(200);

impl Driver {
    pub(crate) fn signal(&mut self, request: u64, signal: Signal, by: String, means: &mut Means<'_>) {
        self.feed(Input::SignalSent { signal, by }, means);
        let reach = tree::signal_descendants(daemonize::own_pid(), &[signal.number()]);
        if signal == Signal::STOP {
            self.paused = true;
        } else if signal == Signal::CONT {
            self.thaw(means);
        }
        answer_signal(request, &reach, means);
    }

    /// Freezes the cgroup, and stops by signal whoever is not in it: descendants that were moved to another one, as
    /// `systemd-run --scope` does, or that never entered it.
    pub(crate) fn pause(&mut self, request: u64, means: &mut Means<'_>) {
        let frozen = self.cgroup(means).map(freeze).unwrap_or_default();
        let reach = tree::halt_descendants(daemonize::own_pid(), |pid| frozen.contains(&pid));
        self.paused = true;
        answer_signal(request, &reach, means);
    }

    pub(crate) fn resume(&mut self, request: u64, means: &mut Means<'_>) {
        self.thaw(means);
        let reach = tree::signal_descendants(daemonize::own_pid(), &[Signal::CONT.number()]);
        answer_signal(request, &reach, means);
    }

    pub(crate) fn thaw(&mut self, means: &Means<'_>) {
        if self.paused
            && let Some(cgroup) = self.cgroup(means)
        {
            let _ = cgroup.freeze(false);
        }
        self.paused = false;
    }
}

/// Freezes a cgroup; whom that halts. One that waits inside the kernel halts when that returns.
fn freeze(cgroup: &Cgroup) -> HashSet<u32> {
    let frozen = cgroup.freeze(true).and_then(|()| {
        cgroup.wait_frozen(FREEZE)?;
        cgroup.members()
    });
    frozen.map(HashSet::from_iter).unwrap_or_default()
}

fn answer_signal(request: u64, reach: &tree::Reach, means: &mut Means<'_>) {
    let refused = reach.refused.iter().map(|(pid, errno)| {
        let reason = std::io::Error::from_raw_os_error(*errno).to_string();
        Survivor { pid: *pid, command: proc::command_line(*pid).unwrap_or_default(), reason }
    });
    let reached = reach.signalled.len() as u32;
    say(means.link, FromKeeper::Signaled { request, reached, refused: refused.collect() });
}
