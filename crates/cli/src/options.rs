//! Errors of the daemon in the words of the command line: it speaks of the fields of a request, which nobody typed.

/// Fields whose names are no ordinary words, and the options that set them.
const FIELDS: [(&str, &str); 23] = [
    ("cpu_time_limit", "--cpu-time-limit"),
    ("idempotency_key", "--key"),
    ("idle_limit", "--idle-limit"),
    ("inherit_env", "--env"),
    ("max_turn_time", "--max-turn-time"),
    ("memory_limit", "--memory-limit"),
    ("notify.command", "--on-end-command"),
    ("notify.heartbeat", "--heartbeat"),
    ("notify.patterns", "--notify-pattern"),
    ("notify.webhook", "--webhook"),
    ("output_limit", "--output-limit"),
    ("owner_grace", "--owner-grace"),
    ("pids_limit", "--pids-limit"),
    ("ready.http", "--ready-http"),
    ("ready.output", "--ready-output"),
    ("ready.port", "--ready-port"),
    ("ready.status", "--ready-status"),
    ("ready.timeout", "--ready-timeout"),
    ("restart.limit", "--restart-limit"),
    ("stop_signal", "--stop-signal"),
    ("time_limit", "--time-limit"),
    ("restart.initial", "--restart-delay"),
    ("labels", "--label"),
];
/// Fields that are ordinary words too: they count in backticks, and at the beginning of a message.
const WORDS: [(&str, &str); 20] = [
    ("argv", "COMMAND"),
    ("command", "-c"),
    ("cpus", "--cpus"),
    ("cwd", "--cwd"),
    ("env", "--env"),
    ("grace", "--grace"),
    ("intent", "--intent"),
    ("label", "--label"),
    ("lifetime", "--lifetime"),
    ("name", "--name"),
    ("notify", "--notify-pattern"),
    ("owner", "--owner"),
    ("parent", "--parent"),
    ("ports", "--lease"),
    ("pty", "--pty"),
    ("restart", "--restart"),
    ("shell", "--shell"),
    ("stdin", "--stdin"),
    ("strays", "--strays"),
    ("streams", "--streams"),
];
/// Fields of `ready`, in messages about it.
const READY: [(&str, &str); 4] =
    [("http", "--ready-http"), ("output", "--ready-output"), ("peer", "--ready-peer"), ("port", "--ready-port")];

/// The message with options in place of fields. What was typed stays as it is, whatever it looks like.
pub(crate) fn in_options(message: &str, typed: &[String]) -> String {
    let about_ready = message.starts_with("ready");
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
        let quoted = text.ends_with('`') && rest[length..].starts_with('`');
        let leads = text.is_empty();
        let option = match typed.iter().any(|typed| typed == word) {
            true => None,
            false => option_for(word, quoted, leads, about_ready),
        };
        text.push_str(option.as_deref().unwrap_or(word));
        rest = &rest[word.len()..];
    }
    text
}

fn option_for(word: &str, quoted: bool, leads: bool, about_ready: bool) -> Option<String> {
    let in_table =
        |table: &[(&str, &str)]| table.iter().find(|(field, _)| *field == word).map(|(_, option)| (*option).to_owned());
    match word {
        "cwd" if leads => Some("the directory".to_owned()),
        "ready" if leads => Some("--ready-…".to_owned()),
        "environment" | "name" | "owner" | "command" if leads => None,
        _ if quoted && about_ready && in_table(&READY).is_some() => in_table(&READY),
        _ if quoted || leads => in_table(&WORDS).or_else(|| in_table(&FIELDS)).or_else(|| lease(word)),
        _ => in_table(&FIELDS),
    }
}

/// `ports.API_PORT` is what `--lease API_PORT` asked for.
fn lease(word: &str) -> Option<String> {
    word.strip_prefix("ports.").map(|name| format!("--lease {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_become_the_options_that_set_them() {
        for (message, said) in [
            ("`idempotency_key` is empty: give 1 to 128 bytes", "`--key` is empty: give 1 to 128 bytes"),
            ("`owner_grace` goes with `lifetime` `owner`", "`--owner-grace` goes with `--lifetime` `--owner`"),
            ("output_limit 5 is too small: give at least 9", "--output-limit 5 is too small: give at least 9"),
            ("cwd `/nope` cannot be entered: gone", "the directory `/nope` cannot be entered: gone"),
            ("ready is empty: give `port` or `peer`", "--ready-… is empty: give `--ready-port` or `--ready-peer`"),
            ("ready.port 0 is no port.", "--ready-port 0 is no port."),
            ("ports.API: port 7 cannot be lent", "--lease API: port 7 cannot be lent"),
            ("program `x` cannot be run: use `command`", "program `x` cannot be run: use `-c`"),
            ("`limits.owner.memory` is reached", "`limits.owner.memory` is reached"),
            ("the output of a port is no name", "the output of a port is no name"),
            ("☃ `☃`…", "☃ `☃`…"),
        ] {
            assert_eq!(in_options(message, &[]), said);
        }
    }

    #[test]
    fn what_was_typed_stays() {
        let typed = ["run", "--", "command", "x"].map(str::to_owned);
        let message = "program `command` cannot be executed: see `shell`";
        assert_eq!(in_options(message, &typed), "program `command` cannot be executed: see `--shell`");
    }
}
