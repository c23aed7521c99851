//! Lists: order, maximum, and how long ended processes are listed.

use pinfold_testkit::{Pinfold, until};
use serde_json::json;

use super::{ALICE, BOB, Client, ids, with_settings};
use crate::PINFOLD;

#[test]
fn list_order_and_cap() {
    let pinfold = Pinfold::start(PINFOLD);
    let client = Client::new(&pinfold);
    assert_eq!(client.get("/list").body, "{\"processes\":[],\"total\":0}\n");
    let mut ended = Vec::new();
    for _ in 0..12 {
        let id = client.start("true");
        client.waited(&id);
        pinfold.wait_finished(&native(&pinfold, ended.len()));
        ended.insert(0, id);
    }
    let list = client.list();
    assert_eq!(ids(&list), ended[..10].iter().map(String::as_str).collect::<Vec<_>>(), "the ten newest, newest first");
    assert!(list.iter().all(|info| info["exit_code"] == 0 && info["running"] == false));
    assert_eq!(client.get("/list").json()["total"], 12);
    let mut running: Vec<_> = (0..11).map(|_| client.start("sleep 300")).collect();
    running.reverse();
    let list = client.list();
    let all: Vec<_> = running.iter().chain(&ended[..10]).map(String::as_str).collect();
    assert_eq!(ids(&list), all, "all that run come first");
    let first = &list[0];
    assert!(first.get("exit_code").is_none() && first.get("exited_at_unix").is_none(), "{first}");
    assert!(first["pid"].is_u64() && first["started_at_unix"].is_u64(), "{first}");
    assert!(list[11]["exited_at_unix"].as_u64() >= list[11]["started_at_unix"].as_u64());
    assert_eq!(client.get("/list").json()["total"], 23);
}

/// pinfold's own id of the newest process, after this many have ended.
fn native(pinfold: &Pinfold, before: usize) -> String {
    let list = pinfold.list(&pinfold_api::types::ListQuery::default());
    assert_eq!(list.total as usize, before + 1);
    let newest = list.processes.into_iter().max_by(|one, other| one.created_at.cmp(&other.created_at));
    newest.expect("a process").id
}

#[test]
fn reap_after_5min() {
    assert!(pinfold_daemon_default().contains("list_for = \"300s\""));
    let pinfold = with_settings("list_for = \"1s\"");
    let client = Client::new(&pinfold);
    let (alice, bob) = (client.chat(ALICE), client.chat(BOB));
    let stays = bob.start("sleep 300");
    let id = alice.start("echo kept");
    alice.waited(&id);
    until("it leaves the list", || alice.list().is_empty());
    assert_eq!(client.get("/list").json()["total"], 1);
    let output = alice.output(&id);
    assert_eq!((&output["output"], &output["exit_code"]), (&json!("kept\n"), &json!(0)), "still readable by id");
    assert_eq!(alice.signal(&id, "kill").status, 409);
    assert_eq!(ids(&bob.list()), [stays.as_str()]);
    // Listing by one chat does not affect another.
    let his = bob.start("echo his");
    bob.waited(&his);
    alice.list();
    assert_eq!(bob.output(&his)["output"], "his\n");
}

/// The configuration as a person would see it.
fn pinfold_daemon_default() -> String {
    let pinfold = Pinfold::prepare(PINFOLD, pinfold_testkit::Setup::default());
    pinfold.cli(&["config", "default"]).stdout
}

#[test]
fn a_lingering_tree_stays_listed_and_signalable() {
    let pinfold = with_settings("list_for = \"1ms\"");
    let client = Client::new(&pinfold);
    // The leader exits at once; its stray holds neither pipe nor process group.
    let id = client.start("setsid sleep 300 >/dev/null 2>&1 & echo started");
    let output = client.waited(&id);
    assert_eq!(
        (&output["output"], &output["exit_code"], &output["state"]),
        (&json!("started\n"), &json!(0), &json!("lingering"))
    );
    let info = client.listed(&id);
    assert_eq!((&info["running"], &info["exit_code"], &info["state"]), (&json!(false), &json!(0), &json!("lingering")));
    assert_eq!(client.signal(&id, "kill").status, 200);
    until("nothing is left", || client.output(&id)["state"] == "finished");
    assert_eq!(client.output(&id)["exit_code"], 0, "the root's own code stays");
    assert_eq!(client.signal(&id, "kill").status, 409);
}
