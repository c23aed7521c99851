//! Builds the content of results.

use serde_json::{Value, json};

/// A PNG image with one red pixel.
pub(crate) const PNG: &str =
    concat!("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLv", "AAAAAElFTkSuQmCC");
/// A WAV file without samples.
pub(crate) const WAV: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEARKwAAIhYAQACABAAZGF0YQAAAAA=";

pub(crate) fn text(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

pub(crate) fn image() -> Value {
    json!({ "type": "image", "data": PNG, "mimeType": "image/png" })
}

pub(crate) fn audio() -> Value {
    json!({ "type": "audio", "data": WAV, "mimeType": "audio/wav" })
}

pub(crate) fn resource(uri: &str, mime_type: &str, text: &str) -> Value {
    json!({ "type": "resource", "resource": { "uri": uri, "mimeType": mime_type, "text": text } })
}

/// A tool result.
pub(crate) fn result(content: &[Value]) -> Value {
    json!({ "content": content })
}

/// A tool result with one text.
pub(crate) fn text_result(words: &str) -> Value {
    result(&[text(words)])
}

/// A prompt with these contents as user messages.
pub(crate) fn prompt(contents: &[Value]) -> Value {
    let messages: Vec<Value> = contents.iter().map(|content| json!({ "role": "user", "content": content })).collect();
    json!({ "messages": messages })
}
