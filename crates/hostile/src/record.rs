//! Records on disk: arbitrary bytes, and arbitrary lines with valid checksums.

use std::path::PathBuf;

use pinfold_store::record::{Record, parse_record};

use crate::feed::Feed;

pub(crate) fn target(data: &[u8]) {
    let mut feed = Feed(data);
    let (summed, torn_at) = (feed.byte() & 1 != 0, feed.small());
    let bytes = if summed { with_sums(feed.0) } else { feed.0.to_vec() };
    let Some((record, end)) = parse(&bytes) else { return };
    assert!(end <= bytes.len() as u64 && !record.facts.is_empty());
    assert_eq!(record.torn, end < bytes.len() as u64, "bytes after the last complete line are torn");
    let history = record.history().expect("a readable record begins with an intent");
    let _ = (history.status(), history.outcome(), history.cause(), history.ended_at(), history.owner());
    let (whole, again) = parse(&bytes[..end as usize]).expect("its complete lines are a record");
    assert_eq!((&whole.facts, whole.torn, again), (&record.facts, false, end));
    // Wherever the writer dies, a reader gets what was written by then.
    if let Some((earlier, _)) = parse(&bytes[..torn_at.min(bytes.len())]) {
        assert!(record.facts.starts_with(&earlier.facts), "a torn record has other facts");
    }
}

fn parse(bytes: &[u8]) -> Option<(Record, u64)> {
    parse_record(PathBuf::from("record"), bytes).ok()
}

/// Adds a valid checksum to each complete line.
fn with_sums(bytes: &[u8]) -> Vec<u8> {
    let mut summed = Vec::new();
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        if let Some(json) = line.strip_suffix(b"\n") {
            summed.extend(format!("{:08x} ", crc32fast::hash(json)).bytes());
        }
        summed.extend(line);
    }
    summed
}
