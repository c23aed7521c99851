//! The inbox: what waits for input, and what failed and was not seen yet.

use pinfold_api::client::Client;
use pinfold_api::types::{Cause, Inbox, InboxItem, InboxKind, InboxQuery, Outcome, Restart, StartRequest};
use pinfold_testkit::{Pinfold, until, until_some};

use crate::PINFOLD;
use crate::interactive::{input, line, on_terminal};
use crate::requests::request;

fn inbox_of(pinfold: &Pinfold, client: &Client) -> Inbox {
    pinfold.block(client.inbox(&InboxQuery::default())).expect("an inbox")
}

fn inbox(pinfold: &Pinfold) -> Inbox {
    inbox_of(pinfold, pinfold.client())
}

fn processes(inbox: &Inbox) -> Vec<&str> {
    inbox.items.iter().filter_map(|item| item.process.as_deref()).collect()
}

fn run(pinfold: &Pinfold, request: &StartRequest) -> String {
    let id = pinfold.start_request(request).record.id;
    pinfold.wait_finished(&id);
    id
}

#[test]
fn failures_are_listed_until_they_were_seen_even_over_restarts() {
    let pinfold = Pinfold::start(PINFOLD);
    run(&pinfold, &request("true"));
    let coded = run(&pinfold, &request("echo trying; echo broken; exit 3"));
    let killed = run(&pinfold, &request("kill -9 $$"));
    let late = run(&pinfold, &StartRequest { time_limit: Some("100ms".into()), ..request("exec sleep 600") });
    let stopped = pinfold.sh("exec sleep 600").id;
    pinfold.stop(&stopped);
    let found = inbox(&pinfold);
    assert_eq!(processes(&found), [&*late, &*killed, &*coded], "newest first; neither a success nor a requested stop");
    assert_eq!((found.failed, found.waiting_for_input, found.permission, found.seen), (3, 0, 0, 0));
    let item = &found.items[2];
    assert_eq!((item.kind, item.text.as_deref(), item.seen), (InboxKind::Failed, Some("broken"), false));
    assert_eq!((&item.outcome, item.cause), (&Some(Outcome::Exited { code: 3 }), Some(Cause::OnItsOwn)));
    assert_eq!(item.command.as_deref(), Some("echo trying; echo broken; exit 3"));
    assert_eq!(found.items[0].cause, Some(Cause::TimeLimit));
    let seen = found.items[1].seq.expect("a number");
    assert_eq!(pinfold.block(pinfold.client().inbox_seen(seen)).expect("a mark").seen, seen);
    let rest = inbox(&pinfold);
    assert_eq!((processes(&rest), rest.seen), (vec![&*late], seen));
    pinfold.crash_and_restart();
    let rest = inbox(&pinfold);
    assert_eq!((processes(&rest), rest.seen, rest.latest), (vec![&*late], seen, found.latest));
    pinfold.block(pinfold.client().inbox_seen(rest.latest)).expect("a mark");
    assert_eq!(inbox(&pinfold).items, []);
    assert_eq!(pinfold.block(pinfold.client().inbox_seen(0)).expect("a mark").seen, rest.latest, "never back");
    let new = run(&pinfold, &request("exit 1"));
    assert_eq!(processes(&inbox(&pinfold)), [&*new]);
    pinfold.block(pinfold.client().remove(&new)).expect("it is removed");
    assert_eq!(inbox(&pinfold).items, [], "what is gone needs no attention");
}

#[test]
fn a_crash_counts_as_a_failure_only_when_restarts_are_given_up() {
    let pinfold = Pinfold::start(PINFOLD);
    let policy = pinfold_api::types::RestartPolicy {
        when: "on_failure".into(),
        initial: Some("10ms".into()),
        limit: Some(2),
        ..Default::default()
    };
    let request = StartRequest { restart: Some(Restart::Policy(policy)), ..request("exit 7") };
    pinfold.start_request(&request);
    let found = until_some("it is given up", || Some(inbox(&pinfold)).filter(|inbox| inbox.failed > 0));
    assert_eq!(found.failed, 1, "{found:?}");
    let last = found.items[0].process.clone().expect("a process");
    assert!(pinfold.show(&last).life.is_some_and(|life| life.number > 1), "the last of several");
}

fn waiting(pinfold: &Pinfold) -> Option<InboxItem> {
    inbox(pinfold).items.into_iter().find(|item| item.kind == InboxKind::WaitingForInput)
}

#[test]
fn a_question_on_a_terminal_is_listed_as_long_as_it_waits() {
    let pinfold = Pinfold::start(PINFOLD);
    // A process that reads from a pipe does not wait for a person.
    let pipe = crate::interactive::open(&pinfold, "cat").id;
    let id = pinfold.start_request(&on_terminal("printf 'Really delete? '; read answer; echo got $answer")).record.id;
    let asked =
        until_some("the question", || waiting(&pinfold).filter(|item| item.seq.is_some() && item.text.is_some()));
    assert_eq!(asked.process.as_deref(), Some(&*id));
    assert!(asked.text.as_deref().is_some_and(|text| text.contains("Really delete?")), "{asked:?}");
    assert!(!asked.seen);
    pinfold.block(pinfold.client().inbox_seen(inbox(&pinfold).latest)).expect("a mark");
    let still = waiting(&pinfold).expect("it still waits");
    assert!(still.seen, "it was seen, and is listed all the same");
    input(&pinfold, &id, &line("yes"));
    pinfold.wait_finished(&id);
    until("nothing waits", || waiting(&pinfold).is_none());
    pinfold.stop(&pipe);
}

#[test]
fn every_owner_has_its_own_inbox_and_seen_mark() {
    let pinfold = Pinfold::start(PINFOLD);
    let (boss, child, other) = (
        pinfold.client().acting_as("boss", None),
        pinfold.client().acting_as("child", Some("boss")),
        pinfold.client().acting_as("other", None),
    );
    let ids = [&boss, &child, &other].map(|client| {
        let id = pinfold.block(client.start(&request("exit 1"))).expect("a start").record.id;
        pinfold.wait_finished(&id);
        id
    });
    assert_eq!(processes(&inbox_of(&pinfold, &child)), [&*ids[1]]);
    assert_eq!(processes(&inbox_of(&pinfold, &boss)), [&*ids[1], &*ids[0]]);
    assert_eq!(processes(&inbox_of(&pinfold, &other)), [&*ids[2]]);
    assert_eq!(inbox(&pinfold).failed, 3);
    let latest = inbox_of(&pinfold, &boss).latest;
    pinfold.block(boss.inbox_seen(latest)).expect("a mark");
    assert_eq!(inbox_of(&pinfold, &boss).items, []);
    assert_eq!(inbox_of(&pinfold, &child).failed, 1, "its own mark has not moved");
    assert_eq!(inbox(&pinfold).failed, 3);
    let asked = InboxQuery { owner: Some("other".into()), limit: None };
    assert_eq!(pinfold.block(child.inbox(&asked)).expect("an inbox").items, [], "not in view");
    assert_eq!(pinfold.block(pinfold.client().inbox(&asked)).expect("an inbox").failed, 1);
    assert_eq!(pinfold.block(child.consumers()).expect("a list").consumers, [], "the mark is no consumer of events");
    let limited = InboxQuery { owner: None, limit: Some(1) };
    let one = pinfold.block(pinfold.client().inbox(&limited)).expect("an inbox");
    assert_eq!((one.items.len(), one.failed), (1, 3));
}
