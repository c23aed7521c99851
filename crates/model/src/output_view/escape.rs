//! Finds the end of escape sequences: CSI, OSC and other strings, two-byte escapes.
//!
//! Works on a slice instead of a stream, so that the cursors of removed bytes are known. A string without an end
//! within [`MAX_SEQUENCE`] bytes, or before the next newline, is treated as text.

use std::borrow::Cow;

/// The longest escape sequence; also the most bytes held back for an incomplete one.
pub const MAX_SEQUENCE: usize = 1024;

pub(super) const ESC: u8 = 0x1B;
const BEL: u8 = 0x07;
const CAN: u8 = 0x18;
const SUB: u8 = 0x1A;

/// The length of the sequence at the start of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sequence {
    /// It ends, or is aborted, after this many bytes.
    Whole(usize),
    /// The slice ends first; if nothing follows, the sequence has this many bytes.
    Unfinished(usize),
}

/// Measures the sequence that starts with the ESC at `bytes[0]`.
pub(super) fn measure(bytes: &[u8]) -> Sequence {
    match bytes.get(1) {
        None => Sequence::Unfinished(1),
        Some(b'[') => finish(bytes, 2, 0x20..=0x3F, 0x40..=0x7E),
        Some(b']' | b'P' | b'X' | b'^' | b'_') => measure_string(bytes),
        Some(_) => finish(bytes, 1, 0x20..=0x2F, 0x30..=0x7E),
    }
}

type Bytes = std::ops::RangeInclusive<u8>;

/// Any number of `middle` bytes from index `from`, then one `last` byte; any other byte aborts the sequence.
fn finish(bytes: &[u8], from: usize, middle: Bytes, last: Bytes) -> Sequence {
    let run = bytes[from..].iter().take(MAX_SEQUENCE - from - 1).take_while(|byte| middle.contains(byte)).count();
    match bytes.get(from + run) {
        None => Sequence::Unfinished(from + run),
        Some(byte) if last.contains(byte) => Sequence::Whole(from + run + 1),
        Some(_) => Sequence::Whole(from + run),
    }
}

/// A string ends with BEL or `ESC \`, and is cancelled by CAN, SUB or another ESC.
fn measure_string(bytes: &[u8]) -> Sequence {
    const INTRODUCER: usize = 2;
    let ends = |byte: &u8| matches!(*byte, BEL | CAN | SUB | ESC | b'\n');
    let payload = bytes[INTRODUCER..].iter().take(MAX_SEQUENCE - INTRODUCER);
    let Some(index) = payload.clone().position(ends).map(|index| INTRODUCER + index) else {
        let undecided = bytes.len() < MAX_SEQUENCE;
        return if undecided { Sequence::Unfinished(INTRODUCER) } else { Sequence::Whole(INTRODUCER) };
    };
    match (bytes[index], bytes.get(index + 1)) {
        (b'\n', _) => Sequence::Whole(INTRODUCER),
        (ESC, None) => Sequence::Unfinished(index + 1),
        (ESC, Some(b'\\')) => Sequence::Whole(index + 2),
        (ESC, Some(_)) => Sequence::Whole(index),
        _ => Sequence::Whole(index + 1),
    }
}

/// Removes escape sequences.
pub fn strip_ansi(bytes: &[u8]) -> Cow<'_, [u8]> {
    if !bytes.contains(&ESC) {
        return Cow::Borrowed(bytes);
    }
    let mut kept = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some(escape) = rest.iter().position(|byte| *byte == ESC) {
        let (text, sequence) = rest.split_at(escape);
        kept.extend_from_slice(text);
        let (Sequence::Whole(length) | Sequence::Unfinished(length)) = measure(sequence);
        rest = &sequence[length..];
    }
    kept.extend_from_slice(rest);
    Cow::Owned(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_escape_sequences_are_removed_and_nothing_else() {
        let cases: [(&str, &str); 14] = [
            ("plain", "plain"),
            ("\x1b[1;31mred\x1b[0m", "red"),
            ("\x1b[?25l\x1b[2Kx", "x"),
            ("\x1b]0;title\x07text", "text"),
            ("\x1b]8;;http://a/é\x1b\\link\x1b]8;;\x1b\\", "link"),
            ("\x1b(B\x1b=\x1b7ok\x1bM", "ok"),
            ("\x1bPq#0;2\x1b\\after", "after"),
            ("\x1b[12\nnext", "\nnext"),
            ("\x1b]never ended\nnext", "never ended\nnext"),
            ("\x1b]cancelled\x1b[1mnext", "next"),
            ("\x1b\x1b[1mx", "x"),
            ("\x1bé", "é"),
            ("cut \x1b[3", "cut "),
            ("cut \x1b", "cut "),
        ];
        for (raw, plain) in cases {
            assert_eq!(String::from_utf8_lossy(&strip_ansi(raw.as_bytes())), plain, "{raw:?}");
        }
    }

    #[test]
    fn a_sequence_without_an_end_is_text_after_the_maximum_length() {
        let raw = [b"\x1b]".as_slice(), &[b'x'; MAX_SEQUENCE]].concat();
        assert_eq!(strip_ansi(&raw).len(), MAX_SEQUENCE);
        assert_eq!(measure(&raw[..MAX_SEQUENCE - 1]), Sequence::Unfinished(2));
        assert_eq!(measure(&raw[..MAX_SEQUENCE]), Sequence::Whole(2));
        let raw = [b"\x1b[".as_slice(), &[b'1'; 2 * MAX_SEQUENCE]].concat();
        assert_eq!(measure(&raw), Sequence::Whole(MAX_SEQUENCE - 1));
    }
}
