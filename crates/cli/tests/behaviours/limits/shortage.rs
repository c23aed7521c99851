//! When its user has no more processes, threads or descriptors, the daemon still answers, and names what is missing.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use pinfold_api::error::{ApiError, ErrorCode};
use pinfold_api::types::{ListQuery, Status};
use pinfold_testkit::environments::{is_root, setup};
use pinfold_testkit::{Cli, Pidfd, Pinfold, children_of, until};

use crate::PINFOLD;
use crate::requests::request;

/// A user that only this test uses, since the kernel counts the processes of a user system-wide.
fn unshared_user() -> Option<(Pinfold, u32)> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    if !is_root() {
        println!("skipped: only root can become a user of its own");
        return None;
    }
    let user = 100_000 + std::process::id() * 8 + NUMBER.fetch_add(1, Ordering::Relaxed);
    Some((Pinfold::start_with(PINFOLD, setup("auto", Some(user))), user))
}

/// Sets a limit of a process, acting as its user: root in a container may lack the capability.
fn limit(user: u32, pid: u32, limit: &str) {
    let mut set = as_user(user, "prlimit");
    assert!(set.args(["--pid", &pid.to_string(), limit]).status().expect("prlimit").success(), "{limit} of {pid}");
}

fn as_user(user: u32, program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args([&format!("--reuid={user}"), &format!("--regid={user}"), "--clear-groups", program]).current_dir("/");
    command
}

/// The daemon, its nursery and its keepers.
fn all_pids(pinfold: &Pinfold) -> Vec<u32> {
    let daemon = pinfold.daemon_pid();
    let below = children_of(daemon).into_iter().chain(pinfold.keepers());
    std::iter::once(daemon).chain(below).collect()
}

fn log(pinfold: &Pinfold) -> String {
    std::fs::read_to_string(pinfold.home().join("daemon.log")).expect("a log")
}

#[test]
fn at_the_process_limit_everything_but_a_start_is_answered() {
    let Some((pinfold, user)) = unshared_user() else { return };
    let daemon = pinfold.daemon_pid();
    let (ended, text) = pinfold.run("echo hello");
    let running = pinfold.sh("sleep 300");
    let keeper = pinfold.keeper_pid(&running.id);
    until("there are keepers in reserve", || pinfold.keepers().len() > 1);
    let before = soft_limit(daemon, "Max processes");
    all_pids(&pinfold).into_iter().for_each(|pid| limit(user, pid, "--nproc=1:"));

    let refused = |what: &str| {
        let error = pinfold.try_start(&request("true")).expect_err("no process can be started");
        assert_eq!(error.code, ErrorCode::ResourceShortage, "{what}: {}", error.message);
        assert!(error.message.contains("process limit") && error.message.contains("ulimit -u"), "{}", error.message);
    };
    refused("by a keeper");
    for _ in 0..30 {
        assert_eq!(pinfold.text(&ended.id), text);
        assert_eq!(pinfold.show(&running.id).status, Status::Running);
    }
    assert_eq!(pinfold.list(&ListQuery { status: Some("live".into()), ..ListQuery::default() }).total, 1);
    for idle in pinfold.keepers().into_iter().filter(|pid| *pid != keeper) {
        Pidfd::open(idle).expect("a keeper").kill();
    }
    refused("by the nursery");
    children_of(daemon).into_iter().for_each(|nursery| Pidfd::open(nursery).expect("the nursery").kill());
    refused("by the daemon");
    assert!(pinfold.stop(&running.id).survivors.is_empty());
    assert_eq!(pinfold.daemon_pid(), daemon);
    assert!(!log(&pinfold).contains("panicked"), "{}", log(&pinfold));

    all_pids(&pinfold).into_iter().for_each(|pid| limit(user, pid, &format!("--nproc={before}:")));
    assert_eq!(pinfold.run("echo fine").1, "fine\n");
}

/// Runs the command line with no thread left for its user.
fn without_threads(pinfold: &Pinfold, user: u32, arguments: &[&str]) -> Cli {
    let mut command = as_user(user, "prlimit");
    command.arg("--nproc=1:1").arg(pinfold.binary()).args(arguments).env("PINFOLD_HOME", pinfold.home());
    Cli::from(command.stdin(Stdio::null()).output().expect("pinfold can be executed"))
}

#[test]
fn at_the_process_limit_the_command_line_prints_all_the_same() {
    let Some((pinfold, user)) = unshared_user() else { return };
    let (ended, _) = pinfold.run("seq 100000");
    let cli = without_threads(&pinfold, user, &["logs", &ended.id]);
    assert_eq!((cli.code, cli.stdout.lines().count()), (Some(0), 100_000), "{}", cli.stderr);
    let cli = without_threads(&pinfold, user, &["run", "echo out; echo err >&2"]);
    assert_eq!((cli.code, cli.stdout.as_str()), (Some(0), "out\nerr\n"), "{}", cli.stderr);
    let cli = without_threads(&pinfold, user, &["run", "--stdin", "echo out"]);
    assert!(cli.stdout == "out\n" && !cli.stderr.contains("panicked"), "{cli:?}");
    assert!(cli.stderr.contains("ulimit -u"), "{}", cli.stderr);
}

/// The lowest free descriptor number: with this limit no further descriptor can be opened.
fn first_free(pid: u32) -> u64 {
    let free = |number: &u64| std::fs::symlink_metadata(format!("/proc/{pid}/fd/{number}")).is_err();
    (0..).find(free).expect("a number")
}

#[test]
fn at_the_descriptor_limit_the_error_says_so() {
    let Some((pinfold, user)) = unshared_user() else { return };
    let daemon = pinfold.daemon_pid();
    assert_eq!(pinfold.run("echo fine").1, "fine\n");
    let before = soft_limit(daemon, "Max open files");
    limit(user, daemon, &format!("--nofile={}:", first_free(daemon)));
    for _ in 0..5 {
        let cli = pinfold.cli(&["--json", "ps"]);
        let error: ApiError = serde_json::from_str(&cli.stderr).unwrap_or_else(|bad| panic!("{bad}: {cli:?}"));
        assert_eq!((cli.code, error.code), (Some(1), ErrorCode::ResourceShortage));
        assert!(error.message.contains("ulimit -n"), "{}", error.message);
    }
    // Existing connections continue to work.
    assert_eq!(pinfold.daemon_pid(), daemon);
    limit(user, daemon, &format!("--nofile={before}:"));
    assert_eq!(pinfold.cli(&["ps"]).code, Some(0));
    assert_eq!(log(&pinfold).matches("cannot accept connections").count(), 1, "{}", log(&pinfold));
}

/// A limit in `/proc/PID/limits`.
fn soft_limit(pid: u32, name: &str) -> String {
    let limits = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("limits")).expect("limits");
    let line = limits.lines().find(|line| line.starts_with(name)).expect("that limit");
    line[name.len()..].split_ascii_whitespace().next().expect("a value").to_owned()
}
