//! The watch: which lines are told, and what of them.

use std::path::PathBuf;

use pinfold_model::spec::Draft;
use pinfold_model::units::Moment;
use pinfold_store::marks::Stream;
use pinfold_store::output::OutputWriter;

use super::*;
use crate::registry::entry_of;

/// A directory with output in it, gone with the test.
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

fn asked(pattern: &str) -> Notify {
    Notify { patterns: vec![pattern.into()], cooldown: Duration::ZERO, ..Notify::default() }
}

fn told(turn: &Turn) -> Vec<(u64, &str)> {
    let one = |news| match news {
        &News::Matched { cursor, ref text, .. } => Some((cursor, text.as_str())),
        News::Ended { .. } => None,
    };
    turn.news.iter().filter_map(one).collect()
}

#[test]
fn lines_are_put_together_and_told_once_without_colours() {
    let entry = entry_of(Draft::default());
    let mut output = Output::new("lines", b"fine\n\x1b[31merr");
    let mut watcher = Watcher::new(&asked("error"), &[], 0).expect("a watcher");
    assert_eq!(told(&watcher.look(&output.reader(), &entry, false).expect("a look")), vec![]);
    output.write(b"or\x1b[0m: one\nlast error");
    assert_eq!(told(&watcher.look(&output.reader(), &entry, false).expect("a look")), [(5, "error: one")]);
    let turn = watcher.look(&output.reader(), &entry, true).expect("a look");
    assert_eq!((told(&turn), turn.is_over), (vec![(25, "last error")], true));
}

#[test]
fn what_was_shown_as_a_whole_or_told_before_is_no_news() {
    let entry = entry_of(Draft::default());
    let output = Output::new("shown", b"error 1\nerror 2\nerror 3\n");
    entry.note_shown(0, 10);
    let mut watcher = Watcher::new(&asked("error"), &[], entry.shown()).expect("a watcher");
    let turn = watcher.look(&output.reader(), &entry, true).expect("a look");
    assert_eq!(told(&turn), [(8, "error 2"), (16, "error 3")], "half a line is not shown");
    let mut watcher = Watcher::new(&asked("error"), &[0, 8], 0).expect("a watcher");
    assert_eq!(told(&watcher.look(&output.reader(), &entry, true).expect("a look")), [(16, "error 3")]);
}

#[test]
fn excluded_lines_are_no_matches_and_any_pattern_will_do() {
    let output = Output::new("exclude", b"warn a\nerror b\nwarn deprecated\n");
    let notify =
        Notify { exclude: Some("deprecated".into()), patterns: vec!["warn".into(), "err".into()], ..asked("") };
    let mut watcher = Watcher::new(&notify, &[], 0).expect("a watcher");
    let turn = watcher.look(&output.reader(), &entry_of(Draft::default()), true).expect("a look");
    assert_eq!(told(&turn), [(0, "warn a"), (7, "error b")]);
}

#[test]
fn the_most_events_and_noise_end_the_watch_with_a_reason() {
    let text = b"match\n".repeat(3000);
    let output = Output::new("noise", &text);
    let notify = Notify { max_events: 2, ..asked("match") };
    let mut watcher = Watcher::new(&notify, &[], 0).expect("a watcher");
    let turn = watcher.look(&output.reader(), &entry_of(Draft::default()), false).expect("a look");
    assert_eq!((told(&turn).len(), turn.is_over), (2, true));
    assert!(matches!(turn.news.last(), Some(News::Ended { reason, suppressed: 0 }) if reason.contains("max_events")));
    let notify = Notify { cooldown: Duration::from_secs(3600), ..asked("match") };
    let mut watcher = Watcher::new(&notify, &[], 0).expect("a watcher");
    let turn = watcher.look(&output.reader(), &entry_of(Draft::default()), false).expect("a look");
    assert_eq!((told(&turn).len(), turn.is_over), (1, true));
    assert!(matches!(turn.news.last(), Some(News::Ended { suppressed, .. }) if *suppressed == NOISE));
}

#[test]
fn a_turn_is_bounded_and_the_next_goes_on() {
    let mut text = b"x\n".repeat(TURN as usize / 2 + PIECE);
    text.extend(b"match\n");
    let output = Output::new("turn", &text);
    let mut watcher = Watcher::new(&asked("match"), &[], 0).expect("a watcher");
    let turn = watcher.look(&output.reader(), &entry_of(Draft::default()), true).expect("a look");
    assert!(turn.more && !turn.is_over && turn.news.is_empty());
    let turn = watcher.look(&output.reader(), &entry_of(Draft::default()), true).expect("a look");
    assert_eq!((told(&turn).len(), turn.more, turn.is_over), (1, false, true));
}

#[test]
fn an_excerpt_holds_the_match_and_splits_no_character() {
    assert_eq!(excerpt("short ä\r".as_bytes(), 0, 3), "short ä");
    let long = format!("{}match{}", "ä".repeat(400), "ö".repeat(400));
    let text = excerpt(long.as_bytes(), 800, 805);
    assert!(text.starts_with('…') && text.ends_with('…') && text.contains("match") && text.len() <= TEXT_MOST + 6);
    assert!(!text.contains('\u{FFFD}'));
}
