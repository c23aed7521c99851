//! The hooks that remind or wake an agent: entries that run `pinfold hook …`, put in and taken out.
//!
//! Works on text alone, like [`super::server`]. Ours is what runs pinfold's hook; all other hooks stay as they are.

use super::entry::{CALL_MOST_S, Entry};
use super::jsonc::edit::{Item, Which, create, insert, remove, replace};
use super::jsonc::parse::{Dialect, Kind, Node, parse};
use super::jsonc::value::Value;
use super::{Agent, Change, Refusal};

/// How long an agent may wait for a reminder, in seconds. It takes milliseconds, or the daemon is in trouble.
const DRAIN_MOST_S: u64 = 10;
/// The section of both agents that have hooks.
const SECTION: &str = "hooks";

/// One hook of ours.
#[derive(Clone, Debug)]
struct Hook {
    event: &'static str,
    command: String,
    value: Value,
}

/// The text with our hooks in it. `name` is that of our server: its tool is what starts processes.
pub(crate) fn connect(text: &str, agent: Agent, name: &str, entry: &Entry) -> Result<(String, Change), Refusal> {
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

/// The text without our hooks; `None` if nothing else was ever in it.
pub(crate) fn disconnect(text: &str, agent: Agent) -> Result<(Option<String>, Change), Refusal> {
    let (mut text, mut change) = (text.to_owned(), Change::Absent);
    // In the reverse order, so that each comes out of the text that it was put into.
    for event in events(agent).iter().rev() {
        while let Some((index, _)) = find(&text, agent, event)? {
            change = Change::Removed;
            let path = [SECTION, event];
            let root = parse(&text, Dialect::Strict)?;
            let element = root.get(SECTION).and_then(|hooks| hooks.get(event)).and_then(|list| item(list, index));
            if element.is_some_and(|element| create(&path, Item::Element(Value::of(element, &text))) == text) {
                return Ok((None, change));
            }
            let Some(left) = remove(&text, Dialect::Strict, &path, Which::Index(index))? else { break };
            text = left;
        }
    }
    Ok((Some(text), change))
}

/// What would be written into an empty file.
pub(crate) fn snippet(agent: Agent, name: &str, entry: &Entry) -> Result<String, Refusal> {
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
        run.push(("timeout", number(if wakes { CALL_MOST_S } else { DRAIN_MOST_S })));
        group.push(("hooks", Value::List(vec![Value::object(run)])));
        Hook { event, command, value: Value::object(group) }
    };
    events(agent).iter().map(hook).collect()
}

/// The shell command of a hook: the server's own, with other last words.
fn command_line(agent: Agent, entry: &Entry, verb: &str) -> String {
    let words = entry.words();
    let front = words.iter().take(words.len() - 1).map(|word| quoted(word));
    let variables = entry.env.iter().map(|(name, value)| format!("{name}={}", quoted(value)));
    let last = ["hook", agent.word(), verb].map(str::to_owned);
    variables.chain(front).chain(last).collect::<Vec<_>>().join(" ")
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-=:@%+,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

fn put(text: String, agent: Agent, hook: Hook) -> Result<(String, Change), Refusal> {
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

/// The place of our hook among those of an event, and of its command.
fn find(text: &str, agent: Agent, event: &str) -> Result<Option<(usize, Node)>, Refusal> {
    if text.trim().is_empty() {
        return Ok(None);
    }
    let root = parse(text, Dialect::Strict)?;
    let Some(Kind::Array(groups)) = root.get(SECTION).and_then(|hooks| hooks.get(event)).map(|list| &list.kind) else {
        return Ok(None);
    };
    let command = |group: &Node| match group.get("hooks").map(|hooks| &hooks.kind) {
        // With others beside it, the group is not ours to take out.
        Some(Kind::Array(hooks)) if hooks.len() == 1 => hooks[0].get("command").cloned(),
        _ => None,
    };
    let found = groups.iter().enumerate().filter_map(|(index, group)| Some((index, command(group)?)));
    Ok(found.into_iter().find(|(_, command)| command.text().is_some_and(|line| is_ours(line, agent))))
}

fn is_ours(line: &str, agent: Agent) -> bool {
    let ends = ["drain", "wake"].iter().any(|verb| line.ends_with(&format!(" hook {} {verb}", agent.word())));
    ends && line.split(' ').any(|word| word.trim_matches('\'').ends_with("pinfold"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(command: &str) -> Entry {
        Entry { command: command.into(), args: ["--home", "/x y", "mcp"].map(String::from).into(), env: [].into() }
    }

    #[test]
    fn hooks_come_and_go_and_leave_the_same_bytes() {
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
    fn the_command_runs_the_same_pinfold_and_wakes_only_for_our_tool() {
        let text = snippet(Agent::Claude, "pen", &entry("/opt/my tools/pinfold")).expect("created");
        assert!(text.contains("\"'/opt/my tools/pinfold' --home '/x y' hook claude drain\""), "{text}");
        assert!(
            text.contains("\"matcher\": \"mcp__pen__execute\"") && text.contains("\"asyncRewake\": true"),
            "{text}"
        );
        assert_eq!(text.matches("hook claude drain").count(), 3);
    }

    #[test]
    fn a_moved_pinfold_is_followed() {
        let old = snippet(Agent::Claude, "pinfold", &entry("/old/pinfold")).expect("created");
        let (new, change) = connect(&old, Agent::Claude, "pinfold", &entry("/new/pinfold")).expect("connected");
        assert_eq!((new, change), (old.replace("/old/", "/new/"), Change::Updated));
    }
}
