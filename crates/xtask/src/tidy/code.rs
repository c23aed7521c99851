//! Separates Rust code from comments and literals, and finds the lines that are for tests only, without a parser.
//!
//! Knows comments, all kinds of strings, characters, lifetimes and braces, which is enough for the checks. Blanked text keeps
//! its line and column.

/// The text with comments and the content of literals replaced by spaces; newlines are kept.
pub(crate) fn blank_comments_and_literals(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let end = match Piece::at(bytes, at) {
            Piece::Code => {
                code.push(bytes[at]);
                at += 1;
                continue;
            }
            Piece::Blank { end } => end.min(bytes.len()),
        };
        code.extend(bytes[at..end].iter().map(|byte| if *byte == b'\n' { b'\n' } else { b' ' }));
        at = end;
    }
    // Still UTF-8: only whole characters were replaced, each byte by a space.
    String::from_utf8_lossy(&code).into_owned()
}

/// For each line of code whether it belongs to an item under `#[cfg(test)]`.
pub(crate) fn lines_for_tests(code: &str) -> Vec<bool> {
    let mut lines = vec![false; code.lines().count()];
    let mut from = 0;
    while let Some(found) = code[from..].find("#[cfg(test)]") {
        let start = from + found;
        let end = item_end(code, start + "#[cfg(test)]".len());
        let (first, last) = (line_at(code, start), line_at(code, end));
        lines.iter_mut().take(last + 1).skip(first).for_each(|line| *line = true);
        from = end;
    }
    lines
}

/// Whether the line contains this word, not as part of another.
pub(crate) fn has_word(line: &str, word: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    line.match_indices(word).any(|(at, _)| {
        let before = at.checked_sub(1).map(|before| line.as_bytes()[before]);
        let after = line.as_bytes().get(at + word.len()).copied();
        !before.is_some_and(is_part) && !after.is_some_and(is_part)
    })
}

/// What starts at a byte.
enum Piece {
    Code,
    Blank { end: usize },
}

impl Piece {
    fn at(bytes: &[u8], at: usize) -> Self {
        let rest = &bytes[at..];
        if rest.starts_with(b"//") {
            return Piece::Blank { end: at + rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len()) };
        }
        if rest.starts_with(b"/*") {
            return Piece::Blank { end: at + block_comment(rest) };
        }
        let inside_word = at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_');
        match rest[0] {
            b'"' => Piece::Blank { end: at + quoted(rest) },
            b'r' | b'b' | b'c' if !inside_word => match prefixed_literal(rest) {
                Some(length) => Piece::Blank { end: at + length },
                None => Piece::Code,
            },
            b'\'' => character(rest).map_or(Piece::Code, |length| Piece::Blank { end: at + length }),
            _ => Piece::Code,
        }
    }
}

/// The length of a block comment, which may be nested.
fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                break;
            }
        } else {
            at += 1;
        }
    }
    at
}

/// The length of a string that begins with a quote.
fn quoted(rest: &[u8]) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// The length of `r"…"`, `r#"…"#`, `b"…"`, `br"…"`, `c"…"`, `b'…'`; `None` if it is an identifier.
fn prefixed_literal(rest: &[u8]) -> Option<usize> {
    let letters = rest.iter().take_while(|byte| matches!(byte, b'r' | b'b' | b'c')).count();
    let raw = rest[..letters].contains(&b'r');
    let hashes = rest[letters..].iter().take_while(|byte| **byte == b'#').count();
    let open = letters + hashes;
    match rest.get(open) {
        Some(b'"') if raw => {
            let mut end = vec![b'"'];
            end.resize(hashes + 1, b'#');
            let body = &rest[open + 1..];
            let close = body.windows(end.len()).position(|window| window == end);
            Some(close.map_or(rest.len(), |close| open + 1 + close + end.len()))
        }
        Some(b'"') if hashes == 0 => Some(open + quoted(&rest[open..])),
        Some(b'\'') if hashes == 0 && rest[0] == b'b' => character(&rest[open..]).map(|length| open + length),
        _ => None,
    }
}

/// The length of a character literal; `None` if it is a lifetime.
fn character(rest: &[u8]) -> Option<usize> {
    if rest.get(1) == Some(&b'\\') {
        let close = rest.iter().skip(3).position(|byte| *byte == b'\'')?;
        return Some(close + 4);
    }
    let text = std::str::from_utf8(&rest[1..rest.len().min(6)]);
    let first = match text {
        Ok(text) => text.chars().next(),
        Err(error) => std::str::from_utf8(&rest[1..1 + error.valid_up_to()]).ok()?.chars().next(),
    }?;
    let close = 1 + first.len_utf8();
    (rest.get(close) == Some(&b'\'')).then_some(close + 1)
}

/// The end of the next item: its closing brace or semicolon.
fn item_end(code: &str, from: usize) -> usize {
    let mut depth = 0_usize;
    for (at, byte) in code.bytes().enumerate().skip(from) {
        match byte {
            b'{' => depth += 1,
            b'}' if depth <= 1 => return at,
            b'}' => depth -= 1,
            b';' if depth == 0 => return at,
            _ => {}
        }
    }
    code.len()
}

fn line_at(code: &str, at: usize) -> usize {
    code[..at.min(code.len())].bytes().filter(|byte| *byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blank_and_code_stays_in_its_place() {
        let cases: [(&str, &[&str]); 9] = [
            ("a // unsafe\nb", &["a", "b"]),
            ("a /* x /* y */ z */ b", &["a", "b"]),
            (r#"f("un\"safe") g"#, &["f(", ")", "g"]),
            ("f(r#\"a\"b\"#) g", &["f(", ")", "g"]),
            ("f(b\"x\", br\"y\", c\"z\")", &["f(", ",", ",", ")"]),
            (r"'a' 'é' '\'' '\\' b'x' '\u{e9}'", &[]),
            ("fn f<'a>(x: &'a str)", &["fn", "f<'a>(x:", "&'a", "str)"]),
            ("for r in b { c }", &["for", "r", "in", "b", "{", "c", "}"]),
            ("\"open", &[]),
        ];
        for (text, left) in cases {
            let code = blank_comments_and_literals(text);
            assert_eq!(code.split_whitespace().collect::<Vec<_>>(), left, "{text}");
            assert_eq!(code.len(), text.len(), "{text}");
            let in_place = code.bytes().zip(text.bytes()).all(|(code, text)| code == text || code == b' ');
            assert!(in_place, "{text} became {code}");
        }
    }

    #[test]
    fn test_items_are_found_by_their_braces() {
        let code =
            "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() { }\n}\nfn c() {}\n#[cfg(test)]\nmod other;\nfn d() {}\n";
        assert_eq!(lines_for_tests(code), [false, true, true, true, true, false, true, true, false]);
    }

    #[test]
    fn words_stand_alone() {
        assert!(has_word("unsafe { x }", "unsafe"));
        assert!(has_word("(unsafe)", "unsafe"));
        assert!(!has_word("unsafe_code", "unsafe"));
        assert!(!has_word("not_unsafe", "unsafe"));
    }
}
