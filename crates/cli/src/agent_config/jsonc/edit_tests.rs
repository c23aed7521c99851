//! Insertion and removal, over the layouts that people and programs write.

use super::edit::{Item, Position, create, insert, remove, replace};
use super::parse::{Dialect, SyntaxError, parse};
use super::value::Value;

const PATH: &[&str] = &["servers"];

fn server() -> Item {
    let members = [("command", Value::text("/bin/x")), ("args", Value::texts(&["mcp".to_owned()]))];
    Item::Member("ours".to_owned(), Value::object(members))
}

fn put(text: &str) -> String {
    insert(text, Dialect::Comments, PATH, server()).unwrap_or_else(|error| panic!("{text}: {error:?}"))
}

fn taken(text: &str) -> String {
    remove(text, Dialect::Comments, PATH, Position::Key("ours")).expect("a document").expect("it is there")
}

/// Layouts that must be restored byte for byte.
const TEXTS: &[&str] = &[
    "{}",
    "{}\n",
    "{ }",
    "{\"a\":1,\"b\":[1,2]}",
    "{ \"a\": 1 }\n",
    "{\n  \"a\": 1\n}\n",
    "{\n\t\"a\": {\n\t\t\"b\": 1\n\t}\n}",
    "{\r\n    \"a\": 1\r\n}\r\n",
    "{\n  \"a\": 1 // one\n}\n",
    "{\n  \"a\": 1, // one, with a comma\n}\n",
    "{\n  // nothing but a comment\n}\n",
    "// before\n{\n  \"a\": 1\n  /* and\n     after */\n}\n// last\n",
    "{\"servers\": {}}",
    "{\n  \"servers\": {}\n}\n",
    "{\n  \"servers\": {\n    // none yet\n  }\n}\n",
    "{\n  \"servers\": {\n    \"other\": {\n      \"command\": \"y\"\n    }\n  },\n  \"z\": true\n}\n",
    "{\n  \"servers\": {\n    \"other\": {}, // theirs\n    // \"off\": {},\n  },\n}\n",
    "{\n  \"servers\": { \"other\": {} }\n}",
    "{ \"servers\": { \"other\": {}, } }",
    "{\n  \"servers\": { \"other\": {\n    } }\n}",
    "{\n  \"servers\":\n  {\n    \"other\": {}\n  }\n}\n",
    "{\n  \"é\": \"\\u00e9 // no comment\",\n  \"servers\": {\"other\": \"/* neither */\"}\n}\n",
];

#[test]
fn inserting_and_removing_restores_the_same_bytes() {
    for text in TEXTS {
        let added = put(text);
        let root = parse(&added, Dialect::Comments).unwrap_or_else(|error| panic!("{text}\n{added}\n{error:?}"));
        let entry = root.get("servers").and_then(|servers| servers.get("ours")).expect("it is there");
        assert_eq!(entry.get("args").and_then(|args| args.texts()), Some(vec!["mcp"]));
        assert_eq!(&taken(&added), text, "by way of\n{added}");
    }
}

#[test]
fn nothing_else_changes() {
    for text in TEXTS {
        let added = put(text);
        // Every character of the text is in the result, in the same order.
        let mut left = text.chars().filter(|c| !c.is_whitespace()).peekable();
        added.chars().for_each(|c| {
            left.next_if_eq(&c);
        });
        assert_eq!(left.next(), None, "{text}\n{added}");
    }
}

#[test]
fn what_is_added_follows_the_layout() {
    assert_eq!(
        put("{\n\t\"a\": 1 // one\n}\n"),
        "{\n\t\"a\": 1, // one\n\t\"servers\": {\n\t\t\"ours\": {\n\t\t\t\"command\": \"/bin/x\",\n\t\t\t\"args\": [\"mcp\"]\n\t\t}\n\t}\n}\n"
    );
    assert_eq!(put("{\"a\":1}"), "{\"a\":1,\"servers\":{\"ours\":{\"command\":\"/bin/x\",\"args\":[\"mcp\"]}}}");
    assert!(put("{\r\n  \"a\": 1\r\n}").replace("\r\n", "").lines().count() == 1, "line ends are of one kind");
    assert_eq!(put("{}\n"), create(PATH, server()));
}

#[test]
fn an_entry_between_others_goes_alone() {
    let text = "{\n  \"servers\": {\n    \"a\": 1, // first\n    \"ours\": {\"x\": 1}, // note\n    \"b\": 2\n  }\n}\n";
    assert_eq!(taken(text), "{\n  \"servers\": {\n    \"a\": 1, // first\n    // note\n    \"b\": 2\n  }\n}\n");
    // A comment's line never swallows what came after it.
    let text = "{\"servers\": { // first\n  \"ours\": 1, \"b\": 2 }}";
    assert_eq!(taken(text), "{\"servers\": { // first\n  \"b\": 2 }}");
    let text = "{\"servers\": { // first\n  \"ours\": 1 }}";
    assert!(parse(&taken(text), Dialect::Comments).is_ok());
    // Reformatted by the client since: that we created the section is no longer known, so it stays, empty.
    let text = "{\n    \"servers\": {\n        \"ours\": {\n            \"args\": [\n                \"mcp\"\n            ]\n        }\n    }\n}";
    assert_eq!(taken(text), "{\n    \"servers\": {}\n}");
}

#[test]
fn elements_of_lists_go_the_same_way() {
    let element = || Item::Element(Value::object([("run", Value::text("x"))]));
    for text in
        ["{}", "{\n  \"on\": {\n    \"stop\": [\n      {}\n    ]\n  }\n}\n", "{\"on\": {\"stop\": []}}", "{\"on\": {}}"]
    {
        let added = insert(text, Dialect::Strict, &["on", "stop"], element()).expect("added");
        let last = if text.contains("{}\n") { 1 } else { 0 };
        let gone = remove(&added, Dialect::Strict, &["on", "stop"], Position::Index(last)).expect("a document");
        assert_eq!(gone.as_deref(), Some(text), "by way of {added}");
    }
    assert_eq!(remove("{}", Dialect::Strict, &["on", "stop"], Position::Index(0)), Ok(None));
}

#[test]
fn what_is_in_the_way_is_named() {
    let refused = |text: &str| insert(text, Dialect::Comments, PATH, server()).expect_err(text);
    assert_eq!(refused("{\n  \"servers\": []\n}"), SyntaxError { line: 2, what: "`servers` is not an object".into() });
    assert_eq!(refused("\n[]").what, "the document is not an object");
    assert_eq!(refused("{\n  \"servers\": {\n").line, 3);
}

#[test]
fn a_value_is_replaced_in_its_place() {
    let text = "{\n  \"a\": \"old\", // why\n  \"b\": [\n    1\n  ]\n}\n";
    let span = |key: &str| parse(text, Dialect::Comments).expect("a document").get(key).expect("a value").span.clone();
    assert_eq!(replace(text, span("a"), &Value::text("new")), text.replace("old", "new"));
    assert_eq!(replace(text, span("b"), &Value::Bare("2".into())), "{\n  \"a\": \"old\", // why\n  \"b\": 2\n}\n");
}
