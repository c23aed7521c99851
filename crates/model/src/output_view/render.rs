//! Renders raw bytes (invalid UTF-8, escape sequences, carriage returns) as text, and maps each segment of text to its raw bytes.

use super::Options;
use super::escape::{self, ESC, Sequence};

/// What follows the given bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Following {
    /// Nothing: an incomplete character or sequence is shown as it is.
    Nothing,
    /// More bytes: an incomplete character or sequence is left for them.
    More,
}

/// Text, and the raw bytes behind it, in order.
pub(super) struct RenderedText {
    text: String,
    segments: Vec<Segment>,
    line: Line,
}

#[derive(Clone, Copy)]
struct Segment {
    kind: SegmentKind,
    raw: u64,
    text: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SegmentKind {
    /// The text equals the raw bytes.
    Verbatim,
    /// U+FFFD replaces one invalid sequence.
    Replaced,
    /// No text.
    Removed,
}

/// The current line, for carriage returns.
#[derive(Clone, Copy, Default)]
struct Line {
    start: Position,
    /// Where the text after the last carriage return starts, until something visible follows.
    rewrite: Option<Position>,
}

/// A position between two segments.
#[derive(Clone, Copy, Default)]
struct Position {
    segment: usize,
    text: usize,
}

/// A count of raw bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RawBytes {
    pub(super) shown: u64,
    pub(super) collapsed: u64,
}

impl RawBytes {
    pub(super) fn raw(self) -> u64 {
        self.shown + self.collapsed
    }

    fn add(&mut self, kind: SegmentKind, raw: u64) {
        match kind {
            SegmentKind::Verbatim | SegmentKind::Replaced => self.shown += raw,
            SegmentKind::Removed => self.collapsed += raw,
        }
    }
}

impl RenderedText {
    pub(super) fn new(bytes: &[u8], following: Following, options: &Options) -> Self {
        let mut rendered = Self { text: String::with_capacity(bytes.len()), segments: vec![], line: Line::default() };
        let bytes = match following {
            Following::Nothing => bytes,
            Following::More => &bytes[..bytes.len() - unfinished_character(bytes)],
        };
        let mut rest = bytes;
        while !rest.is_empty() {
            let taken = match rest[0] {
                ESC if options.strip_ansi || options.collapse_cr => rendered.take_escape(rest, following, options),
                b'\r' if options.collapse_cr => rendered.take_return(),
                b'\n' if options.collapse_cr => rendered.take_newline(),
                _ => rendered.take_text(rest, options),
            };
            if taken == 0 {
                break;
            }
            rest = &rest[taken..];
        }
        rendered
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The raw bytes rendered; fewer than given if the last are incomplete.
    pub(super) fn raw(&self) -> u64 {
        self.segments.iter().map(|segment| segment.raw).sum()
    }

    /// Counts the raw bytes behind the first `text` bytes of text.
    pub(super) fn prefix(&self, text: usize) -> RawBytes {
        count(self.segments.iter(), text, self.text.len())
    }

    /// Counts the raw bytes behind the last `text` bytes of text.
    pub(super) fn suffix(&self, text: usize) -> RawBytes {
        count(self.segments.iter().rev(), text, self.text.len())
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
            self.push(SegmentKind::Verbatim, chunk.valid().len(), chunk.valid());
            self.push(SegmentKind::Replaced, chunk.invalid().len(), "\u{FFFD}");
        }
        length
    }

    fn take_escape(&mut self, bytes: &[u8], following: Following, options: &Options) -> usize {
        let length = match escape::measure(bytes) {
            Sequence::Unfinished(_) if following == Following::More && options.strip_ansi => return 0,
            Sequence::Whole(length) | Sequence::Unfinished(length) => length,
        };
        if options.strip_ansi {
            self.push(SegmentKind::Removed, length, "");
        } else {
            for chunk in bytes[..length].utf8_chunks() {
                self.push(SegmentKind::Verbatim, chunk.valid().len(), chunk.valid());
                self.push(SegmentKind::Replaced, chunk.invalid().len(), "\u{FFFD}");
            }
        }
        length
    }

    fn take_return(&mut self) -> usize {
        self.push(SegmentKind::Removed, 1, "");
        self.line.rewrite = Some(self.position());
        1
    }

    fn take_newline(&mut self) -> usize {
        self.push(SegmentKind::Verbatim, 1, "\n");
        self.line = Line { start: self.position(), rewrite: None };
        1
    }

    /// Visible text after a carriage return replaces the line so far.
    fn rewrite(&mut self) {
        let Some(state) = self.line.rewrite.take() else { return };
        let start = self.line.start;
        self.text.drain(start.text..state.text);
        let raw = self.segments.drain(start.segment..state.segment).map(|segment| segment.raw).sum();
        self.segments.insert(start.segment, Segment { kind: SegmentKind::Removed, raw, text: 0 });
    }

    fn position(&self) -> Position {
        Position { segment: self.segments.len(), text: self.text.len() }
    }

    fn push(&mut self, kind: SegmentKind, raw: usize, text: &str) {
        if raw == 0 {
            return;
        }
        self.text.push_str(text);
        // Segments do not span lines, so that a line can be rewritten; replacements are not merged.
        let same_line = self.segments.len() > self.line.start.segment;
        match self.segments.last_mut() {
            Some(last) if same_line && last.kind == kind && kind != SegmentKind::Replaced => {
                last.raw += raw as u64;
                last.text += text.len();
            }
            _ => self.segments.push(Segment { kind, raw: raw as u64, text: text.len() }),
        }
    }
}

/// Counts segments until `wanted` of `all` bytes of text are reached; segments without text after that belong to the
/// omitted range.
fn count<'a>(segments: impl Iterator<Item = &'a Segment>, wanted: usize, all: usize) -> RawBytes {
    let mut count = RawBytes::default();
    let mut remaining = wanted;
    for segment in segments {
        if remaining == 0 && wanted < all {
            break;
        }
        let cut = segment.kind == SegmentKind::Verbatim && segment.text > remaining;
        count.add(segment.kind, if cut { remaining as u64 } else { segment.raw });
        remaining = remaining.saturating_sub(segment.text);
    }
    count
}

/// How many bytes at the end are an incomplete character.
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
