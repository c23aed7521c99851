//! The terminal emulator: the screen that the output has drawn, and the replies to terminal queries.
//!
//! It is fed from the output on disk, so it can be rebuilt at any time. Programs query their terminal's type, cursor
//! position and colours. Each query is answered once: the keeper stores how far queries were answered, and a later
//! daemon continues from there.

use std::io;
use std::num::NonZeroU16;

use pinfold_model::keyboard::Keyboard;
use pinfold_model::spec::PtySize;
use pinfold_store::reader::OutputReader;
use vt100::{Callbacks, Parser, Screen};

/// Bytes per read.
const READ_SIZE: usize = 256 * 1024;
/// How much of a long output is fed to a new emulator; earlier output has long left the screen.
const MAX_REPLAY: u64 = 64 << 20;
/// Maximum length of a title, and of the replies of one step.
const MAX_TITLE: usize = 256;
const MAX_REPLIES: usize = 4096;

/// An emulator and its position in the output.
pub(crate) struct Terminal {
    parser: Parser<TerminalCallbacks>,
    cursor: u64,
    /// Queries before this byte have been answered.
    answered: u64,
}

/// Replies to the queries before `through`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Replies {
    pub(crate) through: u64,
    pub(crate) bytes: Vec<u8>,
}

/// The result of one step through new output.
#[derive(Debug, Default)]
pub(crate) struct CatchUp {
    pub(crate) replies: Option<Replies>,
    /// Whether there is more output to read.
    pub(crate) more: bool,
    /// Where the next step starts.
    pub(crate) cursor: u64,
}

impl std::fmt::Debug for Terminal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Terminal").field("cursor", &self.cursor).finish_non_exhaustive()
    }
}

impl Terminal {
    pub(crate) fn new(size: PtySize) -> Self {
        let (rows, cols) = dimensions(size);
        Self { parser: Parser::new_with_callbacks(rows, cols, 0, TerminalCallbacks::default()), cursor: 0, answered: 0 }
    }

    /// Notes that queries before this byte have been answered.
    pub(crate) fn note_answered(&mut self, through: u64) {
        self.answered = self.answered.max(through);
    }

    pub(crate) fn resize(&mut self, size: PtySize) {
        let (rows, cols) = dimensions(size);
        self.parser.set_size(rows, cols);
    }

    /// Where the next byte of output is read.
    pub(crate) fn cursor(&self) -> u64 {
        self.cursor
    }

    pub(crate) fn screen(&self) -> &Screen {
        self.parser.screen()
    }

    pub(crate) fn title(&self) -> &str {
        &self.parser.callbacks().title
    }

    pub(crate) fn keyboard(&self) -> Keyboard {
        Keyboard { terminal: true, application_cursor: self.screen().application_cursor() }
    }

    /// Reads new output: at least `max_bytes` if there is as much, and at most one piece more.
    pub(crate) fn catch_up(&mut self, reader: &OutputReader, max_bytes: u64) -> io::Result<CatchUp> {
        let started = self.cursor;
        loop {
            let piece = reader.read(self.cursor.max(self.oldest(reader)?), READ_SIZE)?;
            if piece.bytes.is_empty() {
                return Ok(CatchUp { replies: self.take_replies(), more: false, cursor: self.cursor });
            }
            self.feed(piece.at, &piece.bytes);
            if self.cursor - started >= max_bytes {
                let more = self.cursor < piece.end;
                return Ok(CatchUp { replies: self.take_replies(), more, cursor: self.cursor });
            }
        }
    }

    /// Where a new emulator starts to read.
    fn oldest(&self, reader: &OutputReader) -> io::Result<u64> {
        if self.cursor > 0 { Ok(0) } else { Ok(reader.extent()?.end.saturating_sub(MAX_REPLAY)) }
    }

    /// Draws the bytes; queries that have been answered before are not answered again.
    fn feed(&mut self, at: u64, bytes: &[u8]) {
        let known = (self.answered.saturating_sub(at) as usize).min(bytes.len());
        let (before, after) = bytes.split_at(known);
        if !before.is_empty() {
            self.parser.process(before);
            self.parser.callbacks_mut().replies.clear();
        }
        self.parser.process(after);
        self.cursor = at + bytes.len() as u64;
    }

    fn take_replies(&mut self) -> Option<Replies> {
        let bytes = std::mem::take(&mut self.parser.callbacks_mut().replies);
        let through = self.cursor;
        (!bytes.is_empty()).then(|| {
            self.answered = through;
            Replies { through, bytes }
        })
    }
}

fn dimensions(size: PtySize) -> (NonZeroU16, NonZeroU16) {
    (NonZeroU16::new(size.rows).unwrap_or(NonZeroU16::MIN), NonZeroU16::new(size.cols).unwrap_or(NonZeroU16::MIN))
}

/// Collects what the process sends to its terminal besides drawing.
#[derive(Debug, Default)]
struct TerminalCallbacks {
    title: String,
    replies: Vec<u8>,
}

impl TerminalCallbacks {
    fn reply(&mut self, text: &str) {
        if self.replies.len() + text.len() <= MAX_REPLIES {
            self.replies.extend(text.as_bytes());
        }
    }
}

impl Callbacks for TerminalCallbacks {
    fn set_window_title(&mut self, _: &mut Screen, title: &[u8]) {
        let title = String::from_utf8_lossy(title);
        self.title = title.chars().filter(|c| !c.is_control()).take(MAX_TITLE).collect();
    }

    fn unhandled_csi(&mut self, screen: &mut Screen, i1: Option<u8>, i2: Option<u8>, params: &[&[u16]], c: char) {
        let first = params.first().and_then(|param| param.first()).copied().unwrap_or(0);
        let (row, col) = screen.cursor_position();
        let (row, col) = (row + 1, col + 1);
        match (i1, i2, c, first) {
            // Device attributes: a VT220 with colours.
            (None, None, 'c', 0) => self.reply("\x1b[?62;22c"),
            (Some(b'>'), None, 'c', 0) => self.reply("\x1b[>1;10;0c"),
            (Some(b'='), None, 'c', 0) => self.reply("\x1bP!|00000000\x1b\\"),
            (Some(b'>'), None, 'q', 0) => self.reply(concat!("\x1bP>|pinfold(", env!("CARGO_PKG_VERSION"), ")\x1b\\")),
            // Status, and cursor position.
            (None, None, 'n', 5) => self.reply("\x1b[0n"),
            (None, None, 'n', 6) => self.reply(&format!("\x1b[{row};{col}R")),
            (Some(b'?'), None, 'n', 6) => self.reply(&format!("\x1b[?{row};{col}R")),
            // The size in characters.
            (None, None, 't', 18) => {
                let (rows, cols) = screen.size();
                self.reply(&format!("\x1b[8;{rows};{cols}t"));
            }
            // Keyboard enhancements: none.
            (Some(b'?'), None, 'u', _) => self.reply("\x1b[?0u"),
            (Some(b'?'), Some(b'$'), 'p', mode) => self.reply(&format!("\x1b[?{mode};{}$y", mode_state(screen, mode))),
            (None | Some(b'$'), _, 'p', mode) if i1 == Some(b'$') => self.reply(&format!("\x1b[{mode};0$y")),
            _ => {}
        }
    }

    fn unhandled_osc(&mut self, _: &mut Screen, params: &[&[u8]]) {
        match params {
            [b"10", b"?", ..] => self.reply("\x1b]10;rgb:ffff/ffff/ffff\x1b\\"),
            [b"11", b"?", ..] => self.reply("\x1b]11;rgb:0000/0000/0000\x1b\\"),
            _ => {}
        }
    }
}

/// 1 for a mode that is set, 2 for one that is not, 0 for an unknown one.
fn mode_state(screen: &Screen, mode: u16) -> u8 {
    let state = match mode {
        1 => screen.application_cursor(),
        25 => !screen.hide_cursor(),
        1047 | 1049 => screen.alternate_screen(),
        2004 => screen.bracketed_paste(),
        _ => return 0,
    };
    if state { 1 } else { 2 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(to: &str) -> String {
        let mut terminal = Terminal::new(PtySize::default());
        terminal.feed(0, to.as_bytes());
        terminal.take_replies().map(|replies| String::from_utf8(replies.bytes).expect("text")).unwrap_or_default()
    }

    #[test]
    fn questions_to_the_terminal_are_answered() {
        for (question, answer) in [
            ("\x1b[c", "\x1b[?62;22c"),
            ("\x1b[0c", "\x1b[?62;22c"),
            ("\x1b[>c", "\x1b[>1;10;0c"),
            ("\x1b[5n", "\x1b[0n"),
            ("ab\r\ncd\x1b[6n", "\x1b[2;3R"),
            ("\x1b[3;7H\x1b[?6n", "\x1b[?3;7R"),
            ("\x1b[18t", "\x1b[8;24;80t"),
            ("\x1b[?u", "\x1b[?0u"),
            ("\x1b[?2004h\x1b[?2004$p", "\x1b[?2004;1$y"),
            ("\x1b[?9999$p", "\x1b[?9999;0$y"),
            ("\x1b]11;?\x07", "\x1b]11;rgb:0000/0000/0000\x1b\\"),
            ("\x1b]10;?\x1b\\", "\x1b]10;rgb:ffff/ffff/ffff\x1b\\"),
        ] {
            assert_eq!(answers(question), answer, "{question:?}");
        }
        assert!(answers("\x1b[>q").starts_with("\x1bP>|pinfold("));
        assert_eq!(answers("plain \x1b[1;31mred\x1b[0m \x1b]0;title\x07\x1b[2J"), "");
    }

    #[test]
    fn a_question_before_the_mark_is_not_answered_again() {
        let mut terminal = Terminal::new(PtySize::default());
        terminal.note_answered(4);
        terminal.feed(0, b"\x1b[5n\x1b[6n");
        let replies = terminal.take_replies().expect("the second one");
        assert_eq!(replies, Replies { through: 8, bytes: b"\x1b[1;1R".to_vec() });
        assert_eq!(terminal.take_replies(), None);
    }

    #[test]
    fn a_flood_of_questions_is_bounded() {
        assert!(answers(&"\x1b[c".repeat(100_000)).len() <= MAX_REPLIES);
    }
}
