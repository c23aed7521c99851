//! What is dropped, what is acknowledged, how it is told.

use pinfold_api::types::Range;

use super::*;

fn event(seq: u64, kind: EventKind, process: &str) -> Event {
    Event {
        seq,
        kind,
        process: process.into(),
        owner: "chat".into(),
        at: "2026-01-01T00:00:00Z".into(),
        command: "make".into(),
        started_at: None,
        outcome: Some(Outcome::Exited { code: 2 }),
        cause: Some(Cause::OnItsOwn),
        completion: matches!(kind, EventKind::Finished | EventKind::Exited | EventKind::Lost),
        announce: true,
        cursor: None,
        text: None,
        suppressed: None,
    }
}

fn matched(seq: u64, process: &str, cursor: u64) -> Event {
    let text = Some("error: x".to_owned());
    Event { cursor: Some(cursor), text, suppressed: Some(3), outcome: None, ..event(seq, EventKind::Matched, process) }
}

fn left(mailbox: &Mailbox) -> Vec<u64> {
    mailbox.owed.iter().map(|event| event.seq).collect()
}

#[test]
fn what_was_shown_is_dropped_and_what_was_left_out_is_not() {
    let memory = Memory::default();
    memory.read("chat", "p", 100, Some(Range { from: 40, to: 60 }));
    let mut mailbox = Mailbox::default();
    mailbox.note_told("gone");
    mailbox.owed.extend([
        event(1, EventKind::Finished, "gone"),
        event(2, EventKind::Finished, "p"),
        matched(3, "p", 10),
        matched(4, "p", 50),
        matched(5, "p", 100),
        event(6, EventKind::Heartbeat, "gone"),
        event(7, EventKind::HandedOver, "gone"),
    ]);
    mailbox.drop_known("chat", &memory);
    assert_eq!(left(&mailbox), [2, 4, 5, 7]);
}

#[test]
fn nothing_owed_or_under_way_is_acknowledged() {
    let mut mailbox = Mailbox { fetched: 9, ..Mailbox::default() };
    assert_eq!(mailbox.settled_through(), 9);
    mailbox.owed.push_back(event(8, EventKind::Finished, "p"));
    assert_eq!(mailbox.settled_through(), 7);
    mailbox.under_way.push(5);
    assert_eq!(mailbox.settled_through(), 4);
    mailbox.arrived(&Delivery { events: vec![event(5, EventKind::Finished, "q")], ..Delivery::default() });
    assert_eq!(mailbox.settled_through(), 7);
}

#[tokio::test]
async fn a_delivery_that_was_taken_back_is_owed_again() {
    let news = News::default();
    let delivery = Delivery { events: vec![event(5, EventKind::Finished, "p")], ..Delivery::default() };
    news.mailbox("chat").lock().await.note_told("p");
    news.take_back("chat", delivery).await;
    let mailbox = news.mailbox("chat");
    let mut mailbox = mailbox.lock().await;
    mailbox.drop_known("chat", &Memory::default());
    assert_eq!(left(&mailbox), [5]);
}

#[test]
fn the_oldest_end_is_forgotten_at_the_bound() {
    let mut mailbox = Mailbox::default();
    for process in 0..=MAX_TOLD {
        mailbox.note_told(&process.to_string());
    }
    assert!(!mailbox.told_set.contains("0") && mailbox.told_set.contains("1"));
    assert_eq!((mailbox.told.len(), mailbox.told_set.len()), (MAX_TOLD, MAX_TOLD));
}

#[test]
fn news_says_what_happened_and_no_more() {
    let ended = serde_json::to_value(item(&event(1, EventKind::Exited, "p"), Some("last".into()))).expect("JSON");
    assert_eq!(
        ended,
        serde_json::json!({ "id": "p", "event": "ended", "command": "make", "exit_code": 2, "last_output": "last" })
    );
    let found = serde_json::to_value(item(&matched(2, "p", 7), None)).expect("JSON");
    assert_eq!((&found["event"], &found["line"], &found["cursor"]), (&"matched".into(), &"error: x".into(), &7.into()));
    assert_eq!((&found["suppressed"], found.get("exit_code")), (&3.into(), None));
}

#[test]
fn what_is_no_longer_leased_is_let_go_and_asked_for_again() {
    let mut mailbox = Mailbox { fetched: 9, ours_until: Instant::now().checked_add(LEASE), ..Mailbox::default() };
    mailbox.owed.push_back(event(8, EventKind::Finished, "p"));
    mailbox.let_go();
    assert_eq!(left(&mailbox), [8]);
    mailbox.ours_until = Some(Instant::now());
    mailbox.let_go();
    assert_eq!((left(&mailbox), mailbox.fetched), (vec![], 7));
}
