//! A value that caches its JSON.

use std::ops::Deref;
use std::sync::OnceLock;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};

/// An immutable value. Its JSON is encoded once, however often it is written and sent; a value parsed from JSON keeps
/// the original text.
#[derive(Clone, Debug)]
pub struct CachedJson<T> {
    value: T,
    json: OnceLock<Box<RawValue>>,
}

impl<T> From<T> for CachedJson<T> {
    fn from(value: T) -> Self {
        Self { value, json: OnceLock::new() }
    }
}

impl<T> Deref for CachedJson<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: PartialEq> PartialEq for CachedJson<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl<T: Eq> Eq for CachedJson<T> {}

impl<T: DeserializeOwned> CachedJson<T> {
    pub(crate) fn read(json: &RawValue) -> serde_json::Result<Self> {
        let value = Self::from(serde_json::from_str::<T>(json.get())?);
        // Records are one line each, so only single-line JSON is reused.
        if !json.get().contains('\n') {
            value.json.get_or_init(|| json.to_owned());
        }
        Ok(value)
    }
}

impl<T: Serialize> CachedJson<T> {
    /// The value as JSON on one line.
    pub fn json(&self) -> &str {
        self.raw().get()
    }

    fn raw(&self) -> &RawValue {
        self.json.get_or_init(|| to_raw_value(&self.value).expect("it has string keys and finite numbers"))
    }
}

impl<T: Serialize> Serialize for CachedJson<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.raw().serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for CachedJson<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_original_json_is_reused_unless_it_has_a_line_break() {
        let read = |json: &str| {
            let raw: &RawValue = serde_json::from_str(json).expect("JSON");
            CachedJson::<Vec<u32>>::read(raw).expect("numbers")
        };
        let spaced = read("[1,  2]");
        assert_eq!((spaced.json(), &**spaced), ("[1,  2]", &[1, 2][..]));
        let broken = read("[1,\n2]");
        assert_eq!((broken.json(), &**broken), ("[1,2]", &[1, 2][..]));
        assert_eq!(spaced, broken);
        assert_eq!(serde_json::to_string(&(spaced, broken)).expect("JSON"), "[[1,  2],[1,2]]");
    }

    #[test]
    fn json_of_another_type_is_an_error() {
        let raw: &RawValue = serde_json::from_str(r#""text""#).expect("JSON");
        assert!(CachedJson::<Vec<u32>>::read(raw).is_err());
    }
}
