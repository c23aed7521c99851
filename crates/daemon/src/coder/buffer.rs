//! Output as coder's clients get it: complete up to 32 KiB, otherwise its first and last 16 KiB with the number of bytes
//! in between.
//!
//! Shown and omitted bytes add up to what was written, including cut lines and overwritten progress bars. No character is
//! split.

use std::io;

use pinfold_store::reader::OutputReader;
use serde::Serialize;

/// Bytes of the beginning, and of the end.
const HEAD: u64 = 16 * 1024;
const TAIL: u64 = 16 * 1024;
/// The longest line in output of which a part is omitted.
const LINE: usize = 2048;
const LINE_END: &str = " ... [truncated]";
/// The least number of omitted bytes: more than the marker takes, so that omitting makes the text shorter.
const MIN_OMITTED: u64 = 64;

/// What was omitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Truncated {
    original_bytes: u64,
    retained_bytes: u64,
    omitted_bytes: u64,
    strategy: &'static str,
}

/// Whether more may come after what was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum More {
    MayCome,
    Never,
}

/// The two ends of an output, and how long it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct OutputEnds {
    head: Vec<u8>,
    tail: Vec<u8>,
    total: u64,
}

impl OutputEnds {
    /// Reads them.
    pub(super) fn read(reader: &OutputReader) -> io::Result<Self> {
        let total = reader.extent()?.end;
        let head = stretch(reader, 0, total.min(HEAD), KeptSide::Front)?;
        let tail = stretch(reader, tail_start(total), total, KeptSide::Back)?;
        Ok(Self { head, tail, total })
    }

    /// The text, and what was omitted.
    pub(super) fn render(mut self, more: More) -> (String, Option<Truncated>) {
        if more == More::MayCome {
            // An incomplete character is shown when its other bytes have arrived.
            let last = if self.tail.is_empty() { &mut self.head } else { &mut self.tail };
            let unfinished = unfinished(last);
            last.truncate(last.len() - unfinished);
            self.total -= unfinished as u64;
        }
        let Self { mut head, mut tail, total } = self;
        let kept = |head: &[u8], tail: &[u8]| (head.len() + tail.len()) as u64;
        if kept(&head, &tail) >= total {
            head.append(&mut tail);
            return (String::from_utf8_lossy(&head).into_owned(), None);
        }
        head.truncate(head.len() - unfinished(&head));
        tail.drain(..tail.iter().take(3).take_while(|byte| (0x80..0xc0).contains(*byte)).count());
        let between = total - kept(&head, &tail);
        let (head, tail) = (cut_lines(&head), cut_lines(&tail));
        let marker = format!("\n\n... [omitted {between} bytes] ...\n\n");
        let truncated = Truncated {
            original_bytes: total,
            retained_bytes: head.length + tail.length + marker.len() as u64,
            omitted_bytes: between + head.lost + tail.lost,
            strategy: "head_tail",
        };
        (head.text + &marker + &tail.text, Some(truncated))
    }
}

fn tail_start(total: u64) -> u64 {
    match total {
        0..=HEAD => total,
        _ if total <= HEAD + TAIL => HEAD,
        _ => (total - TAIL).max(HEAD + MIN_OMITTED),
    }
}

/// Which side of a gap is kept.
#[derive(Clone, Copy, PartialEq, Eq)]
enum KeptSide {
    Front,
    Back,
}

/// The bytes of a range, up to or from the first gap.
fn stretch(reader: &OutputReader, from: u64, to: u64, keep: KeptSide) -> io::Result<Vec<u8>> {
    let (mut at, mut bytes) = (from, Vec::new());
    while at < to {
        let piece = reader.read(at, (to - at) as usize)?;
        if piece.gap.is_some() {
            if keep == KeptSide::Front {
                break;
            }
            bytes.clear();
        }
        if piece.bytes.is_empty() {
            break;
        }
        bytes.extend(&piece.bytes[..piece.bytes.len().min(to.saturating_sub(piece.at) as usize)]);
        at = piece.next;
    }
    Ok(bytes)
}

/// How many bytes at the end belong to an incomplete character.
fn unfinished(bytes: &[u8]) -> usize {
    let from = bytes.len().saturating_sub(3);
    let Some(lead) = bytes[from..].iter().rposition(|byte| !(0x80..0xc0).contains(byte)) else { return 0 };
    let there = bytes.len() - from - lead;
    let whole = match bytes[from + lead] {
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => 1,
    };
    if there < whole { there } else { 0 }
}

/// A text with its long lines cut.
struct CutText {
    text: String,
    /// Its length in bytes of output: an invalid byte becomes a character of three.
    length: u64,
    /// How many bytes are missing.
    lost: u64,
}

/// Cuts long lines, and keeps only the last state of a progress bar.
fn cut_lines(bytes: &[u8]) -> CutText {
    let mut done = CutText { text: String::with_capacity(bytes.len()), length: bytes.len() as u64, lost: 0 };
    for (at, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        if at > 0 {
            done.text.push('\n');
        }
        let (shown, end) = if line.len() <= LINE { (line, "") } else { cut(line) };
        done.text.push_str(&String::from_utf8_lossy(shown));
        done.text.push_str(end);
        done.lost += (line.len() - shown.len()) as u64;
        done.length += end.len() as u64;
    }
    done.length -= done.lost;
    done
}

/// The part of a line that is shown, and the text after it.
fn cut(line: &[u8]) -> (&[u8], &'static str) {
    let state = line.strip_suffix(b"\r").unwrap_or(line);
    let state = state.rsplit(|byte| *byte == b'\r').next().unwrap_or(state);
    if state.len() <= LINE {
        return (state, "");
    }
    let room = &state[..LINE - LINE_END.len()];
    (&room[..room.len() - unfinished(room)], LINE_END)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The head and tail that are read of an output with these bytes.
    fn ends(bytes: &[u8]) -> OutputEnds {
        let total = bytes.len() as u64;
        let head = bytes[..total.min(HEAD) as usize].to_vec();
        OutputEnds { head, tail: bytes[tail_start(total) as usize..].to_vec(), total }
    }

    fn shown(bytes: &[u8]) -> (String, Option<Truncated>) {
        ends(bytes).render(More::Never)
    }

    #[test]
    fn up_to_32_kib_it_is_whole_whatever_the_lines() {
        for length in [0, 1, 16_384, 16_385, 17_040, 32_768] {
            let bytes = vec![b'x'; length];
            assert_eq!(shown(&bytes), (String::from_utf8(bytes).expect("ASCII"), None), "{length}");
        }
    }

    #[test]
    fn beyond_that_the_ends_stay_and_every_byte_is_counted() {
        let text: String = (1..=20_000).map(|n| format!("{n}\n")).collect();
        let (shown, truncated) = shown(text.as_bytes());
        assert_eq!(shown.len(), 32_801);
        assert!(shown.contains("\n\n... [omitted 76126 bytes] ...\n\n") && shown.ends_with("20000\n"));
        let fields =
            Truncated { original_bytes: 108_894, retained_bytes: 32_801, omitted_bytes: 76_126, strategy: "head_tail" };
        assert_eq!(truncated, Some(fields));
    }

    #[test]
    fn the_text_is_shorter_than_what_it_stands_for() {
        for length in [32_769, 32_800, 32_831, 32_832, 33_000] {
            let bytes = [&b"ab\n"[..]].concat().repeat(20_000)[..length].to_vec();
            let truncated = shown(&bytes).1.expect("cut");
            assert!(truncated.original_bytes > truncated.retained_bytes, "{truncated:?}");
        }
    }

    #[test]
    fn binary_output_is_counted_in_its_own_bytes() {
        let bytes: Vec<u8> = (0..33_000_u32).map(|n| (n * 7 % 256) as u8).collect();
        let (text, truncated) = shown(&bytes);
        let truncated = truncated.expect("cut");
        assert!(text.len() > 40_000, "{} bytes of text", text.len());
        assert!(truncated.retained_bytes < truncated.original_bytes, "{truncated:?}");
        let marker = text.split("... [omitted").nth(1).and_then(|rest| rest.split("] ...").next()).expect("a marker");
        let added = ("\n\n... [omitted] ...\n\n".len() + marker.len()) as u64;
        assert_eq!(truncated.retained_bytes + truncated.omitted_bytes - added, 33_000, "{truncated:?}");
    }

    #[test]
    fn characters_stay_whole_at_every_seam() {
        for shift in 0..4 {
            let text = format!("{}{}", "a".repeat(shift), "☃".repeat(15_000));
            let (shown, truncated) = shown(text.as_bytes());
            assert!(!shown.contains('\u{fffd}'), "{shift}");
            let truncated = truncated.expect("cut");
            let whole: usize = shown.matches('☃').count() * 3 + shift;
            assert_eq!(truncated.omitted_bytes + whole as u64, text.len() as u64);
        }
    }

    #[test]
    fn long_lines_are_cut_and_counted_and_progress_is_its_last_state() {
        let mut text = "y".repeat(5_000) + "\n";
        text += &"short\n".repeat(10_000);
        for n in 0..500 {
            text += &format!("\rprogress {n}/500");
        }
        text += " done\n";
        let (shown, truncated) = shown(text.as_bytes());
        let first = shown.lines().next().expect("a line");
        assert!(first.len() == LINE && first.ends_with(LINE_END), "{first}");
        assert!(shown.ends_with("\nprogress 499/500 done\n"), "{}", &shown[shown.len() - 80..]);
        let kept = shown.len() - LINE_END.len();
        let marker = shown.lines().find(|line| line.contains("[omitted")).expect("a marker").len() + 4;
        assert_eq!(truncated.expect("cut").omitted_bytes + (kept - marker) as u64, text.len() as u64);
    }

    #[test]
    fn a_character_that_is_on_its_way_waits() {
        let snow = "☃".as_bytes();
        let (text, _) = ends(&[b"ab", &snow[..2]].concat()).render(More::MayCome);
        assert_eq!(text, "ab");
        let (text, _) = ends(&[b"ab", &snow[..2]].concat()).render(More::Never);
        assert_eq!(text, "ab\u{fffd}");
        let (text, _) = ends(&[b"ab", snow].concat()).render(More::MayCome);
        assert_eq!(text, "ab☃");
        for (bytes, count) in [(&b""[..], 0), (b"a", 0), (b"\xff", 0), (b"\x80\x80\x80", 0), (b"a\xf0\x9f\x98", 3)] {
            assert_eq!(unfinished(bytes), count, "{bytes:?}");
        }
    }
}
