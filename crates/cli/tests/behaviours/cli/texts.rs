//! Texts for people: warnings, suggestions, and errors with the right words.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use pinfold_testkit::{Cli, Pinfold, Setup, Terminal};

use crate::PINFOLD;
use crate::wire::{send, send_raw};

#[test]
fn wait_prints_what_fits() {
    let pinfold = Pinfold::start(PINFOLD);
    for command in ["head -c 60000 /dev/zero", "head -c 60000 /dev/zero | tr '\\0' x", "seq 1000 | tr '\\n' '\\1'"] {
        let (record, _) = pinfold.run(command);
        let cli = pinfold.cli(&["wait", &record.id]);
        assert_eq!(cli.code, Some(0));
        assert!(cli.stdout.len() < 2000, "{command}: {} bytes", cli.stdout.len());
        assert!(cli.stdout.chars().all(|c| c == '\n' || !c.is_control()), "{command}: {:?}", cli.stdout);
    }
    let (record, _) = pinfold.run("seq 20");
    assert!(pinfold.cli(&["wait", &record.id]).stdout.ends_with("  | 16\n  | 17\n  | 18\n  | 19\n  | 20\n"));
}

#[test]
fn variables_that_cannot_be_passed_on_are_named() {
    let pinfold = Pinfold::start(PINFOLD);
    let run = |more: &[&str]| {
        let mut command = pinfold.command(&[&["run"], more, &["echo ${BAD-unset} $GOOD"]].concat());
        command.env("BAD", OsStr::from_bytes(b"caf\xe9")).env("GOOD", "good");
        Cli::from(command.output().expect("pinfold"))
    };
    let cli = run(&[]);
    assert_eq!((cli.code, cli.stdout.as_str()), (Some(0), "unset good\n"));
    assert_eq!(cli.stderr, "pinfold: not passed on because its value is not UTF-8: BAD\n");
    let json = run(&["--json"]);
    assert!(json.stderr.is_empty() && json.stdout.contains("its value is not UTF-8: BAD"), "{json:?}");
    assert_eq!(run(&["--unset", "BAD"]).stderr, "");
    let set = run(&["-e", "BAD=text"]);
    assert_eq!((set.stdout.as_str(), set.stderr.as_str()), ("text good\n", ""));
}

#[test]
fn a_name_of_two_live_processes_is_warned_about() {
    let pinfold = Pinfold::start(PINFOLD);
    let first = pinfold.cli(&["run", "-d", "--name", "web", "sleep 300"]);
    assert_eq!(first.stderr, "");
    let second = pinfold.cli(&["run", "-d", "--name", "web", "sleep 301"]);
    let (one, two) = (first.stdout.trim(), second.stdout.trim());
    assert_eq!(second.code, Some(0));
    assert!(second.stderr.contains(one) && second.stderr.contains("named `web` too"), "{}", second.stderr);
    let stop = pinfold.cli(&["stop", "web"]);
    assert_eq!(stop.code, Some(2));
    assert!(stop.stderr.contains(one) && stop.stderr.contains(two), "{}", stop.stderr);
    // A process of another owner causes no warning; over HTTP it is a hint.
    assert_eq!(pinfold.cli(&["run", "-d", "--owner", "bob", "--name", "web", "sleep 302"]).stderr, "");
    let json = pinfold.cli(&["run", "-d", "--json", "--name", "web", "sleep 303"]);
    assert!(json.stderr.is_empty() && json.stdout.contains("named `web` too"), "{json:?}");
}

#[test]
fn what_was_probably_meant_is_suggested() {
    let pinfold = Pinfold::start(PINFOLD);
    let id = pinfold.cli(&["run", "-d", "--name", "backend", "sleep 300"]).stdout.trim().to_owned();
    let (over, _) = pinfold.run("true");
    let said = |arguments: &[&str]| {
        let cli = pinfold.cli(arguments);
        assert_eq!(cli.code, Some(2), "{cli:?}");
        cli.stderr
    };
    assert!(said(&["show", "bakcend"]).contains("did you mean `backend`?"));
    let mistyped: String = id.chars().rev().enumerate().map(|(at, c)| if at == 0 { '_' } else { c }).collect();
    let mistyped: String = mistyped.chars().rev().collect();
    assert!(said(&["logs", &mistyped]).contains(&format!("did you mean `{id}`?")), "{mistyped}");
    assert!(said(&["stop", "something-else"]).contains("pinfold ps --all"));
    assert!(said(&["sotp", "backend"]).contains("'stop'"));
    // This does not reveal the names of other owners' processes.
    assert!(!said(&["--as", "bob", "show", "bakcend"]).contains("backend"));
    pinfold.stop("backend");
    assert!(said(&["show", "bakcend"]).contains("did you mean `backend`?"), "it ended");
    assert!(pinfold.cli(&["show", "backend"]).stdout.contains(&id), "a name also finds what ended");
    assert!(pinfold.cli(&["show", &over.id]).code == Some(0));
}

#[test]
fn errors_of_run_speak_of_its_options() {
    let pinfold = Pinfold::start(PINFOLD);
    for (arguments, said) in [
        (&["--key", "", "true"][..], "`--key` is empty: give 1 to 128 bytes"),
        (&["--key", &"k".repeat(129), "true"], "`--key` is longer than 128 bytes"),
        (&["--output-limit", "5", "true"], "--output-limit 5 is too small"),
        (&["--owner-grace", "5s", "true"], "`--owner-grace` needs a `--lifetime`"),
        (&["--cwd", "/no/such", "true"], "the directory `/no/such` cannot be entered"),
        (&["--ready-port", "0", "true"], "--ready-port 0 is not a port"),
        (&[" "], "the command is empty"),
        (&["--", "no-such-program", "x"], "run it through a shell with `-c`"),
    ] {
        let cli = pinfold.cli(&[&["run"], arguments].concat());
        assert!(matches!(cli.code, Some(125..=127)), "{arguments:?}: {cli:?}");
        assert!(cli.stderr.contains(said), "{arguments:?}: {}", cli.stderr);
        assert!(!cli.stderr.contains("idempotency_key") && !cli.stderr.contains("output_limit"), "{}", cli.stderr);
    }
    for (arguments, said) in [
        (&["ps", "--status", "dancing"][..], "--status `dancing`"),
        (&["events", "--after", "yesterday"], "--after `yesterday`"),
        (&["wait", "--until", "match", "missing"], "no process `missing`"),
    ] {
        let cli = pinfold.cli(arguments);
        assert!(cli.stderr.contains(said), "{arguments:?}: {}", cli.stderr);
    }
    let json = pinfold.cli(&["run", "--json", "--key", "", "true"]);
    assert!(json.stderr.contains("`idempotency_key` is empty"), "programs read fields: {}", json.stderr);
}

#[test]
fn a_body_that_cannot_be_read_is_not_called_large() {
    let pinfold = Pinfold::start(PINFOLD);
    for route in ["/v1/processes", "/api/v0/processes/start"] {
        let head =
            format!("POST {route} HTTP/1.1\r\nHost: p\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n");
        for chunks in ["zz\r\nhello\r\n", "5\r\n{\"com", "5;\r\n{\"coXX0\r\n\r\n"] {
            let answer = send_raw(&pinfold, format!("{head}{chunks}").as_bytes());
            let answer = String::from_utf8_lossy(&answer);
            assert!(!answer.contains("larger") && !answer.contains(" 413 "), "{chunks:?}: {answer}");
            assert!(answer.is_empty() || answer.contains(" 400 "), "{chunks:?}: {answer}");
        }
    }
    let large = send(&pinfold, "POST", "/v1/processes", &vec![b' '; (8 << 20) + 1]);
    assert_eq!(large.status, 413, "{large:?}");
}

#[test]
fn an_error_for_a_wrong_value_says_what_is_accepted() {
    let pinfold = Pinfold::start(PINFOLD);
    for (field, value, said) in [
        ("grace", "[1]", "expected a duration"),
        ("output_limit", "true", "expected a size"),
        ("pty", "\"yes\"", "expected for `pty`: true, false"),
        ("restart", "7", "\\\"on_failure\\\""),
        ("ports", "{\"PORT\":[]}", "expected a port"),
    ] {
        let body = format!("{{\"command\":\"true\",\"{field}\":{value}}}");
        let answer = send(&pinfold, "POST", "/v1/processes", body.as_bytes());
        assert_eq!(answer.status, 400, "{answer:?}");
        assert!(answer.body.contains(said) && !answer.body.contains("untagged"), "{}", answer.body);
    }
    let bad = Pinfold::prepare(PINFOLD, Setup { config: "grace = [1]\n".into(), ..Setup::default() });
    let cli = bad.cli(&["config"]);
    assert!(cli.stderr.contains("expected a number, or text with a unit"), "{cli:?}");
}

#[test]
fn a_too_long_home_path_is_reported_as_such_and_not_as_a_full_disk() {
    let pinfold = Pinfold::prepare(PINFOLD, Setup::default());
    let home = pinfold.home().join("x".repeat(100));
    let home = home.to_str().expect("text");
    let cli = pinfold.cli(&["--home", home, "run", "--ready-peer", "true"]);
    let stopped = pinfold.cli(&["--home", home, "daemon", "stop", "--all"]);
    assert_eq!(stopped.code, Some(0), "{stopped:?}");
    assert_eq!(cli.code, Some(125), "{cli:?}");
    assert!(cli.stderr.contains("set PINFOLD_HOME to a shorter directory"), "{}", cli.stderr);
    assert!(!cli.stderr.contains("space"), "{}", cli.stderr);
}

#[test]
fn a_stopped_daemon_says_that_one_process_keeps_running() {
    let pinfold = Pinfold::start(PINFOLD);
    pinfold.sh("sleep 300");
    let cli = pinfold.cli(&["daemon", "stop"]);
    assert_eq!(cli.stdout, "daemon stopped; 1 process keeps running\n");
    pinfold.start_daemon();
}

#[test]
fn the_manual_is_a_page_on_a_terminal_and_roff_in_a_pipe() {
    let pinfold = Pinfold::prepare(PINFOLD, Setup::default());
    assert!(pinfold.cli(&["man"]).stdout.contains(".TH pinfold"));
    let shown = |path: Option<&str>| {
        let mut command = pinfold.command(&["man"]);
        command.env("MANPAGER", "cat").env("PAGER", "cat").env("TERM", "dumb");
        path.map(|path| command.env("PATH", path));
        let mut terminal = Terminal::start(&mut command, 50, 100).expect("a terminal");
        let text = terminal.until("pinfold stop web");
        assert!(terminal.wait().success());
        text
    };
    let page = shown(None);
    assert!(!page.contains(".TH"), "{page}");
    let help = shown(Some("/nowhere"));
    assert!(help.contains("Usage:") && !help.contains(".TH"), "{help}");
}
