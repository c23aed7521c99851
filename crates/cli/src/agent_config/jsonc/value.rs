//! Values to write, with their keys in order.

use super::parse::{Kind, Node};

/// A value to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Text(String),
    /// A number, `true`, `false` or `null`, as text.
    Bare(String),
    List(Vec<Value>),
    Object(Vec<(String, Value)>),
}

/// The layout of a document.
#[derive(Clone, Debug)]
pub(crate) struct Layout<'a> {
    /// One level of indentation.
    pub(crate) unit: &'a str,
    /// Line ending.
    pub(crate) newline: &'a str,
    /// Space after a colon, and after a comma on one line.
    pub(crate) gap: &'a str,
}

impl Value {
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Value::Text(text.into())
    }

    pub(crate) fn texts(texts: &[String]) -> Self {
        Value::List(texts.iter().map(Value::text).collect())
    }

    pub(crate) fn object<K: Into<String>>(members: impl IntoIterator<Item = (K, Value)>) -> Self {
        Value::Object(members.into_iter().map(|(key, value)| (key.into(), value)).collect())
    }

    /// The value of a parsed node.
    pub(crate) fn of(node: &Node, text: &str) -> Self {
        match &node.kind {
            Kind::Text(text) => Value::text(text),
            Kind::Bare => Value::Bare(text[node.span.clone()].to_owned()),
            Kind::Array(items) => Value::List(items.iter().map(|item| Value::of(item, text)).collect()),
            Kind::Object(members) => {
                Value::object(members.iter().map(|member| (&member.key, Value::of(&member.value, text))))
            }
        }
    }

    /// Renders on one line.
    pub(crate) fn render_line(&self, gap: &str) -> String {
        let between = format!(",{gap}");
        match self {
            Value::Text(text) => quoted(text),
            Value::Bare(word) => word.clone(),
            Value::List(items) => {
                let items: Vec<_> = items.iter().map(|item| item.render_line(gap)).collect();
                format!("[{}]", items.join(&between))
            }
            Value::Object(members) => {
                let member =
                    |(key, value): &(String, Value)| format!("{}:{gap}{}", quoted(key), value.render_line(gap));
                format!("{{{}}}", members.iter().map(member).collect::<Vec<_>>().join(&between))
            }
        }
    }

    /// Renders on several lines; `indent` is that of the first line.
    pub(crate) fn render(&self, indent: &str, layout: &Layout<'_>) -> String {
        let Layout { unit, newline, gap } = layout;
        let deeper = format!("{indent}{unit}");
        let lines: Vec<String> = match self {
            Value::Object(members) if !members.is_empty() => members
                .iter()
                .map(|(key, value)| format!("{}:{gap}{}", quoted(key), value.render(&deeper, layout)))
                .collect(),
            Value::List(items) if items.iter().any(|item| matches!(item, Value::List(_) | Value::Object(_))) => {
                items.iter().map(|item| item.render(&deeper, layout)).collect()
            }
            _ => return self.render_line(gap),
        };
        let (open, close) = if matches!(self, Value::Object(_)) { ('{', '}') } else { ('[', ']') };
        let inside = lines.join(&format!(",{newline}{deeper}"));
        format!("{open}{newline}{deeper}{inside}{newline}{indent}{close}")
    }
}

/// A JSON string literal.
pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
