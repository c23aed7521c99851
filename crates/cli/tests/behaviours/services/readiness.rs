//! Readiness by port, HTTP, output and connection; services that are not ready in time, and that end before.

use std::net::TcpListener;
use std::os::unix::net::UnixStream;

use pinfold_api::types::{EventKind, Ready, ReadyState, StartRequest, Status, WaitReason};
use pinfold_testkit::{Pinfold, until, until_some};

use super::{SERVER, event_texts, leased, ready, shown, until_ready};
use crate::PINFOLD;
use crate::output::gate::Gate;
use crate::requests::request;

#[test]
fn readiness_by_port() {
    let pinfold = Pinfold::start(PINFOLD);
    let started = pinfold.start_request(&leased("exec python3 -m http.server --bind 127.0.0.1 $PORT"));
    let port = started.record.ports["PORT"];
    let answer = pinfold.wait(&started.record.id, &until_ready());
    assert_eq!((answer.reason, answer.port), (WaitReason::Ready, Some(port)), "{:?}", answer.record.ready);
    let decided = answer.record.ready.expect("a verdict");
    assert_eq!((decided.state, decided.port, decided.by), (ReadyState::Ready, Some(port), format!("port {port}")));
    // One event, which stays after a crash.
    pinfold.crash_and_restart();
    assert_eq!(shown(&pinfold, &started.record.id).at, decided.at);
    assert_eq!(event_texts(&pinfold, &started.record.id, EventKind::Ready), [format!("it listens on port {port}")]);
}

/// The port that counts is any that the tree listens on, also that of a child of a child.
#[test]
fn readiness_by_any_port_names_it() {
    let pinfold = Pinfold::start(PINFOLD);
    let asked = Ready { port: Some("any".into()), ..Ready::default() };
    let command = format!("(PORT=0; export PORT; {SERVER}) & wait");
    let started = pinfold.start_request(&StartRequest { wait: Some("60s".into()), ..ready(&command, asked) });
    assert_eq!(started.waited.expect("it waited").reason, WaitReason::Ready);
    let port = started.record.ready.and_then(|ready| ready.port).expect("a port");
    let tree = pinfold.show(&started.record.id).tree;
    assert!(tree.iter().any(|member| member.ports == [port]), "{tree:?}");
}

#[test]
fn readiness_by_http() {
    let pinfold = Pinfold::start(PINFOLD);
    // The server answers with an error at first, then with 200; never at another path.
    let gate = pinfold.home().join("well");
    let script = format!(
        "import http.server, os\n\
         class H(http.server.BaseHTTPRequestHandler):\n\
         \x20   def do_GET(self):\n\
         \x20       well = self.path == '/health' and os.path.exists('{}')\n\
         \x20       self.send_response(204 if well else 503); self.end_headers()\n\
         http.server.HTTPServer(('127.0.0.1', int(os.environ['PORT'])), H).serve_forever()",
        gate.display()
    );
    let server = |status| StartRequest {
        argv: Some(["python3", "-c", &script].map(str::to_owned).to_vec()),
        command: None,
        ready: Some(Ready { http: Some("/health".into()), port: Some("PORT".into()), status, ..Ready::default() }),
        ..leased("")
    };
    let (any, exact) = (pinfold.start_request(&server(None)), pinfold.start_request(&server(Some(200))));
    let (any, exact) = (any.record.id, exact.record.id);
    until("what stands in the way is shown", || {
        let ready = shown(&pinfold, &any);
        ready.state == ReadyState::Waiting && ready.text.is_some_and(|text| text.contains("503"))
    });
    std::fs::write(&gate, "").expect("it is well");
    let answer = pinfold.wait(&any, &until_ready());
    assert_eq!(answer.reason, WaitReason::Ready);
    let text = answer.record.ready.and_then(|ready| ready.text).expect("evidence");
    assert!(text.contains("/health was answered with 204"), "{text}");
    // Another status than the configured one.
    until("the other answer is shown", || shown(&pinfold, &exact).text.is_some_and(|text| text.contains("204")));
    assert_eq!(shown(&pinfold, &exact).state, ReadyState::Waiting);
}

/// Also if the daemon dies while it checks, and again after it has seen it.
#[test]
fn readiness_by_output_over_crashes() {
    let pinfold = Pinfold::start(PINFOLD);
    let gate = Gate::new(&pinfold, "ready");
    let asked = Ready { output: Some("listening on \\d+".into()), ..Ready::default() };
    let id =
        pinfold.start_request(&ready(&format!("{}; echo listening on 80; sleep 300", gate.wait()), asked)).record.id;
    assert_eq!(shown(&pinfold, &id).state, ReadyState::Waiting);
    let reached = gate.reached();
    pinfold.crash_and_restart();
    assert_eq!(shown(&pinfold, &id).state, ReadyState::Waiting);
    pinfold.kill_daemon();
    reached.open();
    pinfold.start_daemon();
    let answer = pinfold.wait(&id, &until_ready());
    assert_eq!(answer.reason, WaitReason::Ready);
    assert_eq!(event_texts(&pinfold, &id, EventKind::Ready), ["it printed: listening on 80"]);
    pinfold.crash_and_restart();
    assert_eq!(shown(&pinfold, &id).at, answer.record.ready.expect("a verdict").at);
    assert_eq!(event_texts(&pinfold, &id, EventKind::Ready).len(), 1);
}

#[test]
fn readiness_by_peer_connection() {
    let pinfold = Pinfold::start(PINFOLD);
    let gate = Gate::new(&pinfold, "connect");
    let connect = "exec perl -MIO::Socket::UNIX -e 'for (1..600) { \
        exit 0 if IO::Socket::UNIX->new(Peer => $ENV{PINFOLD_READY_SOCKET}); select undef, undef, undef, 0.1 } exit 1'";
    let command = format!("{}; ({connect}) && sleep 300", gate.wait());
    let id = pinfold.start_request(&ready(&command, Ready { peer: Some(true), ..Ready::default() })).record.id;
    let socket = pinfold.home().join("ready").join(&id);
    // A connection of another program does not make it ready.
    let stranger = UnixStream::connect(&socket).expect("its socket");
    until("the stranger is named", || {
        shown(&pinfold, &id).text.is_some_and(|text| text.contains(&format!("pid {}", std::process::id())))
    });
    assert_eq!(shown(&pinfold, &id).state, ReadyState::Waiting);
    drop(stranger);
    pinfold.crash_and_restart();
    gate.open();
    let answer = pinfold.wait(&id, &until_ready());
    assert_eq!(answer.reason, WaitReason::Ready, "{:?}", answer.record.ready);
    until("the socket goes", || !socket.exists());
}

#[test]
fn readiness_that_ended_before() {
    let pinfold = Pinfold::start(PINFOLD);
    let any = || Ready { port: Some("any".into()), ..Ready::default() };
    let id = pinfold.start_request(&ready("exit 3", any())).record.id;
    let answer = pinfold.wait(&id, &until_ready());
    assert_eq!(answer.reason, WaitReason::EndedBefore);
    assert_eq!(shown(&pinfold, &id).state, ReadyState::Exited);
    assert_eq!(event_texts(&pinfold, &id, EventKind::Finished), ["it ended before it was ready"]);
    assert!(event_texts(&pinfold, &id, EventKind::Ready).is_empty());
    let cli = |command: &str| pinfold.cli(&["run", "-d", "--ready-port", "any", command]);
    assert_eq!(cli("exit 3").code, Some(3));
    let quick = cli("true");
    assert_eq!(quick.code, Some(1), "an end is not readiness, whatever its code");
    assert!(quick.stderr.contains("ended before it was ready"), "{}", quick.stderr);
}

#[test]
fn readiness_not_in_time_keeps_the_process() {
    let pinfold = Pinfold::start(PINFOLD);
    let asked = Ready { port: Some("any".into()), timeout: Some("300ms".into()), ..Ready::default() };
    let id = pinfold.start_request(&ready("exec sleep 300", asked)).record.id;
    let answer = pinfold.wait(&id, &until_ready());
    assert_eq!((answer.reason, answer.record.status), (WaitReason::NotReady, Status::Running));
    assert_eq!(shown(&pinfold, &id).state, ReadyState::TimedOut);
    assert_eq!(event_texts(&pinfold, &id, EventKind::NotReady).len(), 1);
    let cli = pinfold.cli(&["run", "-d", "--ready-port", "any", "--ready-timeout", "300ms", "exec sleep 300"]);
    assert_eq!(cli.code, Some(124), "{}", cli.stderr);
    assert_eq!(pinfold.show(cli.stdout.trim()).status, Status::Running);
}

/// A port that another program holds does not make a process ready, and the record names that program.
#[test]
fn readiness_port_held_by_someone_else() {
    let pinfold = Pinfold::start(PINFOLD);
    let other = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = other.local_addr().expect("its number").port();
    let asked = Ready { port: Some(port.to_string().as_str().into()), ..Ready::default() };
    let started = pinfold.start_request(&ready("exec sleep 300", asked));
    let held = format!("port {port} is held by another program: pid {}", std::process::id());
    assert!(started.hints.iter().any(|hint| hint.starts_with(&held)), "{:?}", started.hints);
    let id = started.record.id;
    let text = until_some("the holder of the port", || shown(&pinfold, &id).text);
    assert!(text.starts_with(&held), "{text}");
    assert_eq!(shown(&pinfold, &id).state, ReadyState::Waiting);
}

#[test]
fn readiness_on_the_command_line() {
    let pinfold = Pinfold::start(PINFOLD);
    let run = pinfold.cli(&["run", "-d", "--name", "web", "--lease", "PORT", "--ready-port", "PORT", SERVER]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let port = pinfold.show("web").ports["PORT"];
    let show = pinfold.cli(&["show", "web"]);
    assert!(show.stdout.contains(&format!("ports     PORT={port}\n")), "{}", show.stdout);
    assert!(show.stdout.contains("\nready     since "), "{}", show.stdout);
    assert_eq!(pinfold.cli(&["wait", "--until", "ready", "web"]).code, Some(0));
    let id = pinfold.sh("exec sleep 300").id;
    let refused = pinfold.cli(&["wait", "--until", "ready", &id]);
    assert!(refused.code == Some(125) && refused.stderr.contains("without `ready`"), "{refused:?}");
}

#[test]
fn readiness_that_makes_no_sense_is_refused() {
    let pinfold = Pinfold::start(PINFOLD);
    let refuse = |asked: Ready| pinfold.try_start(&ready("true", asked)).expect_err("refused").message;
    assert!(refuse(Ready::default()).contains("give `port`, `http`, `output` or `peer`"));
    assert!(refuse(Ready { output: Some("(".into()), ..Ready::default() }).contains("ready"));
    assert!(refuse(Ready { http: Some("http://example.org/".into()), ..Ready::default() }).contains("on this machine"));
    assert!(refuse(Ready { port: Some("PORT".into()), ..Ready::default() }).contains("lease it in `ports`"));
    assert!(refuse(Ready { port: Some("any".into()), timeout: Some("0".into()), ..Ready::default() }).contains("60s"));
    let env = [("PINFOLD_READY_SOCKET".to_owned(), Some("/x".to_owned()))].into();
    let refusal = pinfold.try_start(&StartRequest { env, ..request("true") }).expect_err("refused");
    assert!(refusal.message.contains("pinfold's own"), "{refusal}");
}
