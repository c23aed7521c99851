//! Tests of news: which events are dropped, which are acknowledged, and the content of an item.

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

fn pending_seqs(mailbox: &Mailbox) -> Vec<u64> {
    mailbox.pending.iter().map(|event| event.seq).collect()
}

#[test]
fn seen_events_are_dropped_and_those_in_omitted_output_are_not() {
    let read_positions = ReadPositions::default();
    read_positions.record_read("chat", "p", 100, Some(Range { from: 40, to: 60 }));
    let mut mailbox = Mailbox::default();
    mailbox.note_reported("gone");
    mailbox.pending.extend([
        event(1, EventKind::Finished, "gone"),
        event(2, EventKind::Finished, "p"),
        matched(3, "p", 10),
        matched(4, "p", 50),
        matched(5, "p", 100),
        event(6, EventKind::Heartbeat, "gone"),
        event(7, EventKind::HandedOver, "gone"),
    ]);
    mailbox.drop_seen("chat", &read_positions);
    assert_eq!(pending_seqs(&mailbox), [2, 4, 5, 7]);
}

#[test]
fn pending_and_in_flight_events_are_not_acknowledged() {
    let mut mailbox = Mailbox { fetched: 9, ..Mailbox::default() };
    assert_eq!(mailbox.ackable_through(), 9);
    mailbox.pending.push_back(event(8, EventKind::Finished, "p"));
    assert_eq!(mailbox.ackable_through(), 7);
    mailbox.in_flight.push(5);
    assert_eq!(mailbox.ackable_through(), 4);
    mailbox.delivery_done(&Delivery { events: vec![event(5, EventKind::Finished, "q")], ..Delivery::default() });
    assert_eq!(mailbox.ackable_through(), 7);
}

#[tokio::test]
async fn a_delivery_that_was_put_back_is_pending_again() {
    let news = News::default();
    let delivery = Delivery { events: vec![event(5, EventKind::Finished, "p")], ..Delivery::default() };
    news.mailbox("chat").lock().await.note_reported("p");
    news.put_back("chat", delivery).await;
    let mailbox = news.mailbox("chat");
    let mut mailbox = mailbox.lock().await;
    mailbox.drop_seen("chat", &ReadPositions::default());
    assert_eq!(pending_seqs(&mailbox), [5]);
}

#[test]
fn the_oldest_reported_end_is_evicted_at_the_limit() {
    let mut mailbox = Mailbox::default();
    for process in 0..=MAX_REPORTED {
        mailbox.note_reported(&process.to_string());
    }
    assert!(!mailbox.reported_set.contains("0") && mailbox.reported_set.contains("1"));
    assert_eq!((mailbox.reported.len(), mailbox.reported_set.len()), (MAX_REPORTED, MAX_REPORTED));
}

#[test]
fn an_item_has_only_the_fields_of_its_event() {
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
fn expired_events_are_dropped_and_fetched_again() {
    let mut mailbox = Mailbox { fetched: 9, lease_ends: Instant::now().checked_add(LEASE), ..Mailbox::default() };
    mailbox.pending.push_back(event(8, EventKind::Finished, "p"));
    mailbox.drop_expired();
    assert_eq!(pending_seqs(&mailbox), [8]);
    mailbox.lease_ends = Some(Instant::now());
    mailbox.drop_expired();
    assert_eq!((pending_seqs(&mailbox), mailbox.fetched), (vec![], 7));
}
