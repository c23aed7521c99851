//! The index: queries, damage, and events that are recorded once.

use pinfold_model::facts::Status;

use super::*;
use crate::layout::ProcessDir;
use crate::queries::{EventFilter, Filter, Period};
use crate::testing::{Scratch, finished, history, id, mode_of};

const NOW: Moment = Moment(1_700_000_000_000_000);

fn ready(home: &Home) -> Index {
    match Index::open(home, Durability::Programs, NOW).expect("open") {
        Opened::Ready(index) => index,
        Opened::Rebuild { reason, .. } => panic!("rebuild: {reason}"),
    }
}

fn rebuilt(home: &Home) -> (Index, String) {
    match Index::open(home, Durability::Programs, NOW).expect("open") {
        Opened::Rebuild { index, reason } => (index, reason),
        Opened::Ready(_) => panic!("ready"),
    }
}

fn put(history: History) -> Change {
    Change::Put(Box::new(history), 100)
}

fn event(number: u64, kind: EventKind) -> Change {
    Change::Event(Box::new(crate::testing::event(number, kind)))
}

fn numbers(found: &[History]) -> Vec<u64> {
    found.iter().map(|history| history.intent.at.0 - 1_000_000).collect()
}

#[test]
fn s4_one_event_per_process_and_kind() {
    let home = Scratch::home();
    let mut index = ready(&home);
    let stored = index.apply(&[event(1, EventKind::Started), event(1, EventKind::Finished)]).expect("applied");
    assert_eq!(stored.iter().map(|event| event.seq).collect::<Vec<_>>(), [1, 2]);
    let again = [event(1, EventKind::Finished), event(2, EventKind::Started), event(2, EventKind::Started)];
    let stored = index.apply(&again).expect("applied");
    assert_eq!(stored.len(), 1);
    assert_eq!(stored[0].process, id(2));
    drop(index);
    let mut index = ready(&home);
    assert_eq!(index.apply(&[event(2, EventKind::Started)]).expect("applied"), []);
    let all = index.events_after(0, &EventFilter::default(), 100).expect("events");
    assert_eq!(
        all.iter().map(|event| event.kind).collect::<Vec<_>>(),
        [EventKind::Started, EventKind::Finished, EventKind::Started]
    );
    let of_one = EventFilter { process: Some(id(2)), owners: Some(vec!["ann".into()]), ..EventFilter::default() };
    assert_eq!(index.events_after(0, &of_one, 100).expect("events"), all[2..]);
    assert_eq!(index.events_after(1, &EventFilter::default(), 1).expect("events"), all[1..2]);
    assert_eq!(
        index
            .events_after(0, &EventFilter { owners: Some(vec!["bob".into()]), ..EventFilter::default() }, 9)
            .expect("events"),
        []
    );
}

/// SQLite accepts at most 32,766 parameters in a statement.
#[test]
fn a_view_of_any_number_of_owners_can_be_asked_for() {
    let home = Scratch::home();
    let mut index = ready(&home);
    index
        .apply(&[put(history(1, "ann", None)), put(history(2, "bob", None)), event(1, EventKind::Started)])
        .expect("applied");
    let mut owners: Vec<String> = (0..40_000).map(|number| format!("owner \"{number}\"")).collect();
    owners.push("ann".into());
    let filter = Filter { owners: Some(owners.clone()), ..Filter::default() };
    assert_eq!(index.count(&filter).expect("count"), 1);
    assert_eq!(numbers(&index.list(&filter, None, 9).expect("list")), [1]);
    assert_eq!(index.prefix("", Some(&owners), 9).expect("ids").len(), 0);
    let events = EventFilter { owners: Some(owners), ..EventFilter::default() };
    assert_eq!(index.events_after(0, &events, 9).expect("events").len(), 1);
}

#[test]
fn changes_are_applied_whole_or_not_at_all() {
    let home = Scratch::home();
    let mut index = ready(&home);
    index.apply(&[put(history(1, "ann", Some("key")))]).expect("applied");
    let changes = [put(history(2, "ann", None)), event(2, EventKind::Started), put(history(3, "ann", Some("key")))];
    let refusal = index.apply(&changes).expect_err("key is taken");
    assert!(matches!(refusal, IndexError::KeyTaken { .. }), "{refusal}");
    assert_eq!(index.count(&Filter::default()).expect("count"), 1);
    assert_eq!(index.last_seq().expect("seq"), 0);
    assert_eq!(index.by_key("ann", "key").expect("key"), Some(id(1)));
    assert_eq!(index.by_key("bob", "key").expect("key"), None);
    index.apply(&[put(history(4, "bob", Some("key"))), put(history(1, "ann", Some("key")))]).expect("applied");
    index.apply(&[Change::Forget(id(1)), put(history(3, "ann", Some("key")))]).expect("the key is free");
    assert_eq!(index.by_key("ann", "key").expect("key"), Some(id(3)));
}

#[test]
fn an_ended_process_does_not_become_un_ended() {
    let home = Scratch::home();
    let mut index = ready(&home);
    index.apply(&[put(finished(1, "ann")), put(history(1, "ann", None))]).expect("applied");
    let (found, bytes) = index.get(&id(1)).expect("get").expect("there");
    assert_eq!((found, bytes), (finished(1, "ann"), 100));
    assert_eq!(index.ended_ids().expect("ids"), [id(1)].into());
    assert_eq!(index.get(&id(2)).expect("get"), None);
}

#[test]
fn lists_are_newest_first_in_stable_pages_whatever_the_filter() {
    let home = Scratch::home();
    let mut index = ready(&home);
    let changes: Vec<_> = (0..50)
        .map(|number| match number % 3 {
            0 => put(finished(number, "ann")),
            1 => put(history(number, "ann", None)),
            _ => put(history(number, "bob", None)),
        })
        .collect();
    index.apply(&changes).expect("applied");
    let check = |filter: Filter, expected: &dyn Fn(u64) -> bool| {
        let expected: Vec<u64> = (0..50).rev().filter(|&number| expected(number)).collect();
        let (mut paged, mut before) = (Vec::new(), None);
        loop {
            let page = index.list(&filter, before.clone(), 7).expect("page");
            let Some(last) = page.last() else { break };
            before = Some((last.intent.at, last.intent.id.clone()));
            paged.extend(numbers(&page));
        }
        assert_eq!(paged, expected, "{filter:?}");
        assert_eq!(index.count(&filter).expect("count"), expected.len() as u64, "{filter:?}");
    };
    let owner = |owner: &str| Some(vec![owner.to_owned()]);
    let period = |from: Option<u64>, to: Option<u64>| Period { from: from.map(Moment), to: to.map(Moment) };
    check(Filter::default(), &|_| true);
    check(Filter { owners: owner("ann"), ..Filter::default() }, &|number| number % 3 != 2);
    check(Filter { statuses: vec![Status::Finished, Status::Lost], ..Filter::default() }, &|number| number % 3 == 0);
    check(Filter { labels: vec![("kind".into(), "k1".into())], ..Filter::default() }, &|number| number % 2 == 1);
    check(Filter { labels: vec![("kind\"".into(), "k1".into())], ..Filter::default() }, &|_| false);
    check(Filter { name: Some("name-7".into()), owners: owner("ann"), ..Filter::default() }, &|number| number == 7);
    let all = Filter {
        owners: owner("bob"),
        statuses: vec![Status::Starting],
        name: None,
        labels: vec![("kind".into(), "k0".into())],
        created: period(Some(1_000_010), Some(1_000_040)),
        ended: Period::default(),
    };
    check(all, &|number| number % 3 == 2 && number % 2 == 0 && (10..40).contains(&number));
    let both = vec![("kind".into(), "k0".into()), ("kind".into(), "k1".into())];
    check(Filter { labels: both, ..Filter::default() }, &|_| false);
    let ended = period(Some(2_000_009), None);
    check(Filter { ended, ..Filter::default() }, &|number| number % 3 == 0 && number >= 9);
    let ended = period(None, Some(2_000_009));
    check(Filter { ended, ..Filter::default() }, &|number| number % 3 == 0 && number < 9);
}

#[test]
fn ids_are_found_by_prefix_and_sorted_by_their_end() {
    let home = Scratch::home();
    let mut index = ready(&home);
    index.apply(&(0..40).map(|number| put(finished(number, "ann"))).collect::<Vec<_>>()).expect("applied");
    index.apply(&[put(history(50, "ann", None))]).expect("applied");
    let text = id(3).as_str().to_owned();
    assert_eq!(index.prefix(&text, None, 2).expect("ids"), [id(3)]);
    let short = index.prefix(&text[..1], None, 100).expect("ids");
    assert!(short.contains(&id(3)) && short.iter().all(|id| id.as_str().starts_with(&text[..1])));
    for nonsense in ["", "%", "_", "A", "\0"] {
        assert_eq!(index.prefix(nonsense, None, 9).expect("ids"), [], "{nonsense}");
    }
    assert_eq!(index.ended_ids().expect("ids"), (0..40).map(id).collect());
    let ended = index.ended().expect("ended");
    assert_eq!(ended.iter().map(|row| row.id.clone()).collect::<Vec<_>>(), (0..40).map(id).collect::<Vec<_>>());
    assert_eq!((ended[1].at, ended[1].bytes), (Moment(2_000_001), 100));
    assert!(ended.iter().all(|row| !row.owner.is_empty()));
}

#[test]
fn old_events_are_pruned_but_not_those_of_listed_processes() {
    let home = Scratch::home();
    let mut index = ready(&home);
    index.apply(&(0..20).map(|number| event(number, EventKind::Finished)).collect::<Vec<_>>()).expect("applied");
    index.apply(&[put(finished(0, "ann"))]).expect("applied");
    assert_eq!(index.prune_events(5).expect("pruned"), 14);
    assert_eq!(index.apply(&[event(0, EventKind::Finished)]).expect("applied"), [], "still stored once");
    assert_eq!((index.first_seq().expect("seq"), index.last_seq().expect("seq")), (1, 20));
    index.apply(&[Change::Forget(id(0))]).expect("applied");
    assert_eq!(index.prune_events(0).expect("pruned"), 6);
    assert_eq!((index.first_seq().expect("seq"), index.last_seq().expect("seq")), (21, 20));
    assert_eq!(index.apply(&[event(30, EventKind::Started)]).expect("applied")[0].seq, 21);
    assert_eq!(index.prune_events(u64::MAX).expect("pruned"), 0);
}

#[test]
fn a_missing_index_is_rebuilt_only_where_there_are_processes_and_counts_on() {
    let home = Scratch::home();
    drop(ready(&home));
    std::fs::remove_file(home.index()).expect("removed");
    drop(ready(&home));
    std::fs::remove_file(home.index()).expect("removed");
    ProcessDir::prepare(&home.processes(), &id(1)).expect("prepared");
    let (mut index, reason) = rebuilt(&home);
    assert!(reason.contains("missing"), "{reason}");
    assert_eq!(index.last_seq().expect("seq"), NOW.0);
    assert_eq!(index.apply(&[event(1, EventKind::Started)]).expect("applied")[0].seq, 1_700_000_000_000_001);
    drop(index);
    assert_eq!(ready(&home).last_seq().expect("seq"), 1_700_000_000_000_001);
}

#[test]
fn a_damaged_index_is_set_aside_and_rebuilt() {
    let damages: [fn(&mut Vec<u8>); 4] = [
        |bytes| bytes[..16].fill(b'x'),
        |bytes| bytes.truncate(5000),
        |bytes| bytes[4096..].fill(0xff),
        |bytes| *bytes = b"what?".to_vec(),
    ];
    for damage in damages {
        let home = Scratch::home();
        let mut index = ready(&home);
        index.apply(&(0..40).map(|number| put(finished(number, "ann"))).collect::<Vec<_>>()).expect("applied");
        drop(index);
        let mut bytes = std::fs::read(home.index()).expect("read");
        damage(&mut bytes);
        std::fs::write(home.index(), &bytes).expect("written");
        let (index, reason) = rebuilt(&home);
        let aside = home.root().join("index.db.damaged-1700000000");
        assert!(reason.contains(&aside.display().to_string()), "{reason}");
        assert_eq!(std::fs::read(aside).expect("kept"), bytes);
        assert_eq!(index.count(&Filter::default()).expect("count"), 0);
        drop(index);
        drop(ready(&home));
    }
}

#[test]
fn an_index_of_a_newer_pinfold_is_refused_and_untouched() {
    let home = Scratch::home();
    let index = ready(&home);
    index.connection().pragma_update(None, "user_version", 3).expect("pragma");
    drop(index);
    let before = std::fs::read(home.index()).expect("read");
    let refusal = Index::open(&home, Durability::Programs, NOW).expect_err("refused");
    assert!(matches!(refusal, IndexError::Newer { found: 3, ours: 2, .. }), "{refusal}");
    assert!(refusal.to_string().contains("upgrade"));
    assert_eq!(std::fs::read(home.index()).expect("read"), before);
}

#[test]
fn one_unreadable_history_hides_no_other() {
    let home = Scratch::home();
    let mut index = ready(&home);
    index.apply(&[put(history(1, "ann", None)), put(history(2, "ann", None))]).expect("applied");
    index.connection().execute("UPDATE processes SET history = '{}' WHERE id = ?1", [id(1).as_str()]).expect("sql");
    assert_eq!(numbers(&index.list(&Filter::default(), None, 9).expect("list")), [2]);
    assert!(matches!(index.get(&id(1)), Err(IndexError::BadHistory { .. })));
}

#[test]
fn a_second_connection_reads_what_was_applied_and_cannot_write() {
    let home = Scratch::home();
    let mut index = ready(&home);
    let reader = Index::reader(&home.index()).expect("reader");
    index.apply(&[put(history(1, "ann", None)), event(1, EventKind::Started)]).expect("applied");
    assert_eq!(reader.count(&Filter::default()).expect("count"), 1);
    assert_eq!(reader.last_seq().expect("seq"), 1);
    assert!(reader.connection().execute("DELETE FROM events", []).is_err());
    for name in ["index.db", "index.db-wal", "index.db-shm"] {
        assert_eq!(mode_of(&home.root().join(name)), 0o600, "{name}");
    }
}

#[test]
fn durability_against_power_loss_is_asked_of_the_database() {
    let home = Scratch::home();
    let Opened::Ready(index) = Index::open(&home, Durability::Power, NOW).expect("open") else { panic!("rebuild") };
    let level: i64 = index.connection().pragma_query_value(None, "synchronous", |row| row.get(0)).expect("pragma");
    assert_eq!(level, 2);
}

#[test]
fn an_index_of_version_1_is_upgraded_and_keeps_its_numbers() {
    let home = Scratch::home();
    let connection = Connection::open(home.index()).expect("a database");
    connection.execute_batch(include_str!("../fixtures/index-v1.sql")).expect("version 1");
    let json = serde_json::to_string(&history(1, "ann", Some("key"))).expect("json");
    let sql = "INSERT INTO processes (id, owner, status, created_us, bytes, idem_key, history)
               VALUES (?1, 'ann', 'running', 1, 0, 'key', ?2)";
    connection.execute(sql, [id(1).as_str(), &json]).expect("a row");
    for kind in ["started", "finished"] {
        let sql = "INSERT INTO events (process, owner, kind, at_us, payload) VALUES (?1, 'ann', ?2, 5, '{}')";
        connection.execute(sql, [id(1).as_str(), kind]).expect("an event");
    }
    connection.execute("DELETE FROM events WHERE kind = 'finished'", []).expect("pruned");
    drop(connection);
    let mut index = ready(&home);
    assert_eq!(index.by_key("ann", "key").expect("a key"), Some(id(1)));
    assert_eq!(index.last_seq().expect("a number"), 2, "numbers that were given out are not given again");
    let stored = index.apply(&[event(1, EventKind::Started), event(2, EventKind::Started)]).expect("applied");
    assert_eq!(stored.iter().map(|event| event.seq).collect::<Vec<_>>(), [3]);
    drop(index);
    drop(ready(&home));
}

#[test]
fn processes_ended_since_a_time_are_all_counted_and_returned_newest_first() {
    let home = Scratch::home();
    let mut index = ready(&home);
    // Number n ended at 2_000_000 + n.
    let changes: Vec<_> = (0..6).map(|n| put(finished(n, if n == 4 { "bob" } else { "ann" }))).collect();
    index.apply(&changes).expect("applied");
    let since = |owners: Option<&[String]>, moment, limit| {
        let (count, found) = index.ended_since(owners, Moment(moment), limit).expect("asked");
        (count, numbers(&found))
    };
    assert_eq!(since(None, 2_000_002, 3), (4, vec![5, 4, 3]));
    assert_eq!(since(Some(&["ann".to_owned()]), 2_000_002, 9), (3, vec![5, 3, 2]));
    assert_eq!(since(Some(&[]), 0, 9), (0, vec![]));
    assert_eq!(since(None, 3_000_000, 9), (0, vec![]));
}

/// A daemon that died while creating the index leaves a file without tables. It contains nothing, so it is not kept.
#[test]
fn an_index_without_tables_is_created_again() {
    let home = Scratch::home();
    let blank = Connection::open(home.index()).expect("a file");
    blank.pragma_update(None, "journal_mode", "wal").expect("configured");
    drop(blank);
    assert!(std::fs::metadata(home.index()).expect("a file").len() > 0);
    assert_eq!(ready(&home).last_seq().expect("seq"), 0);
    let damaged = |name: &str| name.contains("damaged");
    let entries = std::fs::read_dir(home.root()).expect("a home").flatten();
    assert!(!entries.into_iter().any(|entry| damaged(&entry.file_name().to_string_lossy())));
}

/// Event numbers do not start again in a home that has handed out ids, even if no directory is left.
#[test]
fn numbers_go_on_in_a_home_without_directories() {
    let home = Scratch::home();
    ready(&home).apply(&[event(1, EventKind::Started)]).expect("applied");
    crate::ids::IdSource::open(&home).expect("ids").next().expect("an id");
    std::fs::remove_file(home.index()).expect("removed");
    let (index, _) = rebuilt(&home);
    assert_eq!(index.last_seq().expect("seq"), NOW.0);
}

/// However many events a rebuild writes, a rebuild one second later uses different numbers.
#[test]
fn numbers_are_given_once_though_the_index_is_rebuilt_twice() {
    let home = Scratch::home();
    ProcessDir::prepare(&home.processes(), &id(1)).expect("prepared");
    let (mut index, _) = rebuilt(&home);
    let many: Vec<_> = (1..=2000).map(|number| event(number, EventKind::Started)).collect();
    let last = index.apply(&many).expect("applied").last().map_or(0, |event| event.seq);
    drop(index);
    std::fs::remove_file(home.index()).expect("removed");
    let soon = Moment(NOW.0 + 1_000_000);
    let Opened::Rebuild { index, .. } = Index::open(&home, Durability::Programs, soon).expect("open") else {
        panic!("ready")
    };
    assert!(last > NOW.0 && index.last_seq().expect("seq") >= last);
}
