//! What the other commands do and print.

use pinfold_api::types::{ListQuery, Outcome, Status};
use pinfold_testkit::{Pinfold, Setup, alive, until};

use crate::PINFOLD;
use crate::clients::Running;

#[test]
fn output_is_plain_where_no_terminal_reads_it() {
    let pinfold = Pinfold::start(PINFOLD);
    let id = pinfold.run("printf 'plain\\n'; exit 3").0.id;
    pinfold.sh("sleep 300");
    for arguments in
        [&["ps"][..], &["show", &id], &["wait", &id], &["logs", &id], &["events"], &["doctor"], &["daemon", "status"]]
    {
        let cli = pinfold.cli(arguments);
        assert!(!cli.stdout.contains('\x1b') && !cli.stderr.contains('\x1b'), "{arguments:?}: {cli:?}");
    }
    let ps = pinfold.cli(&["ps"]).stdout;
    let lines: Vec<_> = ps.lines().collect();
    assert!(lines.len() == 3 && lines[0].starts_with("ID") && lines[0].ends_with("COMMAND"), "{ps}");
    assert!(lines[1].contains("running") && lines[1].ends_with("sleep 300"), "{ps}");
    assert!(lines[2].starts_with(&id) && lines[2].contains("exit 3"), "{ps}");
}

#[test]
fn ps_filters_and_says_when_there_is_more() {
    let pinfold = Pinfold::start(PINFOLD);
    for number in 0..25 {
        let owner = if number < 5 { "ann" } else { "bob" };
        pinfold.cli(&["run", "--owner", owner, "--label", &format!("parity={}", number % 2), "exit 0"]);
    }
    let rows =
        |arguments: &[&str]| pinfold.cli(arguments).stdout.lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
    let shown = rows(&["ps"]);
    assert!(shown.len() == 21 && shown[20].contains("5 more") && shown[20].contains("--all"), "{shown:?}");
    assert_eq!(rows(&["ps", "--all"]).len(), 25);
    assert_eq!(rows(&["ps", "--owner", "ann"]).len(), 5);
    assert_eq!(rows(&["ps", "--owner", "ann", "--label", "parity=1"]).len(), 2);
    assert_eq!(pinfold.cli(&["ps", "--status", "live"]).stdout, "no processes\n");
}

#[test]
fn logs_follow_until_nothing_more_can_come() {
    let pinfold = Pinfold::start(PINFOLD);
    let gate = pinfold.home().join("gate");
    let wait = format!("while [ ! -e {} ]; do sleep 0.01; done", gate.display());
    let id = pinfold.sh(&format!("echo one; echo two; ({wait}; echo stray) & {wait}; echo three; exit 0")).id;
    let mut follower = Running::start(&pinfold, &["logs", "-f", &id]);
    let mut tail = Running::start(&pinfold, &["logs", "-f", "--grep", "t", &id]);
    assert_eq!([follower.line(), follower.line()], ["one", "two"]);
    assert_eq!(tail.line(), "two");
    std::fs::write(gate, "").expect("an open gate");
    let rest = follower.end();
    let mut lines: Vec<_> = rest.stdout.lines().collect();
    lines.sort_unstable();
    assert_eq!((rest.code, lines), (Some(0), vec!["stray", "three"]));
    assert_eq!(tail.end().stdout.lines().count(), 2);
    assert_eq!(pinfold.cli(&["logs", "--tail", "1", &id]).stdout.lines().count(), 1);
    assert_eq!(pinfold.cli(&["logs", "--grep", "^on", "-C", "1", &id]).stdout, "one\ntwo\n");
}

/// A client that follows output survives the death of the daemon.
#[test]
fn a_follower_outlives_the_daemon() {
    let pinfold = Pinfold::start(PINFOLD);
    let gate = pinfold.home().join("gate");
    let id =
        pinfold.sh(&format!("echo one; while [ ! -e {} ]; do sleep 0.01; done; echo two; exit 4", gate.display())).id;
    let mut logs = Running::start(&pinfold, &["logs", "-f", &id]);
    let wait = Running::start(&pinfold, &["wait", &id]);
    let mut events = Running::start(&pinfold, &["events", "-f", "--after", "0", "--json"]);
    assert_eq!(logs.line(), "one");
    assert!(events.line().contains("started"));
    pinfold.crash_and_restart();
    std::fs::write(gate, "").expect("an open gate");
    assert_eq!(logs.end().stdout, "two\n");
    assert_eq!(wait.end().code, Some(4));
    until("the end is reported", || events.line().contains("finished"));
}

#[test]
fn wait_exits_with_what_it_waited_for() {
    let pinfold = Pinfold::start(PINFOLD);
    let gate = pinfold.home().join("gate");
    let wait = format!("while [ ! -e {} ]; do sleep 0.01; done", gate.display());
    let late = pinfold.sh(&format!("echo ready; {wait}; exit 9")).id;
    let (good, bad) = (pinfold.sh("exit 0").id, pinfold.sh("exit 3").id);
    let code = |arguments: &[&str]| pinfold.cli(&[&["wait"], arguments].concat()).code;
    assert_eq!(code(&[&bad]), Some(3));
    assert_eq!(code(&[&good, &bad]), Some(1));
    assert_eq!(code(&["--any", &late, &good]), Some(0));
    assert_eq!(code(&["--pattern", "read", &late]), Some(0));
    assert_eq!(code(&["--timeout", "10ms", &late]), Some(124));
    assert_eq!(code(&["--timeout", "10ms", &late, &good]), Some(124));
    assert_eq!(code(&["--pattern", "never", &bad]), Some(1), "it ended before");
    let waiting = Running::start(&pinfold, &["wait", &late]);
    std::fs::write(gate, "").expect("an open gate");
    let waited = waiting.end();
    assert!(
        waited.code == Some(9) && waited.stdout.contains("exit 9") && waited.stdout.contains("| ready"),
        "{waited:?}"
    );
}

#[test]
fn stop_signal_pause_and_resume_act_on_whole_trees() {
    let pinfold = Pinfold::start(PINFOLD);
    let start = |name: &str, owner: &str| {
        let command = "trap 'echo got USR1' USR1; setsid sleep 300 & while :; do sleep 0.02; done";
        pinfold.cli(&["run", "-d", "--name", name, "--owner", owner, command]).stdout.trim().to_owned()
    };
    let web = start("web", "ann");
    until("a tree", || pinfold.tree(&web).len() >= 2);
    // The stray does not handle the signal, and ends by it.
    assert!(pinfold.cli(&["signal", "usr1", "web"]).stdout.contains("USR1 reached"));
    until("the signal arrives", || pinfold.text(&web).contains("got USR1"));
    let paused = pinfold.cli(&["pause", "web"]);
    assert!(paused.code == Some(0) && paused.stdout.contains("paused"), "{paused:?}");
    assert!(pinfold.cli(&["ps"]).stdout.contains("running, paused"));
    assert_eq!(pinfold.cli(&["resume", "web"]).code, Some(0));
    assert!(!pinfold.cli(&["ps"]).stdout.contains("paused"));

    let others = [start("a", "bob"), start("b", "bob"), start("c", "eve")];
    until("trees", || others.iter().all(|id| pinfold.tree(id).len() >= 2));
    let pids: Vec<_> = others.iter().chain([&web]).flat_map(|id| pinfold.tree(id)).collect();
    let stopped = pinfold.cli(&["stop", "web"]);
    assert!(stopped.code == Some(0) && stopped.stdout.contains("(stopped)"), "{stopped:?}");
    assert_eq!(
        pinfold.cli(&["stop", &web]).stdout.lines().filter(|line| line.contains("had already ended")).count(),
        1
    );
    assert_eq!(pinfold.cli(&["signal", "TERM", &web]).code, Some(2), "nothing is left to signal");
    assert_eq!(pinfold.cli(&["stop", "--owner", "bob"]).stdout.lines().count(), 2);
    assert_eq!(pinfold.show("c").status, Status::Running);
    assert_eq!(pinfold.cli(&["stop", "--all"]).code, Some(0));
    assert!(pinfold.cli(&["stop", "--all"]).stderr.contains("nothing to stop"));
    assert!(!pids.into_iter().any(alive));
}

/// `daemon run`, as a service manager uses it.
#[test]
fn daemon_run_says_when_it_is_ready_and_ends_when_asked() {
    let pinfold = Pinfold::prepare(PINFOLD, Setup::default());
    let mut daemon = Running::start(&pinfold, &["daemon", "run"]);
    let ready = daemon.line();
    assert!(ready.starts_with("pinfold daemon ") && ready.ends_with(pinfold.client().socket().to_str().expect("text")));
    assert_eq!(pinfold.run("exit 4").0.outcome, Some(Outcome::Exited { code: 4 }), "it answers at once");
    daemon.signal(15);
    assert_eq!(daemon.end().code, Some(0));
    assert!(!pinfold.client().socket().exists());
}

#[test]
fn gc_removes_what_ended_and_nothing_else() {
    let pinfold = Pinfold::start(PINFOLD);
    let (ended, live) = (pinfold.run("echo gone soon").0.id, pinfold.sh("sleep 300").id);
    pinfold.wait_finished(&ended);
    let dry = pinfold.cli(&["gc", "--older-than", "0", "--dry-run"]);
    assert!(dry.stdout.starts_with("would remove 1 process") && dry.stdout.contains(&ended), "{dry:?}");
    assert!(pinfold.directory(&ended).exists());
    assert!(pinfold.cli(&["gc"]).stdout.starts_with("removed 0 processes"), "retention is a week");
    assert!(pinfold.cli(&["gc", "--older-than", "0"]).stdout.contains(&ended));
    assert!(!pinfold.directory(&ended).exists());
    assert_eq!(pinfold.cli(&["show", &ended]).code, Some(2));
    assert_eq!(pinfold.show(&live).status, Status::Running);
    assert_eq!(pinfold.list(&ListQuery::default()).total, 1);
}
