//! Query strings as the types that routes take.
//!
//! A parameter may be repeated if its field is a list. A flag without a value (`?follow`) is true.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Display;

use serde::de::value::{Error, MapDeserializer, SeqDeserializer};
use serde::de::{DeserializeOwned, Deserializer, Error as _, IntoDeserializer, Visitor};

/// Parses a query string; the error names the parameter.
pub(crate) fn parse<T: DeserializeOwned>(query: &str) -> Result<T, String> {
    let mut fields: BTreeMap<Cow<'_, str>, Values<'_>> = BTreeMap::new();
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        fields.entry(name.clone()).or_insert_with(|| Values { name, all: Vec::new() }).all.push(value);
    }
    T::deserialize(MapDeserializer::new(fields.into_iter())).map_err(|error: Error| error.to_string())
}

/// What a parameter was given, once or several times.
struct Values<'a> {
    name: Cow<'a, str>,
    all: Vec<Cow<'a, str>>,
}

impl<'a> Values<'a> {
    /// The value of a parameter that takes only one.
    fn one(mut self) -> Result<(Cow<'a, str>, Cow<'a, str>), Error> {
        match (self.all.pop(), self.all.len()) {
            (Some(value), 0) => Ok((self.name, value)),
            _ => Err(Error::custom(format_args!("{}: give it once", self.name))),
        }
    }

    fn parsed<T: std::str::FromStr<Err: Display>>(self) -> Result<T, Error> {
        let (name, value) = self.one()?;
        value.parse().map_err(|error| Error::custom(format_args!("{name}: {error}")))
    }
}

impl<'a> IntoDeserializer<'a> for Values<'a> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

macro_rules! parsed {
    ($($method:ident => $visit:ident,)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            visitor.$visit(self.parsed()?)
        })*
    };
}

impl<'de> Deserializer<'de> for Values<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_string(self.one()?.1.into_owned())
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_seq(SeqDeserializer::new(self.all.into_iter()))
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let (name, value) = self.one()?;
        match &*value {
            "" | "true" => visitor.visit_bool(true),
            "false" => visitor.visit_bool(false),
            other => Err(Error::custom(format_args!("{name}: `{other}` is neither true nor false"))),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let (_, value) = self.one()?;
        visitor.visit_enum(value.into_deserializer())
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    parsed! {
        deserialize_u8 => visit_u8,
        deserialize_u16 => visit_u16,
        deserialize_u32 => visit_u32,
        deserialize_u64 => visit_u64,
        deserialize_i8 => visit_i8,
        deserialize_i16 => visit_i16,
        deserialize_i32 => visit_i32,
        deserialize_i64 => visit_i64,
        deserialize_f32 => visit_f32,
        deserialize_f64 => visit_f64,
    }

    serde::forward_to_deserialize_any! {
        i128 u128 char str string bytes byte_buf unit unit_struct tuple tuple_struct map struct identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use pinfold_api::types::{ListQuery, OutputQuery};

    use super::*;

    #[test]
    fn a_list_takes_a_parameter_several_times_and_another_field_once() {
        let query: ListQuery = parse("label=a%3D1%2C2&limit=5&label=b=+x").expect("a query");
        assert_eq!((query.label, query.limit), (vec!["a=1,2".to_owned(), "b= x".to_owned()], Some(5)));
        assert_eq!(parse::<ListQuery>("").expect("nothing given"), ListQuery::default());
        assert_eq!(parse::<ListQuery>("name=a&name=b").expect_err("twice"), "name: give it once");
    }

    #[test]
    fn a_flag_needs_no_value_and_a_bad_value_is_named() {
        let follow = |query: &str| parse::<OutputQuery>(query).map(|query| query.follow);
        assert_eq!(follow("follow"), Ok(Some(true)));
        assert_eq!(follow("follow="), Ok(Some(true)));
        assert_eq!(follow("follow=false"), Ok(Some(false)));
        assert_eq!(follow("follow=1"), Err("follow: `1` is neither true nor false".into()));
        assert_eq!(follow("cursor=x"), Err("cursor: invalid digit found in string".into()));
        let unknown = follow("folow=true").expect_err("unknown");
        assert!(unknown.starts_with("unknown field `folow`, expected one of `cursor`"), "{unknown}");
    }
}
