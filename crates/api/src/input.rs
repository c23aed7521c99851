//! Values that a request may give in more than one form: `30`, `"30"`, `"30s"`; `65536`, `"64k"`.
//!
//! Clients send them as given. Only the daemon parses them, so that there is one parser.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A duration: a number of seconds, or text such as `500ms`, `30s`, `5m`, `1h30m`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a duration: a number of seconds, or text such as \"30s\" or \"1h30m\"")]
pub enum Span {
    /// Seconds.
    Seconds(f64),
    /// Text with units.
    Text(String),
}

/// A number of bytes: a number, or text such as `64k` or `8MiB`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a size: a number of bytes, or text such as \"64k\" or \"8MiB\"")]
pub enum Size {
    /// Bytes.
    Bytes(u64),
    /// Text with units.
    Text(String),
}

impl Span {
    /// The duration as text.
    pub fn text(&self) -> String {
        match self {
            Span::Seconds(seconds) => seconds.to_string(),
            Span::Text(text) => text.clone(),
        }
    }
}

impl Size {
    /// The size as text.
    pub fn text(&self) -> String {
        match self {
            Size::Bytes(bytes) => bytes.to_string(),
            Size::Text(text) => text.clone(),
        }
    }
}

impl From<&str> for Span {
    fn from(text: &str) -> Self {
        Span::Text(text.to_owned())
    }
}

impl From<&str> for Size {
    fn from(text: &str) -> Self {
        Size::Text(text.to_owned())
    }
}
