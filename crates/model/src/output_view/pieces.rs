//! Raw bytes made readable, each stretch of text with the number of raw bytes behind it.
//!
//! Owns the transformations (lossy UTF-8, escape sequences, carriage returns) and the mapping back.

use super::Options;
use super::escape::{self, ESC, Sequence};

/// What follows the last byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Edge {
    /// Nothing: what is unfinished stays so.
    Final,
    /// Bytes that are not here: an unfinished character or sequence is left to them.
    Unfinished,
}

/// Text and the raw bytes it stands for, in order.
pub(super) struct Pieces {
    text: String,
    pieces: Vec<Piece>,
    line: Line,
}

#[derive(Clone, Copy)]
struct Piece {
    kind: Kind,
    raw: u64,
    text: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The text is the raw bytes.
    Verbatim,
    /// U+FFFD stands for one invalid run.
    Replaced,
    /// No text.
    Removed,
}

/// The line being read, for carriage returns.
#[derive(Clone, Copy, Default)]
struct Line {
    start: Mark,
    /// Where the state after the last carriage return begins, while it has nothing visible.
    rewrite: Option<Mark>,
}

/// A place between two pieces.
#[derive(Clone, Copy, Default)]
struct Mark {
    piece: usize,
    text: usize,
}

/// Raw bytes of a stretch, by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) shown: u64,
    pub(super) collapsed: u64,
}

impl Count {
    pub(super) fn raw(self) -> u64 {
        self.shown + self.collapsed
    }

    fn add(&mut self, kind: Kind, raw: u64) {
        match kind {
            Kind::Verbatim | Kind::Replaced => self.shown += raw,
            Kind::Removed => self.collapsed += raw,
        }
    }
}

impl Pieces {
    /// Makes bytes readable.
    pub(super) fn new(bytes: &[u8], edge: Edge, options: &Options) -> Self {
        let mut pieces = Self { text: String::with_capacity(bytes.len()), pieces: vec![], line: Line::default() };
        let bytes = match edge {
            Edge::Final => bytes,
            Edge::Unfinished => &bytes[..bytes.len() - unfinished_character(bytes)],
        };
        let mut rest = bytes;
        while !rest.is_empty() {
            let taken = match rest[0] {
                ESC if options.strip_ansi || options.collapse_cr => pieces.take_escape(rest, edge, options),
                b'\r' if options.collapse_cr => pieces.take_return(),
                b'\n' if options.collapse_cr => pieces.take_newline(),
                _ => pieces.take_text(rest, options),
            };
            if taken == 0 {
                break;
            }
            rest = &rest[taken..];
        }
        pieces
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Raw bytes behind all of it; less than were given if the last are unfinished.
    pub(super) fn raw(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.raw).sum()
    }

    /// Counts the raw bytes behind the first `text` bytes of the text.
    pub(super) fn prefix(&self, text: usize) -> Count {
        count(self.pieces.iter(), text, self.text.len())
    }

    /// Counts the raw bytes behind the last `text` bytes of the text.
    pub(super) fn suffix(&self, text: usize) -> Count {
        count(self.pieces.iter().rev(), text, self.text.len())
    }

    fn take_text(&mut self, bytes: &[u8], options: &Options) -> usize {
        let special = |byte: &u8| match *byte {
            ESC => options.strip_ansi || options.collapse_cr,
            b'\r' | b'\n' => options.collapse_cr,
            _ => false,
        };
        let length = bytes.iter().position(special).unwrap_or(bytes.len());
        self.rewrite();
        for chunk in bytes[..length].utf8_chunks() {
            self.push(Kind::Verbatim, chunk.valid().len(), chunk.valid());
            self.push(Kind::Replaced, chunk.invalid().len(), "\u{FFFD}");
        }
        length
    }

    fn take_escape(&mut self, bytes: &[u8], edge: Edge, options: &Options) -> usize {
        let length = match escape::measure(bytes) {
            Sequence::Unfinished(_) if edge == Edge::Unfinished && options.strip_ansi => return 0,
            Sequence::Whole(length) | Sequence::Unfinished(length) => length,
        };
        if options.strip_ansi {
            self.push(Kind::Removed, length, "");
        } else {
            for chunk in bytes[..length].utf8_chunks() {
                self.push(Kind::Verbatim, chunk.valid().len(), chunk.valid());
                self.push(Kind::Replaced, chunk.invalid().len(), "\u{FFFD}");
            }
        }
        length
    }

    fn take_return(&mut self) -> usize {
        self.push(Kind::Removed, 1, "");
        self.line.rewrite = Some(self.mark());
        1
    }

    fn take_newline(&mut self) -> usize {
        self.push(Kind::Verbatim, 1, "\n");
        self.line = Line { start: self.mark(), rewrite: None };
        1
    }

    /// Something visible follows a carriage return: what the line showed before is gone.
    fn rewrite(&mut self) {
        let Some(state) = self.line.rewrite.take() else { return };
        let start = self.line.start;
        self.text.drain(start.text..state.text);
        let raw = self.pieces.drain(start.piece..state.piece).map(|piece| piece.raw).sum();
        self.pieces.insert(start.piece, Piece { kind: Kind::Removed, raw, text: 0 });
    }

    fn mark(&self) -> Mark {
        Mark { piece: self.pieces.len(), text: self.text.len() }
    }

    fn push(&mut self, kind: Kind, raw: usize, text: &str) {
        if raw == 0 {
            return;
        }
        self.text.push_str(text);
        // A piece never spans two lines that may be rewritten, and a replacement is never a part of one.
        let same_line = self.pieces.len() > self.line.start.piece;
        match self.pieces.last_mut() {
            Some(last) if same_line && last.kind == kind && kind != Kind::Replaced => {
                last.raw += raw as u64;
                last.text += text.len();
            }
            _ => self.pieces.push(Piece { kind, raw: raw as u64, text: text.len() }),
        }
    }
}

/// Counts pieces until `wanted` of `all` bytes of text are seen; what was removed beyond them belongs to the hole.
fn count<'a>(pieces: impl Iterator<Item = &'a Piece>, wanted: usize, all: usize) -> Count {
    let mut count = Count::default();
    let mut missing = wanted;
    for piece in pieces {
        if missing == 0 && wanted < all {
            break;
        }
        let cut = piece.kind == Kind::Verbatim && piece.text > missing;
        count.add(piece.kind, if cut { missing as u64 } else { piece.raw });
        missing = missing.saturating_sub(piece.text);
    }
    count
}

/// How many bytes at the end are a character whose rest has not come.
fn unfinished_character(bytes: &[u8]) -> usize {
    let longest = bytes.len().min(3);
    let Some(length) = (1..=longest).find(|length| !(0x80..0xC0).contains(&bytes[bytes.len() - length])) else {
        return 0;
    };
    match std::str::from_utf8(&bytes[bytes.len() - length..]) {
        Err(error) if error.error_len().is_none() => length,
        _ => 0,
    }
}
