//! Records that are torn or damaged at any byte.

use proptest::prelude::*;

use super::*;
use crate::testing::{Scratch, all_facts, append_all, id, intent, lost};

fn written(facts: &[Fact]) -> (Scratch, PathBuf) {
    let scratch = Scratch::new();
    let dir = ProcessDir::prepare(scratch.path(), &id(1)).expect("prepared");
    let mut writer = RecordWriter::new(&dir, Durability::Programs);
    append_all(&mut writer, facts);
    let path = dir.path().to_owned();
    (scratch, path)
}

fn content(dir: &Path) -> Vec<u8> {
    std::fs::read(dir.join(RECORD)).expect("read")
}

fn put(dir: &Path, bytes: &[u8]) {
    std::fs::write(dir.join(RECORD), bytes).expect("write");
}

#[test]
fn appended_facts_are_read_back() {
    let (_scratch, dir) = written(&all_facts(1));
    let record = read_record(&dir).expect("read");
    assert_eq!(record, Record { facts: all_facts(1), torn: false });
    let history = record.history().expect("history");
    assert_eq!(history.outcome(), crate::testing::finished(1, "ann").outcome());
    let text = String::from_utf8(content(&dir)).expect("text");
    assert_eq!(text.lines().count(), all_facts(1).len());
    assert!(text.contains("\"format\":1"));
}

#[test]
fn begin_writes_the_same_line_as_appending_the_intended_fact() {
    let scratch = Scratch::new();
    let dir = ProcessDir::prepare(scratch.path(), &id(1)).expect("prepared");
    let mut writer = RecordWriter::new(&dir, Durability::Programs);
    writer.begin(&intent(1, "ann", None).into()).expect("written");
    append_all(&mut writer, &all_facts(1)[1..]);
    let (_other, of_facts) = written(&all_facts(1));
    assert_eq!(content(dir.path()), content(&of_facts));
}

#[test]
fn append_returns_the_json_it_wrote() {
    let scratch = Scratch::new();
    let dir = ProcessDir::prepare(scratch.path(), &id(1)).expect("prepared");
    let mut writer = RecordWriter::new(&dir, Durability::Programs);
    for fact in all_facts(1) {
        let json = writer.append(&fact).expect("appended").to_owned();
        assert_eq!(json, serde_json::to_string(&fact).expect("JSON"));
        let text = String::from_utf8(content(dir.path())).expect("text");
        assert_eq!(
            text.lines().last().and_then(|line| line.split_once(' ')),
            Some((&*format!("{:08x}", crc32fast::hash(json.as_bytes())), &*json))
        );
    }
}

#[test]
fn durability_against_power_loss_writes_the_same_record() {
    let scratch = Scratch::new();
    let dir = ProcessDir::prepare(scratch.path(), &id(1)).expect("prepared");
    let mut writer = RecordWriter::new(&dir, Durability::Power);
    append_all(&mut writer, &all_facts(1));
    assert_eq!(read_record(dir.path()).expect("read").facts, all_facts(1));
}

#[test]
fn a_record_torn_at_any_byte_keeps_the_facts_before_it() {
    let (_scratch, dir) = written(&all_facts(1));
    let whole = content(&dir);
    for cut in 0..whole.len() {
        put(&dir, &whole[..cut]);
        let lines = whole[..cut].iter().filter(|&&byte| byte == b'\n').count();
        match read_record(&dir) {
            Ok(record) => {
                assert_eq!(record.facts, all_facts(1)[..lines], "cut at {cut}");
                assert_eq!(record.torn, whole[cut - 1] != b'\n', "cut at {cut}");
            }
            Err(RecordError::Empty { .. }) => assert_eq!(lines, 0, "cut at {cut}"),
            Err(other) => panic!("cut at {cut}: {other}"),
        }
    }
}

#[test]
fn damage_is_reported_with_its_line_and_never_skipped() {
    let (_scratch, dir) = written(&all_facts(1));
    let whole = content(&dir);
    let second = whole.iter().position(|&byte| byte == b'\n').expect("newline") + 1;
    for (place, expected) in [(0, 1), (20, 1), (second, 2), (second + 12, 2), (whole.len() - 3, 5)] {
        let mut bytes = whole.clone();
        bytes[place] ^= 1;
        put(&dir, &bytes);
        match read_record(&dir) {
            Err(RecordError::Damaged { line, .. }) => assert_eq!(line, expected, "flipped at {place}"),
            other => panic!("flipped at {place}: {other:?}"),
        }
    }
}

#[test]
fn a_record_of_a_newer_pinfold_is_refused_even_if_its_fields_are_unknown() {
    let (_scratch, dir) = written(&[]);
    let json = br#"{"fact":"wished","format":2,"new":{}}"#;
    put(&dir, &[format!("{:08x} ", crc32fast::hash(json)).as_bytes(), json, b"\n"].concat());
    assert!(matches!(read_record(&dir), Err(RecordError::Newer { found: 2, .. })));
}

#[test]
fn missing_empty_and_unreadable_records_are_distinguished() {
    let (_scratch, dir) = written(&[]);
    assert!(matches!(read_record(&dir), Err(RecordError::Empty { .. })));
    std::fs::remove_file(dir.join(RECORD)).expect("removed");
    assert!(matches!(read_record(&dir), Err(RecordError::Missing { .. })));
    std::fs::create_dir(dir.join(RECORD)).expect("directory");
    assert!(matches!(read_record(&dir), Err(RecordError::Io { .. })));
    std::fs::remove_dir(dir.join(RECORD)).expect("removed");
    let (fifo, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::from_raw_mode(0o600));
    rustix::fs::mknodat(rustix::fs::CWD, dir.join(RECORD), fifo, mode, 0).expect("fifo");
    assert!(matches!(read_record(&dir), Err(RecordError::Io { .. })), "a fifo does not block");
}

#[test]
fn a_record_must_start_with_the_intent_and_have_no_other() {
    let (_scratch, dir) = written(&all_facts(1)[1..2]);
    assert!(matches!(read_record(&dir), Err(RecordError::Damaged { line: 1, .. })));
    let intended = Fact::Intended(Box::new(intent(1, "ann", None)));
    let (_scratch, dir) = written(&[intended.clone(), intended]);
    assert!(matches!(read_record(&dir), Err(RecordError::Damaged { line: 2, .. })));
}

#[test]
fn s1_at_most_one_exit_record_never_replaced() {
    let scratch = Scratch::new();
    let dir = ProcessDir::prepare(scratch.path(), &id(1)).expect("prepared");
    let mut writer = RecordWriter::new(&dir, Durability::Programs);
    append_all(&mut writer, &all_facts(1));
    let whole = content(dir.path());
    assert!(writer.append(&lost(9)).is_err());
    assert!(writer.append(&all_facts(1)[4]).is_err());
    let lose = |path: &Path| append_lost(path, &lost(9), Durability::Programs);
    assert!(matches!(lose(dir.path()), Err(LostError::Locked { .. })), "locked by its keeper");
    let path = dir.path().to_owned();
    drop((writer, dir));
    assert!(matches!(lose(&path), Err(LostError::Over { .. })));
    assert_eq!(content(&path), whole);
}

#[test]
fn nothing_is_appended_while_the_keeper_has_locked_its_record() {
    let scratch = Scratch::new();
    let dir = ProcessDir::prepare(scratch.path(), &id(1)).expect("prepared");
    let path = dir.path().to_owned();
    let mut writer = RecordWriter::new(&dir, Durability::Programs);
    append_all(&mut writer, &all_facts(1)[..2]);
    drop(dir);
    let whole = content(&path);
    assert!(is_locked(&path).expect("a lock"));
    assert!(matches!(append_lost(&path, &lost(9), Durability::Programs), Err(LostError::Locked { .. })));
    assert_eq!(content(&path), whole);
    drop(writer);
    assert!(!is_locked(&path).expect("no lock"));
    append_lost(&path, &lost(9), Durability::Programs).expect("lost");
}

#[test]
fn s1_a_keeper_taken_for_dead_does_not_replace_an_end_written_without_it() {
    let scratch = Scratch::new();
    let dir = ProcessDir::prepare(scratch.path(), &id(1)).expect("prepared");
    let mut writer = RecordWriter::new(&dir, Durability::Programs);
    append_all(&mut writer, &all_facts(1)[..2]);
    // As an older pinfold does, which does not use the lock.
    let (_other, elsewhere) = written(&[all_facts(1)[..2].to_vec(), vec![lost(9)]].concat());
    put(dir.path(), &content(&elsewhere));
    for later in &all_facts(1)[2..] {
        let refused = writer.append(later).expect_err("it holds the end");
        assert!(is_over(&refused), "{refused}");
    }
    assert_eq!(read_record(dir.path()).expect("read").facts[2..], [lost(9)]);
}

/// A line that was written but not synced is retried, and not mistaken for one of another writer.
#[test]
fn s1_an_end_that_could_not_be_synced_is_retried() {
    let scratch = Scratch::new();
    let dir = ProcessDir::prepare(scratch.path(), &id(1)).expect("prepared");
    let mut writer = RecordWriter::new(&dir, Durability::Programs);
    append_all(&mut writer, &all_facts(1)[..4]);
    let end = writer.end;
    writer.append(&all_facts(1)[4]).expect("appended");
    (writer.end, writer.over) = (end, false);
    writer.append(&all_facts(1)[4]).expect("appended again");
    assert_eq!(read_record(dir.path()).expect("read"), Record { facts: all_facts(1), torn: false });
}

#[test]
fn lost_replaces_only_a_torn_line() {
    let (_scratch, dir) = written(&all_facts(1));
    let whole = content(&dir);
    put(&dir, &whole[..whole.len() - 1]);
    append_lost(&dir, &lost(9), Durability::Power).expect("lost");
    let mut expected = all_facts(1);
    expected[4] = lost(9);
    assert_eq!(read_record(&dir).expect("read"), Record { facts: expected, torn: false });
    assert!(matches!(append_lost(&dir, &lost(10), Durability::Programs), Err(LostError::Over { .. })));
    assert!(matches!(append_lost(&dir, &all_facts(1)[1], Durability::Programs), Err(LostError::NotLost)));
}

#[test]
fn a_failed_append_leaves_no_fact_and_can_be_retried() {
    let scratch = Scratch::new();
    let dir = ProcessDir::prepare(scratch.path(), &id(1)).expect("prepared");
    let mut writer = RecordWriter::new(&dir, Durability::Programs);
    writer.append(&all_facts(1)[0]).expect("appended");
    let end = writer.end;
    // A full disk leaves a part of a long line.
    dir.record().write_at(&[b'x'; 5000], end).expect("torn");
    append_all(&mut writer, &all_facts(1)[1..]);
    assert_eq!(read_record(dir.path()).expect("read"), Record { facts: all_facts(1), torn: false });
}

proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic(noise: Vec<u8>, at in 0usize..2000, keep in 0usize..2000) {
        let (_scratch, dir) = written(&all_facts(1));
        let mut bytes = content(&dir);
        let at = at.min(bytes.len());
        let until = (at + keep).min(bytes.len());
        bytes.splice(at..until, noise);
        put(&dir, &bytes);
        if let Ok(record) = read_record(&dir) {
            let known = all_facts(1);
            prop_assert!(record.facts.iter().all(|fact| known.contains(fact)));
        }
    }
}
