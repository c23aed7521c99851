//! Idempotency keys: a repeated start gets the process of the first one, and a process whose start was not answered can
//! still be stopped.

use std::collections::HashSet;
use std::path::PathBuf;

use pinfold_testkit::{Pinfold, until};
use serde_json::{Value, json};

use super::{ALICE, BOB, Client, Reply, with_settings};
use crate::PINFOLD;

fn keyed(command: &str, key: &str) -> Value {
    json!({ "command": command, "idempotency_key": key })
}

/// Status and code of an error.
#[track_caller]
fn code(reply: &Reply) -> (u16, String) {
    (reply.status, reply.json()["code"].as_str().unwrap_or_else(|| panic!("no code: {reply:?}")).to_owned())
}

fn signal(client: &Client<'_>, key: &str, signal: &str) -> Reply {
    client.post("/signal-by-idempotency-key", &json!({ "idempotency_key": key, "signal": signal }))
}

/// A file that the environment hook waits for, so that a start stays in progress until the test creates it.
struct Gate {
    pinfold: Pinfold,
    file: PathBuf,
}

impl Gate {
    fn new(name: &str, settings: &str) -> Self {
        let file = std::env::temp_dir().join(format!("pinfold-gate-{}-{name}", std::process::id()));
        let path = file.display();
        let hook = format!("touch {path}.stalled; until test -e {path}; do sleep 0.02; done");
        Self { pinfold: with_settings(&format!("env_command = \"{hook}\"\n{settings}")), file }
    }

    fn wait_stalled(&self) {
        until("the start is under way", || self.file.with_extension("stalled").exists());
    }

    fn open(&self) {
        std::fs::write(&self.file, "").expect("a file");
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.file);
        let _ = std::fs::remove_file(self.file.with_extension("stalled"));
    }
}

#[test]
fn a_repeated_key_gets_the_process_of_the_first_start() {
    let pinfold = Pinfold::start(PINFOLD);
    let client = Client::new(&pinfold).chat(ALICE);
    let body = json!({ "command": "echo $X; sleep 300", "idempotency_key": "k-1", "env": { "X": "secret-7" } });
    let first = client.post("/start", &body).json();
    assert_eq!((&first["started"], &first["attached"]), (&json!(true), &json!(false)));
    assert_eq!(first["idempotency_key"], "k-1");
    let id = first["id"].as_str().expect("an id");
    assert_eq!(first["started_at"], client.listed(id)["started_at_unix"]);
    let again = client.post("/start", &body).json();
    assert_eq!((&again["started"], &again["attached"]), (&json!(false), &json!(true)));
    for field in ["id", "idempotency_key", "started_at"] {
        assert_eq!(again[field], first[field], "{field}");
    }
    assert_eq!(client.list().len(), 1);
    // Without a key every request starts something.
    let plain = client.post("/start", &json!({ "command": "true" })).json();
    assert_eq!(
        (&plain["started"], &plain["attached"], plain.get("idempotency_key")),
        (&json!(true), &json!(false), None)
    );
    assert!(plain["started_at"].is_u64(), "{plain}");
}

#[test]
fn a_key_survives_the_daemon_and_the_end_of_its_process() {
    let pinfold = Pinfold::start(PINFOLD);
    let client = Client::new(&pinfold).chat(ALICE);
    let long = "k".repeat(3_000);
    let bodies = [keyed("sleep 300", "lives"), keyed("echo done", &long), keyed("exit 3", "ki\u{0}\n☃")];
    let first: Vec<Value> = bodies.iter().map(|body| client.post("/start", body).json()).collect();
    for ended in &first[1..] {
        client.waited(ended["id"].as_str().expect("an id"));
    }
    let ended = first[1]["id"].as_str().expect("an id");
    until("it is written down", || client.output(ended)["state"] == "finished");
    pinfold.kill_daemon();
    pinfold.start_daemon();
    for (body, before) in bodies.iter().zip(&first) {
        let again = client.post("/start", body).json();
        assert_eq!((&again["id"], &again["attached"]), (&before["id"], &json!(true)), "{again}");
        let other = client.post("/start", &json!({ "command": "other", "idempotency_key": body["idempotency_key"] }));
        assert_eq!(code(&other), (409, "input_mismatch".to_owned()));
    }
    assert_eq!(code(&signal(&client, &long, "kill")), (409, "not_running".to_owned()));
    assert_eq!(signal(&client, "lives", "kill").status, 200);
    client.waited(first[0]["id"].as_str().expect("an id"));
}

#[test]
fn a_key_with_other_parameters_is_a_conflict() {
    let pinfold = Pinfold::start(PINFOLD);
    let client = Client::new(&pinfold);
    let body = json!({ "command": "sleep 300", "idempotency_key": "k", "env": { "A": "1" } });
    let id = client.start_with(&body);
    for (field, value) in [
        ("command", json!("sleep 301")),
        ("workdir", json!("/")),
        ("background", json!(true)),
        ("env", json!({ "A": "2" })),
        ("env", json!({ "A": "1", "B": "" })),
        ("env", json!({})),
    ] {
        let mut other = body.clone();
        other[field] = value;
        let reply = client.post("/start", &other);
        assert_eq!(code(&reply), (409, "input_mismatch".to_owned()), "{other}");
        let message = "Idempotency key was already used to start a process with different parameters.";
        assert_eq!(reply.error().1, message);
        assert!(!reply.detail().is_empty());
    }
    let fields = crate::wire::send(&pinfold, "GET", "/v1/processes", b"").body;
    assert!(!fields.contains("\"A\":\"1\""), "values of the environment are nowhere: {fields}");
    assert_eq!(client.start_with(&body), id);
    assert_eq!(client.list().len(), 1);
}

#[test]
fn a_key_belongs_to_one_chat() {
    let pinfold = Pinfold::start(PINFOLD);
    let operator = Client::new(&pinfold);
    let (alice, bob) = (operator.chat(ALICE), operator.chat(BOB));
    let body = keyed("sleep 300", "same");
    let ids: HashSet<String> = [operator, alice, bob].iter().map(|client| client.start_with(&body)).collect();
    assert_eq!(ids.len(), 3);
    // The same key and chat on the other routes is independent.
    let native = json!({ "command": "true", "idempotency_key": "same", "owner": format!("coder-{ALICE}") });
    assert_eq!(crate::wire::send(&pinfold, "POST", "/v1/processes", native.to_string().as_bytes()).status, 201);
    bob.start_with(&keyed("sleep 300", "his"));
    assert_eq!(code(&signal(&alice, "his", "kill")), (404, "process_key_not_found".to_owned()));
    assert_eq!(signal(&alice, "same", "kill").status, 200);
    assert_eq!(bob.start_with(&body), bob.start_with(&body));
    assert!(bob.list().iter().all(|info| info["running"] == true));
}

#[test]
fn starts_at_the_same_time_with_one_key_start_one_process() {
    let pinfold = Pinfold::start(PINFOLD);
    let client = Client::new(&pinfold).chat(ALICE);
    let body = keyed("sleep 300", "race");
    let replies: Vec<Value> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..12).map(|_| scope.spawn(|| client.post("/start", &body).json())).collect();
        threads.into_iter().map(|thread| thread.join().expect("an answer")).collect()
    });
    let ids: HashSet<_> = replies.iter().map(|reply| reply["id"].as_str().expect("an id")).collect();
    assert_eq!(ids.len(), 1, "{replies:?}");
    assert_eq!(replies.iter().filter(|reply| reply["attached"] == false).count(), 1);
    assert_eq!(client.list().len(), 1);
}

#[test]
fn a_start_in_progress_is_waited_for_and_not_treated_as_missing() {
    let gate = Gate::new("waits", "");
    let client = Client::new(&gate.pinfold).chat(ALICE);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| client.post("/start", &keyed("sleep 300", "k")).json());
        gate.wait_stalled();
        let again = scope.spawn(|| client.post("/start", &keyed("sleep 300", "k")).json());
        let kill = scope.spawn(|| signal(&client, "k", "kill"));
        let other = client.post("/start", &keyed("other", "k"));
        assert_eq!(code(&other), (409, "input_mismatch".to_owned()), "that needs no waiting");
        gate.open();
        let (first, again) = (first.join().expect("an answer"), again.join().expect("an answer"));
        assert_eq!((&first["attached"], &again["attached"]), (&json!(false), &json!(true)));
        assert_eq!(first["id"], again["id"]);
        let killed = kill.join().expect("an answer");
        assert_eq!((killed.status, &killed.json()["message"]), (200, &json!("Signal \"kill\" sent.")));
        client.waited(first["id"].as_str().expect("an id"));
    });
}

#[test]
fn a_wait_for_a_start_that_times_out_says_that_the_start_is_pending() {
    let gate = Gate::new("pending", "wait_cap = \"50ms\"");
    let client = Client::new(&gate.pinfold).chat(ALICE);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| client.post("/start", &keyed("sleep 300", "k")).json());
        gate.wait_stalled();
        let again = client.post("/start", &keyed("sleep 300", "k"));
        assert_eq!(code(&again), (409, "start_pending".to_owned()));
        let message = "Timed out waiting for the concurrent start that holds this idempotency key.";
        assert_eq!(again.error().1, message);
        let signalled = signal(&client, "k", "kill");
        assert_eq!(code(&signalled), (409, "start_pending".to_owned()));
        let message = "The start holding this idempotency key has not spawned its process yet.";
        assert_eq!(signalled.error().1, message);
        gate.open();
        let first = first.join().expect("an answer");
        assert_eq!(client.start_with(&keyed("sleep 300", "k")), first["id"]);
        assert_eq!(signal(&client, "k", "terminate").status, 200);
    });
}

#[test]
fn a_start_completes_although_its_client_disconnected() {
    use std::io::Write;
    let gate = Gate::new("gone", "");
    let client = Client::new(&gate.pinfold);
    let body = keyed("sleep 300", "lost").to_string();
    let mut stream = crate::wire::connect(&gate.pinfold);
    let head = "POST /api/v0/processes/start HTTP/1.1\r\nHost: p";
    write!(stream, "{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).expect("a request");
    gate.wait_stalled();
    drop(stream);
    gate.open();
    let reply = client.post("/start", &keyed("sleep 300", "lost")).json();
    assert_eq!(reply["attached"], true, "{reply}");
    assert_eq!(signal(&client, "lost", "kill").status, 200);
}

#[test]
fn a_failed_start_releases_its_key() {
    let pinfold = Pinfold::start(PINFOLD);
    let client = Client::new(&pinfold);
    let directory = std::env::temp_dir().join(format!("pinfold-key-{}", std::process::id()));
    let refused = json!({ "command": "true", "idempotency_key": "k", "workdir": directory });
    assert_eq!(client.post("/start", &refused).error().0, 500);
    assert_eq!(code(&signal(&client, "k", "kill")), (404, "process_key_not_found".to_owned()));
    std::fs::create_dir(&directory).expect("a directory");
    let started = client.post("/start", &refused).json();
    assert_eq!(started["attached"], false, "{started}");
    // A start that fails at exec leaves a record, and its key is free again too.
    let name = "X".repeat(200_000);
    let too_large = json!({ "command": "true", "idempotency_key": "large", "env": { name: "1" } });
    for _ in 0..2 {
        let reply = client.post("/start", &too_large);
        assert_eq!(reply.error(), (500, "Failed to start process.".to_owned()));
    }
    assert_eq!(code(&signal(&client, "large", "kill")), (404, "process_key_not_found".to_owned()));
    assert_eq!(client.post("/start", &keyed("true", "large")).json()["attached"], false);
    std::fs::remove_dir(&directory).expect("removed");
}

#[test]
fn a_signal_by_key_is_judged_in_coders_order() {
    let pinfold = Pinfold::start(PINFOLD);
    let client = Client::new(&pinfold);
    let send = |body: &str| client.send("POST", "/signal-by-idempotency-key", body.as_bytes());
    let error = |status: u16, message: &str| (status, message.to_owned());
    assert_eq!(send("{bad").error(), error(400, "Request body must be valid JSON."));
    assert_eq!(send(r#"{"signal":7}"#).error(), error(400, "Request body must be valid JSON."));
    assert_eq!(send(r#"{"signal":"nope"}"#).error(), error(400, "Idempotency key is required."));
    assert_eq!(send(r#"{"idempotency_key":"k"}"#).error(), error(400, "Signal is required."));
    let unsupported = error(400, "Unsupported signal \"HUP\". Use \"kill\" or \"terminate\".");
    assert_eq!(send(r#"{"idempotency_key":"k","signal":"HUP"}"#).error(), unsupported);
    let missing = send(r#"{"idempotency_key":"k","signal":"kill"}"#);
    assert_eq!(code(&missing), (404, "process_key_not_found".to_owned()));
    assert_eq!(missing.error(), error(404, "No process was started with this idempotency key."));
    let id = client.start_with(&keyed("true", "k"));
    client.waited(&id);
    until("all of it is over", || client.output(&id)["state"] == "finished");
    let over = send(r#"{"idempotency_key":"k","signal":"kill"}"#);
    assert_eq!(code(&over), (409, "not_running".to_owned()));
    assert_eq!(over.error(), error(409, "The process started with this idempotency key is not running."));
    assert_eq!(client.get("/signal-by-idempotency-key").status, 405);
}
