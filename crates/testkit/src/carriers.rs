//! Who holds a number that nobody else has: found in `/proc`, by command line and environment, of every thread.

use pinfold_os::proc;
use pinfold_os::tree::{self, Member};

/// The living processes that hold this text.
pub fn carriers_of(text: &str) -> Vec<Member> {
    let all = proc::pids().unwrap_or_default().into_iter().filter(|pid| *pid != std::process::id());
    all.filter(|pid| carries(*pid, text))
        .filter_map(observe_living)
        .filter(|member| carries(member.pid, text))
        .collect()
}

/// Kills them, each through a descriptor whose process was seen to hold the text after it was opened.
pub fn kill_carriers(text: &str) {
    for member in carriers_of(text) {
        if let Some(target) = tree::target(&member) {
            let _ = tree::signal(&target, 9);
        }
    }
}

fn observe_living(pid: u32) -> Option<Member> {
    let stat = proc::stat(pid).ok().filter(proc::Stat::is_living)?;
    Some(Member { pid, stat })
}

/// A process whose main thread is gone shows command line and environment at its other threads alone.
fn carries(pid: u32, text: &str) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut threads = threads.map(|thread| thread.path());
    threads.any(|thread| ["cmdline", "environ"].iter().any(|name| holds(&thread.join(name), text)))
}

fn holds(path: &std::path::Path, text: &str) -> bool {
    let held = std::fs::read(path).unwrap_or_default();
    held.windows(text.len()).any(|window| window == text.as_bytes())
}
