//! Searching output: patterns from clients, lines from processes, in chunks of any size.

use pinfold_model::output_view::{Line, MAX_CONTEXT, MAX_LINE, SearchOptions, Searcher, parse_pattern};

use crate::feed::{Feed, text};

/// A reported line: whether it matched, its cursor, its bytes.
type ReportedLine = (bool, u64, Vec<u8>);

pub(crate) fn target(data: &[u8]) {
    let mut feed = Feed(data);
    let length = feed.byte().into();
    let pattern = text(feed.bytes(length));
    let (before, after) = (usize::from(feed.byte()), usize::from(feed.byte()));
    let options = SearchOptions { before, after, max_matches: feed.small() };
    let piece = feed.small().max(1);
    let bytes = feed.0;
    let Ok(regex) = parse_pattern(&pattern) else { return };
    let search = |chunk: usize| {
        let mut searcher = Searcher::new(regex.clone(), options);
        let mut reported: Vec<ReportedLine> = Vec::new();
        let mut report = |line: Line<'_>| {
            let (matched, line) = match line {
                Line::Matched(line) => (true, line),
                Line::Context(line) => (false, line),
            };
            reported.push((matched, line.line_start, line.line.to_vec()));
        };
        for (index, part) in bytes.chunks(chunk).enumerate() {
            searcher.feed((index * chunk) as u64, part, &mut report);
        }
        searcher.flush(&mut report);
        assert!(searcher.next_cursor() <= bytes.len() as u64, "{}", searcher.next_cursor());
        (reported, searcher.match_count(), searcher.next_match())
    };
    let at_once = search(bytes.len().max(1));
    assert_eq!(search(piece), at_once, "chunks of {piece} bytes give another result");
    let (reported, found, more) = at_once;
    assert_eq!(reported.iter().filter(|(matched, ..)| *matched).count(), found);
    assert!(found <= options.max_matches && (more.is_none() || found == options.max_matches));
    assert!(reported.len() <= found * (1 + before.min(MAX_CONTEXT) + after.min(MAX_CONTEXT)));
    let mut end = 0;
    for (_, start, line) in &reported {
        let place = *start as usize..*start as usize + line.len();
        assert!(*start >= end && line.len() <= MAX_LINE, "lines are in order and none is repeated");
        assert_eq!(bytes.get(place), Some(line.as_slice()), "a line is at its cursor");
        end = start + line.len() as u64;
    }
}
