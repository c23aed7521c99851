//! Rewrites errors of the daemon for the command line: they name request fields, the user typed options.
//!
//! A field becomes the option of the same name, if the command has one; [`OTHERS`] lists fields whose option has another name.

/// (field, option) where the two names differ.
const OTHERS: [(&str, &str); 11] = [
    ("created_after", "since"),
    ("created_before", "since"),
    ("idempotency_key", "key"),
    ("keys", "key"),
    ("labels", "label"),
    ("notify.command", "on-end-command"),
    ("notify.heartbeat", "heartbeat"),
    ("notify.patterns", "notify-pattern"),
    ("notify.webhook", "webhook"),
    ("ports", "lease"),
    ("settings", "setting"),
];

/// The command line of this call.
#[derive(Clone, Debug, Default)]
pub(crate) struct CommandLine {
    /// The words as typed: a word of the message that the user typed is never rewritten.
    pub(crate) words: Vec<String>,
    /// The long options of the command, without the leading hyphens.
    pub(crate) options: Vec<String>,
}

/// The message with options instead of fields.
pub(crate) fn in_options(message: &str, line: &CommandLine) -> String {
    let mut text = String::with_capacity(message.len());
    let mut rest = message;
    while !rest.is_empty() {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
        let length = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        if length == 0 {
            let c = rest.chars().next().map_or(1, char::len_utf8);
            text.push_str(&rest[..c]);
            rest = &rest[c..];
            continue;
        }
        let word = match rest[..length].trim_end_matches('.') {
            "" => &rest[..length],
            word => word,
        };
        let place = match text.ends_with('`') && rest[length..].starts_with('`') {
            true => Place::Quoted { about_ready: message.starts_with("ready") },
            false if text.is_empty() => Place::First,
            false => Place::Within,
        };
        text.push_str(&line.option_for(word, place).unwrap_or_else(|| word.to_owned()));
        rest = &rest[word.len()..];
    }
    text
}

/// Where a word is in the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    First,
    /// In backticks. Messages about readiness name its fields without the prefix `ready.`.
    Quoted {
        about_ready: bool,
    },
    Within,
}

impl CommandLine {
    fn has(&self, option: &str) -> bool {
        self.options.iter().any(|known| known == option)
    }

    fn option_for(&self, word: &str, place: Place) -> Option<String> {
        if self.words.iter().any(|typed| typed == word) {
            return None;
        }
        // In the middle of a sentence only words with `_` or `.` are fields: `output` may be an ordinary word.
        let is_fields_name = word.contains(['_', '.']);
        if place == Place::Within && !is_fields_name {
            return None;
        }
        let runs = self.has("restart-limit");
        match (word, place) {
            ("cwd", Place::First) => return Some("the directory".to_owned()),
            ("ready", Place::First) if runs => return Some("--ready-…".to_owned()),
            ("owner", Place::First) => return None,
            ("command", Place::Quoted { .. }) if runs => return Some("-c".to_owned()),
            ("argv", Place::Quoted { .. }) if runs => return Some("COMMAND".to_owned()),
            _ => {}
        }
        if let Some(variable) = word.strip_prefix("ports.").filter(|_| runs) {
            return Some(format!("--lease {variable}"));
        }
        let other = OTHERS.iter().find(|(field, _)| *field == word).map(|(_, option)| (*option).to_owned());
        let ready = matches!(place, Place::Quoted { about_ready: true }).then(|| format!("ready-{word}"));
        let plain = word.replace(['_', '.'], "-");
        let named = [ready, other, Some(plain)].into_iter().flatten().find(|option| self.has(option));
        named.map(|option| format!("--{option}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::command_line;

    fn line(text: &str) -> CommandLine {
        command_line(text.split(' ').map(Into::into).collect())
    }

    #[test]
    fn fields_become_the_options_that_set_them() {
        for (typed, message, said) in [
            ("run true", "`idempotency_key` is empty: give 1 byte", "`--key` is empty: give 1 byte"),
            ("run true", "`owner_grace` needs a `lifetime`", "`--owner-grace` needs a `--lifetime`"),
            ("run true", "output_limit 5 is too small.", "--output-limit 5 is too small."),
            ("run true", "cwd `/nope` cannot be entered", "the directory `/nope` cannot be entered"),
            ("run true", "ready is empty: give `port`", "--ready-… is empty: give `--ready-port`"),
            ("run true", "ready.port 0 is not a port", "--ready-port 0 is not a port"),
            ("run true", "ports.API: port 7 cannot be leased", "--lease API: port 7 cannot be leased"),
            ("run x y", "program `x` cannot be run: use `command`", "program `x` cannot be run: use `-c`"),
            ("run true", "`limits.owner.memory` is reached", "`limits.owner.memory` is reached"),
            ("run true", "the output of a port is not a name", "the output of a port is not a name"),
            ("run true", "owner `bob` has 2", "owner `bob` has 2"),
            ("--json agent run codex", "`idempotency_key` must have 1 byte", "`--key` must have 1 byte"),
            ("wait a", "until=match needs a `pattern`", "--until=match needs a `--pattern`"),
            ("ps", "status `dancing`: use live", "--status `dancing`: use live"),
            ("show a", "no process `name`", "no process `name`"),
            ("", "☃ `☃`…", "☃ `☃`…"),
        ] {
            assert_eq!(in_options(message, &line(typed)), said, "{typed}");
        }
    }

    #[test]
    fn what_was_typed_stays() {
        let message = "program `command` cannot be executed: see `shell`";
        assert_eq!(in_options(message, &line("run -- command x")), message.replace("`shell`", "`--shell`"));
    }
}
