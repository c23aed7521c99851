//! Starts that name no sandbox: those of coder's API and of MCP, by configuration; hosted agents and programs that sandbox
//! themselves stay outside.

use std::process::Command;

use pinfold_api::types::{AgentRequest, ListQuery, Record};
use pinfold_testkit::environments::{NOBODY, is_root};
use pinfold_testkit::{Pinfold, Setup, until_some};
use serde_json::{Value, json};

use super::{Places, daemons, run};
use crate::mcp::agent::Agent;
use crate::{PINFOLD, wire};

/// A daemon whose processes are sandboxed unless they say otherwise.
fn with_default() -> Pinfold {
    Pinfold::start_with(
        PINFOLD,
        Setup { config: "[sandbox]\ndefault = \"read-only,network=none\"\n".into(), ..Setup::default() },
    )
}

fn post(pinfold: &Pinfold, path: &str, body: &Value) -> String {
    use std::io::{Read, Write};
    let body = body.to_string();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = wire::connect(pinfold);
    stream.write_all(request.as_bytes()).expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

/// The newest process, once it has ended.
fn newest(pinfold: &Pinfold) -> Record {
    until_some("it has ended", || {
        let list = pinfold.list(&ListQuery { limit: Some(1), ..ListQuery::default() });
        list.processes.into_iter().next().filter(|record| record.outcome.is_some())
    })
}

#[test]
fn coders_routes_have_the_configured_sandbox() {
    let (places, pinfold) = (Places::new(), with_default());
    let body = json!({ "command": format!("echo x > {}/new", places.outside().display()) });
    let answer = post(&pinfold, "/api/v0/processes/start", &body);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let record = newest(&pinfold);
    assert_eq!(record.sandbox.map(|shown| shown.label), Some("read-only, no network".to_owned()));
    assert!(places.is_untouched());
}

#[test]
fn an_mcp_result_names_the_sandbox_and_what_it_refused() {
    let (places, pinfold) = (Places::new(), Pinfold::start(PINFOLD));
    let arguments = json!({
        "command": format!("touch {}/new", places.outside().display()),
        "cwd": places.work(),
        "sandbox": "workspace-write,network=none",
    });
    let called = Agent::connect(&pinfold).call("execute", arguments);
    let path = places.outside().join("new");
    let notes = called.notes();
    assert!(
        notes.contains("judging by the output, writing") && notes.contains(path.to_str().expect("text")),
        "{notes}"
    );
    assert_eq!(called.facts["sandbox"], "workspace-write, no network", "{}", called.text);
    assert!(places.is_untouched());
}

/// A hosted agent sandboxes its commands itself, which fails inside a sandbox.
#[test]
fn a_hosted_agent_has_no_sandbox_and_a_floor_refuses_it() {
    let (places, pinfold) = (Places::new(), with_default());
    std::fs::write(places.work().join("app-server"), include_str!("../agents/fake.sh")).expect("the fake");
    let request = AgentRequest {
        kind: "codex".into(),
        program: Some("/bin/sh".into()),
        cwd: Some(places.work().to_string_lossy().into_owned()),
        wait: Some("60s".into()),
        ..AgentRequest::default()
    };
    let agent = pinfold.block(pinfold.client().host_agent(&request)).expect("it is hosted");
    assert_eq!(pinfold.show(&agent.process.expect("a process")).sandbox, None);
    drop(pinfold);
    let config = "[sandbox]\nfloor = \"workspace-write\"\n".into();
    let pinfold = Pinfold::start_with(PINFOLD, Setup { config, ..Setup::default() });
    let refused = pinfold.block(pinfold.client().host_agent(&request)).expect_err("refused").to_string();
    assert!(refused.contains("floor"), "{refused}");
}

/// What codex and others need for their own sandbox works without one, and inside one it fails at once instead of half.
#[test]
fn programs_that_sandbox_themselves_still_do() {
    let places = Places::new();
    let mut own =
        vec!["unshare --user --map-root-user --mount --net sh -c 'mount -t tmpfs none /mnt && echo SANDBOXED'"];
    let bubblewrap =
        "bwrap --ro-bind / / --dev /dev --proc /proc --tmpfs /tmp --unshare-all --die-with-parent echo SANDBOXED";
    match Command::new("bwrap").arg("--version").output() {
        Ok(_) => own.push(bubblewrap),
        Err(_) => eprintln!("skipped: bubblewrap is not installed"),
    }
    for (environment, pinfold) in daemons() {
        for script in &own {
            // Where this user cannot do it without pinfold either, there is nothing to compare.
            let mut plain = Command::new("setpriv");
            if is_root() && environment.user == pinfold_testkit::environments::User::Ordinary {
                plain.args([&format!("--reuid={NOBODY}"), &format!("--regid={NOBODY}"), "--clear-groups"]);
            }
            let plain = plain.args(["sh", "-c", script]).current_dir("/").output().expect("setpriv");
            let (_, text) = run(&pinfold, script, &places.work(), None);
            let works = String::from_utf8_lossy(&plain.stdout).contains("SANDBOXED");
            assert_eq!(text.contains("SANDBOXED"), works, "{environment}, {script}: {text}");
            let (_, text) = run(&pinfold, script, &places.work(), Some("workspace-write"));
            assert!(!text.contains("SANDBOXED"), "{environment}, {script}: {text}");
        }
    }
}
