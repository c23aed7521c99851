//! Keys that a call names twice. A JSON reader keeps the last of them in silence, so they are looked for in the
//! text itself, before it is read, and handed on inside the request's own `_meta`.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// Keys that are noted, and characters of each: one is enough to refuse a call. Without a bound, many keys below a long
/// path would be memory without one.
const MAX_BUDGET: usize = 8;
const MAX_NAME: usize = 200;

/// Where the names of the keys travel.
pub(crate) const META_KEY: &str = "pinfold/duplicateKeys";

/// The message with its doubled argument keys noted in `_meta`; `None` if it has none or is no message of ours.
pub(crate) fn noted(message: &[u8]) -> Option<Vec<u8>> {
    let keys = in_arguments(message);
    if keys.is_empty() {
        return None;
    }
    let mut value: Value = serde_json::from_slice(message).ok()?;
    let params = value.get_mut("params")?.as_object_mut()?;
    let meta = params.entry("_meta").or_insert_with(|| Value::Object(serde_json::Map::new()));
    meta.as_object_mut()?.insert(META_KEY.into(), keys.into());
    serde_json::to_vec(&value).ok()
}

/// The keys that stand twice in one object of `params.arguments`.
fn in_arguments(message: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    let mut reader = serde_json::Deserializer::from_slice(message);
    // What is no JSON is refused by whoever reads it in earnest.
    let _ = Walk { path: &mut Vec::new(), found: &mut found }.deserialize(&mut reader);
    found
}

/// Walks through a value and notes each argument's key that came before in the same object.
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
            if !keys.insert(key) && self.found.len() < MAX_BUDGET && self.is_argument() {
                self.found.push(self.path[2..].join(".").chars().take(MAX_NAME).collect());
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
    fn doubled_keys_of_arguments_are_found_at_any_depth_and_no_others() {
        let twice = br#"{"id":1,"params":{"name":"x","arguments":{"a":1,"env":{"K":"1","K":"2"},"a":[{"b":0}]}}}"#;
        assert_eq!(in_arguments(twice), ["env.K", "a"]);
        assert_eq!(in_arguments(br#"{"id":1,"id":2,"params":{"arguments":{"a":1,"b":{"a":1}}}}"#), [""; 0]);
        assert_eq!(in_arguments(b"{ no json"), [""; 0]);
    }

    #[test]
    fn m3_no_more_is_noted_than_a_refusal_needs() {
        let (deep, keys) = ("x".repeat(10_000), r#""k":1,"#.repeat(10_000));
        let many = format!(r#"{{"params":{{"arguments":{{"{deep}":{{{keys}"k":1}}}}}}}}"#);
        let noted = in_arguments(many.as_bytes());
        assert_eq!(noted.len(), MAX_BUDGET);
        assert!(noted.iter().all(|name| name.len() == MAX_NAME));
    }

    #[test]
    fn they_travel_in_the_requests_own_meta() {
        let message = br#"{"params":{"_meta":{"progressToken":1},"arguments":{"a":1,"a":2}}}"#;
        let noted: Value = serde_json::from_slice(&noted(message).expect("noted")).expect("JSON");
        assert_eq!(noted["params"]["_meta"][META_KEY], serde_json::json!(["a"]));
        assert_eq!(noted["params"]["_meta"]["progressToken"], 1);
    }

    #[test]
    fn a_message_without_them_is_left_as_it_is() {
        assert_eq!(noted(br#"{"params":{"arguments":{"a":1}}}"#), None);
    }
}
