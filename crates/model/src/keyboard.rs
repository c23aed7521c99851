//! Key names such as `ctrl+c`, `up`, `alt+x`, `f1`, `shift+tab`, and the bytes that a terminal sends for them.
//!
//! The bytes are those of xterm, including application cursor mode (vim, less). To a pipe, `enter` is a newline.

/// What the keys are sent to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keyboard {
    /// A terminal, or else a pipe.
    pub terminal: bool,
    /// Whether the program has switched the cursor keys to application mode.
    pub application_cursor: bool,
}

/// An unknown key name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no key is named `{0}`: use one character, enter, tab, esc, space, backspace, delete, insert, up, down, left, right, \
     home, end, pageup, pagedown, f1 to f12, with ctrl+, alt+ or shift+ before it"
)]
pub struct BadKey(String);

/// Modifier keys pressed together with a key.
#[derive(Clone, Copy, Debug, Default)]
struct Modifiers {
    shift: bool,
    alt: bool,
    ctrl: bool,
}

impl Modifiers {
    /// xterm's modifier parameter; 1 means none.
    fn xterm_parameter(self) -> u8 {
        1 + u8::from(self.shift) + 2 * u8::from(self.alt) + 4 * u8::from(self.ctrl)
    }

    fn any(self) -> bool {
        self.xterm_parameter() > 1
    }
}

/// A key without its modifiers.
enum Key {
    /// The last byte of `CSI A`, or of `SS3 A` in application mode.
    Cursor(char),
    /// `SS3 P`.
    Function(char),
    /// `CSI 5 ~`.
    Numbered(u8),
    Character(char),
}

/// The bytes of a key.
pub fn encode(name: &str, keyboard: Keyboard) -> Result<Vec<u8>, BadKey> {
    let bad = || BadKey(name.chars().take(40).collect());
    let (modifiers, rest) = parse_modifiers(name);
    let key = parse_key(rest).ok_or_else(bad)?;
    let parameter = modifiers.xterm_parameter();
    Ok(match key {
        Key::Cursor(end) if modifiers.any() => format!("\x1b[1;{parameter}{end}").into_bytes(),
        Key::Cursor(end) if keyboard.application_cursor => format!("\x1bO{end}").into_bytes(),
        Key::Cursor(end) => format!("\x1b[{end}").into_bytes(),
        Key::Function(end) if modifiers.any() => format!("\x1b[1;{parameter}{end}").into_bytes(),
        Key::Function(end) => format!("\x1bO{end}").into_bytes(),
        Key::Numbered(key) if modifiers.any() => format!("\x1b[{key};{parameter}~").into_bytes(),
        Key::Numbered(key) => format!("\x1b[{key}~").into_bytes(),
        Key::Character('\t') if modifiers.shift => b"\x1b[Z".to_vec(),
        Key::Character(character) => plain(character, modifiers, keyboard).ok_or_else(bad)?,
    })
}

/// A character with modifiers applied.
fn plain(character: char, modifiers: Modifiers, keyboard: Keyboard) -> Option<Vec<u8>> {
    let character = match character {
        '\r' if !keyboard.terminal => '\n',
        other => other,
    };
    let character = if modifiers.shift { character.to_ascii_uppercase() } else { character };
    let character = if modifiers.ctrl { control(character)? } else { character };
    let mut bytes = if modifiers.alt { vec![0x1b] } else { vec![] };
    bytes.extend(character.encode_utf8(&mut [0; 4]).bytes());
    Some(bytes)
}

fn control(character: char) -> Option<char> {
    match character.to_ascii_uppercase() {
        upper @ ('@'..='_') => Some(char::from(upper as u8 & 0x1f)),
        ' ' => Some('\0'),
        '?' => Some('\x7f'),
        '/' => Some('\x1f'),
        '\x7f' => Some('\x08'),
        same @ ('\r' | '\n' | '\t' | '\x1b') => Some(same),
        _ => None,
    }
}

/// Parses `ctrl+`, `C-`, `^` and the like, in any order; a final `+`, `-` or `^` is the key itself.
fn parse_modifiers(name: &str) -> (Modifiers, &str) {
    let (mut modifiers, mut rest) = (Modifiers::default(), name);
    loop {
        if let Some(letter) = rest.strip_prefix('^').filter(|letter| !letter.is_empty()) {
            return (Modifiers { ctrl: true, ..modifiers }, letter);
        }
        let Some(at) = rest.find(['+', '-']).filter(|at| *at > 0 && at + 1 < rest.len()) else {
            return (modifiers, rest);
        };
        match rest[..at].to_ascii_lowercase().as_str() {
            "ctrl" | "control" | "c" => modifiers.ctrl = true,
            "alt" | "meta" | "option" | "m" => modifiers.alt = true,
            "shift" | "s" => modifiers.shift = true,
            _ => return (modifiers, rest),
        }
        rest = &rest[at + 1..];
    }
}

fn parse_key(name: &str) -> Option<Key> {
    let mut characters = name.chars();
    if let (Some(only), None) = (characters.next(), characters.next()) {
        return Some(Key::Character(only));
    }
    Some(match name.to_ascii_lowercase().replace('_', "").as_str() {
        "enter" | "return" | "cr" => Key::Character('\r'),
        "newline" | "lf" => Key::Character('\n'),
        "tab" => Key::Character('\t'),
        "esc" | "escape" => Key::Character('\x1b'),
        "space" => Key::Character(' '),
        "backspace" | "bs" => Key::Character('\x7f'),
        "up" => Key::Cursor('A'),
        "down" => Key::Cursor('B'),
        "right" => Key::Cursor('C'),
        "left" => Key::Cursor('D'),
        "end" => Key::Cursor('F'),
        "home" => Key::Cursor('H'),
        "insert" | "ins" => Key::Numbered(2),
        "delete" | "del" => Key::Numbered(3),
        "pageup" | "pgup" => Key::Numbered(5),
        "pagedown" | "pgdn" => Key::Numbered(6),
        function => match function.strip_prefix('f')?.parse().ok()? {
            number @ 1..=4 => Key::Function(char::from(b'O' + number)),
            5 => Key::Numbered(15),
            number @ 6..=10 => Key::Numbered(number + 11),
            number @ 11..=12 => Key::Numbered(number + 12),
            _ => return None,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMINAL: Keyboard = Keyboard { terminal: true, application_cursor: false };

    fn sent(name: &str) -> String {
        String::from_utf8(encode(name, TERMINAL).expect(name)).expect("UTF-8")
    }

    #[test]
    fn keys_are_sent_as_xterm_sends_them() {
        for (name, bytes) in [
            ("enter", "\r"),
            ("Tab", "\t"),
            ("shift+tab", "\x1b[Z"),
            ("esc", "\x1b"),
            ("backspace", "\x7f"),
            ("up", "\x1b[A"),
            ("ctrl+left", "\x1b[1;5D"),
            ("shift+alt+f1", "\x1b[1;4P"),
            ("f1", "\x1bOP"),
            ("f4", "\x1bOS"),
            ("f5", "\x1b[15~"),
            ("f6", "\x1b[17~"),
            ("f10", "\x1b[21~"),
            ("f11", "\x1b[23~"),
            ("f12", "\x1b[24~"),
            ("page_up", "\x1b[5~"),
            ("delete", "\x1b[3~"),
            ("alt+x", "\x1bx"),
            ("alt+X", "\x1bX"),
            ("M-x", "\x1bx"),
            ("q", "q"),
            ("é", "é"),
            ("+", "+"),
            ("-", "-"),
            ("^", "^"),
        ] {
            assert_eq!(sent(name), bytes, "{name}");
        }
    }

    #[test]
    fn a_control_key_has_many_spellings_and_one_byte() {
        for name in ["ctrl+c", "Ctrl+C", "ctrl-c", "C-c", "^C", "^c", "control+c"] {
            assert_eq!(sent(name), "\x03", "{name}");
        }
        assert_eq!((sent("ctrl+space"), sent("ctrl+[")), ("\0".into(), "\x1b".into()));
        assert_eq!((sent("ctrl+\\"), sent("ctrl+alt+d")), ("\x1c".into(), "\x1b\x04".into()));
    }

    #[test]
    fn application_mode_changes_cursor_keys_and_a_pipe_changes_enter() {
        let vim = Keyboard { application_cursor: true, ..TERMINAL };
        assert_eq!(encode("up", vim).expect("up"), b"\x1bOA");
        assert_eq!(encode("shift+up", vim).expect("up"), b"\x1b[1;2A");
        assert_eq!(encode("enter", Keyboard::default()).expect("enter"), b"\n");
    }

    #[test]
    fn an_unknown_key_is_refused_by_name() {
        for name in ["", "enterr", "fx", "f0", "f13", "hyper+x", "ctrl+é", "ctrl+1"] {
            let refused = encode(name, TERMINAL).expect_err(name).to_string();
            assert!(refused.contains(&format!("`{name}`")) && refused.contains("pagedown"), "{refused}");
        }
    }
}
