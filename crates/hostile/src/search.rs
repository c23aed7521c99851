//! Searching output: patterns from clients, lines from processes, in chunks of any size.

use pinfold_model::output_view::{CONTEXT_MOST, LINE_MOST, Line, SearchOptions, Searcher, parse_pattern};

use crate::feed::{Feed, text};

/// A reported line: whether it matched, its cursor, its bytes.
type ReportedLine = (bool, u64, Vec<u8>);

pub(crate) fn target(data: &[u8]) {
    let mut feed = Feed(data);
    let length = feed.byte().into();
    let pattern = text(feed.bytes(length));
    let (before, after) = (usize::from(feed.byte()), usize::from(feed.byte()));
    let options = SearchOptions { before, after, most: feed.small() };
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
        (reported, searcher.found(), searcher.more())
    };
    let at_once = search(bytes.len().max(1));
    assert_eq!(search(piece), at_once, "chunks of {piece} bytes give another result");
    let (reported, found, more) = at_once;
    assert_eq!(reported.iter().filter(|(matched, ..)| *matched).count(), found);
    assert!(found <= options.most && (more.is_none() || found == options.most));
    assert!(reported.len() <= found * (1 + before.min(CONTEXT_MOST) + after.min(CONTEXT_MOST)));
    let mut end = 0;
    for (_, start, line) in &reported {
        let place = *start as usize..*start as usize + line.len();
        assert!(*start >= end && line.len() <= LINE_MOST, "lines are in order and none is repeated");
        assert_eq!(bytes.get(place), Some(line.as_slice()), "a line is at its cursor");
        end = start + line.len() as u64;
    }
}
