//! `agent loop`: a worker, a reviewer, a limit; a finished turn is never run twice, whatever is killed.

use std::process::Stdio;

use pinfold_testkit::{Pidfd, until};

use super::Host;

/// The arguments of a loop with the fake on both sides.
fn arguments(host: &Host, limit: &str) -> Vec<String> {
    let text = |path: &std::path::Path| path.to_string_lossy().into_owned();
    let (program, work, dir) = (host.program(), text(&host.work), text(&host.work.join("loop")));
    let line =
        ["agent", "loop", "--task", "write the thing", "--worker", "codex", "--reviewer", "codex", "--limit", limit];
    let mut all: Vec<String> = line.iter().map(|word| (*word).to_owned()).collect();
    all.extend(["--program".into(), program, "--cwd".into(), work, "--dir".into(), dir]);
    all
}

fn run(host: &Host, arguments: &[String]) -> pinfold_testkit::Cli {
    host.pinfold.cli(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
}

fn transcript(host: &Host) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(host.work.join("loop/transcript.jsonl")).expect("a transcript");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn roles(host: &Host) -> Vec<String> {
    transcript(host)
        .iter()
        .map(|entry| format!("{}{}", entry["iteration"], &entry["role"].as_str().expect("a role")[..1]))
        .collect()
}

#[test]
fn a_loop_ends_when_the_reviewer_passes_it() {
    let host = Host::start();
    let done = run(&host, &arguments(&host, "5"));
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.stdout.contains("passed after 2 of 5"), "{done:?}");
    assert_eq!(roles(&host), ["1w", "1r", "2w", "2r"]);
    let second = transcript(&host)[2]["prompt"].as_str().expect("a prompt").to_owned();
    assert!(second.contains("- a test is missing") && second.contains("write the thing"), "{second}");
    let readable = std::fs::read_to_string(host.work.join("loop/transcript.md")).expect("a transcript");
    assert!(
        readable.contains("## 2 reviewer: completed") && readable.contains("Passed after 2 of 5 iterations."),
        "{readable}"
    );
    let agents = host.pinfold.cli(&["agent", "ps"]);
    assert_eq!(agents.stdout, "no agents\n", "both are stopped");
}

#[test]
fn a_loop_ends_at_its_limit() {
    let host = Host::start();
    let done = run(&host, &arguments(&host, "1"));
    assert_eq!(done.code, Some(3), "{done:?}");
    assert!(done.stdout.contains("not passed after 1"), "{done:?}");
    let again = run(&host, &arguments(&host, "1"));
    assert_eq!(again.code, Some(2), "a directory holds one loop: {again:?}");
}

#[test]
fn a_loop_is_resumed_after_a_crash_of_anything_and_runs_no_finished_turn_twice() {
    let host = Host::start();
    // The worker's second turn waits behind a gate.
    let line = arguments(&host, "5");
    let mut command = host.pinfold.command(&line.iter().map(String::as_str).collect::<Vec<_>>());
    host.touch("gate");
    let mut first = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("a loop");
    host.until_asked(1);
    Pidfd::open(first.id()).expect("it lives").kill();
    first.wait().expect("it ended");
    host.pinfold.crash_and_restart();
    host.touch("opened");
    let resume = [
        "agent",
        "loop",
        "--resume",
        &host.work.join("loop").to_string_lossy(),
        "--program",
        &host.program(),
        "--cwd",
        &host.work.to_string_lossy(),
    ]
    .map(str::to_owned);
    let done = run(&host, &resume);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(roles(&host), ["1w", "1r", "2w", "2r"]);
    assert_eq!(host.asked().len(), 4, "{:?}", host.asked());
    // Resuming a finished loop prints its result, and runs no turn.
    let again = run(&host, &resume);
    assert!(again.code == Some(0) && again.stdout.contains("passed after 2"), "{again:?}");
    assert_eq!(host.asked().len(), 4);
    until("all are stopped", || host.pinfold.cli(&["agent", "ps"]).stdout == "no agents\n");
}
