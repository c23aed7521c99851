//! Signals, pauses and resumes that a client asks for.

use pinfold_model::lifecycle::Input;
use pinfold_model::link::{FromKeeper, Survivor};
use pinfold_model::signal::Signal;
use pinfold_os::{daemonize, proc, tree};

use crate::driver::{Driver, Means, say};

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

    pub(crate) fn pause(&mut self, request: u64, means: &mut Means<'_>) {
        let own = daemonize::own_pid();
        let reach = match self.cgroup(means).filter(|cgroup| cgroup.freeze(true).is_ok()) {
            Some(_) => tree::Reach { signalled: pids_below(own), refused: vec![] },
            None => tree::halt_descendants(own),
        };
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

fn pids_below(root: u32) -> Vec<u32> {
    tree::descendants(root).iter().map(|member| member.pid).collect()
}

fn answer_signal(request: u64, reach: &tree::Reach, means: &mut Means<'_>) {
    let refused = reach.refused.iter().map(|(pid, errno)| {
        let reason = std::io::Error::from_raw_os_error(*errno).to_string();
        Survivor { pid: *pid, command: proc::command_line(*pid).unwrap_or_default(), reason }
    });
    let reached = reach.signalled.len() as u32;
    say(means.link, FromKeeper::Signaled { request, reached, refused: refused.collect() });
}
