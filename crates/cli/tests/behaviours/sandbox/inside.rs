//! Pinfold itself is no way out: what a sandboxed process asks the daemon for, restarts, handovers and floors.

use pinfold_api::types::{HandoverRequest, ListQuery, StartRequest, Stdin};
use pinfold_testkit::{Pinfold, Setup, until_some};

use super::{Places, daemons, request, run};
use crate::PINFOLD;

/// May use Unix sockets, so that it reaches the daemon at all.
const SANDBOX: &str = "workspace-write,network=none,unix=any";

/// Runs a script in the sandbox, with the command line as `$P` and the directory outside as `$OUT`.
fn inside(pinfold: &Pinfold, places: &Places, script: &str) -> String {
    let (program, out) = (pinfold.binary().display(), places.outside().display().to_string());
    run(pinfold, &format!("P={program}; OUT={out}; ({script}) 2>&1"), &places.work(), Some(SANDBOX)).1
}

/// Sends a request over the daemon's socket from inside, and gives the answer.
fn post(pinfold: &Pinfold, places: &Places, path: &str, body: &str) -> String {
    let socket = pinfold.home().join("socket");
    std::fs::write(places.work().join("body"), body).expect("a file");
    let script = format!(
        "perl -e 'use Socket; socket(my $s, 1, 1, 0); connect($s, sockaddr_un(\"{}\")) or die; open(my $f, \"<body\"); \
         my $b = join(\"\", <$f>); syswrite($s, \"POST {path} HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\
         Content-Type: application/json\\r\\nAccept: application/json, text/event-stream\\r\\nContent-Length: \" . length($b) . \"\\r\\n\\r\\n$b\"); \
         print while <$s>;'",
        socket.display()
    );
    inside(pinfold, places, &script)
}

#[test]
fn a_process_inside_starts_nothing_with_a_wider_sandbox() {
    let places = Places::new();
    for (environment, pinfold) in daemons() {
        for wider in [
            "--sandbox off",
            "--sandbox workspace-write,write=$OUT",
            "--sandbox read-only,network=full",
            "--sandbox read-only,tmp=shared",
            "--sandbox read-only,missing=best_effort",
            "--sandbox workspace-write --cwd $OUT",
        ] {
            let answer = inside(&pinfold, &places, &format!("$P run {wider} 'echo x > '$OUT/new"));
            assert!(answer.contains("may not be wider"), "{environment}, {wider}: {answer}");
            assert!(places.is_untouched(), "{environment}, {wider}");
        }
        for same in ["", "--sandbox read-only", "--sandbox workspace-write", "--cwd $OUT"] {
            let answer = inside(&pinfold, &places, &format!("$P run {same} 'echo ran; echo x > '$OUT/new"));
            assert!(answer.contains("ran") && places.is_untouched(), "{environment}, {same}: {answer}");
        }
        let started = pinfold.list(&ListQuery { limit: Some(1), ..ListQuery::default() }).processes.remove(0);
        let asked = started.sandbox.expect("a sandbox").asked;
        assert_eq!(asked.write, [places.work()], "{environment}: it has the sandbox of the process that started it");
    }
}

#[test]
fn a_process_inside_acts_only_on_processes_in_as_tight_a_sandbox() {
    let places = Places::new();
    for (environment, pinfold) in daemons() {
        let shell = StartRequest { stdin: Some(Stdin::Pipe), ..request("sh", &places.work(), None) };
        let free = pinfold.start_request(&shell).record.id;
        for act in [
            format!("echo \"echo x > $OUT/new\" | $P send {free} --stdin"),
            format!("$P send {free} hello"),
            format!("$P stop {free}"),
            format!("$P signal KILL {free}"),
            format!("$P pause {free}"),
            format!("$P restart {free}"),
            format!("$P handover {free} eve --purpose x"),
        ] {
            let answer = inside(&pinfold, &places, &format!("{act}; echo $?"));
            assert_ne!(answer.lines().last(), Some("0"), "{environment}, {act}: {answer}");
        }
        assert!(places.is_untouched(), "{environment}");
        assert!(pinfold.show(&free).outcome.is_none(), "{environment}: it runs on");
        let answer = inside(&pinfold, &places, &format!("$P stop {free}"));
        assert!(answer.contains("sandbox"), "{environment}: {answer}");
        let answer = inside(&pinfold, &places, "id=$($P run -d sleep 1000); $P stop $id && echo stopped");
        assert!(answer.contains("stopped"), "{environment}: its own can be stopped: {answer}");
        pinfold.stop(&free);
    }
}

#[test]
fn other_routes_of_the_daemon_are_closed_to_a_sandboxed_process() {
    let places = Places::new();
    for (environment, pinfold) in daemons() {
        for (path, body) in [
            ("/mcp", r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#),
            ("/v1/agents", "{}"),
            ("/v1/tokens", "{}"),
            ("/v1/shutdown", "{}"),
            ("/v1/owners/default/end", "{}"),
            ("/api/v0/processes/start", r#"{"command":"true"}"#),
        ] {
            let answer = post(&pinfold, &places, path, body);
            assert!(answer.starts_with("HTTP/1.1 403"), "{environment}, {path}: {answer}");
        }
    }
}

/// The daemon runs a command hook and sends a webhook for a process: neither is a way out.
#[test]
fn hooks_stay_in_the_sandbox() {
    let places = Places::new();
    for (environment, pinfold) in daemons() {
        let (work, out) = (places.work(), places.outside());
        let start = |notify: &str| {
            let body = format!(r#"{{"command":"true","cwd":"{}","notify":{{{notify}}}}}"#, work.display());
            post(&pinfold, &places, "/v1/processes", &body)
        };
        let answer = start(r#""webhook":"http://127.0.0.1:9/""#);
        assert!(answer.starts_with("HTTP/1.1 403"), "{environment}: {answer}");
        let answer = start(&format!(r#""command":"echo x > {}/hook""#, out.display()));
        assert!(answer.starts_with("HTTP/1.1 201"), "{environment}: {answer}");
        let hook = until_some("the hook", || {
            let list = pinfold.list(&ListQuery::default());
            list.processes.into_iter().find(|record| record.command.ends_with("/hook") && record.outcome.is_some())
        });
        assert!(places.is_untouched() && hook.sandbox.is_some(), "{environment}: {hook:?}");
    }
}

#[test]
fn a_restart_a_handover_and_a_new_daemon_keep_the_sandbox() {
    let places = Places::new();
    for (environment, pinfold) in daemons() {
        let script = format!("echo x > {}/new; echo tried; sleep 1000", places.outside().display());
        let policy = serde_json::from_value("always".into()).expect("a policy");
        let service = StartRequest { restart: Some(policy), ..request(&script, &places.work(), Some(SANDBOX)) };
        let first = pinfold.start_request(&StartRequest { name: Some("web".into()), ..service }).record;
        until_some("its attempt", || pinfold.text(&first.id).contains("tried").then_some(()));
        let to_eve = HandoverRequest { to: Some("eve".into()), purpose: "go on".into() };
        pinfold.block(pinfold.client().handover(&first.id, &to_eve)).expect("handed over");
        pinfold.crash_and_restart();
        let restarted = pinfold.cli(&["restart", &first.id]);
        assert_eq!(restarted.code, Some(0), "{environment}: {}", restarted.stderr);
        let next = until_some("its restart", || {
            let live = pinfold.list(&ListQuery { status: Some("live".into()), ..ListQuery::default() });
            live.processes.into_iter().find(|record| record.id != first.id)
        });
        until_some("its attempt", || pinfold.text(&next.id).contains("tried").then_some(()));
        assert!(places.is_untouched(), "{environment}");
        let asked = |record: &pinfold_api::types::Record| record.sandbox.clone().expect("a sandbox").asked;
        assert_eq!((asked(&next), next.owner.as_str()), (asked(&first), "eve"), "{environment}");
        pinfold.stop(&next.id);
    }
}

#[test]
fn a_floor_holds_for_an_owner_and_its_children() {
    let places = Places::new();
    let config = "[sandbox.owners.team]\nfloor = \"workspace-write,network=none\"\n\
                  [sandbox.owners.bob]\ndefault = \"read-only\"\n";
    let pinfold = Pinfold::start_with(PINFOLD, Setup { config: config.into(), ..Setup::default() });
    let start = |owner: &str, parent: Option<&str>, sandbox: Option<&str>| {
        let request = StartRequest {
            owner: Some(owner.into()),
            parent: parent.map(Into::into),
            ..request("true", &places.work(), sandbox)
        };
        pinfold.try_start(&request).map(|started| started.record.sandbox.map(|shown| shown.asked.render()))
    };
    let work = places.work().display().to_string();
    let floor = Some(format!("workspace-write,write={work},network=none"));
    assert_eq!(start("team", None, None).expect("started"), floor);
    assert_eq!(start("ann", Some("team"), None).expect("started"), floor);
    let error = start("ann", None, Some("off")).expect_err("refused");
    assert!(error.message.contains("floor in the configuration"), "{}", error.message);
    assert!(start("ann", None, Some("read-only,network=full")).is_err());
    let tighter = start("ann", None, Some("read-only")).expect("started");
    assert_eq!(tighter, Some("read-only,network=none".into()));
    assert_eq!(start("bob", None, None).expect("started"), Some("read-only".into()));
    assert_eq!(start("bob", None, Some("off")).expect("started"), None);
    assert_eq!(start("eve", None, None).expect("started"), None);
}
