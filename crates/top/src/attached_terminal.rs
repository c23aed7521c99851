//! The terminal of an attached process: its emulated screen, and the bytes sent for the keys typed into it. (The terminal that `top` itself runs in: `io/own_terminal.rs`.)

use std::num::NonZeroU16;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::message::LogToken;

/// An attached process.
pub(crate) struct AttachView {
    pub(crate) id: String,
    pub(crate) token: LogToken,
    pub(crate) parser: vt100::Parser,
    /// ctrl+p was typed: ctrl+q after it leaves.
    pub(crate) leaving: bool,
    pub(crate) opened: bool,
    /// Why nothing comes at the moment.
    pub(crate) trouble: Option<String>,
    pub(crate) ended: Option<String>,
}

impl std::fmt::Debug for AttachView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AttachView").field("id", &self.id).field("token", &self.token).finish_non_exhaustive()
    }
}

impl AttachView {
    pub(crate) fn new(id: String, token: LogToken, rows: u16, columns: u16) -> Self {
        AttachView {
            id,
            token,
            parser: vt100::Parser::new(at_least_one(rows), at_least_one(columns), 0),
            leaving: false,
            opened: false,
            trouble: None,
            ended: None,
        }
    }

    pub(crate) fn resize(&mut self, rows: u16, columns: u16) {
        self.parser.set_size(at_least_one(rows), at_least_one(columns));
    }

    /// The bytes of a key for the process; `None` if the key leaves, empty if nothing is to be sent.
    pub(crate) fn type_key(&mut self, key: KeyEvent) -> Option<Vec<u8>> {
        let is_control = |c: char| key.code == KeyCode::Char(c) && key.modifiers.contains(KeyModifiers::CONTROL);
        let was_leaving = std::mem::take(&mut self.leaving);
        if was_leaving && is_control('q') {
            return None;
        }
        // The first key of the sequence is held back until the next one is known.
        let mut bytes = if was_leaving { vec![0x10] } else { Vec::new() };
        if is_control('p') {
            self.leaving = true;
            return Some(bytes);
        }
        bytes.extend(encode(key, self.parser.screen().application_cursor()));
        Some(bytes)
    }

    /// The bytes of pasted text.
    pub(crate) fn paste(&self, text: &str) -> Vec<u8> {
        // A paste must not end its own bracket.
        let text = text.replace("\x1b[201~", "").replace('\n', "\r");
        match self.parser.screen().bracketed_paste() {
            true => format!("\x1b[200~{text}\x1b[201~").into_bytes(),
            false => text.into_bytes(),
        }
    }
}

fn at_least_one(value: u16) -> NonZeroU16 {
    NonZeroU16::new(value).unwrap_or(NonZeroU16::MIN)
}

/// A key as xterm sends it.
fn encode(key: KeyEvent, application_cursor: bool) -> Vec<u8> {
    let modifiers = key.modifiers;
    let alt = modifiers.contains(KeyModifiers::ALT);
    let control = modifiers.contains(KeyModifiers::CONTROL);
    let number = 1 + u8::from(modifiers.contains(KeyModifiers::SHIFT)) + 2 * u8::from(alt) + 4 * u8::from(control);
    let letter = |letter: char| match number {
        1 if application_cursor && "ABCDHF".contains(letter) => format!("\x1bO{letter}").into_bytes(),
        1 if "PQRS".contains(letter) => format!("\x1bO{letter}").into_bytes(),
        1 => format!("\x1b[{letter}").into_bytes(),
        number => format!("\x1b[1;{number}{letter}").into_bytes(),
    };
    let tilde = |code: u8| match number {
        1 => format!("\x1b[{code}~").into_bytes(),
        number => format!("\x1b[{code};{number}~").into_bytes(),
    };
    let with_alt = |bytes: &[u8]| if alt { [b"\x1b", bytes].concat() } else { bytes.to_vec() };
    match key.code {
        KeyCode::Char(c) if control => match control_byte(c) {
            Some(byte) => with_alt(&[byte]),
            None => with_alt(c.encode_utf8(&mut [0; 4]).as_bytes()),
        },
        KeyCode::Char(c) => with_alt(c.encode_utf8(&mut [0; 4]).as_bytes()),
        KeyCode::Enter => with_alt(b"\r"),
        KeyCode::Tab => with_alt(b"\t"),
        KeyCode::BackTab => b"\x1b[Z".to_vec(),
        KeyCode::Backspace => with_alt(b"\x7f"),
        KeyCode::Esc => with_alt(b"\x1b"),
        KeyCode::Up => letter('A'),
        KeyCode::Down => letter('B'),
        KeyCode::Right => letter('C'),
        KeyCode::Left => letter('D'),
        KeyCode::Home => letter('H'),
        KeyCode::End => letter('F'),
        KeyCode::Insert => tilde(2),
        KeyCode::Delete => tilde(3),
        KeyCode::PageUp => tilde(5),
        KeyCode::PageDown => tilde(6),
        KeyCode::F(n @ 1..=4) => letter(['P', 'Q', 'R', 'S'][usize::from(n) - 1]),
        KeyCode::F(n @ 5..=12) => tilde([15, 17, 18, 19, 20, 21, 23, 24][usize::from(n) - 5]),
        _ => Vec::new(),
    }
}

fn control_byte(c: char) -> Option<u8> {
    match c.to_ascii_lowercase() {
        c @ ('a'..='z' | '[' | '\\' | ']' | '^' | '_') => Some(c.to_ascii_uppercase() as u8 & 0x1f),
        ' ' | '@' => Some(0),
        // crossterm reports the bytes 0x1c to 0x1f as ctrl+4 to ctrl+7.
        c @ '4'..='7' => Some(c as u8 - b'4' + 0x1c),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(code: KeyCode, modifiers: KeyModifiers) -> KeyEvent {
        KeyEvent::new(code, modifiers)
    }

    #[test]
    fn keys_are_the_bytes_that_xterm_sends() {
        let none = KeyModifiers::NONE;
        let cases: &[(KeyCode, KeyModifiers, &[u8])] = &[
            (KeyCode::Char('é'), none, "é".as_bytes()),
            (KeyCode::Char('c'), KeyModifiers::CONTROL, b"\x03"),
            (KeyCode::Char('7'), KeyModifiers::CONTROL, b"\x1f"),
            (KeyCode::Char('x'), KeyModifiers::ALT, b"\x1bx"),
            (KeyCode::Enter, none, b"\r"),
            (KeyCode::Esc, none, b"\x1b"),
            (KeyCode::Up, none, b"\x1b[A"),
            (KeyCode::Up, KeyModifiers::CONTROL, b"\x1b[1;5A"),
            (KeyCode::F(1), none, b"\x1bOP"),
            (KeyCode::F(12), KeyModifiers::SHIFT, b"\x1b[24;2~"),
            (KeyCode::Delete, none, b"\x1b[3~"),
        ];
        for (code, modifiers, bytes) in cases {
            assert_eq!(encode(key(*code, *modifiers), false), *bytes, "{code:?}");
        }
        assert_eq!(encode(key(KeyCode::Up, none), true), b"\x1bOA");
    }

    #[test]
    fn ctrl_p_ctrl_q_leaves_and_ctrl_p_alone_is_passed_on() {
        let mut view = AttachView::new("a".into(), 1, 24, 80);
        let control = |c| key(KeyCode::Char(c), KeyModifiers::CONTROL);
        assert_eq!(view.type_key(control('p')), Some(vec![]));
        assert_eq!(view.type_key(control('q')), None);
        view.type_key(control('p'));
        assert_eq!(view.type_key(control('p')), Some(vec![0x10]));
        assert_eq!(view.type_key(key(KeyCode::Char('x'), KeyModifiers::NONE)), Some(vec![0x10, b'x']));
        assert_eq!(view.type_key(control('q')), Some(vec![0x11]));
    }

    #[test]
    fn a_paste_cannot_leave_its_bracket() {
        let mut view = AttachView::new("a".into(), 1, 24, 80);
        assert_eq!(view.paste("a\nb"), b"a\rb");
        view.parser.process(b"\x1b[?2004h");
        assert_eq!(view.paste("a\x1b[201~b"), b"\x1b[200~ab\x1b[201~");
    }
}
