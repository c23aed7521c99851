//! A line that is typed: filter, search, input for a process, or a command of the palette.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// What the line is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PromptKind {
    /// Filters the list while it is typed.
    Filter {
        before: String,
    },
    Search,
    /// Sends a line to a process.
    Input {
        id: String,
        label: String,
        is_terminal: bool,
    },
    Palette {
        choice: usize,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Prompt {
    pub(crate) kind: PromptKind,
    pub(crate) text: String,
    /// The byte position of the text cursor.
    pub(crate) cursor: usize,
}

/// What a key did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Typed {
    Edited,
    Submitted,
    Cancelled,
    /// Up or down in a list of choices.
    Moved(i64),
    Completed,
    Ignored,
}

/// Longest line that can be typed or pasted; the rest is cut off.
const MAX_TEXT: usize = 16 << 10;

impl Prompt {
    pub(crate) fn new(kind: PromptKind, text: &str) -> Self {
        Prompt { kind, text: text.to_owned(), cursor: text.len() }
    }

    pub(crate) fn type_key(&mut self, key: KeyEvent) -> Typed {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Esc => Typed::Cancelled,
            KeyCode::Char('c' | 'g') if control => Typed::Cancelled,
            KeyCode::Enter => Typed::Submitted,
            KeyCode::Tab => Typed::Completed,
            KeyCode::Up => Typed::Moved(-1),
            KeyCode::Down => Typed::Moved(1),
            KeyCode::Char('p') if control => Typed::Moved(-1),
            KeyCode::Char('n') if control => Typed::Moved(1),
            KeyCode::Char('u') if control => {
                self.text.drain(..self.cursor);
                self.cursor = 0;
                Typed::Edited
            }
            KeyCode::Char('w') if control => {
                let head = self.text[..self.cursor].trim_end();
                let start = head.rfind(' ').map_or(0, |at| at + 1);
                self.text.drain(start..self.cursor);
                self.cursor = start;
                Typed::Edited
            }
            KeyCode::Home => self.to(0),
            KeyCode::End => self.to(self.text.len()),
            KeyCode::Char('a') if control => self.to(0),
            KeyCode::Char('e') if control => self.to(self.text.len()),
            KeyCode::Left => self.to(self.before()),
            KeyCode::Right => self.to(self.after()),
            KeyCode::Backspace if self.text.is_empty() => Typed::Cancelled,
            KeyCode::Backspace => {
                let start = self.before();
                self.text.drain(start..self.cursor);
                self.cursor = start;
                Typed::Edited
            }
            KeyCode::Delete => {
                let end = self.after();
                self.text.drain(self.cursor..end);
                Typed::Edited
            }
            KeyCode::Char(c) if !control && !key.modifiers.contains(KeyModifiers::ALT) => {
                self.insert(c.encode_utf8(&mut [0; 4]))
            }
            _ => Typed::Ignored,
        }
    }

    /// Inserts pasted text; line breaks become spaces.
    pub(crate) fn paste(&mut self, text: &str) -> Typed {
        self.insert(&text.replace(['\r', '\n'], " "))
    }

    pub(crate) fn set(&mut self, text: &str) {
        text.clone_into(&mut self.text);
        self.cursor = text.len();
    }

    fn insert(&mut self, text: &str) -> Typed {
        if self.text.len() + text.len() > MAX_TEXT {
            return Typed::Ignored;
        }
        self.text.insert_str(self.cursor, text);
        self.cursor += text.len();
        Typed::Edited
    }

    fn to(&mut self, cursor: usize) -> Typed {
        self.cursor = cursor;
        Typed::Edited
    }

    fn before(&self) -> usize {
        self.text[..self.cursor].char_indices().next_back().map_or(0, |(at, _)| at)
    }

    fn after(&self) -> usize {
        self.text[self.cursor..].chars().next().map_or(self.cursor, |c| self.cursor + c.len_utf8())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(prompt: &mut Prompt, code: KeyCode) -> Typed {
        prompt.type_key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    #[test]
    fn a_line_is_edited_by_characters_not_bytes() {
        let mut prompt = Prompt::new(PromptKind::Search, "aé");
        press(&mut prompt, KeyCode::Char('漢'));
        press(&mut prompt, KeyCode::Left);
        press(&mut prompt, KeyCode::Backspace);
        assert_eq!((prompt.text.as_str(), prompt.cursor), ("a漢", 1));
        press(&mut prompt, KeyCode::Delete);
        assert_eq!(prompt.text, "a");
        prompt.paste("b\nc d");
        prompt.type_key(KeyEvent::new(KeyCode::Char('w'), KeyModifiers::CONTROL));
        assert_eq!(prompt.text, "ab c ");
        prompt.type_key(KeyEvent::new(KeyCode::Char('u'), KeyModifiers::CONTROL));
        assert_eq!(press(&mut prompt, KeyCode::Backspace), Typed::Cancelled);
        assert_eq!(prompt.paste(&"x".repeat(MAX_TEXT + 1)), Typed::Ignored);
    }
}
