//! Request bodies, read as Go's decoder reads them: one JSON value, its keys in any case, the last of several wins;
//! unknown fields and whatever comes after the value are passed over, and `null` is an empty request.

use std::collections::BTreeMap;
use std::fmt;

use axum::body::to_bytes;
use axum::extract::Request;
use axum::http::StatusCode;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::Value;

use super::wire::Fault;
use crate::http::BODY_MOST;

/// The fields of a request, in their order.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Fields(Vec<(String, Value)>);

impl Fields {
    /// Reads the body of a request.
    pub(super) async fn of(request: Request) -> Result<Self, Fault> {
        let too_large = |_| {
            let detail = format!("it is larger than {BODY_MOST} bytes: put a long script into a file");
            Fault::new(StatusCode::PAYLOAD_TOO_LARGE, "Request body is too large.").detail(detail)
        };
        let bytes = to_bytes(request.into_body(), BODY_MOST).await.map_err(too_large)?;
        Self::parse(&String::from_utf8_lossy(&bytes)).map_err(malformed)
    }

    /// Reads what a body holds.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        match serde_json::Deserializer::from_str(text).into_iter::<Self>().next() {
            None => Err("EOF".to_owned()),
            Some(Ok(fields)) => Ok(fields),
            Some(Err(error)) if error.is_eof() => Err("unexpected EOF".to_owned()),
            Some(Err(error)) => Err(error.to_string()),
        }
    }

    fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Value> {
        self.0.iter().filter(move |(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// A text; empty if it is not there.
    pub(super) fn text(&self, name: &str) -> Result<String, Fault> {
        let mut text = String::new();
        for value in self.values(name) {
            match value {
                Value::Null => {}
                Value::String(given) => text.clone_from(given),
                other => return Err(wrong(name, "a string", other)),
            }
        }
        Ok(text)
    }

    pub(super) fn flag(&self, name: &str) -> Result<bool, Fault> {
        let mut flag = false;
        for value in self.values(name) {
            match value {
                Value::Null => {}
                Value::Bool(given) => flag = *given,
                other => return Err(wrong(name, "a boolean", other)),
            }
        }
        Ok(flag)
    }

    /// Texts by name. Several objects are laid over each other.
    pub(super) fn texts(&self, name: &str) -> Result<BTreeMap<String, String>, Fault> {
        let mut texts = BTreeMap::new();
        for value in self.values(name) {
            match value {
                Value::Null => texts.clear(),
                Value::Object(given) => {
                    for (key, value) in given {
                        let text = match value {
                            Value::Null => String::new(),
                            Value::String(text) => text.clone(),
                            other => return Err(wrong(&format!("{name}.{key}"), "a string", other)),
                        };
                        texts.insert(key.clone(), text);
                    }
                }
                other => return Err(wrong(name, "an object of strings", other)),
            }
        }
        Ok(texts)
    }
}

fn malformed(detail: String) -> Fault {
    Fault::bad("Request body must be valid JSON.").detail(detail)
}

fn wrong(name: &str, wanted: &str, given: &Value) -> Fault {
    let kind = match given {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    };
    malformed(format!("`{name}` must be {wanted}, not {kind}"))
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
        let fields = Fields::parse(body)?;
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
        let fields = Fields::parse(r#"{"env":{"A":"1","B":"1"},"ENV":{"B":"2","C":null}}"#).expect("JSON");
        let texts = [("A", "1"), ("B", "2"), ("C", "")].map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(fields.texts("env"), Ok(texts.into()));
        assert!(Fields::parse(r#"{"env":{"A":1}}"#).expect("JSON").texts("env").is_err());
        assert_eq!(Fields::parse(r#"{"background":true}"#).expect("JSON").flag("background"), Ok(true));
    }
}
