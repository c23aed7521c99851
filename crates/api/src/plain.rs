//! Text of others that is safe to show: which characters are not, and how they look instead.
//!
//! Commands, names, labels and errors carry text that processes and other owners wrote. A terminal obeys some characters in
//! it (escape sequences, C1 controls), and others turn the order of what a reader sees (bidirectional overrides).

use std::borrow::Cow;
use std::fmt::Write as _;

/// Whether a character steers a terminal or the order of text, and is not simply shown.
pub fn is_steering(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}'
        )
}

/// The text with steering characters written out (`\x1b`, `\u{202e}`). Line breaks and tabs stay.
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

/// A JSON document in which what JSON itself lets stand is written out, too. Outside of strings it has no such characters.
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
    fn what_steers_is_written_out_and_the_rest_stays() {
        assert_eq!(visible("plain é 漢\n\ttext"), "plain é 漢\n\ttext");
        assert_eq!(visible("\u{1b}[2J\u{9b}31m\r\u{7f}\u{0}"), "\\x1b[2J\\u{9b}31m\\x0d\\x7f\\x00");
        assert_eq!(visible("a\u{202e}b\u{2066}c\u{200f}"), "a\\u{202e}b\\u{2066}c\\u{200f}");
    }

    #[test]
    fn a_document_means_the_same_after() {
        let value = serde_json::json!({ "a\u{9b}": "\u{1b}[2J\u{202e}x\u{7f}", "b": ["\u{feff}\n"] });
        let text = serde_json::to_string_pretty(&value).expect("json");
        let shown = visible_json(&text);
        assert!(!shown.chars().any(|c| is_steering(c) && c != '\n'), "{shown:?}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).expect("json"), value);
    }
}
