//! Reads the arguments of a call. Argument names of other tools are translated ([`crate::aliases`]). Unknown names and
//! wrong types are errors that show a correct call.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::aliases;
use crate::tool_error::ToolError;

/// Maximum duration in seconds.
const MAX_SECONDS: f64 = 1e9;

/// The arguments of one call.
#[derive(Clone, Debug)]
pub(crate) struct Arguments {
    values: Map<String, Value>,
    right_call: &'static str,
    /// Notes for the result on how arguments were interpreted.
    notes: Vec<String>,
}

impl Arguments {
    /// Checks the names and translates those of other tools. An unknown name, or one given twice, is an error.
    pub(crate) fn new(
        given: Map<String, Value>,
        duplicate_keys: &[String],
        known: &[&str],
        right_call: &'static str,
    ) -> Result<Self, ToolError> {
        let error = |message: String| Err(ToolError::invalid(message).with_example(right_call));
        if let Some(key) = duplicate_keys.first() {
            return error(format!("`{key}` is given twice: give it once"));
        }
        let mut values = Map::new();
        for (key, value) in given {
            let (ours, value) = match aliases::find(&key, known) {
                _ if known.contains(&key.as_str()) => (key.as_str(), value),
                Some((ours, is_millis)) => (ours, aliases::translate(ours, is_millis, value)),
                None => match known.iter().find(|name| aliases::same_name(name, &key)) {
                    Some(meant) => return error(format!("`{key}`: write `{meant}`")),
                    None => {
                        return error(format!("there is no argument `{}`: {}", abbreviate(&key), list_names(known)));
                    }
                },
            };
            if values.insert(ours.to_owned(), value).is_some() {
                return error(format!("`{ours}` is given twice, once by another name: give it once"));
            }
        }
        let notes = aliases::read_large_numbers_as_millis(&mut values);
        Ok(Arguments { values, right_call, notes })
    }

    pub(crate) fn notes(&self) -> &[String] {
        &self.notes
    }

    pub(crate) fn invalid(&self, message: impl Into<String>) -> ToolError {
        ToolError::invalid(message).with_example(self.right_call)
    }

    /// The value as given; `None` if absent or null.
    pub(crate) fn raw(&self, key: &str) -> Option<&Value> {
        self.values.get(key).filter(|value| !value.is_null())
    }

    pub(crate) fn text(&self, key: &str) -> Result<Option<String>, ToolError> {
        match self.raw(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(other) => Err(self.wrong_type(key, "a text", other)),
        }
    }

    /// A string that must be present and not blank.
    pub(crate) fn required(&self, key: &str) -> Result<String, ToolError> {
        match self.text(key)? {
            Some(text) if !text.trim().is_empty() => Ok(text),
            Some(_) => Err(self.invalid(format!("`{key}` is empty"))),
            None => Err(self.invalid(format!("`{key}` is missing"))),
        }
    }

    pub(crate) fn flag(&self, key: &str) -> Result<bool, ToolError> {
        match self.raw(key) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(other) => Err(self.wrong_type(key, "true or false", other)),
        }
    }

    pub(crate) fn count(&self, key: &str) -> Result<Option<u64>, ToolError> {
        match self.raw(key) {
            None => Ok(None),
            Some(value) => match value.as_u64() {
                Some(count) => Ok(Some(count)),
                None => Err(self.wrong_type(key, "a whole number, 0 or more", value)),
            },
        }
    }

    /// A string that must be one of `words`.
    pub(crate) fn one_of(&self, key: &str, words: &[&str]) -> Result<Option<String>, ToolError> {
        let word = self.text(key)?;
        match &word {
            Some(text) if !words.contains(&text.as_str()) => {
                Err(self.invalid(format!("`{key}`: `{}` is not one of {}", abbreviate(text), words.join(", "))))
            }
            _ => Ok(word),
        }
    }

    /// Accepts 30, "30", "30s", "5m", "1h30m"; 0 means do not wait.
    pub(crate) fn duration(&self, key: &str) -> Result<Option<Duration>, ToolError> {
        let (seconds, given) = match self.raw(key) {
            None => return Ok(None),
            Some(Value::Number(number)) => (number.as_f64(), number.to_string()),
            Some(Value::String(text)) => (parse_seconds(text), text.clone()),
            Some(other) => return Err(self.wrong_type(key, "a duration such as 30, \"30s\" or \"5m\"", other)),
        };
        match seconds.filter(|seconds| (0.0..=MAX_SECONDS).contains(seconds)) {
            Some(seconds) => Ok(Some(Duration::from_secs_f64(seconds))),
            None => Err(self.invalid(format!(
                "`{key}`: `{}` is not a duration: write seconds (30) or units (\"500ms\", \"30s\", \"5m\", \"1h30m\")",
                abbreviate(&given)
            ))),
        }
    }

    /// Like [`Self::duration`], as text for the daemon.
    pub(crate) fn duration_text(&self, key: &str) -> Result<Option<String>, ToolError> {
        Ok(self.duration(key)?.map(|span| format!("{}ms", span.as_millis())))
    }

    /// Accepts 65536, "64k", "1M".
    pub(crate) fn size(&self, key: &str) -> Result<Option<u64>, ToolError> {
        let size = match self.raw(key) {
            None => return Ok(None),
            Some(Value::String(text)) => parse_size(text),
            Some(value) => value.as_u64(),
        };
        let given = self.raw(key).map(ToString::to_string).unwrap_or_default();
        let message = format!("`{key}`: {} is not a size: write bytes (4096) or units (\"4k\")", abbreviate(&given));
        size.map(Some).ok_or_else(|| self.invalid(message))
    }

    /// A list of strings.
    pub(crate) fn texts(&self, key: &str) -> Result<Vec<String>, ToolError> {
        match self.raw(key) {
            None => Ok(Vec::new()),
            Some(Value::Array(items)) => {
                let text =
                    |item: &Value| item.as_str().map(str::to_owned).ok_or_else(|| self.wrong_type(key, "texts", item));
                items.iter().map(text).collect()
            }
            Some(other) => Err(self.wrong_type(key, "a list of texts", other)),
        }
    }

    /// An object with environment variables: a text sets a variable, null unsets it.
    pub(crate) fn variables(&self, key: &str) -> Result<BTreeMap<String, Option<String>>, ToolError> {
        match self.raw(key) {
            None => Ok(BTreeMap::new()),
            Some(Value::Object(variables)) => {
                let one = |(name, value): (&String, &Value)| match value {
                    Value::Null => Ok((name.clone(), None)),
                    Value::String(text) => Ok((name.clone(), Some(text.clone()))),
                    other => Err(self.wrong_type(&format!("{key}.{name}"), "a text, or null to unset it", other)),
                };
                variables.iter().map(one).collect()
            }
            Some(other) => Err(self.wrong_type(key, "an object of texts", other)),
        }
    }

    /// An object.
    pub(crate) fn object(&self, key: &str) -> Result<Option<Map<String, Value>>, ToolError> {
        match self.raw(key) {
            None => Ok(None),
            Some(Value::Object(object)) => Ok(Some(object.clone())),
            Some(other) => Err(self.wrong_type(key, "an object", other)),
        }
    }

    fn wrong_type(&self, key: &str, wanted: &str, given: &Value) -> ToolError {
        let kind = match given {
            Value::Null => "null",
            Value::Bool(_) => "true or false",
            Value::Number(_) => "a number",
            Value::String(_) => "a text",
            Value::Array(_) => "a list",
            Value::Object(_) => "an object",
        };
        self.invalid(format!("`{key}` must be {wanted}, not {kind} ({})", abbreviate(&given.to_string())))
    }
}

/// Lists the valid argument names for an error message.
fn list_names(known: &[&str]) -> String {
    match known {
        [] => "this tool takes none".to_owned(),
        names => format!("there are {}", names.join(", ")),
    }
}

/// Shortens a value for an error message.
fn abbreviate(text: &str) -> String {
    let mut shown: String = text.chars().take(60).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown.escape_debug().to_string()
}

fn parse_seconds(text: &str) -> Option<f64> {
    let mut rest = text.trim();
    if let Ok(seconds) = rest.parse::<f64>() {
        return Some(seconds).filter(|_| rest.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.'));
    }
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(digits);
        let letters = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(letters);
        let scale = match unit.trim() {
            "ms" => 1e-3,
            "s" | "sec" | "secs" => 1.0,
            "m" | "min" | "mins" => 60.0,
            "h" | "hr" | "hrs" => 3600.0,
            "d" => 86_400.0,
            _ => return None,
        };
        seconds += number.parse::<f64>().ok()? * scale;
        rest = tail;
    }
    (!text.trim().is_empty()).then_some(seconds)
}

fn parse_size(text: &str) -> Option<u64> {
    let lower = text.trim().to_ascii_lowercase();
    let digits = lower.find(|c: char| !c.is_ascii_digit()).unwrap_or(lower.len());
    let (number, unit) = lower.split_at(digits);
    let shift = match unit.trim() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const CALL: &str = r#"t {"timeout":"30s"}"#;

    fn given(value: Value) -> Result<Arguments, ToolError> {
        let values = value.as_object().expect("an object").clone();
        Arguments::new(values, &[], &["command", "timeout", "max_output", "background"], CALL)
    }

    #[test]
    fn durations_are_accepted_in_any_form() {
        let cases = [
            (json!(30), 30_000),
            (json!("30"), 30_000),
            (json!("30s"), 30_000),
            (json!("5m"), 300_000),
            (json!("1h30m"), 5_400_000),
            (json!(0), 0),
            (json!("250ms"), 250),
            (json!(1.5), 1_500),
        ];
        for (value, millis) in cases {
            let read = given(json!({ "timeout": value })).and_then(|arguments| arguments.duration("timeout"));
            assert_eq!(read, Ok(Some(Duration::from_millis(millis))), "{value}");
        }
    }

    #[test]
    fn invalid_durations_are_errors_with_an_example() {
        for value in [json!(-1), json!("-5s"), json!("soon"), json!(""), json!("1e3"), json!("inf"), json!([1])] {
            let error = given(json!({ "timeout": value })).and_then(|a| a.duration("timeout")).expect_err("refused");
            assert!(error.message.contains("30"), "{}", error.message);
            assert_eq!(error.right_call.as_deref(), Some(CALL));
        }
    }

    #[test]
    fn another_spelling_is_an_error_with_the_right_one() {
        for key in ["Command", "COMMAND", "maxOutput", "max-output"] {
            let error = given(json!({ key: 1 })).expect_err(key);
            assert!(error.message.contains("write `"), "{}", error.message);
        }
    }

    #[test]
    fn an_unknown_name_is_an_error_that_lists_the_valid_ones() {
        let error = given(json!({ "reasoning": "x", "command": "true" })).expect_err("refused");
        assert_eq!(
            error.message,
            "there is no argument `reasoning`: there are command, timeout, max_output, background"
        );
        assert_eq!(error.right_call.as_deref(), Some(CALL));
    }

    #[test]
    fn an_alias_is_translated_and_conflicts_with_our_name() {
        let arguments = given(json!({ "cmd": "true", "is_background": true, "timeout_ms": 1500 })).expect("understood");
        assert_eq!(arguments.required("command"), Ok("true".to_owned()));
        assert_eq!(arguments.flag("background"), Ok(true));
        assert_eq!(arguments.duration("timeout"), Ok(Some(Duration::from_millis(1500))));
        let error = given(json!({ "cmd": "true", "command": "false" })).expect_err("both");
        assert!(error.message.contains("`command` is given twice"), "{}", error.message);
    }

    #[test]
    fn a_large_timeout_is_milliseconds_with_a_note() {
        let arguments = given(json!({ "timeout": 120_000 })).expect("understood");
        assert_eq!(arguments.duration("timeout"), Ok(Some(Duration::from_secs(120))));
        assert_eq!(arguments.notes().len(), 1);
        let arguments = given(json!({ "timeout": 600 })).expect("understood");
        assert_eq!((arguments.duration("timeout"), arguments.notes()), (Ok(Some(Duration::from_secs(600))), &[][..]));
    }

    #[test]
    fn a_wrong_type_is_an_error_with_the_expected_type() {
        let error = given(json!({ "background": "yes" })).and_then(|a| a.flag("background")).expect_err("refused");
        assert_eq!(error.message, "`background` must be true or false, not a text (\\\"yes\\\")");
        let twice = Arguments::new(Map::new(), &["command".into()], &[], CALL).expect_err("twice");
        assert!(twice.message.contains("`command` is given twice"));
    }
}
