//! Processes on a pseudoterminal.

use pinfold_api::error::ErrorCode;
use pinfold_api::types::{
    EventKind, InputRequest, Outcome, PtySize, ResizeRequest, StartRequest, Stdin, Streams, WaitQuery, WaitReason,
};
use pinfold_testkit::{Pinfold, Setup, Terminal, until, until_some};
use serde_json::json;

use super::{eof, input, keys, line, on_terminal, open, screen, text, try_input, until_shown};
use crate::PINFOLD;
use crate::mcp::agent::Agent;
use crate::requests::{ordinary_user, request, until_said};

#[test]
fn tty_true() {
    for pinfold in [Pinfold::start(PINFOLD), ordinary_user()] {
        let command = "test -t 0 && test -t 1 && test -t 2 && echo three; tty; stty size; echo $TERM; \
                       trap 'stty size' WINCH; while :; do sleep 0.1; done";
        let record = pinfold.start_request(&on_terminal(command)).record;
        assert_eq!(record.pty, Some(PtySize { rows: 24, cols: 80 }));
        let shown = until_shown(&pinfold, &record.id, "xterm-256color");
        assert_eq!((shown.lines[0].as_str(), shown.lines[2].as_str()), ("three", "24 80"));
        let asked = ResizeRequest { rows: 30, cols: 101 };
        let shown = pinfold.block(pinfold.client().resize(&record.id, &asked)).expect("a size");
        assert_eq!(shown.size, PtySize { rows: 30, cols: 101 });
        until_shown(&pinfold, &record.id, "30 101");
        assert_eq!(pinfold.show(&record.id).pty, Some(PtySize { rows: 30, cols: 101 }));
        pinfold.crash_and_restart();
        assert_eq!(screen(&pinfold, &record.id).size, PtySize { rows: 30, cols: 101 });
        assert!(pinfold.stop(&record.id).survivors.is_empty());
    }
}

#[test]
fn pty_same_as_pipe() {
    let pinfold = Pinfold::start(PINFOLD);
    let record = pinfold.start_request(&on_terminal("kill -9 $$")).record;
    let outcome = pinfold.wait_finished(&record.id).outcome;
    assert!(matches!(outcome, Some(Outcome::Signaled { signal: 9, .. })), "{outcome:?}");
    let record = pinfold.start_request(&on_terminal("echo last words; exit 7")).record;
    let ended = pinfold.wait_finished(&record.id);
    assert_eq!((ended.outcome, ended.output.closed), (Some(Outcome::Exited { code: 7 }), true));
    assert_eq!(pinfold.text(&record.id), "last words\r\n");
    let command = "nohup sleep 300 >/dev/null 2>&1 & setsid sleep 301 & sleep 302 & wait";
    let record = pinfold.start_request(&on_terminal(command)).record;
    until("all of them run", || pinfold.tree(&record.id).len() == 4);
    let stopped = pinfold.stop(&record.id);
    assert!(stopped.survivors.is_empty(), "{stopped:?}");
    assert!(pinfold.tree(&record.id).is_empty());
}

#[test]
fn strays_hold_the_terminal_after_the_leader() {
    let pinfold = Pinfold::start(PINFOLD);
    // It must have its own session first: when the leader exits, the foreground group gets SIGHUP.
    let up = pinfold.home().join("up").display().to_string();
    let stray = format!("touch {up}; read x; echo got $x; exec sleep 300");
    let command = format!("t=$(tty); setsid sh -c '{stray}' <$t & until [ -e {up} ]; do sleep 0.1; done; echo ready");
    let record = pinfold.start_request(&on_terminal(&command)).record;
    assert_eq!(pinfold.wait_exit(&record.id).outcome, Some(Outcome::Exited { code: 0 }));
    assert!(!pinfold.show(&record.id).output.closed);
    input(&pinfold, &record.id, &line("it"));
    until_said(&pinfold, &record.id, "got it");
    assert!(pinfold.stop(&record.id).survivors.is_empty());
}

#[test]
fn options_that_a_terminal_excludes_are_refused_by_name() {
    let pinfold = Pinfold::start(PINFOLD);
    let refused = |request: StartRequest| {
        let error = pinfold.try_start(&request).expect_err("refused");
        assert_eq!(error.code, ErrorCode::InvalidRequest);
        error.message
    };
    assert!(refused(StartRequest { stdin: Some(Stdin::Pipe), ..on_terminal("true") }).contains("`stdin`"));
    assert!(refused(StartRequest { streams: Some(Streams::Separate), ..on_terminal("true") }).contains("`streams`"));
    let sized = |rows, cols| StartRequest {
        pty: Some(pinfold_api::types::Pty::Sized(PtySize { rows, cols })),
        ..request("true")
    };
    assert!(refused(sized(0, 80)).contains("0 rows") && refused(sized(24, 9999)).contains("9999 columns"));
    let plain = pinfold.sh("exec sleep 300");
    let error = pinfold.block(pinfold.client().screen(&plain.id)).expect_err("no terminal");
    assert!(error.to_string().contains("--pty"), "{error}");
    assert_eq!(pinfold.cli(&["run", "--pty", "--stdin", "true"]).code, Some(125));
    assert_eq!(pinfold.cli(&["resize", &plain.id, "24x80"]).code, Some(2));
}

#[test]
fn pty_failure_is_error() {
    // As many descriptors as a keeper and two pipes need; a terminal needs more.
    let pinfold = Pinfold::start_with(PINFOLD, Setup::default());
    let keeper_starts = pinfold.start_request(&on_terminal("true"));
    assert_eq!(pinfold.wait_finished(&keeper_starts.record.id).outcome, Some(Outcome::Exited { code: 0 }));
    let Some(hidden) = without_terminals() else { return };
    let error = hidden.try_start(&on_terminal("echo ran > $HOME/ran")).expect_err("no terminal can be opened");
    assert_eq!(error.code, ErrorCode::FailedToStart, "{error:?}");
    assert!(error.message.contains("cannot open a terminal"), "{}", error.message);
    let id = error.id.expect("its id is in the error");
    let outcome = hidden.show(&id).outcome;
    assert!(matches!(&outcome, Some(Outcome::FailedToStart { step, .. }) if step == "pty"), "{outcome:?}");
    assert_eq!(hidden.run("echo pipes work").1, "pipes work\n");
}

/// A daemon without /dev/ptmx, if that can be arranged here.
fn without_terminals() -> Option<Pinfold> {
    let wrap = ["unshare", "--mount", "sh", "-c", "mount --bind /dev/null /dev/ptmx && exec \"$@\"", "sh"];
    let works = std::process::Command::new(wrap[0]).args(&wrap[1..]).arg("true").output();
    if !works.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: /dev/ptmx cannot be hidden here");
        return None;
    }
    let pinfold = Pinfold::prepare(PINFOLD, Setup::default());
    let started = std::process::Command::new(wrap[0])
        .args(&wrap[1..])
        .arg(pinfold.binary())
        .args(["daemon", "start"])
        .env("PINFOLD_HOME", pinfold.home())
        .output()
        .expect("a daemon");
    assert!(started.status.success(), "{started:?}");
    Some(pinfold)
}

#[test]
fn pty_queries_answered() {
    let pinfold = Pinfold::start(PINFOLD);
    // A program that sends a terminal query and reads the answer up to its last byte, without echo.
    let ask = "ask() { printf \"$1\"; a=; while :; do c=$(dd bs=1 count=1 2>/dev/null); a=$a$c; \
               [ \"$c\" = \"$2\" ] && break; done; printf '%s' \"$a\" | od -An -c | tr -d ' \\n'; echo; }; \
               stty -echo -icanon; printf 'ab'; ask '\\033[6n' R; ask '\\033[c' c; ask '\\033[5n' n; echo done; sleep 300";
    let record = pinfold.start_request(&on_terminal(ask)).record;
    let shown = until_shown(&pinfold, &record.id, "done");
    assert_eq!(shown.lines[0], "ab033[1;3R", "{shown:?}");
    assert_eq!(&shown.lines[1..3], ["033[?62;22c", "033[0n"], "{shown:?}");
    // A later daemon reads the same queries again and answers none of them a second time.
    pinfold.crash_and_restart();
    screen(&pinfold, &record.id);
    input(&pinfold, &record.id, &text("x"));
    assert_eq!(screen(&pinfold, &record.id).lines.last().map(String::as_str), Some("done"));
}

#[test]
fn a_terminal_query_sent_while_no_daemon_runs_is_answered_by_the_next() {
    let pinfold = Pinfold::start(PINFOLD);
    let gate = crate::requests::Gate::new(&pinfold, "ask");
    let command = format!(
        "stty -echo -icanon; echo ready; {}; printf '\\033[6n'; dd bs=1 count=6 2>/dev/null | od -An -c; echo done; sleep 300",
        gate.wait()
    );
    let record = pinfold.start_request(&on_terminal(&command)).record;
    until_shown(&pinfold, &record.id, "ready");
    pinfold.kill_daemon();
    gate.open();
    pinfold.start_daemon();
    until_shown(&pinfold, &record.id, "done");
}

#[test]
fn waiting_for_input_flagged() {
    for pinfold in [Pinfold::start(PINFOLD), ordinary_user()] {
        let waits = |id: &str| {
            let query = WaitQuery { until: Some("input".into()), timeout: Some("60s".into()), ..WaitQuery::default() };
            pinfold.wait(id, &query).reason
        };
        let asks =
            pinfold.start_request(&on_terminal("printf 'Proceed? [y/N] '; read a; echo $a; exec sleep 300")).record;
        assert_eq!(waits(&asks.id), WaitReason::Input);
        assert_eq!(pinfold.show(&asks.id).waiting_for_input, Some(true));
        assert!(pinfold.cli(&["ps"]).stdout.contains("running, waiting"));
        let event = until_some("an event for the owner", || {
            pinfold.events(0).events.into_iter().find(|event| event.kind == EventKind::WaitingForInput)
        });
        assert_eq!((event.process.as_str(), event.text.as_deref()), (asks.id.as_str(), Some("Proceed? [y/N]")));
        input(&pinfold, &asks.id, &line("y"));
        until("a sleeper waits for nothing", || pinfold.show(&asks.id).waiting_for_input == Some(false));
        // One event for each wait, also with the next daemon.
        pinfold.crash_and_restart();
        let count = pinfold.events(0).events.iter().filter(|event| event.kind == EventKind::WaitingForInput).count();
        assert_eq!(count, 1);

        let reads = open(&pinfold, "read a; read b; exit 3");
        assert_eq!(waits(&reads.id), WaitReason::Input);
        input(&pinfold, &reads.id, &text("one\n"));
        assert_eq!(waits(&reads.id), WaitReason::Input);
        input(&pinfold, &reads.id, &text("two\n"));
        assert_eq!(waits(&reads.id), WaitReason::EndedBefore);
        let busy = open(&pinfold, "while :; do :; done");
        until("it is looked at", || pinfold.show(&busy.id).waiting_for_input == Some(false));
        let plain = pinfold.sh("exec sleep 300");
        assert_eq!(pinfold.show(&plain.id).waiting_for_input, Some(false));
        let query = WaitQuery { until: Some("input".into()), ..WaitQuery::default() };
        assert_eq!(pinfold.try_wait(&plain.id, &query).expect_err("no stdin").code, ErrorCode::NoStdin);
        let cli = pinfold.cli(&["wait", "--until", "input", "--timeout", "1ms", &busy.id]);
        assert_eq!(cli.code, Some(124), "{}", cli.stderr);
    }
}

#[test]
fn eof_on_a_terminal_is_sent_as_a_key() {
    let pinfold = Pinfold::start(PINFOLD);
    let record = pinfold.start_request(&on_terminal("cat; echo first; cat; echo second")).record;
    input(&pinfold, &record.id, &InputRequest { eof: true, ..line("a") });
    until_shown(&pinfold, &record.id, "first");
    input(&pinfold, &record.id, &eof());
    assert_eq!(pinfold.wait_finished(&record.id).outcome, Some(Outcome::Exited { code: 0 }));
    assert_eq!(screen(&pinfold, &record.id).lines, ["a", "a", "first", "second"]);
    assert_eq!(try_input(&pinfold, &record.id, &eof()).expect_err("over").code, ErrorCode::AlreadyOver);
}

#[test]
fn ctrl_c_reaches_the_foreground_of_the_terminal() {
    let pinfold = Pinfold::start(PINFOLD);
    let record = pinfold.start_request(&on_terminal("trap 'echo caught; exit 5' INT; echo ready; sleep 300")).record;
    until_shown(&pinfold, &record.id, "ready");
    // A shell that is interrupted before it starts `sleep` runs its trap after it.
    until("it sleeps", || pinfold.show(&record.id).tree.iter().any(|member| member.command.starts_with("sleep")));
    input(&pinfold, &record.id, &keys(&["ctrl+c"]));
    assert_eq!(pinfold.wait_finished(&record.id).outcome, Some(Outcome::Exited { code: 5 }));
    assert!(pinfold.text(&record.id).contains("caught"));
}

#[test]
fn the_screen_is_rebuilt_from_the_whole_output_after_a_crash() {
    let pinfold = Pinfold::start(PINFOLD);
    let draw = "printf '\\033]0;a title\\007\\033[?1049h\\033[2J\\033[5;10Hhere\\033[31m red\\033[0m'; sleep 300";
    let record = pinfold.start_request(&on_terminal(draw)).record;
    let before = until_shown(&pinfold, &record.id, "here red");
    assert_eq!((before.title.as_str(), before.alternate), ("a title", true));
    assert_eq!((before.lines.len(), before.cursor.row, before.cursor.col), (5, 5, 18));
    pinfold.crash_and_restart();
    let after = screen(&pinfold, &record.id);
    assert_eq!((after.lines, after.cursor, after.title), (before.lines, before.cursor, before.title));
    assert_eq!(pinfold.cli(&["screen", &record.id]).stdout, "\n\n\n\n         here red\n");
    pinfold.stop(&record.id);
    assert!(screen(&pinfold, &record.id).lines[4].contains("here red"));
}

#[test]
fn bulk_output_through_a_terminal_is_complete() {
    let pinfold = Pinfold::start(PINFOLD);
    let record = pinfold.start_request(&on_terminal("stty -onlcr; seq 1 200000; echo END")).record;
    pinfold.wait_finished(&record.id);
    let expected: String = (1..=200_000).map(|number| format!("{number}\n")).collect();
    assert!(pinfold.text(&record.id) == expected + "END\n", "other text than was written");
    assert_eq!(screen(&pinfold, &record.id).lines.last().map(|line| line.trim()), Some("END"));
}

#[test]
fn utf8_split_over_reads_of_a_terminal_stays_intact() {
    let pinfold = Pinfold::start(PINFOLD);
    let command = "printf '\\303'; sleep 0.3; printf '\\251\\342'; sleep 0.3; printf '\\202\\254'; sleep 300";
    let record = pinfold.start_request(&on_terminal(command)).record;
    assert_eq!(until_shown(&pinfold, &record.id, "é€").lines, ["é€"]);
}

#[test]
fn a_model_uses_a_terminal() {
    let pinfold = Pinfold::start(PINFOLD);
    let mut agent = Agent::connect(&pinfold);
    let command = "printf 'Name: '; read n; echo \"Hello $n\"; printf 'Sure? '; read s; exit 4";
    let started = agent.call("execute", json!({ "command": command, "pty": true, "background": true }));
    let id = started.id().to_owned();
    let waited = agent.call("process_wait", json!({ "id": id, "until": "input" }));
    assert_eq!((&waited.facts["reason"], &waited.facts["waiting_for_input"]), (&json!("input"), &json!(true)));
    let called = agent.call("process_input", json!({ "id": id, "text": "Ann", "keys": ["enter"] }));
    assert!(called.output().contains("Hello Ann") && called.output().ends_with("Sure? "), "{}", called.text);
    assert_eq!(called.facts["waiting_for_input"], true, "{}", called.text);
    let seen = agent.call("process_output", json!({ "id": id, "screen": true }));
    assert!(seen.facts["screen"].as_str().is_some_and(|screen| screen.ends_with("Sure?")), "{}", seen.text);
    let last = agent.call("process_input", json!({ "id": id, "keys": ["y", "enter"] }));
    until("it ends", || agent.call("process_output", json!({ "id": id, "cursor": 0 })).facts["exit_code"] == 4);
    assert!(!last.is_error);
    // A prompt of another process is reported as news, with its text.
    let gate = crate::requests::Gate::new(&pinfold, "gate");
    let command = format!("{}; printf 'Password: '; read p", gate.wait());
    agent.call("execute", json!({ "command": command, "pty": true, "background": true }));
    gate.open();
    let news = until_some("the prompt is news", || {
        agent.call("process_list", json!({})).news().into_iter().find(|news| news["event"] == "waiting_for_input")
    });
    assert_eq!(news["line"], "Password:", "{news}");
    // In the foreground a prompt ends the wait before its timeout.
    let asked = agent.call("execute", json!({ "command": "printf 'Go? '; read g", "pty": true, "timeout": "5m" }));
    assert_eq!((&asked.facts["reason"], &asked.facts["waiting_for_input"]), (&json!("input"), &json!(true)));
    assert!(asked.output() == "Go? " && asked.notes().contains("process_input"), "{}", asked.text);
    let bad = agent.call("execute", json!({ "command": "true", "pty": "yes" }));
    assert!(bad.is_error && bad.text.contains("rows"), "{}", bad.text);
}

#[test]
fn no_daemon_tty_access() {
    let pinfold = Pinfold::prepare(PINFOLD, Setup::default());
    // A daemon that was started from a terminal, as users do.
    let mut person = Terminal::start(&mut pinfold.command(&["daemon", "start"]), 24, 80).expect("a terminal");
    assert!(person.wait().success());
    let own = "if (: </dev/tty) 2>/dev/null; then echo has one; else echo has none; fi";
    assert_eq!(pinfold.run(own).1, "has none\n");
    let record = pinfold.start_request(&on_terminal(own)).record;
    pinfold.wait_finished(&record.id);
    assert_eq!(pinfold.text(&record.id), "has one\r\n");
}

#[test]
fn terminals_leave_no_descriptors_behind() {
    let pinfold = Pinfold::start(PINFOLD);
    // The connection to each keeper is counted; it opens and closes with the keeper.
    let descriptors = |pid: u32| {
        let all = std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, |entries| entries.count());
        all.saturating_sub(pinfold.keepers().len())
    };
    let terminals = || {
        let held = |pid: u32| {
            let links = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
            links.filter_map(|link| std::fs::read_link(link.path()).ok()).filter(|to| to.ends_with("ptmx")).count()
        };
        pinfold.keepers().into_iter().map(held).sum::<usize>()
    };
    let run = || {
        let record = pinfold.start_request(&on_terminal("echo hi")).record;
        pinfold.wait_finished(&record.id);
        screen(&pinfold, &record.id);
    };
    run();
    let daemon = pinfold.daemon_pid();
    let before = descriptors(daemon);
    (0..20).for_each(|_| run());
    until("keepers let go of their terminals", || terminals() == 0);
    // A keeper that starts or exits at this moment may be counted in one number and not in the other.
    until("the daemon has no more than before", || descriptors(daemon) <= before + 4);
}
