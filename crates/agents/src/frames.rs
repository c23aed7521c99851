//! Cutting what an agent prints into messages: one JSON object a line, each of bounded length.

use crate::bounds::FRAME_MOST;

/// A line, or that one was too long to be one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A line without its end, and how far the bytes are used with it.
    Line { bytes: Vec<u8>, end: u64 },
    /// A line grew beyond the bound.
    TooLarge { at: u64 },
}

/// Collects bytes until they make lines. What is unfinished is not kept over a restart: it is read again.
#[derive(Debug)]
pub struct Frames {
    partial: Vec<u8>,
    most: usize,
}

impl Default for Frames {
    fn default() -> Self {
        Self { partial: Vec::new(), most: FRAME_MOST }
    }
}

impl Frames {
    /// Takes bytes of one stream. `end_of` tells the cursor after the byte of this place among them: a stream's bytes
    /// lie apart where another's are between.
    pub fn feed(&mut self, bytes: &[u8], end_of: impl Fn(usize) -> u64) -> Vec<Frame> {
        let mut frames = Vec::new();
        let mut rest = bytes;
        let mut used = 0;
        while let Some(place) = rest.iter().position(|byte| *byte == b'\n') {
            let mut line = std::mem::take(&mut self.partial);
            line.extend(&rest[..place]);
            used += place + 1;
            rest = &rest[place + 1..];
            if line.len() > self.most {
                frames.push(Frame::TooLarge { at: end_of(used) });
            } else {
                frames.push(Frame::Line { bytes: line, end: end_of(used) });
            }
        }
        self.partial.extend(rest);
        if self.partial.len() > self.most {
            self.partial = Vec::new();
            frames.push(Frame::TooLarge { at: end_of(bytes.len()) });
        }
        frames
    }

    /// What was printed last without an end of line.
    pub fn unfinished(&self) -> &[u8] {
        &self.partial
    }

    /// Begins anew, behind a gap.
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
    fn lines_come_whole_however_they_are_cut() {
        let mut frames = Frames::default();
        assert_eq!(frames.feed(b"{\"a\"", |at| at as u64), []);
        assert_eq!(frames.feed(b":1}\n{}\n{", |at| 4 + at as u64), [line("{\"a\":1}", 8), line("{}", 11)]);
        assert_eq!(frames.unfinished(), b"{");
    }

    #[test]
    fn a_line_without_an_end_is_given_up_at_the_bound() {
        let mut frames = Frames { partial: vec![], most: 8 };
        assert_eq!(frames.feed(b"12345678", |at| at as u64), []);
        assert_eq!(frames.feed(b"9", |at| 8 + at as u64), [Frame::TooLarge { at: 9 }]);
        assert_eq!(frames.feed(b"123456789\nok\n", |at| 9 + at as u64), [Frame::TooLarge { at: 19 }, line("ok", 22)]);
    }
}
