//! Encodes query strings and path segments.
//!
//! A query struct is serialized to JSON, and its fields become `name=value`, so that no field name is repeated here.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::Value;

/// `?a=1&b=2` for the fields that are set; empty if none is.
pub(super) fn encode<T: Serialize>(query: &T) -> Result<String, serde_json::Error> {
    let mut text = String::new();
    if let Value::Object(fields) = serde_json::to_value(query)? {
        for (name, value) in &fields {
            for value in values(value) {
                text.push(if text.is_empty() { '?' } else { '&' });
                text.push_str(&escape(name));
                text.push('=');
                text.push_str(&escape(&value));
            }
        }
    }
    Ok(text)
}

/// Percent-encodes everything but the unreserved characters of RFC 3986.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    escaped
}

/// The values of a parameter, which is repeated for each item of a list; none if the field is to be omitted.
fn values(value: &Value) -> Vec<String> {
    match value {
        Value::Null => vec![],
        Value::String(text) => vec![text.clone()],
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => vec![value.to_string()],
        Value::Array(items) => items.iter().flat_map(values).collect(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::types::{ListQuery, OutputQuery};

    #[test]
    fn only_fields_that_are_set_are_sent() {
        assert_eq!(encode(&ListQuery::default()).unwrap(), "");
        let query =
            OutputQuery { cursor: Some(12), strip_ansi: Some(true), wait: Some("1.5s".into()), ..Default::default() };
        assert_eq!(encode(&query).unwrap(), "?cursor=12&strip_ansi=true&wait=1.5s");
    }

    #[test]
    fn a_list_repeats_its_parameter() {
        let query = ListQuery { label: vec!["a=1,2".into(), "b=".into()], ..ListQuery::default() };
        assert_eq!(encode(&query).unwrap(), "?label=a%3D1%2C2&label=b%3D");
    }

    #[test]
    fn every_character_survives_the_query() {
        let query = OutputQuery { grep: Some("a b+c&d=é%/?#".into()), ..Default::default() };
        assert_eq!(encode(&query).unwrap(), "?grep=a%20b%2Bc%26d%3D%C3%A9%25%2F%3F%23");
        assert_eq!(escape("../x y"), "..%2Fx%20y");
    }
}
