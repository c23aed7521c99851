//! Attaching: observers, writers, and a person at a terminal.

use std::process::Command;

use pinfold_api::client::{AttachReader, AttachWriter, ClientError, Received};
use pinfold_api::error::ErrorCode;
use pinfold_api::types::{AttachControl, AttachNotice, AttachQuery, Outcome, PtySize, StartRequest, Stdin};
use pinfold_testkit::{DEADLINE, Pinfold, Terminal, place_text, until};

use super::{bytes, input, line, on_terminal, open, screen, text, until_shown};
use crate::PINFOLD;
use crate::requests::{Gate, request};

fn attach(pinfold: &Pinfold, id: &str, query: &AttachQuery) -> (AttachReader, AttachWriter) {
    pinfold.block(pinfold.client().attach(id, query)).expect("an attachment")
}

/// The next frame, or `None` at the end.
fn next(pinfold: &Pinfold, reader: &mut AttachReader) -> Option<Received> {
    let frame = pinfold.block(async { tokio::time::timeout(DEADLINE, reader.next()).await });
    frame.expect("a frame in time").transpose().expect("a frame")
}

/// Everything until the end: output and notices.
fn rest(pinfold: &Pinfold, reader: &mut AttachReader) -> (Vec<u8>, Vec<AttachNotice>) {
    let (mut output, mut notices) = (Vec::new(), Vec::new());
    while let Some(frame) = next(pinfold, reader) {
        match frame {
            Received::Bytes(bytes) => output.extend(bytes),
            Received::Notice(notice) => notices.push(*notice),
        }
    }
    (output, notices)
}

/// Reads until the output contains this.
fn read_until(pinfold: &Pinfold, reader: &mut AttachReader, wanted: &str) -> Vec<u8> {
    let mut output = Vec::new();
    while !String::from_utf8_lossy(&output).contains(wanted) {
        match next(pinfold, reader) {
            Some(Received::Bytes(bytes)) => output.extend(bytes),
            Some(Received::Notice(_)) => {}
            None => panic!("ended before `{wanted}`"),
        }
    }
    output
}

#[test]
fn observers_and_writers() {
    let pinfold = Pinfold::start(PINFOLD);
    let gate = Gate::new(&pinfold, "go");
    let record = open(&pinfold, &format!("{}; seq 1 300000; read x; echo got $x; exit 3", gate.wait()));
    let mut observers: Vec<_> = (0..10).map(|_| attach(&pinfold, &record.id, &AttachQuery::default())).collect();
    // A read-only client that types gets a notice, and nothing reaches the process.
    assert!(pinfold.block(observers[0].1.send("no\n".into())));
    gate.open();
    until("all is written", || pinfold.show(&record.id).output.bytes >= 1_988_895);
    let writing = AttachQuery { cursor: Some(1_988_895), write: Some(true), ..AttachQuery::default() };
    let (_reader, mut writer) = attach(&pinfold, &record.id, &writing);
    assert!(pinfold.block(writer.send("it\n".into())));
    pinfold.wait_finished(&record.id);
    let expected: String = (1..=300_000).map(|number| format!("{number}\n")).collect();
    for (number, (reader, _)) in observers.iter_mut().enumerate() {
        let (output, notices) = rest(&pinfold, reader);
        assert!(output == format!("{expected}got it\n").as_bytes(), "observer {number} missed something");
        let refused = notices
            .iter()
            .any(|notice| matches!(notice, AttachNotice::Refused { code, .. } if *code == ErrorCode::Forbidden));
        assert_eq!(refused, number == 0, "{notices:?}");
        let exit = notices.iter().find_map(|notice| match notice {
            AttachNotice::Exit { outcome, .. } => Some(outcome.clone()),
            _ => None,
        });
        assert_eq!(exit, Some(Some(Outcome::Exited { code: 3 })));
        assert_eq!(notices.last(), Some(&AttachNotice::Closed {}));
    }
}

#[test]
fn a_client_that_does_not_read_slows_no_other_and_gets_a_gap_notice() {
    let pinfold = Pinfold::start(PINFOLD);
    let gate = Gate::new(&pinfold, "go");
    let command = format!("echo first; {}; seq 1 1000000; echo last", gate.wait());
    let asked = StartRequest { output_limit: Some("128k".into()), ..request(&command) };
    let record = pinfold.start_request(&asked).record;
    let (mut slow, _writer) = attach(&pinfold, &record.id, &AttachQuery::default());
    read_until(&pinfold, &mut slow, "first");
    gate.open();
    // It ends although one client does not read.
    let ended = pinfold.wait_finished(&record.id);
    let (output, notices) = rest(&pinfold, &mut slow);
    assert!(output.ends_with(b"last\n"));
    let missing: u64 = notices
        .iter()
        .map(|notice| match notice {
            AttachNotice::Gap { from, to } => to - from,
            _ => 0,
        })
        .sum();
    assert!(missing > 0 && missing + output.len() as u64 + 6 == ended.output.bytes, "{missing} {}", output.len());
}

#[test]
fn attaching_follows_the_visibility_of_owners() {
    let pinfold = Pinfold::start(PINFOLD);
    let asked = StartRequest { owner: Some("ann".into()), stdin: Some(Stdin::Pipe), ..request("exec cat") };
    let record = pinfold.start_request(&asked).record;
    let refused = |owner: &str, id: &str, query: AttachQuery| {
        let client = pinfold.client().acting_as(owner, None);
        match pinfold.block(client.attach(id, &query)) {
            Err(ClientError::Api { error, .. }) => error.code,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(refused("bob", &record.id, AttachQuery::default()), ErrorCode::NotFound);
    assert_eq!(refused("ann", "missing", AttachQuery::default()), ErrorCode::NotFound);
    let plain = pinfold.start_request(&StartRequest { owner: Some("ann".into()), ..request("exec sleep 300") }).record;
    let writing = AttachQuery { write: Some(true), ..AttachQuery::default() };
    assert_eq!(refused("ann", &plain.id, writing.clone()), ErrorCode::NoStdin);
    assert_eq!(
        refused("ann", &record.id, AttachQuery { session: Some(String::new()), ..writing }),
        ErrorCode::InvalidRequest
    );
    // A request that is not a WebSocket upgrade gets an error that says so.
    let mut curl = std::os::unix::net::UnixStream::connect(pinfold.home().join("socket")).expect("a connection");
    use std::io::{Read, Write};
    let asked = format!("GET /v1/processes/{}/attach HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", record.id);
    curl.write_all(asked.as_bytes()).expect("a request");
    let mut answer = String::new();
    curl.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("WebSocket"), "{answer}");
}

#[test]
fn unacknowledged_input_is_applied_once_by_the_next_daemon() {
    let pinfold = Pinfold::start(PINFOLD);
    let record = open(&pinfold, "exec cat");
    let query = AttachQuery { write: Some(true), session: Some("s".into()), ..AttachQuery::default() };
    let (mut reader, mut writer) = attach(&pinfold, &record.id, &query);
    for frame in ["one\n", "two\n"] {
        assert!(pinfold.block(writer.send(frame.into())));
    }
    read_until(&pinfold, &mut reader, "two");
    pinfold.crash_and_restart();
    // The second input was not acknowledged: it is sent again under its number.
    let again = AttachQuery { cursor: Some(4), next: Some(1), ..query };
    let (mut reader, mut writer) = attach(&pinfold, &record.id, &again);
    for frame in ["two\n", "three\n"] {
        assert!(pinfold.block(writer.send(frame.into())));
    }
    assert!(pinfold.block(writer.control(&AttachControl::Eof {})));
    let (output, notices) = rest(&pinfold, &mut reader);
    assert_eq!(String::from_utf8_lossy(&output), "two\nthree\n");
    assert!(notices.contains(&AttachNotice::Taken { below: 4 }), "{notices:?}");
    assert_eq!(bytes(&pinfold, &record.id), b"one\ntwo\nthree\n");
}

#[test]
fn the_screen_is_drawn_and_sizes_are_sent_to_all_clients() {
    let pinfold = Pinfold::start(PINFOLD);
    let record = pinfold.start_request(&on_terminal("printf '\\033[2J\\033[3;5Hhere'; exec cat")).record;
    until_shown(&pinfold, &record.id, "here");
    let (mut one, _writer) = attach(&pinfold, &record.id, &AttachQuery::default());
    let writing = AttachQuery { write: Some(true), ..AttachQuery::default() };
    let (mut other, mut writer) = attach(&pinfold, &record.id, &writing);
    let Some(Received::Notice(attached)) = next(&pinfold, &mut one) else { panic!("no notice") };
    assert!(matches!(
        *attached,
        AttachNotice::Attached { pty: Some(PtySize { rows: 24, cols: 80 }), write: false, .. }
    ));
    let Some(Received::Notice(drawn)) = next(&pinfold, &mut one) else { panic!("no drawing") };
    assert!(matches!(&*drawn, AttachNotice::Screen { data } if data.contains("here")), "{drawn:?}");
    assert!(pinfold.block(writer.control(&AttachControl::Resize { rows: 40, cols: 100 })));
    for reader in [&mut one, &mut other] {
        let mut sized = false;
        while !sized {
            let frame = next(&pinfold, reader).expect("a size");
            sized = frame == Received::Notice(Box::new(AttachNotice::Size { rows: 40, cols: 100 }));
        }
    }
    assert!(pinfold.block(writer.control(&AttachControl::Resize { rows: 0, cols: 100 })));
    loop {
        let frame = next(&pinfold, &mut other).expect("a refusal");
        if let Received::Notice(notice) = frame
            && let AttachNotice::Refused { message, .. } = *notice
        {
            break assert!(message.contains("0 rows"), "{message}");
        }
    }
    assert_eq!(screen(&pinfold, &record.id).size, PtySize { rows: 40, cols: 100 });
}

/// `pinfold` on a terminal of its own, as its session leader, so that a new size reaches it.
fn at_a_terminal(pinfold: &Pinfold, arguments: &[&str]) -> Terminal {
    let ours = pinfold.command(arguments);
    let mut command = Command::new("setsid");
    command.args(["--ctty", "--wait"]).arg(ours.get_program()).args(ours.get_args());
    command.envs(ours.get_envs().filter_map(|(name, value)| Some((name, value?)))).current_dir("/");
    Terminal::start(&mut command, 30, 90).expect("a terminal")
}

#[test]
fn a_person_attaches_types_resizes_and_detaches() {
    let pinfold = Pinfold::start(PINFOLD);
    let command = "echo ready; while read x; do echo got $x; done; exit 6";
    let record = pinfold.start_request(&on_terminal(command)).record;
    until_shown(&pinfold, &record.id, "ready");
    let mut person = at_a_terminal(&pinfold, &["attach", &record.id]);
    // The screen as it was, in the size of our terminal.
    person.until("ready");
    until("it has our size", || pinfold.show(&record.id).pty == Some(PtySize { rows: 30, cols: 90 }));
    assert!(!person.echoes(), "not raw");
    person.write(b"hello\r");
    person.until("got hello");
    person.resize(20, 70);
    until("it has the new size", || pinfold.show(&record.id).pty == Some(PtySize { rows: 20, cols: 70 }));
    // The daemon is killed; the person keeps typing.
    pinfold.kill_daemon();
    person.write(b"again\r");
    person.until("got again");
    person.write(b"\x10\x11");
    person.until("keeps running");
    assert_eq!(person.wait().code(), Some(0));
    assert!(person.echoes(), "the terminal was not put back");
    let before = screen(&pinfold, &record.id);
    assert_eq!(before.lines.iter().filter(|line| line.as_str() == "got again").count(), 1, "{before:?}");
    input(&pinfold, &record.id, &line("more"));
    until_shown(&pinfold, &record.id, "got more");

    let mut second = at_a_terminal(&pinfold, &["attach", "--read-only", &record.id]);
    second.until("got more");
    let mut third = at_a_terminal(&pinfold, &["attach", &record.id]);
    third.until("got more");
    third.write(b"\x04");
    assert_eq!((second.wait().code(), third.wait().code()), (Some(6), Some(6)));
    assert!(third.echoes(), "the terminal was not put back");
}

#[test]
fn the_terminal_is_restored_when_attach_is_ended_by_a_signal() {
    let pinfold = Pinfold::start(PINFOLD);
    let record = pinfold.start_request(&on_terminal("echo ready; exec cat")).record;
    until_shown(&pinfold, &record.id, "ready");
    let mut person = at_a_terminal(&pinfold, &["attach", &record.id]);
    person.until("ready");
    until("it is raw", || !person.echoes());
    let attach = pinfold_testkit::children_of(person.pid()).first().copied().unwrap_or(person.pid());
    pinfold_testkit::Pidfd::open(attach).expect("it lives").signal(15);
    person.wait();
    assert!(person.echoes(), "the terminal was not put back");
    assert_eq!(pinfold.show(&record.id).outcome, None);
}

#[test]
fn run_with_a_terminal_returns_the_exit_code_and_terminal_queries_are_answered_once() {
    let pinfold = Pinfold::start(PINFOLD);
    let script = pinfold.home().join("ask");
    let ask = "#!/bin/sh\nstty -echo -icanon\nprintf '\\033[6n'\na=$(dd bs=1 count=6 2>/dev/null | od -An -c | tr -d ' ')\n\
               echo \"answer $a\"\nstty echo icanon\nread x\nexit 9\n";
    place_text(ask.as_bytes(), &script);
    let mut person = at_a_terminal(&pinfold, &["run", "-it", &script.display().to_string()]);
    let said = person.until("answer 033[1;1R");
    assert!(!said.contains("\x1b[6n"), "the question reached a terminal that would answer it too: {said:?}");
    person.write(b"bye\r");
    assert_eq!(person.wait().code(), Some(9));
}

#[test]
fn attach_without_a_terminal_is_a_pipe() {
    let pinfold = Pinfold::start(PINFOLD);
    let record = open(&pinfold, "cat; exit 2");
    input(&pinfold, &record.id, &text("before\n"));
    let mut attach = pinfold.command(&["attach", &record.id]);
    let mut attach =
        attach.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped()).spawn().expect("a command");
    use std::io::Write;
    attach.stdin.take().expect("its stdin").write_all(b"piped\n").expect("it reads");
    let output = attach.wait_with_output().expect("its end");
    assert_eq!((String::from_utf8_lossy(&output.stdout).as_ref(), output.status.code()), ("before\npiped\n", Some(2)));
    let none = pinfold.cli(&["attach", "missing"]);
    assert_eq!(none.code, Some(2), "{}", none.stderr);
    let bad = pinfold.cli(&["attach", "--detach-keys", "enter", "x"]);
    assert!(bad.code == Some(2) && bad.stderr.contains("ctrl+p,ctrl+q"), "{}", bad.stderr);
}
