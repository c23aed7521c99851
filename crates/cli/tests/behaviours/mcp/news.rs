//! News: what ended is reported once, with the next result, so that a model need not poll.

use pinfold_api::types::EventsQuery;
use pinfold_testkit::{Pidfd, Pinfold, until};
use serde_json::{Value, json};

use super::agent::{Agent, Called, shim};
use crate::PINFOLD;
use crate::requests::Gate;

/// Starts a command in the background and lets it end like this after the call was answered: an earlier end would be
/// part of that answer.
fn ends_later(pinfold: &Pinfold, agent: &mut Agent, end: &str) -> String {
    let gate = Gate::new(pinfold, &format!("gate-{}", end.replace(' ', "-").replace(';', "")));
    let id = agent.background(&format!("{}; {end}", gate.wait()));
    gate.open();
    id
}

fn news_ids(called: &Called) -> Vec<String> {
    called.news().iter().map(|news| news["id"].as_str().unwrap_or_default().to_owned()).collect()
}

/// Calls until there is news; returns it.
fn until_news(agent: &mut Agent) -> Vec<Value> {
    let mut news = Vec::new();
    until("news", || {
        news = agent.call("process_list", json!({ "status": "lost" })).news();
        !news.is_empty()
    });
    news
}

#[test]
fn ends_are_reported_once_with_the_next_result() {
    let pinfold = Pinfold::start(PINFOLD);
    let mut agent = Agent::connect_with(shim(&pinfold, &["--owner", "chat"]));
    let id = ends_later(&pinfold, &mut agent, "echo last words; exit 5");
    pinfold.wait_finished(&id);
    let news = until_news(&mut agent);
    assert_eq!((&news[0]["id"], &news[0]["exit_code"]), (&json!(id), &json!(5)));
    assert_eq!((&news[0]["event"], &news[0]["last_output"]), (&json!("ended"), &json!("last words\n")));
    // Not reported again, nor what a result itself shows, nor to another owner.
    for _ in 0..3 {
        assert_eq!(news_ids(&agent.execute("true")), [""; 0]);
    }
    assert_eq!(news_ids(&Agent::connect(&pinfold).execute("true")), [""; 0]);
}

#[test]
fn an_end_that_was_shown_is_not_news() {
    let pinfold = Pinfold::start(PINFOLD);
    let mut agent = Agent::connect_with(shim(&pinfold, &["--owner", "chat"]));
    let id = ends_later(&pinfold, &mut agent, "exit 5");
    assert_eq!(agent.call("process_wait", json!({ "id": id })).facts["exit_code"], 5);
    assert_eq!(news_ids(&agent.execute("true")), [""; 0]);
    agent.hang_up();
    drop(agent);
    // Another process ends, so that the next result has some news.
    let mut next = Agent::connect_with(shim(&pinfold, &["--owner", "chat"]));
    let other = ends_later(&pinfold, &mut next, "exit 6");
    pinfold.wait_finished(&other);
    assert!(until_news(&mut next).iter().any(|news| news["id"] == other.as_str()));
}

#[test]
fn m4_neither_a_crash_nor_a_cancelled_call_loses_an_end() {
    let pinfold = Pinfold::start(PINFOLD);
    let owner = ["--owner", "chat"];
    let mut agent = Agent::connect_with(shim(&pinfold, &owner));
    let id = ends_later(&pinfold, &mut agent, "exit 5");
    let waiting =
        agent.begin_call("process_wait", json!({ "id": id, "until": "match", "pattern": "never", "timeout": "40s" }));
    agent.notify("notifications/cancelled", json!({ "requestId": waiting }));
    pinfold.wait_finished(&id);
    Pidfd::open(agent.shim.id()).expect("a shim").kill();
    let mut next = Agent::connect_with(shim(&pinfold, &owner));
    assert_eq!(until_news(&mut next)[0]["id"], id.as_str());
}

/// A server that was killed after it fetched an end has reported it to no client. The next server must not acknowledge
/// it together with its own news.
#[test]
fn what_a_killed_server_had_fetched_is_reported_by_the_next() {
    let pinfold = Pinfold::start(PINFOLD);
    let mut agent = Agent::connect_with(shim(&pinfold, &["--owner", "chat"]));
    let first = ends_later(&pinfold, &mut agent, "exit 5");
    pinfold.wait_finished(&first);
    // What the server does between its fetch and its result; then it is gone.
    let query = EventsQuery {
        consumer: Some("agent".into()),
        reader: Some("killed".into()),
        kinds: Some("announce".into()),
        lease: Some("2s".into()),
        ..EventsQuery::default()
    };
    let owner = pinfold.client().acting_as("chat", None);
    until("the end is fetched", || {
        let page = pinfold.block(owner.events(&query)).expect("events");
        page.events.iter().any(|event| event.process == first)
    });
    Pidfd::open(agent.shim.id()).expect("a shim").kill();
    let mut next = Agent::connect_with(shim(&pinfold, &["--owner", "chat"]));
    let second = ends_later(&pinfold, &mut next, "exit 6");
    pinfold.wait_finished(&second);
    let mut ids = Vec::new();
    until("both are reported", || {
        ids.extend(until_news(&mut next).iter().filter_map(|news| news["id"].as_str().map(str::to_owned)));
        ids.len() >= 2
    });
    assert_eq!(ids, [first, second]);
}

#[test]
fn many_ends_are_reported_in_few_bytes() {
    let pinfold = Pinfold::start(PINFOLD);
    let mut agent = Agent::connect_with(shim(&pinfold, &["--owner", "chat"]));
    let gate = Gate::new(&pinfold, "gate");
    let ids: Vec<String> = (0..30).map(|n| agent.background(&format!("{}; echo end {n}", gate.wait()))).collect();
    gate.open();
    let all = pinfold.list(&Default::default());
    assert_eq!(all.total, 30);
    for id in &ids {
        pinfold.wait_finished(id);
    }
    until("all ends are written down", || {
        pinfold.events(0).events.iter().filter(|event| event.completion).count() == 30
    });
    let called = agent.call("process_list", json!({ "status": "lost" }));
    assert_eq!((called.news().len(), &called.facts["more_news"]), (25, &json!(5)), "{}", called.text);
    assert_eq!(called.news().iter().filter(|news| news["last_output"].is_string()).count(), 5);
}

#[test]
fn what_a_parallel_call_reports_is_not_reported_again() {
    let pinfold = Pinfold::start(PINFOLD);
    let mut agent = Agent::connect(&pinfold);
    for round in 0..5 {
        let gate = Gate::new(&pinfold, &format!("gate-{round}"));
        let calls: Vec<(u64, u64)> = (0..8)
            .map(|code| {
                (agent.begin_call("execute", json!({ "command": format!("{}; exit {code}", gate.wait()) })), code)
            })
            .collect();
        gate.open();
        for (call, code) in calls {
            let called = agent.called(call);
            assert_eq!(
                (called.facts["exit_code"].as_u64(), news_ids(&called)),
                (Some(code), vec![]),
                "{}",
                called.text
            );
        }
    }
}

/// Several chats may share a connection without an owner: what a process of one of them printed is not shown to the
/// others.
#[test]
fn news_shows_no_output_where_several_chats_may_share_a_connection() {
    let pinfold = Pinfold::start(PINFOLD);
    let mut agent = Agent::connect(&pinfold);
    let id = ends_later(&pinfold, &mut agent, "echo secret words; exit 5");
    pinfold.wait_finished(&id);
    let mut called = agent.execute("true");
    until("the end is reported", || {
        if news_ids(&called).is_empty() {
            called = agent.execute("true");
        }
        !news_ids(&called).is_empty()
    });
    let news = called.news();
    assert_eq!((&news[0]["id"], &news[0]["event"], &news[0]["exit_code"]), (&json!(id), &json!("ended"), &json!(5)));
    // The command contains the text too; its output is a separate field.
    assert!(news[0].get("last_output").is_none() && news[0].get("line").is_none(), "{}", called.text);
    assert_eq!(agent.call("process_output", json!({ "id": id })).output(), "secret words\n");
}

/// A matched line is output: only a call that names its process shows it.
#[test]
fn a_matched_line_is_shown_to_a_call_that_names_its_process() {
    let pinfold = Pinfold::start(PINFOLD);
    let mut agent = Agent::connect(&pinfold);
    let gate = Gate::new(&pinfold, "go");
    let command = format!("{}; echo it is ready; exec sleep 300", gate.wait());
    let notify = json!({ "patterns": ["ready$"] });
    let watch = json!({ "command": command, "background": true, "notify": notify });
    let (first, second) =
        (agent.call("execute", watch.clone()).id().to_owned(), agent.call("execute", watch).id().to_owned());
    gate.open();
    until("both matched", || {
        let matched =
            |id: &str| pinfold.events(0).events.iter().any(|event| event.process == id && event.text.is_some());
        matched(&first) && matched(&second)
    });
    // A search that does not show the line: what a result shows anyway is not repeated as news.
    let called = agent.call("process_output", json!({ "id": first, "grep": "nothing of this kind" }));
    for item in called.news() {
        assert_eq!(item.get("line").is_some(), item["id"] == first.as_str(), "{}", called.text);
        assert!(item["cursor"].is_u64(), "{}", called.text);
    }
    assert_eq!(news_ids(&called).len(), 2, "{}", called.text);
}

#[test]
fn a_list_does_not_swallow_the_last_lines_of_what_ended() {
    let pinfold = Pinfold::start(PINFOLD);
    let mut agent = Agent::connect_with(shim(&pinfold, &["--owner", "chat"]));
    let id = ends_later(&pinfold, &mut agent, "echo last words; exit 5");
    pinfold.wait_finished(&id);
    let mut news = Vec::new();
    until("the end is reported", || {
        news = agent.call("process_list", json!({})).news();
        !news.is_empty()
    });
    assert_eq!((&news[0]["id"], &news[0]["last_output"]), (&json!(id), &json!("last words\n")));
}
