//! The tool definitions that models read. The whole list is limited to [`MAX_LIST`] bytes, because it is part of every
//! chat.

use std::sync::LazyLock;

use serde_json::Value;

use super::Shape;

/// Maximum size of all definitions in `tools/list`.
#[cfg(test)]
const MAX_LIST: usize = 8 * 1024;

/// One tool definition, in the format of MCP.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Definition(Value);

static NATIVE: LazyLock<Vec<Definition>> = LazyLock::new(|| parsed(include_str!("definitions.json")));

static CODER: LazyLock<Vec<Definition>> = LazyLock::new(|| parsed(include_str!("../coder/definitions.json")));

/// Parses a definitions file. The file is compiled in and covered by a test, so it cannot be malformed.
fn parsed(text: &str) -> Vec<Definition> {
    let values: Vec<Value> = serde_json::from_str(text).unwrap_or_default();
    values.into_iter().map(Definition).collect()
}

impl Definition {
    pub(crate) fn name(&self) -> &str {
        self.0["name"].as_str().unwrap_or_default()
    }

    /// The names of its arguments.
    pub(crate) fn keys(&self) -> Vec<&str> {
        let properties = self.0["inputSchema"]["properties"].as_object();
        properties.into_iter().flat_map(|properties| properties.keys().map(String::as_str)).collect()
    }
}

/// The definitions of a set of tools, as sent in `tools/list`.
pub fn definitions(shape: Shape) -> Vec<Value> {
    of(shape).iter().map(|definition| definition.0.clone()).collect()
}

/// The names of a set of tools.
pub fn names(shape: Shape) -> Vec<&'static str> {
    of(shape).iter().map(Definition::name).collect()
}

/// Finds a tool of this set by name.
pub(super) fn find(shape: Shape, name: &str) -> Option<&'static Definition> {
    of(shape).iter().find(|definition| definition.name() == name)
}

fn of(shape: Shape) -> &'static [Definition] {
    match shape {
        Shape::Native => &NATIVE,
        Shape::Coder => &CODER,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tool_list_fits_its_limit() {
        for shape in [Shape::Native, Shape::Coder] {
            let list = serde_json::json!({ "tools": definitions(shape) }).to_string();
            assert!(list.len() <= MAX_LIST, "{} bytes", list.len());
        }
    }

    #[test]
    fn names_are_valid_and_annotations_complete() {
        let names = names(Shape::Native);
        let all = ["execute", "process_output", "process_wait", "process_list", "process_input", "process_signal"];
        assert_eq!(names, all);
        let coders = ["execute", "process_output", "process_list", "process_signal"];
        assert_eq!(super::names(Shape::Coder), coders);
        for definition in [definitions(Shape::Native), definitions(Shape::Coder)].concat() {
            let name = definition["name"].as_str().expect("a name");
            assert!(name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'), "{name}");
            for hint in ["readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"] {
                assert!(definition["annotations"][hint].is_boolean(), "{name} {hint}");
            }
            for schema in ["inputSchema", "outputSchema"] {
                assert_eq!(definition[schema]["type"], "object", "{name} {schema}");
            }
        }
    }

    /// Gemini's API rejects an `enum` without a `type`, and models guess at an argument without a description.
    #[test]
    fn every_argument_has_a_type_and_a_description() {
        for definition in [definitions(Shape::Native), definitions(Shape::Coder)].concat() {
            for (key, argument) in definition["inputSchema"]["properties"].as_object().expect("properties") {
                assert!(argument["type"].is_string() || argument["type"].is_array(), "{key} of {}", definition["name"]);
                let text = argument["description"].as_str().unwrap_or_default();
                assert!(!text.is_empty() && !text.contains('\n'), "{key} of {}: {text:?}", definition["name"]);
            }
        }
    }
}
