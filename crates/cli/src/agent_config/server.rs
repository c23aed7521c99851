//! Adds, updates and removes our entry among the MCP servers of an agent.
//!
//! From text to text. An entry with our name that runs something else belongs to the user and is never changed.

use super::entry::{Entry, dialect, is_ours, section, words_of};
use super::jsonc::edit::{Item, Position, create, insert, remove, replace};
use super::jsonc::parse::{Node, line_of, parse};
use super::jsonc::value::Value;
use super::{Agent, Change, ConfigError, toml};

/// Adds or updates our entry.
pub(crate) fn connect(text: &str, agent: Agent, name: &str, entry: &Entry) -> Result<(String, Change), ConfigError> {
    if agent == Agent::Codex {
        return toml::connect(text, name, entry);
    }
    let path = [section(agent)];
    let item = || Item::Member(name.to_owned(), entry.value(agent));
    if text.trim().is_empty() {
        return Ok((create(&path, item()), Change::Added));
    }
    let root = parse(text, dialect(agent))?;
    let Some(found) = root.get(path[0]).and_then(|servers| servers.get(name)) else {
        return Ok((insert(text, dialect(agent), &path, item())?, Change::Added));
    };
    check_ours(text, found, name)?;
    let updated = update(text.to_owned(), agent, name, entry)?;
    let change = if updated == text { Change::Unchanged } else { Change::Updated };
    Ok((updated, change))
}

/// Removes our entry; `None` if `connect` created the file and nothing else is in it.
pub(crate) fn disconnect(text: &str, agent: Agent, name: &str) -> Result<(Option<String>, Change), ConfigError> {
    if agent == Agent::Codex {
        return toml::disconnect(text, name);
    }
    if text.trim().is_empty() {
        return Ok((Some(text.to_owned()), Change::Absent));
    }
    let path = [section(agent)];
    let root = parse(text, dialect(agent))?;
    let Some(found) = root.get(path[0]).and_then(|servers| servers.get(name)) else {
        return Ok((Some(text.to_owned()), Change::Absent));
    };
    check_ours(text, found, name)?;
    if create(&path, Item::Member(name.to_owned(), Value::of(found, text))) == text {
        return Ok((None, Change::Removed));
    }
    let left = remove(text, dialect(agent), &path, Position::Key(name))?;
    Ok((left.or_else(|| Some(text.to_owned())), Change::Removed))
}

/// What `connect` writes to an empty file.
pub(crate) fn snippet(agent: Agent, name: &str, entry: &Entry) -> Result<String, ConfigError> {
    connect("", agent, name, entry).map(|(text, _)| text)
}

/// Updates the keys that define the command; all others stay unchanged.
fn update(mut text: String, agent: Agent, name: &str, entry: &Entry) -> Result<String, ConfigError> {
    let section = section(agent);
    for (key, value) in entry.members(agent) {
        let root = parse(&text, dialect(agent))?;
        let found = root.get(section).and_then(|servers| servers.get(name)).and_then(|entry| entry.get(key));
        text = match found {
            Some(found) if Value::of(found, &text) == value => text,
            Some(found) => replace(&text, found.span.clone(), &value),
            None => insert(&text, dialect(agent), &[section, name], Item::Member(key.to_owned(), value))?,
        };
    }
    Ok(text)
}

fn check_ours(text: &str, found: &Node, name: &str) -> Result<(), ConfigError> {
    if words_of(found).is_some_and(|words| is_ours(&words)) {
        return Ok(());
    }
    Err(ConfigError { line: Some(line_of(text, found.span.start)), what: not_ours(name) })
}

/// The error for an entry with our name that runs something else.
pub(super) fn not_ours(name: &str) -> String {
    format!("there is already a server `{name}` that does not run `pinfold mcp`: choose another name with --name")
}

#[cfg(test)]
mod tests {
    use super::*;

    const JSON: &[Agent] = &[Agent::Claude, Agent::Gemini, Agent::Opencode, Agent::Cursor, Agent::Vscode];

    fn entry(command: &str) -> Entry {
        Entry { command: command.into(), args: vec!["mcp".into()], env: [].into() }
    }

    #[test]
    fn connecting_twice_changes_nothing_and_disconnecting_restores_the_file() {
        for agent in JSON {
            for text in
                ["{}\n", "{\n    \"theme\": \"dark\"\n}", "{\"mcpServers\": {\"a\": {}}, \"servers\": {}, \"mcp\": {}}"]
            {
                let (once, change) = connect(text, *agent, "pinfold", &entry("/opt/pinfold")).expect("connected");
                assert_eq!(change, Change::Added);
                let twice = connect(&once, *agent, "pinfold", &entry("/opt/pinfold")).expect("connected");
                assert_eq!(twice, (once.clone(), Change::Unchanged));
                let (left, change) = disconnect(&once, *agent, "pinfold").expect("disconnected");
                assert_eq!(change, Change::Removed);
                // A file with nothing but our entry is removed.
                let expected = (text != "{}\n").then_some(text);
                assert_eq!(left.as_deref(), expected, "{agent:?}");
            }
        }
    }

    #[test]
    fn an_update_keeps_what_the_user_added() {
        let (text, _) = connect("", Agent::Gemini, "pinfold", &entry("/old/pinfold")).expect("connected");
        let edited = text.replace("43200000", "1000, \"trust\": true");
        let (updated, change) = connect(&edited, Agent::Gemini, "pinfold", &entry("/new/pinfold")).expect("connected");
        assert_eq!((updated, change), (edited.replace("/old/", "/new/"), Change::Updated));
        let mut moved = entry("/old/pinfold");
        moved.env.insert("XDG_STATE_HOME".into(), "/s".into());
        let (updated, _) = connect(&edited, Agent::Gemini, "pinfold", &moved).expect("connected");
        assert!(updated.contains("\"trust\": true") && updated.contains("\"XDG_STATE_HOME\": \"/s\""), "{updated}");
        let (left, _) = disconnect(&edited, Agent::Gemini, "pinfold").expect("disconnected");
        assert_eq!(left.as_deref(), Some("{\n  \"mcpServers\": {}\n}\n"), "edited, and still ours");
    }

    #[test]
    fn entries_of_the_user_are_not_changed() {
        let text = "{\n  \"mcpServers\": {\n    \"pinfold\": {\"command\": \"npx\", \"args\": [\"pinfold\"]}\n  }\n}";
        for refused in [
            connect(text, Agent::Cursor, "pinfold", &entry("/opt/pinfold")).expect_err("refused"),
            disconnect(text, Agent::Cursor, "pinfold").map(|_| ()).expect_err("refused"),
        ] {
            assert!(refused.line == Some(3) && refused.what.contains("--name"), "{refused:?}");
        }
        assert!(connect(text, Agent::Cursor, "pen", &entry("/opt/pinfold")).is_ok());
        assert_eq!(disconnect(text, Agent::Cursor, "pen").expect("nothing").1, Change::Absent);
    }

    #[test]
    fn broken_configuration_is_refused_with_its_line() {
        for agent in JSON {
            let refused = connect("{\n  \"a\": 1\n  \"b\": 2\n}", *agent, "pinfold", &entry("/opt/pinfold"));
            assert_eq!(refused.expect_err("refused").line, Some(3), "{agent:?}");
        }
        let comment = connect("{\n  // c\n}", Agent::Claude, "pinfold", &entry("/opt/pinfold"));
        assert_eq!(comment.expect_err("Claude Code reads no comments").line, Some(2));
    }
}
