//! Text in quotes, as Go's `%q` writes it: clients and their tests compare messages.

use std::fmt::Write;

/// These bytes in double quotes; unprintable characters and invalid bytes are escaped.
pub(super) fn quote(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() + 2);
    text.push('"');
    for chunk in bytes.utf8_chunks() {
        chunk.valid().chars().for_each(|c| push(&mut text, c));
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text.push('"');
    text
}

fn push(text: &mut String, c: char) {
    let code = u32::from(c);
    let escaped = match c {
        '"' | '\\' => format!("\\{c}"),
        '\u{7}' => "\\a".to_owned(),
        '\u{8}' => "\\b".to_owned(),
        '\u{c}' => "\\f".to_owned(),
        '\n' => "\\n".to_owned(),
        '\r' => "\\r".to_owned(),
        '\t' => "\\t".to_owned(),
        '\u{b}' => "\\v".to_owned(),
        '\u{0}'..='\u{1f}' | '\u{7f}' => format!("\\x{code:02x}"),
        _ if is_printable(c) => c.to_string(),
        '\u{80}'..='\u{ffff}' => format!("\\u{code:04x}"),
        _ => format!("\\U{code:08x}"),
    };
    text.push_str(&escaped);
}

/// Whether Rust prints it unescaped. Go does the same, except for combining marks.
fn is_printable(c: char) -> bool {
    c == '\'' || c.is_alphanumeric() || c.escape_debug().count() == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_are_those_of_go() {
        for (text, quoted) in [
            (&b"gone"[..], r#""gone""#),
            (b"a\"b\\c", r#""a\"b\\c""#),
            (b"\x1b[1m\n\t\x00\x07", r#""\x1b[1m\n\t\x00\a""#),
            ("☃é'".as_bytes(), "\"☃é'\""),
            ("\u{200b}\u{e0001}".as_bytes(), r#""\u200b\U000e0001""#),
            (b"a\xff\xe2\x98", r#""a\xff\xe2\x98""#),
        ] {
            assert_eq!(quote(text), quoted);
        }
    }
}
