//! Tests of pattern watches: which lines are announced, and with which text.

use std::path::PathBuf;

use pinfold_model::units::Moment;
use pinfold_store::marks::Stream;
use pinfold_store::output::OutputWriter;

use super::*;
use crate::registry::entry_of;

/// A directory with output, removed after the test.
struct Output {
    directory: PathBuf,
    writer: OutputWriter,
}

impl Output {
    fn new(name: &str, text: &[u8]) -> Self {
        let directory = std::env::temp_dir().join(format!("pinfold-watch-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let writer = OutputWriter::new(&directory, 1 << 30, Moment(0));
        let mut output = Self { directory, writer };
        output.write(text);
        output
    }

    fn write(&mut self, text: &[u8]) {
        self.writer.append(Stream::Stdout, text, Moment(1));
    }

    fn reader(&self) -> OutputReader {
        OutputReader::open(&self.directory)
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn notify_on(pattern: &str) -> Notify {
    Notify { patterns: vec![pattern.into()], cooldown: Duration::ZERO, ..Notify::default() }
}

fn matches(scan: &Scan) -> Vec<(u64, &str)> {
    let one = |events| match events {
        &PatternEvent::Matched { cursor, ref text, .. } => Some((cursor, text.as_str())),
        PatternEvent::Ended { .. } => None,
    };
    scan.events.iter().filter_map(one).collect()
}

#[test]
fn lines_are_joined_and_announced_once_without_colours() {
    let entry = entry_of(|_| {});
    let mut output = Output::new("lines", b"fine\n\x1b[31merr");
    let mut watcher = PatternWatcher::new(&notify_on("error"), &[], 0).expect("a watcher");
    assert_eq!(matches(&watcher.scan(&output.reader(), &entry, false).expect("a scan")), vec![]);
    output.write(b"or\x1b[0m: one\nlast error");
    assert_eq!(matches(&watcher.scan(&output.reader(), &entry, false).expect("a scan")), [(5, "error: one")]);
    let scan = watcher.scan(&output.reader(), &entry, true).expect("a scan");
    assert_eq!((matches(&scan), scan.is_over), (vec![(25, "last error")], true));
}

#[test]
fn lines_already_shown_or_announced_are_not_announced_again() {
    let entry = entry_of(|_| {});
    let output = Output::new("shown", b"error 1\nerror 2\nerror 3\n");
    entry.note_shown(0, 10);
    let mut watcher = PatternWatcher::new(&notify_on("error"), &[], entry.shown()).expect("a watcher");
    let scan = watcher.scan(&output.reader(), &entry, true).expect("a scan");
    assert_eq!(matches(&scan), [(8, "error 2"), (16, "error 3")], "half a line is not shown");
    let mut watcher = PatternWatcher::new(&notify_on("error"), &[0, 8], 0).expect("a watcher");
    assert_eq!(matches(&watcher.scan(&output.reader(), &entry, true).expect("a scan")), [(16, "error 3")]);
}

#[test]
fn excluded_lines_are_no_matches_and_any_pattern_will_do() {
    let output = Output::new("exclude", b"warn a\nerror b\nwarn deprecated\n");
    let notify =
        Notify { exclude: Some("deprecated".into()), patterns: vec!["warn".into(), "err".into()], ..notify_on("") };
    let mut watcher = PatternWatcher::new(&notify, &[], 0).expect("a watcher");
    let scan = watcher.scan(&output.reader(), &entry_of(|_| {}), true).expect("a scan");
    assert_eq!(matches(&scan), [(0, "warn a"), (7, "error b")]);
}

#[test]
fn max_events_and_too_many_matches_end_the_watch_with_a_reason() {
    let text = b"match\n".repeat(3000);
    let output = Output::new("noise", &text);
    let notify = Notify { max_events: 2, ..notify_on("match") };
    let mut watcher = PatternWatcher::new(&notify, &[], 0).expect("a watcher");
    let scan = watcher.scan(&output.reader(), &entry_of(|_| {}), false).expect("a scan");
    assert_eq!((matches(&scan).len(), scan.is_over), (2, true));
    assert!(
        matches!(scan.events.last(), Some(PatternEvent::Ended { reason, suppressed: 0 }) if reason.contains("max_events"))
    );
    let notify = Notify { cooldown: Duration::from_secs(3600), ..notify_on("match") };
    let mut watcher = PatternWatcher::new(&notify, &[], 0).expect("a watcher");
    let scan = watcher.scan(&output.reader(), &entry_of(|_| {}), false).expect("a scan");
    assert_eq!((matches(&scan).len(), scan.is_over), (1, true));
    assert!(
        matches!(scan.events.last(), Some(PatternEvent::Ended { suppressed, .. }) if *suppressed == MAX_SUPPRESSED)
    );
}

#[test]
fn a_scan_is_bounded_and_the_next_continues() {
    let mut text = b"x\n".repeat(MAX_SCAN as usize / 2 + READ_SIZE);
    text.extend(b"match\n");
    let output = Output::new("scan", &text);
    let mut watcher = PatternWatcher::new(&notify_on("match"), &[], 0).expect("a watcher");
    let scan = watcher.scan(&output.reader(), &entry_of(|_| {}), true).expect("a scan");
    assert!(scan.more && !scan.is_over && scan.events.is_empty());
    let scan = watcher.scan(&output.reader(), &entry_of(|_| {}), true).expect("a scan");
    assert_eq!((matches(&scan).len(), scan.more, scan.is_over), (1, false, true));
}

#[test]
fn an_excerpt_holds_the_match_and_splits_no_character() {
    assert_eq!(excerpt("short ä\r".as_bytes(), 0, 3), "short ä");
    let long = format!("{}match{}", "ä".repeat(400), "ö".repeat(400));
    let text = excerpt(long.as_bytes(), 800, 805);
    assert!(text.starts_with('…') && text.ends_with('…') && text.contains("match") && text.len() <= MAX_TEXT + 6);
    assert!(!text.contains('\u{FFFD}'));
}
