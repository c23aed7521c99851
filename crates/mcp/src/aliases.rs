//! Argument names that models know from other tools (Claude Code, codex, gemini, opencode, coder, hermes), and our
//! names for them.
//!
//! Ignoring an argument is worse than an error: `rm -rf *` with an ignored `cwd` runs in the wrong directory. So a
//! known foreign name is translated, and any other unknown name is an error.

use serde_json::{Map, Value};

/// A bare number from this value on means milliseconds: no call waits ten thousand seconds, and the shell tools of
/// Claude Code and opencode take milliseconds.
const MIN_MILLIS: f64 = 10_000.0;

/// A foreign argument name and ours.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Alias {
    theirs: &'static str,
    ours: &'static str,
    /// Whether the value is in milliseconds.
    is_millis: bool,
}

const fn same(theirs: &'static str, ours: &'static str) -> Alias {
    Alias { theirs, ours, is_millis: false }
}

const fn millis(theirs: &'static str, ours: &'static str) -> Alias {
    Alias { theirs, ours, is_millis: true }
}

/// All known foreign names. An alias applies to the tools that have the argument `ours`.
const ALIASES: &[Alias] = &[
    same("cmd", "command"),
    same("script", "command"),
    same("cwd", "workdir"),
    same("dir", "workdir"),
    same("directory", "workdir"),
    same("dir_path", "workdir"),
    same("working_directory", "workdir"),
    same("working_dir", "workdir"),
    same("run_in_background", "background"),
    same("is_background", "background"),
    same("background", "run_in_background"),
    same("is_background", "run_in_background"),
    same("description", "label"),
    same("model_intent", "label"),
    same("intent", "label"),
    same("display_name", "label"),
    same("description", "model_intent"),
    same("label", "model_intent"),
    same("tty", "pty"),
    same("watch_patterns", "notify"),
    same("max_output_tokens", "max_tokens"),
    same("process_id", "id"),
    same("background_process_id", "id"),
    same("session_id", "id"),
    same("task_id", "id"),
    same("shell_id", "id"),
    same("bash_id", "id"),
    same("id", "process_id"),
    same("background_process_id", "process_id"),
    same("session_id", "process_id"),
    same("process_ids", "ids"),
    same("filter", "grep"),
    same("regex", "pattern"),
    same("data", "text"),
    same("input", "text"),
    same("chars", "text"),
    same("wait_timeout", "timeout"),
    same("timeout_secs", "timeout"),
    same("timeout_seconds", "timeout"),
    millis("timeout_ms", "timeout"),
    millis("yield_time_ms", "timeout"),
    same("timeout", "wait_timeout"),
    millis("timeout_ms", "wait_timeout"),
];

/// Our arguments that are durations.
const DURATIONS: &[&str] = &["timeout", "grace", "quiet"];

/// Returns our name for a key, and whether its value is in milliseconds. `known` lists the tool's arguments.
pub(crate) fn find(key: &str, known: &[&str]) -> Option<(&'static str, bool)> {
    let meant = ALIASES.iter().find(|alias| known.contains(&alias.ours) && same_name(alias.theirs, key));
    meant.map(|alias| (alias.ours, alias.is_millis))
}

/// Converts a value to the form that our argument takes.
pub(crate) fn translate(ours: &str, is_millis: bool, value: Value) -> Value {
    match value {
        Value::Number(number) if is_millis => Value::String(format!("{number}ms")),
        Value::String(text) if is_millis && is_number(&text) => Value::String(format!("{}ms", text.trim())),
        // hermes passes only the list of patterns.
        Value::Array(patterns) if ours == "notify" => {
            Value::Object(Map::from_iter([("patterns".to_owned(), Value::Array(patterns))]))
        }
        value => value,
    }
}

/// Converts bare numbers that are too large for seconds to milliseconds; returns a note for each.
pub(crate) fn read_large_numbers_as_millis(values: &mut Map<String, Value>) -> Vec<String> {
    let mut notes = Vec::new();
    for key in DURATIONS {
        let Some(value) = values.get_mut(*key) else { continue };
        let number = match value {
            Value::Number(number) => number.as_f64(),
            Value::String(text) if is_number(text) => text.trim().parse().ok(),
            _ => None,
        };
        if let Some(number) = number.filter(|number| *number >= MIN_MILLIS) {
            notes.push(format!(
                "`{key}` {number} was taken as milliseconds ({}s): a bare number is seconds only below 10000",
                number / 1000.0
            ));
            *value = Value::String(format!("{number}ms"));
        }
    }
    notes
}

fn is_number(text: &str) -> bool {
    let text = text.trim();
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
}

/// Whether two names are equal except for case, `_` and `-`.
pub(crate) fn same_name(one: &str, other: &str) -> bool {
    let plain = |name: &str| -> String {
        name.chars().filter(|c| !matches!(c, '_' | '-')).map(|c| c.to_ascii_lowercase()).collect()
    };
    plain(one) == plain(other)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_alias_applies_only_to_tools_that_have_the_argument() {
        assert_eq!(find("cwd", &["command", "workdir"]), Some(("workdir", false)));
        assert_eq!(find("workingDirectory", &["command", "workdir"]), Some(("workdir", false)));
        assert_eq!(find("cwd", &["id"]), None);
        assert_eq!(find("timeout_ms", &["timeout"]), Some(("timeout", true)));
        assert_eq!(find("timeout_ms", &["wait_timeout"]), Some(("wait_timeout", true)));
    }

    #[test]
    fn milliseconds_keep_their_unit() {
        assert_eq!(translate("timeout", true, json!(1500)), json!("1500ms"));
        assert_eq!(translate("timeout", true, json!("1500")), json!("1500ms"));
        assert_eq!(translate("timeout", true, json!("2s")), json!("2s"));
        assert_eq!(translate("notify", false, json!(["error"])), json!({ "patterns": ["error"] }));
    }

    #[test]
    fn bare_numbers_from_10000_on_are_milliseconds() {
        let mut values =
            json!({ "timeout": 120000, "grace": "10000", "quiet": 9999 }).as_object().cloned().expect("an object");
        let notes = read_large_numbers_as_millis(&mut values);
        assert_eq!(Value::Object(values), json!({ "timeout": "120000ms", "grace": "10000ms", "quiet": 9999 }));
        assert_eq!(notes.len(), 2);
        assert!(notes[0].contains("120000") && notes[0].contains("(120s)"), "{}", notes[0]);
        let mut values = json!({ "timeout": "12000s" }).as_object().cloned().expect("an object");
        assert_eq!(read_large_numbers_as_millis(&mut values), Vec::<String>::new());
    }
}
