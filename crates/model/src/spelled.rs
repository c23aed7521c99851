//! A value with its JSON.

use std::ops::Deref;
use std::sync::OnceLock;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};

/// A value that does not change. Its JSON is made once, however often it is written and sent; one that came as JSON is
/// passed on as it came.
#[derive(Clone, Debug)]
pub struct Spelled<T> {
    value: T,
    json: OnceLock<Box<RawValue>>,
}

impl<T> From<T> for Spelled<T> {
    fn from(value: T) -> Self {
        Self { value, json: OnceLock::new() }
    }
}

impl<T> Deref for Spelled<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: PartialEq> PartialEq for Spelled<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl<T: Eq> Eq for Spelled<T> {}

impl<T: DeserializeOwned> Spelled<T> {
    /// The value that this says.
    pub(crate) fn read(json: &RawValue) -> serde_json::Result<Self> {
        let spelled = Self::from(serde_json::from_str::<T>(json.get())?);
        // Whoever writes lines relies on it being one.
        if !json.get().contains('\n') {
            spelled.json.get_or_init(|| json.to_owned());
        }
        Ok(spelled)
    }
}

impl<T: Serialize> Spelled<T> {
    /// The value as JSON, in one line.
    pub fn json(&self) -> &str {
        self.raw().get()
    }

    fn raw(&self) -> &RawValue {
        self.json.get_or_init(|| to_raw_value(&self.value).expect("it has string keys and finite numbers"))
    }
}

impl<T: Serialize> Serialize for Spelled<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.raw().serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Spelled<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_passed_on_as_it_came_unless_it_would_break_a_line() {
        let read = |json: &str| {
            let raw: &RawValue = serde_json::from_str(json).expect("JSON");
            Spelled::<Vec<u32>>::read(raw).expect("numbers")
        };
        let spaced = read("[1,  2]");
        assert_eq!((spaced.json(), &**spaced), ("[1,  2]", &[1, 2][..]));
        let broken = read("[1,\n2]");
        assert_eq!((broken.json(), &**broken), ("[1,2]", &[1, 2][..]));
        assert_eq!(spaced, broken);
        assert_eq!(serde_json::to_string(&(spaced, broken)).expect("JSON"), "[[1,  2],[1,2]]");
    }

    #[test]
    fn json_that_is_not_the_value_is_an_error() {
        let raw: &RawValue = serde_json::from_str(r#""text""#).expect("JSON");
        assert!(Spelled::<Vec<u32>>::read(raw).is_err());
    }
}
