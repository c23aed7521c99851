//! Splits an agent's output into messages: one JSON object per line, with a maximum length.

use crate::bounds::MAX_FRAME;

/// A complete line, or one that is too long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A line without its newline, and the cursor after it.
    Line { bytes: Vec<u8>, end: u64 },
    /// A line exceeded the maximum.
    TooLarge { at: u64 },
}

/// Collects bytes into lines. An incomplete line is not saved across a restart: its bytes are read again.
#[derive(Debug)]
pub struct Frames {
    partial: Vec<u8>,
    max: usize,
}

impl Default for Frames {
    fn default() -> Self {
        Self { partial: Vec::new(), max: MAX_FRAME }
    }
}

impl Frames {
    /// Adds bytes of one stream and returns the lines that they complete. `end_of(n)` is the cursor after the first `n`
    /// of these bytes: they need not be contiguous in the output, if another stream's bytes are in between.
    pub fn feed(&mut self, bytes: &[u8], end_of: impl Fn(usize) -> u64) -> Vec<Frame> {
        let mut frames = Vec::new();
        let mut rest = bytes;
        let mut used = 0;
        while let Some(newline) = rest.iter().position(|byte| *byte == b'\n') {
            let mut line = std::mem::take(&mut self.partial);
            line.extend(&rest[..newline]);
            used += newline + 1;
            rest = &rest[newline + 1..];
            if line.len() > self.max {
                frames.push(Frame::TooLarge { at: end_of(used) });
            } else {
                frames.push(Frame::Line { bytes: line, end: end_of(used) });
            }
        }
        self.partial.extend(rest);
        if self.partial.len() > self.max {
            self.partial = Vec::new();
            frames.push(Frame::TooLarge { at: end_of(bytes.len()) });
        }
        frames
    }

    /// The incomplete last line.
    pub fn unfinished(&self) -> &[u8] {
        &self.partial
    }

    /// Discards the incomplete line, after a gap in the output.
    pub fn forget(&mut self) {
        self.partial.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str, end: u64) -> Frame {
        Frame::Line { bytes: text.into(), end }
    }

    #[test]
    fn lines_are_complete_wherever_the_stream_is_split() {
        let mut frames = Frames::default();
        assert_eq!(frames.feed(b"{\"a\"", |at| at as u64), []);
        assert_eq!(frames.feed(b":1}\n{}\n{", |at| 4 + at as u64), [line("{\"a\":1}", 8), line("{}", 11)]);
        assert_eq!(frames.unfinished(), b"{");
    }

    #[test]
    fn a_line_beyond_the_maximum_is_reported_once() {
        let mut frames = Frames { partial: vec![], max: 8 };
        assert_eq!(frames.feed(b"12345678", |at| at as u64), []);
        assert_eq!(frames.feed(b"9", |at| 8 + at as u64), [Frame::TooLarge { at: 9 }]);
        assert_eq!(frames.feed(b"123456789\nok\n", |at| 9 + at as u64), [Frame::TooLarge { at: 19 }, line("ok", 22)]);
    }
}
