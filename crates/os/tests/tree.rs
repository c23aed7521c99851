//! Trees of real processes: all of them are found, signalled and killed, and no other process is touched.
//!
//! The test process is a child subreaper, so that what it started stays below it; one test runs at a time.

use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pinfold_os::proc;
use pinfold_os::sweep::{Remains, Swept, sweep_all};
use pinfold_os::tree;
use pinfold_os::tree::{
    Member, OwnChildren, children_of, descendants, kill_descendants, signal, signal_descendants, target,
};
use rustix::process::{WaitOptions, getpid, set_child_subreaper};

const DEADLINE: Duration = Duration::from_secs(60);

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Allows one test at a time to have descendants; dropping it kills those that are left.
struct Descendants(#[allow(dead_code)] MutexGuard<'static, ()>);

impl Descendants {
    fn begin() -> Descendants {
        let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        set_child_subreaper(Some(getpid())).expect("subreaper");
        Descendants(turn)
    }

    /// Runs a script in `sh` until it has printed `count` lines, each a number.
    fn start(&self, script: &str, count: usize) -> (Child, Vec<u32>) {
        let mut child = Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().expect("sh");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines().take(count);
        let numbers = lines.map(|line| line.expect("a line").trim().parse().expect("a pid")).collect();
        (child, numbers)
    }
}

impl Drop for Descendants {
    fn drop(&mut self) {
        until("all descendants are gone", || {
            kill_descendants(std::process::id());
            reap_all();
            descendants(std::process::id()).is_empty()
        });
    }
}

fn reap_all() {
    while let Ok(Some(_)) = rustix::process::wait(WaitOptions::NOHANG) {}
}

fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !is_true() {
        assert!(Instant::now() < end, "timed out waiting until {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn sweep(mark: &[u8]) -> Swept {
    sweep_all(&[Remains { mark, cgroup: None }], DEADLINE).remove(0)
}

/// The processes whose environment contains exactly this entry.
fn find_marked(mark: &[u8]) -> HashSet<u32> {
    let is_marked = |pid: &u32| matches!(proc::environ_find(*pid, |entry| (entry == mark).then_some(())), Ok(Some(())));
    proc::pids().expect("/proc").into_iter().filter(is_marked).collect()
}

fn pids(members: &[Member]) -> HashSet<u32> {
    members.iter().map(|member| member.pid).collect()
}

fn lives(pid: u32) -> bool {
    proc::stat(pid).is_ok_and(|stat| stat.is_living())
}

#[test]
fn descendants_include_background_setsid_and_double_forked_children() {
    let own_tree = Descendants::begin();
    let script = "sleep 600 & echo $!; setsid sh -c 'echo $$; exec sleep 600' & (setsid sh -c 'echo $$; exec env -i sleep 600' &); wait";
    let (leader, numbers) = own_tree.start(script, 3);
    let seen = pids(&descendants(std::process::id()));
    assert!(seen.contains(&leader.id()) && !seen.contains(&std::process::id()));
    assert!(numbers.iter().all(|pid| seen.contains(pid)), "{numbers:?} in {seen:?}");
}

#[test]
fn a_zombie_is_a_child_but_no_living_descendant() {
    let _own_tree = Descendants::begin();
    let mut child = Command::new("true").spawn().expect("true");
    until("it is a zombie", || proc::stat(child.id()).expect("unreaped").state == 'Z');
    assert!(children_of(std::process::id()).expect("own children").contains(&child.id()));
    assert!(!pids(&descendants(std::process::id())).contains(&child.id()));
    assert_eq!(proc::command_line(child.id()).expect("unreaped"), "[true]");
    child.wait().expect("reaped");
}

#[test]
fn a_process_whose_main_thread_exited_is_a_living_descendant_with_its_children() {
    let own_tree = Descendants::begin();
    let script = "import ctypes, subprocess, threading, time
def stay():
    print(subprocess.Popen(['sleep', '600']).pid, flush=True)
    time.sleep(600)
threading.Thread(target=stay).start()
ctypes.CDLL(None).syscall(60, 0)";
    if cfg!(not(target_arch = "x86_64")) || Command::new("python3").arg("-V").output().is_err() {
        println!("skipped: needs python3 on x86_64");
        return;
    }
    let (leader, numbers) = own_tree.start(&format!("exec python3 -c \"{script}\""), 1);
    until("the main thread is gone", || proc::stat(leader.id()).expect("unreaped").state == 'Z');
    let seen = pids(&descendants(std::process::id()));
    assert!(seen.contains(&leader.id()) && seen.contains(&numbers[0]), "{seen:?}");
}

#[test]
fn a_signal_reaches_the_whole_tree_and_each_once() {
    let own_tree = Descendants::begin();
    let script = "trap '' HUP; (setsid sh -c 'echo $$; exec sleep 600' &); sleep 600 & echo $!; wait";
    let (mut leader, numbers) = own_tree.start(script, 2);
    let reach = signal_descendants(leader.id(), &[libc::SIGTERM]);
    assert!(reach.signalled.contains(&numbers[1]) || reach.signalled.contains(&numbers[0]), "{reach:?}");
    let reach = signal_descendants(std::process::id(), &[libc::SIGTERM]);
    assert_eq!(reach.refused, []);
    assert_eq!(reach.signalled.len(), reach.signalled.iter().collect::<HashSet<_>>().len());
    leader.wait().expect("the leader ended");
    until("all ended", || numbers.iter().all(|&pid| !lives(pid)));
}

#[test]
fn a_realtime_signal_is_sent_by_its_number() {
    let own_tree = Descendants::begin();
    let (mut leader, _) = own_tree.start("echo $$; exec sleep 600", 1);
    let member = Member { pid: leader.id(), stat: proc::stat(leader.id()).expect("alive") };
    signal(&target(&member).expect("alive"), libc::SIGRTMIN() + 3).expect("sent");
    let status = leader.wait().expect("ended");
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGRTMIN() + 3));
}

#[test]
fn a_recycled_pid_is_never_held_nor_signalled() {
    let own_tree = Descendants::begin();
    let (leader, _) = own_tree.start("echo $$; exec sleep 600", 1);
    let mut member = Member { pid: leader.id(), stat: proc::stat(leader.id()).expect("alive") };
    assert!(target(&member).is_some());
    member.stat.start_time -= 1; // as if remembered from an earlier process with the same pid
    assert!(target(&member).is_none());
}

#[test]
fn kill_outruns_a_tree_that_keeps_forking() {
    let own_tree = Descendants::begin();
    let busy = "while :; do (setsid sleep 600 &); /bin/true; done";
    let (leader, _) = own_tree.start(&format!("for i in 1 2 3; do sh -c '{busy}' & done; echo $$; wait"), 1);
    until("it has forked", || descendants(std::process::id()).len() > 12);
    until("no process is left", || {
        assert_eq!(kill_descendants(std::process::id()).refused, []);
        reap_all();
        descendants(std::process::id()).is_empty()
    });
    assert!(!lives(leader.id()));
}

#[test]
fn own_children_are_listed_until_they_are_reaped() {
    let _own_tree = Descendants::begin();
    let own = OwnChildren::open().expect("opened by the thread that forks");
    assert!(own.pids().expect("read").is_empty());
    // More than one read of the kernel's list holds.
    let mut children: Vec<Child> = (0..900).map(|_| Command::new("sleep").arg("600").spawn().expect("sleep")).collect();
    let mut expected: Vec<u32> = children.iter().map(Child::id).collect();
    let mut listed = own.pids().expect("read");
    listed.sort_unstable();
    expected.sort_unstable();
    assert!(listed == expected, "{} children listed of {}", listed.len(), expected.len());
    for child in &mut children {
        child.kill().expect("killed");
        child.wait().expect("reaped");
    }
    assert!(own.pids().expect("read").is_empty());
}

#[test]
fn sweep_ends_the_marked_and_their_descendants_and_nobody_else() {
    let own_tree = Descendants::begin();
    let mark = format!("PINFOLD_TEST_MARK={}-a", std::process::id());
    let longer = format!("{mark}b");
    let (bystander, _) = own_tree.start(&format!("echo $$; exec env {longer} sleep 600"), 1);
    let script = format!(
        "exec env {mark} sh -c \"(setsid sh -c 'echo \\$\\$; exec sleep 600' &); env -i sleep 600 & echo \\$!; wait\""
    );
    let (mut leader, numbers) = own_tree.start(&script, 2);
    until("the bystander carries its own mark", || !find_marked(longer.as_bytes()).is_empty());
    assert!(find_marked(mark.as_bytes()).contains(&leader.id()));
    until("both are what they become", || {
        numbers.iter().all(|&pid| proc::command_line(pid).is_ok_and(|line| line == "sleep 600"))
    });

    let swept = sweep(mark.as_bytes());
    assert_eq!(swept.survivors, []);
    let killed: HashSet<u32> = swept.killed.iter().map(|(pid, _)| *pid).collect();
    assert!(killed.contains(&leader.id()) && numbers.iter().all(|pid| killed.contains(pid)), "{swept:?}");
    assert!(swept.killed.iter().any(|(_, command)| command == "sleep 600"));
    assert!(numbers.iter().all(|&pid| !lives(pid)));
    assert!(lives(bystander.id()) && !killed.contains(&bystander.id()));
    leader.wait().expect("reaped");
    assert!(find_marked(mark.as_bytes()).is_empty());
}

#[test]
fn sweep_without_a_proper_mark_ends_nobody() {
    let own_tree = Descendants::begin();
    let (leader, _) = own_tree.start("echo $$; exec sleep 600", 1);
    for mark in [&b""[..], b"=", b"=x", b"PATH", b"A=1\0B=2"] {
        assert_eq!(sweep(mark).killed, []);
    }
    assert!(lives(leader.id()));
}

#[test]
fn usage_is_that_of_the_whole_tree_and_stops_counting_when_it_is_enough() {
    const HELD: u64 = 32 << 20;
    let _own_tree = Descendants::begin();
    // tail holds the last 32 MiB for as long as its input is open.
    let mut parent = Command::new("sh")
        .args(["-c", &format!("(head -c {HELD} /dev/zero; exec sleep 300) | tail -c {HELD} & sleep 300 & wait")])
        .stdout(Stdio::null())
        .spawn()
        .expect("sh");
    // The kernel sums resident pages roughly, so a few programs of a few pages would show nothing reliable.
    until("three children, one of them with all it holds", || {
        let usage = tree::usage_below(parent.id(), None);
        (usage.pids.len(), usage.threads) == (3, 3) && usage.rss_bytes >= HELD && usage.memory_bytes() >= HELD
    });
    assert_eq!(tree::usage_below(parent.id(), Some(1)).threads, 2, "it stops counting one above the limit");
    tree::kill_descendants(parent.id());
    let _ = parent.kill();
    let _ = parent.wait();
}
