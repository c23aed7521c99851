//! Adds and removes the hooks that run `pinfold hook …`.
//!
//! From text to text, like [`super::server`]. A hook is ours if it runs `pinfold hook`; all other hooks stay unchanged.

use super::entry::{Entry, MAX_CALL_S};
use super::jsonc::edit::{Item, Position, create, insert, remove, replace};
use super::jsonc::parse::{Dialect, Kind, Node, parse};
use super::jsonc::value::Value;
use super::{Agent, Change, ConfigError};

/// Timeout of the `drain` hook in seconds. It normally takes milliseconds.
const MAX_DRAIN_S: u64 = 10;
/// The object that holds the hooks, in both agents.
const SECTION: &str = "hooks";

/// One hook of ours.
#[derive(Clone, Debug)]
struct Hook {
    event: &'static str,
    command: String,
    value: Value,
}

/// Adds or updates our hooks. `name` is that of our MCP server: the wake hook runs after its tool.
pub(crate) fn connect(text: &str, agent: Agent, name: &str, entry: &Entry) -> Result<(String, Change), ConfigError> {
    let (mut text, mut changes) = (text.to_owned(), Vec::new());
    for hook in hooks(agent, name, entry) {
        let (after, change) = put(text, agent, hook)?;
        text = after;
        changes.push(change);
    }
    let is = |change: Change| changes.contains(&change);
    let change = match (is(Change::Added), is(Change::Updated)) {
        (true, _) => Change::Added,
        (false, true) => Change::Updated,
        (false, false) => Change::Unchanged,
    };
    Ok((text, change))
}

/// Removes our hooks; `None` if the file contains nothing else.
pub(crate) fn disconnect(text: &str, agent: Agent) -> Result<(Option<String>, Change), ConfigError> {
    let (mut text, mut change) = (text.to_owned(), Change::Absent);
    // In reverse order, so that each step restores the text before the corresponding insertion.
    for event in events(agent).iter().rev() {
        while let Some((index, _)) = find(&text, agent, event)? {
            change = Change::Removed;
            let path = [SECTION, event];
            let root = parse(&text, Dialect::Strict)?;
            let element = root.get(SECTION).and_then(|hooks| hooks.get(event)).and_then(|list| item(list, index));
            if element.is_some_and(|element| create(&path, Item::Element(Value::of(element, &text))) == text) {
                return Ok((None, change));
            }
            let Some(left) = remove(&text, Dialect::Strict, &path, Position::Index(index))? else { break };
            text = left;
        }
    }
    Ok((Some(text), change))
}

/// What `connect` writes to an empty file.
pub(crate) fn snippet(agent: Agent, name: &str, entry: &Entry) -> Result<String, ConfigError> {
    connect("", agent, name, entry).map(|(text, _)| text)
}

fn events(agent: Agent) -> &'static [&'static str] {
    match agent {
        Agent::Claude => &["SessionStart", "UserPromptSubmit", "Stop", "PostToolUse"],
        Agent::Codex => &["SessionStart", "UserPromptSubmit", "Stop"],
        Agent::Gemini | Agent::Opencode | Agent::Cursor | Agent::Vscode => &[],
    }
}

fn hooks(agent: Agent, name: &str, entry: &Entry) -> Vec<Hook> {
    let number = |number: u64| Value::Bare(number.to_string());
    let hook = |event: &&'static str| {
        let wakes = *event == "PostToolUse";
        let command = command_line(agent, entry, if wakes { "wake" } else { "drain" });
        let mut run = vec![("type", Value::text("command")), ("command", Value::text(&command))];
        let mut group = Vec::new();
        if wakes {
            group.push(("matcher", Value::text(format!("mcp__{name}__execute"))));
            run.push(("asyncRewake", Value::Bare("true".into())));
        }
        run.push(("timeout", number(if wakes { MAX_CALL_S } else { MAX_DRAIN_S })));
        group.push(("hooks", Value::List(vec![Value::object(run)])));
        Hook { event, command, value: Value::object(group) }
    };
    events(agent).iter().map(hook).collect()
}

/// The shell command of a hook: that of the server with `hook …` instead of `mcp`.
fn command_line(agent: Agent, entry: &Entry, verb: &str) -> String {
    let words = entry.words();
    let front = words.iter().take(words.len() - 1).map(|word| quoted(word));
    let variables = entry.env.iter().map(|(name, value)| format!("{name}={}", quoted(value)));
    let last = ["hook", agent.name(), verb].map(str::to_owned);
    variables.chain(front).chain(last).collect::<Vec<_>>().join(" ")
}

/// Quotes a word for the shell.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-=:@%+,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

fn put(text: String, agent: Agent, hook: Hook) -> Result<(String, Change), ConfigError> {
    let path = [SECTION, hook.event];
    if text.trim().is_empty() {
        return Ok((create(&path, Item::Element(hook.value)), Change::Added));
    }
    match find(&text, agent, hook.event)? {
        None => Ok((insert(&text, Dialect::Strict, &path, Item::Element(hook.value))?, Change::Added)),
        Some((_, command)) if command.text() == Some(&hook.command) => Ok((text, Change::Unchanged)),
        Some((_, command)) => Ok((replace(&text, command.span, &Value::Text(hook.command)), Change::Updated)),
    }
}

fn item(list: &Node, index: usize) -> Option<&Node> {
    match &list.kind {
        Kind::Array(items) => items.get(index),
        _ => None,
    }
}

/// The index of our hook among those of an event, and its command.
fn find(text: &str, agent: Agent, event: &str) -> Result<Option<(usize, Node)>, ConfigError> {
    if text.trim().is_empty() {
        return Ok(None);
    }
    let root = parse(text, Dialect::Strict)?;
    let Some(Kind::Array(groups)) = root.get(SECTION).and_then(|hooks| hooks.get(event)).map(|list| &list.kind) else {
        return Ok(None);
    };
    let command = |group: &Node| match group.get("hooks").map(|hooks| &hooks.kind) {
        // A group with other hooks is not ours.
        Some(Kind::Array(hooks)) if hooks.len() == 1 => hooks[0].get("command").cloned(),
        _ => None,
    };
    let found = groups.iter().enumerate().filter_map(|(index, group)| Some((index, command(group)?)));
    Ok(found.into_iter().find(|(_, command)| command.text().is_some_and(|line| is_ours(line, agent))))
}

fn is_ours(line: &str, agent: Agent) -> bool {
    let ends = ["drain", "wake"].iter().any(|verb| line.ends_with(&format!(" hook {} {verb}", agent.name())));
    ends && line.split(' ').any(|word| word.trim_matches('\'').ends_with("pinfold"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(command: &str) -> Entry {
        Entry { command: command.into(), args: ["--home", "/x y", "mcp"].map(String::from).into(), env: [].into() }
    }

    #[test]
    fn adding_and_removing_hooks_restores_the_same_bytes() {
        let theirs = "{\n  \"model\": \"x\",\n  \"hooks\": {\n    \"Stop\": [\n      {\n        \"hooks\": [\n          {\n            \
                      \"type\": \"command\",\n            \"command\": \"say done\"\n          }\n        ]\n      }\n    ]\n  }\n}\n";
        for agent in [Agent::Claude, Agent::Codex] {
            for text in ["{}", "{\n\t\"model\": \"x\"\n}\n", "{\"hooks\": {\"Stop\": []}}", theirs] {
                let (once, change) = connect(text, agent, "pinfold", &entry("/opt/pinfold")).expect("connected");
                assert_eq!(change, Change::Added);
                let again = connect(&once, agent, "pinfold", &entry("/opt/pinfold")).expect("connected");
                assert_eq!(again, (once.clone(), Change::Unchanged));
                let left = disconnect(&once, agent).expect("disconnected");
                assert_eq!(left, (Some(text.to_owned()), Change::Removed), "{agent:?}, by way of\n{once}");
            }
            let created = snippet(agent, "pinfold", &entry("/opt/pinfold")).expect("created");
            assert_eq!(disconnect(&created, agent), Ok((None, Change::Removed)));
            assert_eq!(disconnect(theirs, agent), Ok((Some(theirs.to_owned()), Change::Absent)));
        }
    }

    #[test]
    fn hooks_run_the_same_pinfold_and_wake_only_after_our_tool() {
        let text = snippet(Agent::Claude, "pen", &entry("/opt/my tools/pinfold")).expect("created");
        assert!(text.contains("\"'/opt/my tools/pinfold' --home '/x y' hook claude drain\""), "{text}");
        assert!(
            text.contains("\"matcher\": \"mcp__pen__execute\"") && text.contains("\"asyncRewake\": true"),
            "{text}"
        );
        assert_eq!(text.matches("hook claude drain").count(), 3);
    }

    #[test]
    fn a_changed_path_is_updated() {
        let old = snippet(Agent::Claude, "pinfold", &entry("/old/pinfold")).expect("created");
        let (new, change) = connect(&old, Agent::Claude, "pinfold", &entry("/new/pinfold")).expect("connected");
        assert_eq!((new, change), (old.replace("/old/", "/new/"), Change::Updated));
    }
}
