//! Finds out the layout of a document, so that additions follow it.

use super::value::Layout;

/// Default indentation.
const UNIT: &str = "  ";

/// The layout of a whole document.
pub(super) fn of_text(text: &str) -> Layout<'_> {
    Layout { unit: unit_of(text), newline: newline_of(text), gap: if is_tight(text) { "" } else { " " } }
}

/// The line ending of a text.
pub(super) fn newline_of(text: &str) -> &'static str {
    if text.contains("\r\n") { "\r\n" } else { "\n" }
}

/// The indentation of the line at this position.
pub(super) fn indent_at(text: &str, at: usize) -> &str {
    let line = &text[..at];
    let line = &text[line.rfind('\n').map_or(0, |newline| newline + 1)..];
    &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
}

/// The smallest indentation in the text.
fn unit_of(text: &str) -> &str {
    let indented = text.lines().skip(1).filter(|line| line.trim_start().starts_with('"'));
    let indents = indented.map(|line| &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]);
    indents.filter(|indent| !indent.is_empty()).min_by_key(|indent| indent.len()).unwrap_or(UNIT)
}

/// Whether the document is written without spaces after colons.
fn is_tight(text: &str) -> bool {
    text.contains("\":") && !text.contains("\": ") && !text.contains("\":\t") && !text.contains('\n')
}
