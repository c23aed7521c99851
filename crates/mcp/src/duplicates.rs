//! Finds argument keys that a call contains twice. A JSON parser silently keeps the last one, so we scan the raw text
//! before it is parsed and pass the keys on in the request's `_meta`.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// Maximum number of keys that are reported, and characters of each. One key is enough to reject the call; the limit
/// bounds memory.
const MAX_KEYS: usize = 8;
const MAX_KEY_LENGTH: usize = 200;

/// The key in `_meta` that lists the duplicate keys.
pub(crate) const META_KEY: &str = "pinfold/duplicateKeys";

/// Returns the message with its duplicate argument keys listed in `_meta`; `None` if there are none or the message is
/// malformed.
pub(crate) fn annotate(message: &[u8]) -> Option<Vec<u8>> {
    let keys = find_duplicates(message);
    if keys.is_empty() {
        return None;
    }
    let mut value: Value = serde_json::from_slice(message).ok()?;
    let params = value.get_mut("params")?.as_object_mut()?;
    let meta = params.entry("_meta").or_insert_with(|| Value::Object(serde_json::Map::new()));
    meta.as_object_mut()?.insert(META_KEY.into(), keys.into());
    serde_json::to_vec(&value).ok()
}

/// Finds keys that occur twice in the same object of `params.arguments`.
fn find_duplicates(message: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    let mut reader = serde_json::Deserializer::from_slice(message);
    // Ignore a syntax error: the parser reports it later.
    let _ = Walk { path: &mut Vec::new(), found: &mut found }.deserialize(&mut reader);
    found
}

/// Visits a JSON value and records duplicate keys of arguments.
struct Walk<'a> {
    path: &'a mut Vec<String>,
    found: &'a mut Vec<String>,
}

impl Walk<'_> {
    fn is_argument(&self) -> bool {
        matches!(self.path.as_slice(), [params, arguments, _, ..] if params == "params" && arguments == "arguments")
    }
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut keys = std::collections::HashSet::new();
        while let Some(key) = map.next_key::<String>()? {
            self.path.push(key.clone());
            if !keys.insert(key) && self.found.len() < MAX_KEYS && self.is_argument() {
                self.found.push(self.path[2..].join(".").chars().take(MAX_KEY_LENGTH).collect());
            }
            map.next_value_seed(Walk { path: self.path, found: self.found })?;
            self.path.pop();
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element_seed(Walk { path: self.path, found: self.found })?.is_some() {}
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_duplicate_argument_keys_are_found_at_any_depth() {
        let twice = br#"{"id":1,"params":{"name":"x","arguments":{"a":1,"env":{"K":"1","K":"2"},"a":[{"b":0}]}}}"#;
        assert_eq!(find_duplicates(twice), ["env.K", "a"]);
        assert_eq!(find_duplicates(br#"{"id":1,"id":2,"params":{"arguments":{"a":1,"b":{"a":1}}}}"#), [""; 0]);
        assert_eq!(find_duplicates(b"{ no json"), [""; 0]);
    }

    #[test]
    fn m3_the_reported_keys_are_limited() {
        let (deep, keys) = ("x".repeat(10_000), r#""k":1,"#.repeat(10_000));
        let many = format!(r#"{{"params":{{"arguments":{{"{deep}":{{{keys}"k":1}}}}}}}}"#);
        let found = find_duplicates(many.as_bytes());
        assert_eq!(found.len(), MAX_KEYS);
        assert!(found.iter().all(|name| name.len() == MAX_KEY_LENGTH));
    }

    #[test]
    fn duplicate_keys_are_added_to_the_existing_meta() {
        let message = br#"{"params":{"_meta":{"progressToken":1},"arguments":{"a":1,"a":2}}}"#;
        let annotated: Value = serde_json::from_slice(&annotate(message).expect("annotated")).expect("JSON");
        assert_eq!(annotated["params"]["_meta"][META_KEY], serde_json::json!(["a"]));
        assert_eq!(annotated["params"]["_meta"]["progressToken"], 1);
    }

    #[test]
    fn a_message_without_duplicate_keys_is_unchanged() {
        assert_eq!(annotate(br#"{"params":{"arguments":{"a":1}}}"#), None);
    }
}
