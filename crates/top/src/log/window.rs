//! The part of a log that is in memory: whole lines by cursor, with the gaps between them.
//!
//! Bounds: [`MAX_BYTES`] and [`MAX_LINES`]; beyond them lines are dropped at the end that is farther from the reader, and read
//! again when they are scrolled to. A line longer than [`MAX_LINE`] is shown as several.

use std::collections::VecDeque;

/// Bytes in the window.
pub(crate) const MAX_BYTES: usize = 1 << 20;
/// Lines in the window.
pub(crate) const MAX_LINES: usize = 20_000;
/// Bytes of one line.
pub(crate) const MAX_LINE: usize = 8 << 10;

/// A stretch of output as the daemon gave it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Piece {
    /// The cursor of the first byte.
    pub(crate) at: u64,
    pub(crate) bytes: Vec<u8>,
    /// Whether bytes right before it are no longer stored.
    pub(crate) after_gap: bool,
}

/// One line, or a gap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    /// The cursor of its first byte.
    pub(crate) at: u64,
    pub(crate) body: Body,
    /// Whether a line starts here; false for the later parts of a long line.
    pub(crate) starts_line: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    Line(Vec<u8>),
    /// Bytes up to this cursor are no longer stored.
    Gap {
        to: u64,
    },
}

impl Item {
    /// The cursor after it.
    pub(crate) fn end(&self) -> u64 {
        match &self.body {
            Body::Line(bytes) => self.at + bytes.len() as u64,
            Body::Gap { to } => *to,
        }
    }

    /// Its bytes; none for a gap.
    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.body {
            Body::Line(bytes) => bytes,
            Body::Gap { .. } => &[],
        }
    }

    /// Whether further bytes belong to the same item.
    fn is_open(&self) -> bool {
        matches!(&self.body, Body::Line(bytes) if !bytes.ends_with(b"\n") && bytes.len() < MAX_LINE)
    }
}

/// Consecutive lines of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogWindow {
    items: VecDeque<Item>,
    bytes: usize,
}

/// An end of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Edge {
    First,
    Last,
}

impl LogWindow {
    /// A window with this piece alone. If it has more lines than a window, those around the cursor stay.
    pub(crate) fn around(piece: Piece, cursor: u64) -> Self {
        let mut window = LogWindow::default();
        let piece = from_line_start(piece);
        window.items.extend(split(&piece, true));
        window.bytes = piece.bytes.len();
        let above = window.index_of(cursor).saturating_sub(MAX_LINES / 2);
        let spare = window.items.len().saturating_sub(MAX_LINES);
        for _ in 0..above.min(spare) {
            window.drop_item(Edge::First);
        }
        window.trim(Edge::Last);
        window
    }

    pub(crate) fn items(&self) -> &VecDeque<Item> {
        &self.items
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The cursor of the first byte.
    pub(crate) fn start(&self) -> u64 {
        self.items.front().map_or(0, |item| item.at)
    }

    /// The cursor after the last byte.
    pub(crate) fn end(&self) -> u64 {
        self.items.back().map_or(0, Item::end)
    }

    /// The index of the item at this cursor, or of the nearest one.
    pub(crate) fn index_of(&self, cursor: u64) -> usize {
        self.items.partition_point(|item| item.at <= cursor).saturating_sub(1)
    }

    pub(crate) fn contains(&self, cursor: u64) -> bool {
        !self.is_empty() && (self.start()..self.end()).contains(&cursor)
    }

    /// Adds as much of what follows as leaves the last lines of the window where they are.
    pub(crate) fn append_some(&mut self, mut piece: Piece) {
        let line_ends = piece.bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
        if let Some((last, _)) = line_ends.take(MAX_LINES / 2).last() {
            piece.bytes.truncate(last + 1);
        }
        self.append(piece);
    }

    /// Adds what follows; drops lines at the beginning if there are too many.
    pub(crate) fn append(&mut self, mut piece: Piece) {
        let end = self.end();
        if !self.is_empty() && piece.at < end {
            let known = (end - piece.at).min(piece.bytes.len() as u64) as usize;
            piece.bytes.drain(..known);
            piece.at = end;
        }
        if piece.bytes.is_empty() {
            return;
        }
        if !self.is_empty() && piece.at > end {
            self.items.push_back(Item { at: end, body: Body::Gap { to: piece.at }, starts_line: true });
        }
        self.bytes += piece.bytes.len();
        let mut starts_line = true;
        if let Some(last) = self.items.back_mut() {
            if last.is_open() {
                let Body::Line(bytes) = &mut last.body else { return };
                let room = MAX_LINE - bytes.len();
                let line = piece.bytes.iter().position(|byte| *byte == b'\n').map_or(piece.bytes.len(), |at| at + 1);
                let taken = line.min(room);
                bytes.extend(piece.bytes.drain(..taken));
                piece.at += taken as u64;
            }
            starts_line = !matches!(&last.body, Body::Line(bytes) if !bytes.ends_with(b"\n"));
        }
        self.items.extend(split(&piece, starts_line));
        self.trim(Edge::First);
    }

    /// Adds as much of what comes before as leaves the first lines of the window where they are; drops lines at the end if
    /// there are too many.
    pub(crate) fn prepend(&mut self, mut piece: Piece) {
        if self.is_empty() {
            let end = piece.at + piece.bytes.len() as u64;
            *self = LogWindow::around(piece, end);
            return;
        }
        let start = self.start();
        piece.bytes.truncate(start.saturating_sub(piece.at) as usize);
        let piece = from_line_start(piece);
        if piece.bytes.is_empty() {
            return;
        }
        let end = piece.at + piece.bytes.len() as u64;
        if end < start {
            self.items.push_front(Item { at: end, body: Body::Gap { to: start }, starts_line: true });
        }
        for item in split(&piece, true).into_iter().rev().take(MAX_LINES / 2) {
            self.bytes += item.bytes().len();
            self.items.push_front(item);
        }
        self.trim(Edge::Last);
    }

    fn trim(&mut self, edge: Edge) {
        while self.items.len() > 1 && (self.bytes > MAX_BYTES || self.items.len() > MAX_LINES) {
            self.drop_item(edge);
        }
    }

    fn drop_item(&mut self, edge: Edge) {
        let dropped = match edge {
            Edge::First => self.items.pop_front(),
            Edge::Last => self.items.pop_back(),
        };
        self.bytes -= dropped.map_or(0, |item| item.bytes().len());
    }
}

/// The piece without the rest of a line whose beginning is not in it, unless it has no other line.
fn from_line_start(mut piece: Piece) -> Piece {
    if piece.at == 0 || piece.after_gap {
        return piece;
    }
    let line_end = piece.bytes.iter().position(|byte| *byte == b'\n');
    if let Some(at) = line_end.filter(|at| at + 1 < piece.bytes.len()) {
        piece.bytes.drain(..=at);
        piece.at += at as u64 + 1;
    }
    piece
}

fn split(piece: &Piece, mut starts_line: bool) -> Vec<Item> {
    let mut items = Vec::new();
    let mut at = piece.at;
    for line in piece.bytes.split_inclusive(|byte| *byte == b'\n') {
        for part in line.chunks(MAX_LINE) {
            items.push(Item { at, body: Body::Line(part.to_vec()), starts_line });
            at += part.len() as u64;
            starts_line = false;
        }
        starts_line = true;
    }
    items
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(at: u64, text: &str) -> Piece {
        Piece { at, bytes: text.into(), after_gap: false }
    }

    fn shown(window: &LogWindow) -> Vec<String> {
        let text = |item: &Item| match &item.body {
            Body::Line(bytes) => format!("{}:{}", item.at, String::from_utf8_lossy(bytes).trim_end()),
            Body::Gap { to } => format!("{}:gap to {to}", item.at),
        };
        window.items.iter().map(text).collect()
    }

    #[test]
    fn pieces_join_to_whole_lines_in_both_directions() {
        let mut window = LogWindow::around(piece(10, "rest\nfive\nsi"), 99);
        assert_eq!(shown(&window), ["15:five", "20:si"]);
        window.append(piece(22, "x\nseven\n"));
        assert_eq!(shown(&window), ["15:five", "20:six", "24:seven"]);
        // Overlap is skipped.
        window.append(piece(24, "seven\neight"));
        assert_eq!(shown(&window)[3], "30:eight");
        window.prepend(piece(0, "zero\nabcdefrest\nfive\n"));
        assert_eq!(shown(&window)[..3], ["0:zero", "5:abcdefrest", "15:five"]);
        assert_eq!((window.start(), window.end(), window.index_of(7), window.index_of(99)), (0, 35, 1, 5));
    }

    #[test]
    fn gaps_are_shown_where_they_are() {
        let mut window = LogWindow::around(Piece { at: 100, bytes: b"tail\n".to_vec(), after_gap: true }, 0);
        window.prepend(piece(0, "head\n"));
        assert_eq!(shown(&window), ["0:head", "5:gap to 100", "100:tail"]);
        window.append(piece(200, "later\n"));
        assert_eq!(shown(&window)[3..], ["105:gap to 200", "200:later"]);
    }

    #[test]
    fn a_line_without_an_end_is_shown_in_parts() {
        let long = "x".repeat(2 * MAX_LINE + 5);
        let mut window = LogWindow::around(piece(0, &long), 0);
        assert_eq!(window.items().len(), 3);
        window.append(piece(long.len() as u64, "yz\nnext\n"));
        let ends: Vec<_> = window.items().iter().map(|item| (item.starts_line, item.bytes().len())).collect();
        assert_eq!(ends, [(true, MAX_LINE), (false, MAX_LINE), (false, 8), (true, 5)]);
        assert_eq!(window.end(), long.len() as u64 + 8);
    }

    #[test]
    fn the_window_stays_bounded_and_drops_the_far_end() {
        let many = "y\n".repeat(MAX_LINES + 10);
        assert_eq!(LogWindow::around(piece(0, &many), 0).start(), 0);
        let mut window = LogWindow::around(piece(0, &many), u64::MAX);
        assert_eq!((window.items().len(), window.start()), (MAX_LINES, 20));
        for _ in 0..40 {
            let end = window.end();
            window.append(piece(end, &format!("{}\n", "z".repeat(99)).repeat(500)));
        }
        assert!(window.bytes <= MAX_BYTES && window.items().len() <= MAX_LINES);
        assert_eq!(window.bytes, window.items().iter().map(|item| item.bytes().len()).sum::<usize>());
        let start = window.start();
        window.prepend(piece(start - 400_000, &"abc\n".repeat(100_000)));
        assert!(window.start() < start && window.items().len() <= MAX_LINES);
        assert!(window.end() < start + MAX_BYTES as u64);
    }
}
