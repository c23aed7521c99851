//! Finds processes by a unique text in their command line or environment, in `/proc`, for every thread.

use pinfold_os::proc;
use pinfold_os::tree::{self, Member};

/// The living processes with this text in their command line or environment.
pub fn carriers_of(text: &str) -> Vec<Member> {
    let all = proc::pids().unwrap_or_default().into_iter().filter(|pid| *pid != std::process::id());
    all.filter(|pid| carries(*pid, text))
        .filter_map(observe_living)
        .filter(|member| carries(member.pid, text))
        .collect()
}

/// Kills them, each through a pidfd that is checked after it was opened: a recycled pid is not signalled.
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

/// Checks every thread: if the main thread has exited, only the other threads show command line and environment.
fn carries(pid: u32, text: &str) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut threads = threads.map(|thread| thread.path());
    threads.any(|thread| ["cmdline", "environ"].iter().any(|name| contains(&thread.join(name), text)))
}

fn contains(path: &std::path::Path, text: &str) -> bool {
    let content = std::fs::read(path).unwrap_or_default();
    content.windows(text.len()).any(|window| window == text.as_bytes())
}
