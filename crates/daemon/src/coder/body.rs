//! Request bodies, read as Go's decoder reads them: one JSON value, its keys in any case, the last of several wins;
//! unknown fields and anything after the value are ignored, and `null` is an empty request.
//!
//! Values are kept as raw text and parsed when they are used, so that an unknown field cannot cause an error: no number
//! is too large, no nesting too deep. A surrogate without its other half and a byte that is not UTF-8
//! become U+FFFD, one for each.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use axum::extract::Request;
use axum::http::StatusCode;
use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::wire::Fault;
use crate::extract::{BODY_TIME, BodyError, read_body};

/// The fields of a request, in the order of the body.
#[derive(Clone, Debug, Default)]
pub(super) struct Fields(Vec<(Text, Box<RawValue>)>);

impl Fields {
    /// Reads the body of a request.
    pub(super) async fn of(request: Request) -> Result<Self, Fault> {
        let refuse = |error: BodyError| match error {
            BodyError::TooLarge => {
                Fault::new(StatusCode::PAYLOAD_TOO_LARGE, "Request body is too large.").detail(error.to_string())
            }
            BodyError::TimedOut => malformed(error.to_string()),
            BodyError::Malformed(why) => malformed(why),
        };
        let bytes = read_body(request.into_body(), BODY_TIME).await.map_err(refuse)?;
        Self::parse(&bytes).map_err(malformed)
    }

    /// Parses the bytes of a body.
    pub(super) fn parse(body: &[u8]) -> Result<Self, String> {
        match serde_json::Deserializer::from_str(&decode_utf8(body)).into_iter::<Self>().next() {
            None => Err("EOF".to_owned()),
            Some(Ok(fields)) => Ok(fields),
            Some(Err(error)) if error.is_eof() => Err("unexpected EOF".to_owned()),
            Some(Err(error)) => Err(error.to_string()),
        }
    }

    fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = Result<ParsedValue, Fault>> + 'a {
        let named = self.0.iter().filter(move |(key, _)| matches_name(&key.0, name));
        named.map(|(_, value)| ParsedValue::parse(value).map_err(malformed))
    }

    /// A string; empty if it is missing.
    pub(super) fn text(&self, name: &str) -> Result<String, Fault> {
        let mut text = String::new();
        for value in self.values(name) {
            match value? {
                ParsedValue::Null => {}
                ParsedValue::Text(given) => text = given,
                other => return Err(wrong(name, "a string", &other)),
            }
        }
        Ok(text)
    }

    pub(super) fn flag(&self, name: &str) -> Result<bool, Fault> {
        let mut flag = false;
        for value in self.values(name) {
            match value? {
                ParsedValue::Null => {}
                ParsedValue::Bool(given) => flag = given,
                other => return Err(wrong(name, "a boolean", &other)),
            }
        }
        Ok(flag)
    }

    /// An object of strings. If the field is there several times, the objects are merged.
    pub(super) fn texts(&self, name: &str) -> Result<BTreeMap<String, String>, Fault> {
        let mut texts = BTreeMap::new();
        for value in self.values(name) {
            match value? {
                ParsedValue::Null => texts.clear(),
                ParsedValue::Object(given) => {
                    for (Text(key), value) in given.0 {
                        let text = match ParsedValue::parse(&value).map_err(malformed)? {
                            ParsedValue::Null => String::new(),
                            ParsedValue::Text(text) => text,
                            other => return Err(wrong(&format!("{name}.{key}"), "a string", &other)),
                        };
                        texts.insert(key, text);
                    }
                }
                other => return Err(wrong(name, "an object of strings", &other)),
            }
        }
        Ok(texts)
    }
}

/// A JSON value of one of the types that requests use.
#[derive(Clone, Debug)]
enum ParsedValue {
    Null,
    Bool(bool),
    Number,
    Text(String),
    Array,
    Object(Fields),
}

impl ParsedValue {
    fn parse(raw: &RawValue) -> Result<Self, String> {
        let failed = |error: serde_json::Error| error.to_string();
        Ok(match raw.get().as_bytes().first() {
            Some(b'n') => Self::Null,
            Some(b't') => Self::Bool(true),
            Some(b'f') => Self::Bool(false),
            Some(b'"') => Self::Text(serde_json::from_str::<Text>(raw.get()).map_err(failed)?.0),
            Some(b'[') => Self::Array,
            Some(b'{') => Self::Object(serde_json::from_str(raw.get()).map_err(failed)?),
            _ => Self::Number,
        })
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Number => "a number",
            Self::Text(_) => "a string",
            Self::Array => "an array",
            Self::Object(_) => "an object",
        }
    }
}

/// Whether a key means a field of this lower-case name. Go folds case as Unicode does: two characters outside of ASCII
/// fold to a letter of it.
fn matches_name(key: &str, name: &str) -> bool {
    let fold = |c: char| match c {
        '\u{212a}' => 'k',
        '\u{17f}' => 's',
        other => other.to_ascii_lowercase(),
    };
    key.chars().map(fold).eq(name.chars())
}

/// The text of a body; each byte that is not part of a character becomes U+FFFD.
fn decode_utf8(body: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(body) {
        return Cow::Borrowed(text);
    }
    let mut text = String::with_capacity(body.len());
    for chunk in body.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| '\u{fffd}'));
    }
    Cow::Owned(text)
}

fn malformed(detail: String) -> Fault {
    Fault::bad("Request body must be valid JSON.").detail(detail)
}

fn wrong(name: &str, wanted: &str, given: &ParsedValue) -> Fault {
    malformed(format!("`{name}` must be {wanted}, not {}", given.kind()))
}

/// A string. Its surrogates without another half are replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Text(String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // As bytes, since serde_json refuses such surrogates in a `str`; in bytes it encodes them like characters.
        deserializer.deserialize_bytes(TextVisitor)
    }
}

struct TextVisitor;

impl Visitor<'_> for TextVisitor {
    type Value = Text;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Text, E> {
        let mut bytes = bytes.to_vec();
        let mut at = 0;
        while at + 2 < bytes.len() {
            // Three bytes in UTF-8 that stand for U+D800 to U+DFFF, and U+FFFD has three too.
            if bytes[at] == 0xed && bytes[at + 1] >= 0xa0 {
                bytes[at..at + 3].copy_from_slice("\u{fffd}".as_bytes());
            }
            at += 1;
        }
        String::from_utf8(bytes).map(Text).map_err(E::custom)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Text, E> {
        Ok(Text(text.to_owned()))
    }
}

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FieldsVisitor)
    }
}

struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Fields;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_unit<E>(self) -> Result<Fields, E> {
        Ok(Fields::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = map.next_entry()? {
            fields.push(field);
        }
        Ok(Fields(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(body: &str) -> Result<String, String> {
        let fields = Fields::parse(body.as_bytes())?;
        fields.text("command").map_err(|fault| format!("{fault:?}"))
    }

    #[test]
    fn bodies_are_read_as_leniently_as_go_does() {
        for (body, command) in [
            (r#"{"command":"a"}"#, "a"),
            (r#"{"COMMAND":"a","other":{"x":[1]}}"#, "a"),
            (r#"{"command":"a","Command":"b"}"#, "b"),
            (r#"{"Command":"a","command":"b"}"#, "b"),
            (r#"{"command":"a","command":null}"#, "a"),
            (r#"{"command":"a"} trailing {"#, "a"),
            (" \n null ", ""),
            ("{}", ""),
        ] {
            assert_eq!(text(body).as_deref(), Ok(command), "{body}");
        }
        for body in ["", "  ", "{invalid json", r#"{"command":"#, "[]", "7", r#""x""#, r#"{"command":7}"#] {
            assert!(text(body).is_err(), "{body}");
        }
        assert_eq!(text(""), Err("EOF".to_owned()));
    }

    #[test]
    fn objects_are_laid_over_each_other() {
        let fields = Fields::parse(br#"{"env":{"A":"1","B":"1"},"ENV":{"B":"2","C":null}}"#).expect("JSON");
        let texts = [("A", "1"), ("B", "2"), ("C", "")].map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(fields.texts("env"), Ok(texts.into()));
        assert!(Fields::parse(br#"{"env":{"A":1}}"#).expect("JSON").texts("env").is_err());
        assert_eq!(Fields::parse(br#"{"background":true}"#).expect("JSON").flag("background"), Ok(true));
    }

    #[test]
    fn unknown_fields_may_hold_anything() {
        let deep = format!(r#"{{"x":{}{},"command":"a"}}"#, "[".repeat(9_000), "]".repeat(9_000));
        let odd = [r#"{"x":"\ud800","command":"a"}"#, r#"{"x":1e99999,"\udfff":-0.1e-999,"command":"a"}"#, &deep];
        for body in odd {
            assert_eq!(text(body).as_deref(), Ok("a"), "{}", &body[..40]);
        }
        assert!(text(&deep.replace("]]", "]")).is_err(), "what is not JSON stays refused");
    }

    #[test]
    fn characters_that_are_none_are_replaced_one_by_one() {
        assert_eq!(text(r#"{"command":"a\ud800b\udc00\ud83d\ude00"}"#).as_deref(), Ok("a\u{fffd}b\u{fffd}😀"));
        let fields = Fields::parse(b"{\"command\":\"a\xe2\x98b\xff\"}").expect("JSON");
        assert_eq!(fields.text("command").as_deref(), Ok("a\u{fffd}\u{fffd}b\u{fffd}"));
    }

    #[test]
    fn names_are_folded_as_unicode_folds_them() {
        let fields = Fields::parse(r#"{"bac\u212aground":true,"\u017fIGNAL":"kill","wor\u212aDIR":"/"}"#.as_bytes());
        let fields = fields.expect("JSON");
        assert_eq!(fields.flag("background"), Ok(true));
        assert_eq!(fields.text("signal").as_deref(), Ok("kill"));
        assert_eq!(fields.text("workdir").as_deref(), Ok("/"));
        assert_eq!(Fields::parse(r#"{"ſıgnal":"kill"}"#.as_bytes()).expect("JSON").text("signal").as_deref(), Ok(""));
    }
}
