//! The parser: a document as a tree with the position of every value.

use std::ops::Range;

/// Deeper documents are refused, because the parser is recursive.
const MAX_DEPTH: usize = 128;

/// The JSON dialect of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// JSON as in the standard.
    Strict,
    /// With comments and trailing commas.
    Comments,
}

/// Why a text cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SyntaxError {
    pub(crate) line: usize,
    pub(crate) what: String,
}

/// A value and its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) span: Range<usize>,
    pub(crate) kind: Kind,
}

/// The type of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Object(Vec<Member>),
    Array(Vec<Node>),
    Text(String),
    /// A number, `true`, `false` or `null`.
    Bare,
}

/// A key and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) key: String,
    /// Where the key begins.
    pub(crate) start: usize,
    pub(crate) value: Node,
}

impl Node {
    /// The value of a key; the last one counts, as in the clients.
    pub(crate) fn get(&self, key: &str) -> Option<&Node> {
        let Kind::Object(members) = &self.kind else { return None };
        members.iter().rev().find(|member| member.key == key).map(|member| &member.value)
    }

    /// The text of a string.
    pub(crate) fn text(&self) -> Option<&str> {
        match &self.kind {
            Kind::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The strings of a list of strings.
    pub(crate) fn texts(&self) -> Option<Vec<&str>> {
        let Kind::Array(items) = &self.kind else { return None };
        items.iter().map(Node::text).collect()
    }

    /// The positions of its members or elements.
    pub(super) fn items(&self) -> Vec<Range<usize>> {
        match &self.kind {
            Kind::Object(members) => members.iter().map(|member| member.start..member.value.span.end).collect(),
            Kind::Array(items) => items.iter().map(|item| item.span.clone()).collect(),
            Kind::Text(_) | Kind::Bare => Vec::new(),
        }
    }
}

/// Parses a whole document.
pub(crate) fn parse(text: &str, dialect: Dialect) -> Result<Node, SyntaxError> {
    let mut reader = Reader { text, at: 0, dialect };
    let root = reader.value(0)?;
    reader.skip()?;
    match reader.peek() {
        None => Ok(root),
        Some(found) => Err(reader.error(format!("expected the end of the file, found `{found}`"))),
    }
}

/// The line number of a position.
pub(crate) fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes()[..at.min(text.len())].iter().filter(|byte| **byte == b'\n').count() + 1
}

/// The end of the white space and comments that start at `at`. An unterminated comment extends to the end of the text.
pub(super) fn after_trivia(text: &str, mut at: usize) -> usize {
    loop {
        let rest = &text[at..];
        let solid = rest.trim_start_matches([' ', '\t', '\r', '\n']);
        at += rest.len() - solid.len();
        let length = if solid.starts_with("//") {
            solid.find('\n').unwrap_or(solid.len())
        } else if let Some(comment) = solid.strip_prefix("/*") {
            comment.find("*/").map_or(solid.len(), |end| end + 4)
        } else {
            return at;
        };
        at += length;
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    dialect: Dialect,
}

impl Reader<'_> {
    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn error(&self, what: impl Into<String>) -> SyntaxError {
        SyntaxError { line: line_of(self.text, self.at), what: what.into() }
    }

    /// Skips white space, and comments if the dialect allows them.
    fn skip(&mut self) -> Result<(), SyntaxError> {
        let end = after_trivia(self.text, self.at);
        let skipped = &self.text[self.at..end];
        if self.dialect == Dialect::Strict
            && let Some(comment) = skipped.find('/')
        {
            self.at += comment;
            return Err(self.error("this agent does not accept comments"));
        }
        self.at = end;
        Ok(())
    }

    /// Consumes this character or fails.
    fn take(&mut self, wanted: char, place: &str) -> Result<(), SyntaxError> {
        match self.peek() {
            Some(found) if found == wanted => {
                self.at += wanted.len_utf8();
                Ok(())
            }
            Some(found) => Err(self.error(format!("expected `{wanted}` {place}, found `{found}`"))),
            None => Err(self.error(format!("expected `{wanted}` {place}, found the end of the file"))),
        }
    }

    fn value(&mut self, depth: usize) -> Result<Node, SyntaxError> {
        if depth > MAX_DEPTH {
            return Err(self.error(format!("nested deeper than {MAX_DEPTH} levels")));
        }
        self.skip()?;
        let start = self.at;
        let kind = match self.peek() {
            Some('{') => Kind::Object(self.listed('{', '}', |reader| reader.member(depth + 1))?),
            Some('[') => Kind::Array(self.listed('[', ']', |reader| reader.value(depth + 1))?),
            Some('"') => Kind::Text(self.string()?),
            Some(_) => self.bare()?,
            None => return Err(self.error("expected a value, found the end of the file")),
        };
        Ok(Node { span: start..self.at, kind })
    }

    fn member(&mut self, depth: usize) -> Result<Member, SyntaxError> {
        let start = self.at;
        match self.peek() {
            Some('"') => {}
            Some(_) => return Err(self.error("expected a key in double quotes")),
            None => return Err(self.error("expected a key or `}`, found the end of the file")),
        }
        let key = self.string()?;
        self.skip()?;
        self.take(':', "after a key")?;
        Ok(Member { key, start, value: self.value(depth)? })
    }

    /// Parses items separated by commas between two brackets.
    fn listed<T>(
        &mut self,
        open: char,
        close: char,
        mut item: impl FnMut(&mut Self) -> Result<T, SyntaxError>,
    ) -> Result<Vec<T>, SyntaxError> {
        self.take(open, "here")?;
        let mut items = Vec::new();
        loop {
            self.skip()?;
            let may_close = items.is_empty() || self.dialect == Dialect::Comments;
            if self.peek() == Some(close) && may_close {
                break;
            }
            items.push(item(self)?);
            self.skip()?;
            if self.peek() == Some(close) {
                break;
            }
            self.take(',', &format!("or `{close}`"))?;
        }
        self.at += close.len_utf8();
        Ok(items)
    }

    fn string(&mut self) -> Result<String, SyntaxError> {
        let (rest, mut escaped) = (&self.text[self.at..], false);
        let end = rest.char_indices().skip(1).find(|(_, found)| {
            let ends = (*found == '"' && !escaped) || *found == '\n';
            escaped = *found == '\\' && !escaped;
            ends
        });
        let Some((end, '"')) = end else { return Err(self.error("string without closing quote")) };
        let string =
            serde_json::from_str(&rest[..=end]).map_err(|_| self.error("invalid string: check the escapes"))?;
        self.at += end + 1;
        Ok(string)
    }

    fn bare(&mut self) -> Result<Kind, SyntaxError> {
        let rest = &self.text[self.at..];
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || "+-.".contains(c))).unwrap_or(rest.len());
        let word = &rest[..end];
        if serde_json::from_str::<serde_json::Value>(word).is_err() {
            let shown = if word.is_empty() { &rest[..rest.chars().next().map_or(0, char::len_utf8)] } else { word };
            return Err(self.error(format!("expected a value, found `{shown}`")));
        }
        self.at += end;
        Ok(Kind::Bare)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_their_positions() {
        let text = "// top\n{ \"a\": [\"x\", \"y\\\"z\"], /* b */ \"b\": {\"c\": -1.5e3,}, \"a2\": null }\n";
        let root = parse(text, Dialect::Comments).expect("a document");
        assert_eq!(root.get("a").and_then(Node::texts), Some(vec!["x", "y\"z"]));
        let number = root.get("b").and_then(|b| b.get("c")).expect("a number");
        assert_eq!(&text[number.span.clone()], "-1.5e3");
        assert_eq!(root.items().len(), 3);
        assert!(root.get("c").is_none() && root.get("a2").is_some_and(|node| node.kind == Kind::Bare));
    }

    #[test]
    fn the_last_of_two_equal_keys_counts() {
        let root = parse(r#"{"a": "1", "a": "2"}"#, Dialect::Strict).expect("a document");
        assert_eq!(root.get("a").and_then(Node::text), Some("2"));
    }

    #[test]
    fn errors_name_the_line() {
        for (text, line) in [
            ("", 1),
            ("{\n  \"a\": 1\n", 3),
            ("{\n  \"a\": 1\n  \"b\": 2\n}", 3),
            ("{\n\n  a: 1\n}", 3),
            ("{\"a\": tru}", 1),
            ("{}\n\n}", 3),
            ("{\"a\": \"x\n\"}", 1),
            ("{\"a\": \"\\q\"}", 1),
            ("[1, 2", 1),
            ("{\n/* open", 2),
            ("{\"a\": é}", 1),
        ] {
            let error = parse(text, Dialect::Comments).expect_err(text);
            assert_eq!(error.line, line, "{text}: {}", error.what);
        }
        assert!(parse(&"[".repeat(100_000), Dialect::Comments).is_err(), "no stack is used up");
    }

    #[test]
    fn strict_json_has_neither_comments_nor_trailing_commas() {
        for text in ["{\n// c\n}", "{\"a\": 1,\n}", "[1,\n]"] {
            assert!(parse(text, Dialect::Comments).is_ok(), "{text}");
            assert_eq!(parse(text, Dialect::Strict).expect_err(text).line, 2, "{text}");
        }
    }
}
