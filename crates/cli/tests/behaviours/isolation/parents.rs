//! Who may set the parent of an owner: an operator; a bound caller only for new owners below itself.

use std::collections::HashSet;

use pinfold_api::client::Client;
use pinfold_api::types::{EventsQuery, ListQuery, StartRequest};
use pinfold_testkit::Pinfold;
use serde_json::Value;

use super::tcp::{ask, bearer, listening, token};

const START: &str = r#"{"command":"sleep 300"}"#;
const CHAT: &str = "6ba7b810-9dad-11d1-80b4-00c04fd430c8";

fn sleeper() -> StartRequest {
    StartRequest { command: Some("sleep 300".into()), ..StartRequest::default() }
}

/// The parent of an owner, according to `GET /v1/owners`.
fn parent_of(pinfold: &Pinfold, owner: &str) -> Option<String> {
    let owners = pinfold.block(pinfold.client().owners()).expect("owners").owners;
    owners.into_iter().find(|one| one.owner == owner).and_then(|one| one.parent)
}

/// A request of a caller with a bound token: method, target, headers and body.
type Attempt<'a> = (&'a str, &'a str, Vec<(&'a str, &'a str)>, String);

/// Every way to name `b` together with a parent.
fn attempts<'a>(b: &'a str, parent: &'a str) -> Vec<Attempt<'a>> {
    let both = || vec![("Pinfold-Owner", b), ("Pinfold-Parent", parent)];
    let body = |more: &str| format!(r#"{{"command":"sleep 300",{more}}}"#);
    let of_b = body(&format!(r#""owner":"{b}","parent":"{parent}""#));
    let call =
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"execute","arguments":{"command":"true"}}}"#;
    let mcp = || vec![("Content-Type", "application/json"), ("Accept", "application/json, text/event-stream")];
    vec![
        ("GET", "/v1/processes", both(), String::new()),
        ("GET", "/v1/events?consumer=c", both(), String::new()),
        ("POST", "/v1/processes", both(), START.into()),
        ("POST", "/v1/processes", both(), of_b.clone()),
        ("POST", "/v1/processes", vec![], of_b.clone()),
        ("POST", "/v1/processes", vec![("Pinfold-Owner", parent)], of_b.clone()),
        ("POST", "/v1/processes", vec![("Pinfold-Owner", b)], body(&format!(r#""parent":"{parent}""#))),
        ("POST", "/v1/processes", vec![("Pinfold-Parent", b)], of_b),
        ("POST", "/v1/agents", both(), r#"{"kind":"claude","mode":"fresh"}"#.into()),
        (
            "POST",
            "/v1/agents",
            vec![],
            format!(r#"{{"kind":"claude","mode":"fresh","owner":"{b}","parent":"{parent}"}}"#),
        ),
        ("POST", "/mcp", [both(), mcp()].concat(), call.into()),
    ]
}

/// Creates owners in each way that there is.
fn existing(pinfold: &Pinfold) -> Vec<&'static str> {
    let acting = |owner: &str| pinfold.client().acting_as(owner, None);
    token(pinfold, Some("has-token"), None);
    token(pinfold, Some("had-token"), Some("0"));
    pinfold.block(acting("had-contact").list(&ListQuery::default())).expect("a list");
    pinfold.block(acting("has-process").start(&sleeper())).expect("a start");
    let brief = StartRequest { command: Some("true".into()), ..StartRequest::default() };
    let over = pinfold.block(acting("had-process").start(&brief)).expect("a start");
    pinfold.wait_finished(&over.record.id);
    let reading = EventsQuery { consumer: Some("news".into()), ..EventsQuery::default() };
    pinfold.block(acting("has-consumer").events(&reading)).expect("events");
    pinfold.block(pinfold.client().acting_as("child", Some("is-parent")).start(&sleeper())).expect("a start");
    pinfold.sh("true");
    vec![
        "has-token",
        "had-token",
        "had-contact",
        "has-process",
        "had-process",
        "has-consumer",
        "is-parent",
        "child",
        "default",
    ]
}

#[test]
fn a_bound_token_cannot_become_the_parent_of_an_owner_that_exists() {
    let pinfold = listening();
    let auth = bearer(&token(&pinfold, Some("a"), None).token);
    let victims = existing(&pinfold);
    let before: Vec<_> = victims.iter().map(|victim| parent_of(&pinfold, victim)).collect();
    let started = pinfold.list(&ListQuery::default()).total;
    for restarted in [false, true] {
        for victim in &victims {
            // Contacts are remembered only by the running daemon; an owner that only had contact owns nothing that a
            // parent could see.
            if restarted && *victim == "had-contact" {
                continue;
            }
            for (method, target, headers, body) in attempts(victim, "a") {
                let headers: Vec<_> = [("Authorization", auth.as_str())].into_iter().chain(headers).collect();
                let (status, answer) = ask(&pinfold, method, target, &headers, &body);
                assert!(
                    (400..500).contains(&status),
                    "{victim}: {method} {target} {headers:?} {body}: {status} {answer}"
                );
            }
        }
        let after: Vec<_> = victims.iter().map(|victim| parent_of(&pinfold, victim)).collect();
        assert_eq!(after, before);
        assert_eq!(pinfold.list(&ListQuery::default()).total, started, "nothing was started");
        pinfold.crash_and_restart();
    }
    let chat = [("Authorization", auth.as_str()), ("Coder-Chat-Id", CHAT)];
    let owner = format!("coder-{CHAT}");
    pinfold.block(pinfold.client().acting_as(&owner, None).start(&sleeper())).expect("a start");
    assert!(ask(&pinfold, "GET", "/api/v0/processes/list", &chat, "").0 >= 400);
    assert_eq!(parent_of(&pinfold, &owner), None);
}

#[test]
fn a_bound_token_cannot_name_a_stranger_as_its_parent() {
    let pinfold = listening();
    let auth = bearer(&token(&pinfold, Some("b"), None).token);
    let stranger = pinfold.client().acting_as("stranger", None);
    pinfold.block(stranger.start(&sleeper())).expect("a start");
    for parent in ["stranger", "not-existing-yet", "b"] {
        for (method, target, headers, body) in attempts("b", parent) {
            if headers.is_empty() && body.is_empty() {
                continue;
            }
            let headers: Vec<_> = [("Authorization", auth.as_str())].into_iter().chain(headers).collect();
            let (status, answer) = ask(&pinfold, method, target, &headers, &body);
            assert!((400..500).contains(&status), "{method} {target} {headers:?} {body}: {status} {answer}");
        }
    }
    assert_eq!(parent_of(&pinfold, "b"), None);
    assert_eq!(pinfold.block(stranger.list(&ListQuery::default())).expect("a list").total, 1);
}

#[test]
fn a_bound_token_makes_new_owners_below_itself_which_stay_its_own() {
    let pinfold = listening();
    let auth = bearer(&token(&pinfold, Some("a"), None).token);
    let as_owner = |owner: &str, parent: Option<&str>, target: &str| {
        let mut headers = vec![("Authorization", auth.as_str()), ("Pinfold-Owner", owner)];
        headers.extend(parent.map(|parent| ("Pinfold-Parent", parent)));
        ask(&pinfold, "GET", target, &headers, "").0
    };
    assert_eq!(as_owner("new", None, "/v1/processes"), 404, "a mistyped owner is not made silently");
    assert_eq!(as_owner("new", Some("a"), "/v1/events?consumer=news"), 200);
    assert_eq!(as_owner("new", Some("a"), "/v1/processes"), 200);
    assert_eq!(as_owner("newer", Some("new"), "/v1/processes"), 200);
    assert_eq!(as_owner("new", None, "/v1/processes"), 200, "it is in view now");
    assert_eq!((parent_of(&pinfold, "new"), parent_of(&pinfold, "newer")), (Some("a".into()), Some("new".into())));
    pinfold.crash_and_restart();
    assert_eq!(as_owner("new", Some("a"), "/v1/consumers"), 200, "its consumer is still its own");
    assert_eq!(as_owner("new", Some("newer"), "/v1/processes"), 400, "the first parent stands");
}

/// Two tokens claim the same new names at the same moment: each name gets one parent, and the other request is refused.
#[test]
fn of_two_concurrent_claims_of_a_new_owner_one_is_refused() {
    let pinfold = listening();
    let tokens = ["a", "c"].map(|owner| (owner, bearer(&token(&pinfold, Some(owner), None).token)));
    let wins: HashSet<(String, &str)> = std::thread::scope(|scope| {
        let claims = tokens.iter().map(|(owner, auth)| {
            let pinfold_tcp = pinfold.health().tcp.expect("it listens");
            scope.spawn(move || {
                let claim = |number: usize| {
                    let name = format!("new-{number}");
                    let headers =
                        [("Authorization", auth.as_str()), ("Pinfold-Owner", &name), ("Pinfold-Parent", owner)];
                    let status =
                        super::tcp::ask_at(&pinfold_tcp, "POST", "/v1/processes", &headers, r#"{"command":"true"}"#).0;
                    (status == 201).then_some((name, *owner))
                };
                (0..20).filter_map(claim).collect::<Vec<_>>()
            })
        });
        let claims: Vec<_> = claims.collect();
        claims.into_iter().flat_map(|claim| claim.join().expect("it ran")).collect()
    });
    assert_eq!(wins.len(), 20, "{wins:?}");
    for (name, owner) in wins {
        assert_eq!(parent_of(&pinfold, &name).as_deref(), Some(owner), "{name}");
    }
}

/// An operator may set the parent of an existing owner.
#[test]
fn an_operator_gives_an_owner_its_parent() {
    let pinfold = listening();
    token(&pinfold, Some("b"), None);
    let placed: Client = pinfold.client().acting_as("b", Some("boss"));
    pinfold.block(placed.start(&sleeper())).expect("a start");
    let auth = bearer(&token(&pinfold, Some("boss"), None).token);
    let (status, body) = ask(&pinfold, "GET", "/v1/processes", &[("Authorization", &auth)], "");
    let list: Value = serde_json::from_str(&body).expect("json");
    assert_eq!((status, list["total"].as_u64()), (200, Some(1)));
}
