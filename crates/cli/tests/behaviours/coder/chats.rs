//! Chats: what each sees, and which chat ids are refused.

use pinfold_testkit::Pinfold;
use serde_json::json;

use super::{ALICE, BOB, Client, ids};
use crate::PINFOLD;

#[test]
fn list_chat_filter() {
    let pinfold = Pinfold::start(PINFOLD);
    let client = Client::new(&pinfold);
    let (alice, bob) = (client.chat(ALICE), client.chat(BOB));
    let mut hers = [alice.start("sleep 300"), alice.start("true")];
    let his = bob.start("sleep 300");
    hers.iter().for_each(|id| drop(alice.get(&format!("/{id}/output"))));
    let sorted = |list: Vec<serde_json::Value>| {
        let mut ids: Vec<String> = ids(&list).into_iter().map(str::to_owned).collect();
        ids.sort();
        ids
    };
    hers.sort();
    assert_eq!(sorted(alice.list()), hers);
    assert_eq!(sorted(bob.list()), [his]);
    assert_eq!(client.list().len(), 3);
    assert_eq!(client.get("/list").json()["total"], 3);
    assert_eq!(alice.get("/list").json()["total"], 2);
    assert_eq!(client.chat("00000000-0000-4000-8000-000000000001").list().len(), 0);
}

#[test]
fn chatless_processes_are_the_operators() {
    let pinfold = Pinfold::start(PINFOLD);
    let client = Client::new(&pinfold);
    let id = client.start("sleep 300");
    let alice = client.chat(ALICE);
    let gone = (404, format!("Process \"{id}\" not found."));
    assert_eq!(alice.list().len(), 0);
    assert_eq!(alice.get(&format!("/{id}/output")).error(), gone);
    assert_eq!(alice.signal(&id, "kill").error(), gone);
    assert_eq!(client.output(&id)["running"], true);
    assert_eq!(client.signal(&id, "kill").status, 200);
}

#[test]
fn a_parent_sees_its_sub_agents_and_not_the_reverse() {
    let pinfold = Pinfold::start(PINFOLD);
    let client = Client::new(&pinfold);
    let (parent, child) = (client.chat(ALICE), client.chat(BOB).below(ALICE));
    let own = parent.start("sleep 300");
    let below = child.start("sleep 300");
    assert_eq!(parent.list().len(), 2);
    assert_eq!(ids(&child.list()), [below.as_str()]);
    assert_eq!(child.signal(&own, "kill").status, 404);
    // Another ancestor later changes nothing, and does not prevent starts.
    let stranger = "00000000-0000-4000-8000-000000000001";
    client.chat(BOB).below(stranger).start("true");
    assert_eq!(client.chat(stranger).list().len(), 0);
    assert_eq!(parent.signal(&below, "kill").status, 200);
}

#[test]
fn a_malformed_chat_is_an_error_and_not_a_wider_view() {
    let pinfold = Pinfold::start(PINFOLD);
    let client = Client::new(&pinfold);
    let id = client.start("sleep 300");
    for chat in ["not-a-uuid", "", "00000000-0000-0000-0000-000000000000", "6ba7b810-9dad-11d1-80b4-00c04fd430c"] {
        let bad = client.chat(chat);
        for reply in [
            bad.get("/list"),
            bad.get(&format!("/{id}/output")),
            bad.signal(&id, "kill"),
            bad.post("/start", &json!({ "command": "true" })),
        ] {
            let (status, message) = reply.error();
            assert!(status == 400 && message.starts_with("Coder-Chat-Id"), "{reply:?}");
        }
    }
    let both =
        format!("GET /api/v0/processes/list HTTP/1.1\r\nHost: p\r\nConnection: close\r\nCoder-Chat-Id: {ALICE}\r\n");
    let reply = client.raw(format!("{both}Pinfold-Owner: ann\r\n\r\n").as_bytes());
    assert_eq!(reply.status, 400, "{reply:?}");
    assert_eq!(client.output(&id)["running"], true);
}

#[test]
fn ids_are_stable_and_lead_to_every_process() {
    let pinfold = Pinfold::start(PINFOLD);
    let client = Client::new(&pinfold);
    let native = pinfold.sh("echo native; sleep 300").id;
    let list = client.list();
    let [id] = ids(&list)[..] else { panic!("one process: {list:?}") };
    assert!(!id.contains(&native));
    assert_eq!(list[0]["background"], false);
    for word in [native.as_str(), "name", "%2e%2e", &id.to_uppercase(), &id[1..]] {
        assert_eq!(client.get(&format!("/{word}/output")).status, 404, "{word}");
    }
    pinfold.crash_and_restart();
    assert_eq!(ids(&client.list()), [id]);
    assert_eq!(client.output(id)["running"], true);
}

#[test]
fn access_log_chat_id() {
    let pinfold = Pinfold::start(PINFOLD);
    let client = Client::new(&pinfold);
    client.get("/list");
    client.chat(&ALICE.to_uppercase()).below(BOB).get("/list");
    client.chat("not-a-uuid").get("/list");
    let id = client.chat(ALICE).start("echo secret words");
    let log = std::fs::read_to_string(pinfold.home().join("daemon.log")).expect("a log");
    let lines = log.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"));
    let lines: Vec<_> = lines.filter(|line| line["message"] == "coder request").collect();
    let fact = |at: usize, name: &str| lines[at][name].as_str().map(str::to_owned);
    assert_eq!(lines.len(), 4, "one line for each request");
    for at in 0..3 {
        assert_eq!(fact(at, "method").as_deref(), Some("GET"));
        assert_eq!(fact(at, "path").as_deref(), Some("/api/v0/processes/list"));
    }
    let chats: Vec<_> = (0..4).map(|at| fact(at, "chat_id")).collect();
    assert_eq!(chats, [None, Some(ALICE.into()), None, Some(ALICE.to_owned())]);
    assert_eq!(fact(1, "ancestor_chat_ids").as_deref(), Some(BOB));
    assert_eq!((&lines[2]["status"], &lines[3]["status"]), (&json!(400), &json!(200)));
    assert!(!log.contains("secret words"));
    drop(id);
}
