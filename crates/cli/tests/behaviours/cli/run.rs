//! `pinfold run`.

use std::process::{Command, Stdio};

use pinfold_api::types::{Cause, ListQuery, Outcome, Status, WaitQuery, WaitReason};
use pinfold_testkit::{Pinfold, Setup, Terminal, alive, until};

use crate::PINFOLD;
use crate::clients::Running;

#[test]
fn run_streams_and_exits_with_the_code() {
    let pinfold = Pinfold::prepare(PINFOLD, Setup::default());
    let gate = pinfold.home().join("gate");
    let command =
        format!("echo first; while [ ! -e {} ]; do sleep 0.01; done; echo second >&2; exit 7", gate.display());
    let mut client = Running::start(&pinfold, &["run", &command]);
    assert_eq!(client.line(), "first", "shown while it runs");
    std::fs::write(gate, "").expect("an open gate");
    let cli = client.end();
    assert_eq!((cli.code, cli.stdout.as_str(), cli.stderr.as_str()), (Some(7), "second\n", ""));

    let cli = pinfold.cli(&["run", "--streams", "separate", "echo out; echo err >&2"]);
    assert_eq!((cli.code, cli.stdout.as_str(), cli.stderr.as_str()), (Some(0), "out\n", "err\n"));
    let cli = pinfold.cli(&["run", "--", "printf", "%s\n", "two words", "$HOME"]);
    assert_eq!(cli.stdout, "two words\n$HOME\n", "several words are a program, without a shell");
}

#[test]
fn run_exits_with_the_codes_that_shells_use() {
    let pinfold = Pinfold::start(PINFOLD);
    for (arguments, code, said) in [
        (&["run", "kill -9 $$"][..], 137, ""),
        (&["run", "kill -TERM $$"], 143, ""),
        (&["run", "definitely-not-a-command"], 127, ""),
        (&["run", "--", "definitely-not-a-command", "x"], 127, "definitely-not-a-command"),
        (&["run", "--", "/etc/passwd", "x"], 126, "/etc/passwd"),
        (&["run", "--cwd", "/no/such/directory", "true"], 125, "/no/such/directory"),
        (&["run", "--shell", "/no/shell", "true"], 127, "/no/shell"),
        (&["run", "--time-limit", "200ms", "sleep 300"], 143, "time limit"),
        (&["run", "--timeout", "100ms", "sleep 300"], 124, "still running"),
    ] {
        let cli = pinfold.cli(arguments);
        assert_eq!(cli.code, Some(code), "{arguments:?}: {}", cli.stderr);
        assert!(cli.stderr.contains(said), "{arguments:?}: {}", cli.stderr);
    }
    assert_eq!(pinfold.list(&ListQuery { status: Some("live".into()), ..ListQuery::default() }).total, 1);
}

#[test]
fn run_gives_the_callers_environment_and_directory() {
    let pinfold = Pinfold::start(PINFOLD);
    let print = "echo \"$FROM_CALLER|$OVER|${GONE-unset}|$PWD\"";
    let mut command = pinfold.command(&["run", "-e", "OVER=asked", "--unset", "GONE", print]);
    command.env("FROM_CALLER", "here").env("OVER", "caller").env("GONE", "caller").current_dir("/usr");
    let output = command.env_remove("PWD").output().expect("pinfold");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "here|asked|unset|/usr\n");
    assert_eq!(pinfold.cli(&["run", "--cwd", "/tmp", "pwd"]).stdout, "/tmp\n");
}

#[test]
fn run_passes_bytes_on_exactly() {
    let pinfold = Pinfold::start(PINFOLD);
    let copy = pinfold.home().join("copy");
    let script = format!("head -c 3000000 /dev/urandom | tee {}", copy.display());
    let output = pinfold.command(&["run", &script]).output().expect("pinfold");
    assert!(output.stdout == std::fs::read(copy).expect("a copy"), "{} bytes came", output.stdout.len());
}

#[test]
fn run_detached_prints_the_id_and_returns() {
    let pinfold = Pinfold::prepare(PINFOLD, Setup::default());
    let cli = pinfold.cli(&["run", "-d", "--name", "web", "--owner", "chat-7", "--label", "a=b", "sleep 300"]);
    let record = pinfold.show("web");
    assert_eq!((cli.code, cli.stdout, cli.stderr.as_str()), (Some(0), format!("{}\n", record.id), ""));
    assert_eq!((record.status, record.owner.as_str(), record.labels["a"].as_str()), (Status::Running, "chat-7", "b"));
}

#[test]
fn run_with_a_used_key_shows_the_existing_process() {
    let pinfold = Pinfold::start(PINFOLD);
    for _ in 0..2 {
        let cli = pinfold.cli(&["run", "--key", "build", "echo $PINFOLD_ID | tee -a /dev/null; exit 6"]);
        assert_eq!(
            (cli.code, cli.stdout.trim()),
            (Some(6), pinfold.list(&ListQuery::default()).processes[0].id.as_str())
        );
    }
    assert_eq!(pinfold.list(&ListQuery::default()).total, 1);
}

#[test]
fn run_leaves_strays_to_the_daemon() {
    let pinfold = Pinfold::start(PINFOLD);
    let cli = pinfold.cli(&["run", "setsid sleep 300 & echo $PINFOLD_ID; exit 2"]);
    assert_eq!(cli.code, Some(2));
    let record = pinfold.show(cli.stdout.trim());
    assert_eq!((record.status, record.tree.len()), (Status::Lingering, 1));
}

/// The first Ctrl-C is passed to the command, the second stops the whole tree.
#[test]
fn ctrl_c_is_passed_on_and_a_second_one_stops_the_tree() {
    let pinfold = Pinfold::start(PINFOLD);
    let command = "trap 'echo got INT' INT; trap 'exit 5' TERM; setsid sleep 300 & echo $PINFOLD_ID; \
                   while :; do sleep 0.05; done";
    let mut client = Running::start(&pinfold, &["run", command]);
    let id = client.line();
    let stray = pinfold.show(&id).tree.iter().find(|member| member.command == "sleep 300").map(|member| member.pid);
    client.signal_group(2);
    assert_eq!(client.line(), "got INT");
    // It continues; presses in quick succession count as one.
    let later = WaitQuery { timeout: Some("300ms".into()), ..WaitQuery::default() };
    assert_eq!(pinfold.wait(&id, &later).reason, WaitReason::Timeout);
    client.signal_group(2);
    assert_eq!(client.end().code, Some(5));
    let record = pinfold.show(&id);
    assert_eq!((record.status, record.outcome), (Status::Finished, Some(Outcome::Exited { code: 5 })));
    assert_eq!(record.cause, Some(Cause::StopRequested));
    assert!(!stray.is_some_and(alive), "a stray is left");
}

/// If the reader of its output closes, a foreground command ends, without an error message.
#[test]
fn a_closed_pipe_on_stdout_is_not_an_error() {
    let pinfold = Pinfold::start(PINFOLD);
    (0..30).for_each(|_| drop(pinfold.sh("exit 0")));
    let text = pinfold.sh("seq 1 200000; exit 0").id;
    pinfold.wait_finished(&text);
    let head = |command: &str| {
        let script = format!("{{ {PINFOLD} {command}; echo code $? >&2; }} | head -1");
        let home = ("PINFOLD_HOME", pinfold.home());
        let output = Command::new("sh").args(["-c", &script]).env(home.0, home.1).stdin(Stdio::null()).output();
        let output = output.expect("sh");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 1, "{command}");
        assert!(stderr == "code 0\n" || stderr == "code 141\n", "{command}: {stderr}");
    };
    for command in ["ps --all", "ps --json", "events", "events --json", "completions bash", "man", "doctor", "config"] {
        head(command);
    }
    head(&format!("logs {text}"));
    head(&format!("logs -f {text}"));
    head(&format!("logs --strip-ansi {text}"));
    head("run yes");
    until("yes ends with its reader", || {
        pinfold.list(&ListQuery { status: Some("live".into()), ..ListQuery::default() }).total == 0
    });
}

#[test]
fn a_terminal_shows_what_run_waits_for_until_there_is_output() {
    let pinfold = Pinfold::start(PINFOLD);
    let go = pinfold.home().join("go");
    let command = format!("until [ -e {} ]; do sleep 0.05; done; echo first", go.display());
    let mut command = pinfold.command(&["run", &command]);
    let mut terminal = Terminal::start(command.env("TERM", "xterm"), 24, 100).expect("a terminal");
    let waiting = terminal.until("no output for");
    assert!(waiting.contains("\x1b7"), "{waiting:?}");
    std::fs::write(&go, "").expect("written");
    let output = terminal.until("first");
    let (_, after) = output.rsplit_once("\x1b8\x1b[J").expect("the line is erased");
    assert_eq!(after.trim(), "first", "{output:?}");
    assert_eq!(terminal.wait().code(), Some(0));
}

#[test]
fn quit_leaves_the_process_running() {
    let pinfold = Pinfold::start(PINFOLD);
    let mut terminal = Terminal::start(&mut pinfold.command(&["run", "--name", "web", "echo up; sleep 300"]), 24, 100)
        .expect("a terminal");
    terminal.until("up");
    let status = Command::new("kill").args(["-QUIT", &terminal.pid().to_string()]).status().expect("kill");
    assert!(status.success());
    terminal.until("pinfold stop");
    assert_eq!(terminal.wait().code(), Some(131));
    assert!(pinfold.show("web").outcome.is_none());
}
