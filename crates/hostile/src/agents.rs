//! The editor of agents' configuration files (`pinfold connect`): removing our entry leaves the rest as it was.

// The editor is part of the command-line program, which has no library, so its files are compiled here too.
#[allow(dead_code, unreachable_pub)]
#[path = "../../cli/src/agent_config/jsonc/mod.rs"]
mod jsonc;

use jsonc::edit::{Item, Position, insert, remove};
use jsonc::parse::{Dialect, parse};
use jsonc::value::Value;

use crate::feed::{Feed, text};

const PATH: &[&str] = &["mcpServers"];
const NAME: &str = "pinfold";

pub(crate) fn target(data: &[u8]) {
    let mut feed = Feed(data);
    let dialect = if feed.byte() & 1 == 0 { Dialect::Strict } else { Dialect::Comments };
    let text = text(feed.0);
    let Ok(root) = parse(&text, dialect) else { return };
    if dialect == Dialect::Strict {
        serde_json::from_str::<serde_json::Value>(&text).expect("what the strict parser accepts is JSON");
    }
    let entry = Value::object([("command", Value::text("pinfold")), ("args", Value::texts(&["mcp".to_owned()]))]);
    let known = root.get(PATH[0]).is_some_and(|section| section.get(NAME).is_some());
    let item = Item::Member(NAME.to_owned(), entry.clone());
    if known {
        let left = remove(&text, dialect, PATH, Position::Key(NAME)).expect("an existing entry can be removed");
        parse(&left.expect("it is there"), dialect).expect("what is left is a document");
    } else if let Ok(with) = insert(&text, dialect, PATH, item) {
        let edited = parse(&with, dialect).expect("what was edited is a document");
        let found = edited.get(PATH[0]).and_then(|section| section.get(NAME)).expect("it holds the entry");
        assert_eq!(Value::of(found, &with), entry);
        let without = remove(&with, dialect, PATH, Position::Key(NAME)).expect("removed").expect("it was there");
        let left = parse(&without, dialect).expect("what is left is a document");
        assert_eq!(
            others(Value::of(&left, &without)),
            others(Value::of(&root, &text)),
            "the removal changed something else"
        );
    }
}

/// The document without an empty section: it stays if the layout does not show whether it was there before.
fn others(document: Value) -> Value {
    match document {
        Value::Object(mut members) => {
            members.retain(|(key, value)| key != PATH[0] || *value != Value::Object(vec![]));
            Value::Object(members)
        }
        other => other,
    }
}
