//! A connection to the socket from inside a managed process acts as the owner of that process, whatever its headers
//! say.

use std::path::Path;
use std::process::Command;

use pinfold_api::types::{HandoverRequest, ListQuery, Record, StartRequest, TokenRequest};
use pinfold_testkit::environments::Environment;
use pinfold_testkit::{Pinfold, Setup, until, until_some};

use crate::PINFOLD;

fn start_as(pinfold: &Pinfold, owner: &str, command: &str) -> Record {
    let request = StartRequest { command: Some(command.into()), ..StartRequest::default() };
    pinfold.block(pinfold.client().acting_as(owner, None).start(&request)).expect("it starts").record
}

/// Runs a script as a process of `ann`, with the command line in `$P`, and returns its output.
fn inside(pinfold: &Pinfold, script: &str) -> String {
    let script = format!("P={}; export P; {script}", pinfold.binary().display());
    let record = start_as(pinfold, "ann", &script);
    pinfold.wait_finished(&record.id);
    pinfold.text(&record.id)
}

fn tokens(pinfold: &Pinfold) -> usize {
    pinfold.block(pinfold.client().tokens()).expect("tokens").tokens.len()
}

/// Every way in which a program can be a descendant of a managed process.
const WAYS: [&str; 4] = [
    "sh -c '@'",
    // A double fork, with its own session.
    "setsid -f sh -c '@; :'; sleep 0.1; :",
    "(sh -c 'sleep 0.05; @; :' &); :",
    "env -i PATH=$PATH PINFOLD_HOME=$PINFOLD_HOME P=$P setsid -f sh -c 'cd /; sleep 0.05; @'; :",
];

#[test]
fn a_process_has_only_the_rights_of_its_owner() {
    for ground in Environment::ALL {
        let grounded = match ground.try_start(PINFOLD) {
            Ok(grounded) => grounded,
            Err(reason) => {
                eprintln!("passed over ({ground}): {reason}");
                continue;
            }
        };
        let pinfold = &grounded.pinfold;
        let eve = start_as(pinfold, "eve", "sleep 31415");
        for way in WAYS {
            let run = |command: &str| inside(pinfold, &way.replace('@', &format!("{command} 2>&1")));
            for operators in ["token add", "token ls", "daemon stop", "gc"] {
                let output = run(&format!("$P {operators}"));
                assert!(output.contains("only the operator may do this"), "{ground}, {way}, {operators}: {output}");
            }
            let output = run("$P ps --all");
            assert!(output.contains("ps --all") && !output.contains("sleep 31415"), "{ground}, {way}: {output}");
            for touch in ["show", "stop", "logs", "signal KILL"] {
                let output = run(&format!("$P {touch} {}", eve.id));
                assert!(output.contains("no process"), "{ground}, {way}, {touch}: {output}");
            }
            let output = run("$P --as eve ps");
            assert!(output.contains("no owner `eve`"), "{ground}, {way}: {output}");
            let output = run("$P run --owner eve true");
            assert!(output.contains("no owner `eve`"), "{ground}, {way}: {output}");
            let started = run("$P run -d true");
            assert_eq!(pinfold.show(started.trim()).owner, "ann", "{ground}, {way}");
        }
        assert_eq!(tokens(pinfold), 0);
        assert_eq!(pinfold.health().status, "ok");
        assert_eq!(pinfold.show(&eve.id).cause, None);
    }
}

#[test]
fn raw_requests_from_inside_are_bound_on_every_route() {
    if Command::new("curl").arg("--version").output().is_err() {
        return eprintln!("passed over: no curl");
    }
    let pinfold = Pinfold::start(PINFOLD);
    let eve = start_as(&pinfold, "eve", "sleep 300").id;
    let curl = |arguments: &str| {
        let socket = pinfold.home().join("socket");
        inside(&pinfold, &format!("curl -s --unix-socket {} {arguments}", socket.display()))
    };
    for (arguments, expected) in [
        ("-X POST http://x/v1/tokens -d '{}'", "forbidden"),
        ("-X POST http://x/v1/shutdown -d '{}'", "forbidden"),
        ("http://x/metrics", "forbidden"),
        ("-H 'Pinfold-Owner: eve' http://x/v1/processes", "not_found"),
        ("-H 'Pinfold-Owner: eve' -H 'Pinfold-Parent: ann' http://x/v1/processes", "not_found"),
        ("-H 'Pinfold-Parent: eve' http://x/v1/processes", "forbidden"),
        ("-X POST http://x/v1/processes -d '{\"command\":\"true\",\"owner\":\"eve\"}'", "not_found"),
        ("-X POST http://x/v1/owners/eve/end -d '{}'", "not_found"),
    ] {
        let answer = curl(arguments);
        assert!(answer.contains(expected), "{arguments}: {answer}");
    }
    for target in ["v1/events", "v1/owners", "v1/agents", "api/v0/processes/list"] {
        let answer = curl(&format!("http://x/{target}"));
        assert!(!answer.contains(&eve) && !answer.contains("\"eve\""), "{target}: {answer}");
    }
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"process_list","arguments":{}}}"#;
    let header = "-H 'Content-Type: application/json' -H 'Accept: application/json, text/event-stream' \
                  -H 'MCP-Protocol-Version: 2025-06-18'";
    let answer = curl(&format!("{header} -X POST http://x/mcp -d '{call}'"));
    assert!(!answer.contains(&eve), "{answer}");
    let answer = curl(&format!("{header} -H 'Pinfold-Owner: eve' -X POST http://x/mcp -d '{call}'"));
    assert!(answer.contains("no owner `eve`"), "{answer}");
    assert_eq!(tokens(&pinfold), 0);
}

#[test]
fn an_agent_inside_works_below_the_owner_of_its_process() {
    let pinfold = Pinfold::start(PINFOLD);
    let call = |id: u8, tool: &str, arguments: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments}}}}}"#
        )
    };
    let lines = [
        r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"0"}}}"#.to_owned(),
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#.to_owned(),
        call(2, "execute", r#"{"command":"echo from within"}"#),
        call(3, "process_list", "{}"),
    ];
    std::fs::write(pinfold.home().join("calls"), lines.join("\n") + "\n").expect("written");
    let script = format!("(cat {}; sleep 2) | $P mcp", pinfold.home().join("calls").display());
    let output = inside(&pinfold, &script);
    assert!(output.contains("from within"), "{output}");
    let list = pinfold.list(&ListQuery::default()).processes;
    let started = list.iter().find(|record| record.command == "echo from within").expect("it ran");
    assert_eq!(started.parent.as_deref(), Some("ann"), "{}", started.owner);
    assert_ne!(started.owner, "ann");
}

#[test]
fn a_process_that_was_handed_over_acts_as_the_new_owner() {
    let pinfold = Pinfold::start(PINFOLD);
    let gate = pinfold.home().join("gate");
    let eve = start_as(&pinfold, "eve", "sleep 300").id;
    let wait = format!("until [ -e {} ]; do sleep 0.02; done", gate.display());
    let script = format!(
        "P={}; $P events --follow & {wait}; $P ps --all; echo started=$($P run -d true)",
        pinfold.binary().display()
    );
    let record = start_as(&pinfold, "ann", &script);
    until("its stream is open", || pinfold.tree(&record.id).len() >= 3);
    let request = HandoverRequest { to: Some("eve".into()), purpose: "go on".into() };
    pinfold.block(pinfold.client().handover(&record.id, &request)).expect("handed over");
    std::fs::write(&gate, "").expect("an open gate");
    // The stream may add events of the process that it starts after this.
    let (output, id) = until_some("its answer", || {
        let text = pinfold.text(&record.id);
        let id = text.lines().find_map(|line| line.strip_prefix("started=")).map(str::to_owned)?;
        Some((text, id))
    });
    assert!(output.contains(&eve), "{output}");
    let started = pinfold.show(&id);
    assert_eq!(started.owner, "eve", "what it starts is the new owner's");
}

/// A process inside requests a token in a loop while daemons are killed and recover.
#[test]
fn a_recovering_daemon_never_treats_a_process_as_the_operator() {
    let pinfold = Pinfold::start(PINFOLD);
    let script = format!("while :; do {} token add; done", pinfold.binary().display());
    for _ in 0..8 {
        start_as(&pinfold, "ann", &script);
    }
    for _ in 0..3 {
        pinfold.crash_and_restart();
        until("it asks again", || pinfold.list(&ListQuery::default()).processes.iter().all(|one| one.output.bytes > 0));
    }
    assert_eq!(tokens(&pinfold), 0);
}

/// A process that kills its own keeper gains no rights.
#[test]
fn a_process_that_kills_its_keeper_gets_no_token() {
    for pinfold in [Pinfold::start(PINFOLD), Pinfold::start_without_cgroup(PINFOLD)] {
        if pinfold.health().containment != "cgroup" {
            eprintln!("passed over: without a cgroup this is not promised");
            continue;
        }
        let gate = pinfold.home().join("gate");
        let wait = format!("until [ -e {} ]; do sleep 0.02; done", gate.display());
        let ask = format!("while :; do {} token add; done", pinfold.binary().display());
        let record = start_as(&pinfold, "ann", &format!("{wait}; kill -9 $PPID; {ask}"));
        std::fs::write(&gate, "").expect("an open gate");
        pinfold.wait_finished(&record.id);
        assert_eq!(tokens(&pinfold), 0);
    }
}

/// The program that connected exits, and another one uses its connection.
#[test]
fn a_connection_whose_opener_has_ended_is_refused() {
    let script = r#"
        use IO::Socket::UNIX;
        my $socket = IO::Socket::UNIX->new(Peer => $ARGV[0]) or die "no connection";
        my $parent = $$;
        if (fork() == 0) {
            select(undef, undef, undef, 0.01) while getppid() == $parent;
            print $socket "GET /v1/processes HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
            $socket->flush();
            print while <$socket>;
        }
    "#;
    let has_perl = Command::new("perl").args(["-MIO::Socket::UNIX", "-e", "1"]).status();
    if !has_perl.is_ok_and(|status| status.success()) {
        return eprintln!("passed over: no perl with IO::Socket::UNIX");
    }
    let pinfold = Pinfold::start(PINFOLD);
    let socket = pinfold.home().join("socket");
    let outside = Command::new("perl").args(["-e", script]).arg(&socket).output().expect("perl runs");
    let outside = String::from_utf8_lossy(&outside.stdout).into_owned();
    let file = pinfold.home().join("script.pl");
    std::fs::write(&file, script).expect("written");
    let within = inside(&pinfold, &format!("perl {} {}", file.display(), Path::display(&socket)));
    for answer in [outside, within] {
        assert!(answer.contains("403") && answer.contains("has exited"), "{answer}");
    }
}

#[test]
fn a_configuration_can_trust_what_is_inside() {
    let config = "[security]\ntrust_children = true\n".to_owned();
    let pinfold = Pinfold::start_with(PINFOLD, Setup { config, ..Setup::default() });
    assert!(inside(&pinfold, "$P token add").contains("pinfold_"));
    assert_eq!(tokens(&pinfold), 1);
}

/// A client outside of all processes acts as the operator.
#[test]
fn a_client_outside_is_the_operator() {
    let pinfold = Pinfold::start(PINFOLD);
    let made = pinfold.cli(&["token", "add"]);
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    pinfold.block(pinfold.client().add_token(&TokenRequest::default())).expect("a token");
    assert_eq!(tokens(&pinfold), 2);
}
