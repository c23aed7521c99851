//! Arguments of a call, read one by one. Names from other tools are understood ([`crate::aliases`]); unknown names and wrong
//! values are refused with a call that would be right.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::aliases;
use crate::tool_error::ToolError;

/// No duration is longer than this.
const LONGEST: f64 = 1e9;

/// The arguments of one call.
#[derive(Clone, Debug)]
pub(crate) struct Arguments {
    values: Map<String, Value>,
    right_call: &'static str,
    /// What the result says about how the arguments were read.
    notes: Vec<String>,
}

impl Arguments {
    /// Reads the names: ours as they are, foreign ones translated. Refuses a name that is unknown or given twice.
    pub(crate) fn new(
        given: Map<String, Value>,
        doubled: &[String],
        known: &[&str],
        right_call: &'static str,
    ) -> Result<Self, ToolError> {
        let refuse = |message: String| Err(ToolError::invalid(message).show(right_call));
        if let Some(key) = doubled.first() {
            return refuse(format!("`{key}` is given twice: give it once"));
        }
        let mut values = Map::new();
        for (key, value) in given {
            let (ours, value) = match aliases::find(&key, known) {
                _ if known.contains(&key.as_str()) => (key.as_str(), value),
                Some((ours, is_millis)) => (ours, aliases::translate(ours, is_millis, value)),
                None => match known.iter().find(|name| aliases::same_name(name, &key)) {
                    Some(meant) => return refuse(format!("`{key}`: write `{meant}`")),
                    None => return refuse(format!("there is no argument `{}`: {}", shown(&key), all_of(known))),
                },
            };
            if values.insert(ours.to_owned(), value).is_some() {
                return refuse(format!("`{ours}` is given twice, once by another name: give it once"));
            }
        }
        let notes = aliases::read_large_numbers_as_millis(&mut values);
        Ok(Arguments { values, right_call, notes })
    }

    pub(crate) fn notes(&self) -> &[String] {
        &self.notes
    }

    pub(crate) fn refuse(&self, message: impl Into<String>) -> ToolError {
        ToolError::invalid(message).show(self.right_call)
    }

    /// The value as it came.
    pub(crate) fn raw(&self, key: &str) -> Option<&Value> {
        self.values.get(key).filter(|value| !value.is_null())
    }

    pub(crate) fn text(&self, key: &str) -> Result<Option<String>, ToolError> {
        match self.raw(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(other) => Err(self.wrong(key, "a text", other)),
        }
    }

    /// A text that must be there and must not be empty.
    pub(crate) fn required(&self, key: &str) -> Result<String, ToolError> {
        match self.text(key)? {
            Some(text) if !text.trim().is_empty() => Ok(text),
            Some(_) => Err(self.refuse(format!("`{key}` is empty"))),
            None => Err(self.refuse(format!("`{key}` is missing"))),
        }
    }

    pub(crate) fn flag(&self, key: &str) -> Result<bool, ToolError> {
        match self.raw(key) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(other) => Err(self.wrong(key, "true or false", other)),
        }
    }

    pub(crate) fn count(&self, key: &str) -> Result<Option<u64>, ToolError> {
        match self.raw(key) {
            None => Ok(None),
            Some(value) => match value.as_u64() {
                Some(count) => Ok(Some(count)),
                None => Err(self.wrong(key, "a whole number, 0 or more", value)),
            },
        }
    }

    /// One of these words.
    pub(crate) fn word(&self, key: &str, words: &[&str]) -> Result<Option<String>, ToolError> {
        let word = self.text(key)?;
        match &word {
            Some(text) if !words.contains(&text.as_str()) => {
                Err(self.refuse(format!("`{key}`: `{}` is none of {}", shown(text), words.join(", "))))
            }
            _ => Ok(word),
        }
    }

    /// 30, "30", "30s", "5m", "1h30m"; 0 is at once.
    pub(crate) fn duration(&self, key: &str) -> Result<Option<Duration>, ToolError> {
        let (seconds, given) = match self.raw(key) {
            None => return Ok(None),
            Some(Value::Number(number)) => (number.as_f64(), number.to_string()),
            Some(Value::String(text)) => (parse_seconds(text), text.clone()),
            Some(other) => return Err(self.wrong(key, "a duration such as 30, \"30s\" or \"5m\"", other)),
        };
        match seconds.filter(|seconds| (0.0..=LONGEST).contains(seconds)) {
            Some(seconds) => Ok(Some(Duration::from_secs_f64(seconds))),
            None => Err(self.refuse(format!(
                "`{key}`: `{}` is not a duration: write seconds (30) or units (\"500ms\", \"30s\", \"5m\", \"1h30m\")",
                shown(&given)
            ))),
        }
    }

    /// The same, checked and passed on as text.
    pub(crate) fn span(&self, key: &str) -> Result<Option<String>, ToolError> {
        Ok(self.duration(key)?.map(|span| format!("{}ms", span.as_millis())))
    }

    /// 65536, "64k", "1M".
    pub(crate) fn size(&self, key: &str) -> Result<Option<u64>, ToolError> {
        let size = match self.raw(key) {
            None => return Ok(None),
            Some(Value::String(text)) => parse_size(text),
            Some(value) => value.as_u64(),
        };
        let given = self.raw(key).map(ToString::to_string).unwrap_or_default();
        let message = format!("`{key}`: {} is not a size: write bytes (4096) or units (\"4k\")", shown(&given));
        size.map(Some).ok_or_else(|| self.refuse(message))
    }

    /// One text or a list of them.
    pub(crate) fn texts(&self, key: &str) -> Result<Vec<String>, ToolError> {
        match self.raw(key) {
            None => Ok(Vec::new()),
            Some(Value::Array(items)) => {
                let text =
                    |item: &Value| item.as_str().map(str::to_owned).ok_or_else(|| self.wrong(key, "texts", item));
                items.iter().map(text).collect()
            }
            Some(other) => Err(self.wrong(key, "a list of texts", other)),
        }
    }

    /// Variables; null unsets.
    pub(crate) fn variables(&self, key: &str) -> Result<BTreeMap<String, Option<String>>, ToolError> {
        match self.raw(key) {
            None => Ok(BTreeMap::new()),
            Some(Value::Object(variables)) => {
                let one = |(name, value): (&String, &Value)| match value {
                    Value::Null => Ok((name.clone(), None)),
                    Value::String(text) => Ok((name.clone(), Some(text.clone()))),
                    other => Err(self.wrong(&format!("{key}.{name}"), "a text, or null to unset it", other)),
                };
                variables.iter().map(one).collect()
            }
            Some(other) => Err(self.wrong(key, "an object of texts", other)),
        }
    }

    /// An object, as a value of its own.
    pub(crate) fn object(&self, key: &str) -> Result<Option<Map<String, Value>>, ToolError> {
        match self.raw(key) {
            None => Ok(None),
            Some(Value::Object(object)) => Ok(Some(object.clone())),
            Some(other) => Err(self.wrong(key, "an object", other)),
        }
    }

    fn wrong(&self, key: &str, wanted: &str, given: &Value) -> ToolError {
        let kind = match given {
            Value::Null => "null",
            Value::Bool(_) => "true or false",
            Value::Number(_) => "a number",
            Value::String(_) => "a text",
            Value::Array(_) => "a list",
            Value::Object(_) => "an object",
        };
        self.refuse(format!("`{key}` must be {wanted}, not {kind} ({})", shown(&given.to_string())))
    }
}

/// The names that there are.
fn all_of(known: &[&str]) -> String {
    match known {
        [] => "this tool takes none".to_owned(),
        names => format!("there are {}", names.join(", ")),
    }
}

/// A value short enough to repeat.
fn shown(text: &str) -> String {
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
    fn durations_are_taken_in_any_form() {
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
    fn nonsense_durations_are_refused_with_an_example() {
        for value in [json!(-1), json!("-5s"), json!("soon"), json!(""), json!("1e3"), json!("inf"), json!([1])] {
            let refusal = given(json!({ "timeout": value })).and_then(|a| a.duration("timeout")).expect_err("refused");
            assert!(refusal.message.contains("30"), "{}", refusal.message);
            assert_eq!(refusal.right_call.as_deref(), Some(CALL));
        }
    }

    #[test]
    fn another_spelling_is_pointed_out() {
        for key in ["Command", "COMMAND", "maxOutput", "max-output"] {
            let refusal = given(json!({ key: 1 })).expect_err(key);
            assert!(refusal.message.contains("write `"), "{}", refusal.message);
        }
    }

    #[test]
    fn an_unknown_name_is_refused_with_those_that_there_are() {
        let refusal = given(json!({ "reasoning": "x", "command": "true" })).expect_err("refused");
        assert_eq!(
            refusal.message,
            "there is no argument `reasoning`: there are command, timeout, max_output, background"
        );
        assert_eq!(refusal.right_call.as_deref(), Some(CALL));
    }

    #[test]
    fn a_name_from_another_tool_is_understood_and_never_silently_wins_over_ours() {
        let arguments = given(json!({ "cmd": "true", "is_background": true, "timeout_ms": 1500 })).expect("understood");
        assert_eq!(arguments.required("command"), Ok("true".to_owned()));
        assert_eq!(arguments.flag("background"), Ok(true));
        assert_eq!(arguments.duration("timeout"), Ok(Some(Duration::from_millis(1500))));
        let refusal = given(json!({ "cmd": "true", "command": "false" })).expect_err("both");
        assert!(refusal.message.contains("`command` is given twice"), "{}", refusal.message);
    }

    #[test]
    fn a_timeout_too_large_for_seconds_is_milliseconds_and_the_result_says_so() {
        let arguments = given(json!({ "timeout": 120_000 })).expect("understood");
        assert_eq!(arguments.duration("timeout"), Ok(Some(Duration::from_secs(120))));
        assert_eq!(arguments.notes().len(), 1);
        let arguments = given(json!({ "timeout": 600 })).expect("understood");
        assert_eq!((arguments.duration("timeout"), arguments.notes()), (Ok(Some(Duration::from_secs(600))), &[][..]));
    }

    #[test]
    fn a_wrong_type_says_what_is_wanted() {
        let refusal = given(json!({ "background": "yes" })).and_then(|a| a.flag("background")).expect_err("refused");
        assert_eq!(refusal.message, "`background` must be true or false, not a text (\\\"yes\\\")");
        let twice = Arguments::new(Map::new(), &["command".into()], &[], CALL).expect_err("twice");
        assert!(twice.message.contains("`command` is given twice"));
    }
}
