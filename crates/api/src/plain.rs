//! Escapes characters in untrusted text that would control a terminal or change the order of displayed text.
//!
//! Commands, names, labels and errors contain text written by processes and other owners. A terminal interprets some
//! characters in it (escape sequences, C1 controls), and others change the display order (bidirectional overrides).

use std::borrow::Cow;
use std::fmt::Write as _;

/// Whether a character controls a terminal or the display order instead of being displayed.
pub fn is_steering(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}'
        )
}

/// The text with such characters escaped (`\x1b`, `\u{202e}`). Newlines and tabs stay.
pub fn visible(text: &str) -> Cow<'_, str> {
    let steers = |c: char| is_steering(c) && !matches!(c, '\n' | '\t');
    if !text.chars().any(steers) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            c if !steers(c) => shown.push(c),
            c if c.is_ascii() => drop(write!(shown, "\\x{:02x}", u32::from(c))),
            c => drop(write!(shown, "\\u{{{:x}}}", u32::from(c))),
        }
    }
    Cow::Owned(shown)
}

/// A JSON document with those characters escaped that JSON itself allows unescaped in strings. Outside of strings valid
/// JSON contains none of them.
pub fn visible_json(json: &str) -> Cow<'_, str> {
    let steers = |c: char| is_steering(c) && !matches!(c, '\n' | '\t' | '\r');
    if !json.chars().any(steers) {
        return Cow::Borrowed(json);
    }
    let mut shown = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        match steers(c) {
            true => drop(write!(shown, "\\u{:04x}", u32::from(c))),
            false => shown.push(c),
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped_and_the_rest_stays() {
        assert_eq!(visible("plain é 漢\n\ttext"), "plain é 漢\n\ttext");
        assert_eq!(visible("\u{1b}[2J\u{9b}31m\r\u{7f}\u{0}"), "\\x1b[2J\\u{9b}31m\\x0d\\x7f\\x00");
        assert_eq!(visible("a\u{202e}b\u{2066}c\u{200f}"), "a\\u{202e}b\\u{2066}c\\u{200f}");
    }

    #[test]
    fn escaping_a_json_document_keeps_its_meaning() {
        let value = serde_json::json!({ "a\u{9b}": "\u{1b}[2J\u{202e}x\u{7f}", "b": ["\u{feff}\n"] });
        let text = serde_json::to_string_pretty(&value).expect("json");
        let shown = visible_json(&text);
        assert!(!shown.chars().any(|c| is_steering(c) && c != '\n'), "{shown:?}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).expect("json"), value);
    }
}
