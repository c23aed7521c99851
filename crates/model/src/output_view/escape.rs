//! Where an escape sequence ends: CSI, OSC and other strings, two-byte escapes.
//!
//! Works on a slice instead of a stream, so that every removed byte keeps its cursor. A sequence is bounded:
//! a string that finds no end within [`SEQUENCE_MOST`] bytes, or before the next line, is text.

use std::borrow::Cow;

/// The longest escape sequence, and so the most bytes that are held back for an unfinished one.
pub const SEQUENCE_MOST: usize = 1024;

pub(super) const ESC: u8 = 0x1B;
const BEL: u8 = 0x07;
const CAN: u8 = 0x18;
const SUB: u8 = 0x1A;

/// The length of the sequence at the front of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sequence {
    /// It is over, or was broken off, after so many bytes.
    Whole(usize),
    /// The slice ends first; if nothing follows, so many bytes are the sequence.
    Unfinished(usize),
}

/// Measures the sequence that begins with the ESC at `bytes[0]`.
pub(super) fn measure(bytes: &[u8]) -> Sequence {
    match bytes.get(1) {
        None => Sequence::Unfinished(1),
        Some(b'[') => finish(bytes, 2, 0x20..=0x3F, 0x40..=0x7E),
        Some(b']' | b'P' | b'X' | b'^' | b'_') => measure_string(bytes),
        Some(_) => finish(bytes, 1, 0x20..=0x2F, 0x30..=0x7E),
    }
}

type Bytes = std::ops::RangeInclusive<u8>;

/// A run of `middle` from index `from`, then one of `last`; any other byte breaks the sequence off.
fn finish(bytes: &[u8], from: usize, middle: Bytes, last: Bytes) -> Sequence {
    let run = bytes[from..].iter().take(SEQUENCE_MOST - from - 1).take_while(|byte| middle.contains(byte)).count();
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
    let payload = bytes[INTRODUCER..].iter().take(SEQUENCE_MOST - INTRODUCER);
    let Some(index) = payload.clone().position(ends).map(|index| INTRODUCER + index) else {
        let undecided = bytes.len() < SEQUENCE_MOST;
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

/// The bytes without escape sequences.
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
    fn every_kind_of_sequence_is_stripped_and_nothing_else() {
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
    fn a_sequence_without_end_is_text_after_the_bound() {
        let raw = [b"\x1b]".as_slice(), &[b'x'; SEQUENCE_MOST]].concat();
        assert_eq!(strip_ansi(&raw).len(), SEQUENCE_MOST);
        assert_eq!(measure(&raw[..SEQUENCE_MOST - 1]), Sequence::Unfinished(2));
        assert_eq!(measure(&raw[..SEQUENCE_MOST]), Sequence::Whole(2));
        let raw = [b"\x1b[".as_slice(), &[b'1'; 2 * SEQUENCE_MOST]].concat();
        assert_eq!(measure(&raw), Sequence::Whole(SEQUENCE_MOST - 1));
    }
}
