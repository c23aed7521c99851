//! Inserts, removes and replaces values in the text.
//!
//! Removal is the inverse of insertion. A section or line break that the insertion created is removed too, if inserting the
//! same item again would give the same text byte for byte; otherwise only the item itself is removed.

use std::ops::Range;

use super::layout::{indent_at, of_text};
use super::parse::{Dialect, Kind, Node, SyntaxError, after_trivia, line_of, parse};
use super::value::{Layout, Value, quoted};

/// A member of an object or an element of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    Member(String, Value),
    Element(Value),
}

/// Selects an item of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Position<'a> {
    Key(&'a str),
    Index(usize),
}

/// A new document with only this item.
pub(crate) fn create(path: &[&str], item: Item) -> String {
    let layout = Layout { unit: "  ", newline: "\n", gap: " " };
    format!("{}\n", nest(path, item).render("", &layout))
}

/// Adds an item to the object or list at this path; missing objects on the path are created.
pub(crate) fn insert(text: &str, dialect: Dialect, path: &[&str], item: Item) -> Result<String, SyntaxError> {
    let root = parse(text, dialect)?;
    let mut node = &root;
    for (depth, key) in path.iter().enumerate() {
        if !matches!(node.kind, Kind::Object(_)) {
            return Err(misfit(text, node, &path[..depth], "an object"));
        }
        match node.get(key) {
            Some(found) => node = found,
            None => {
                let item = Item::Member((*key).to_owned(), nest(&path[depth + 1..], item));
                return Ok(add(text, node, depth == 0, &item));
            }
        }
    }
    match (&node.kind, &item) {
        (Kind::Object(_), Item::Member(..)) | (Kind::Array(_), Item::Element(_)) => {
            Ok(add(text, node, path.is_empty(), &item))
        }
        (_, Item::Member(..)) => Err(misfit(text, node, path, "an object")),
        (_, Item::Element(_)) => Err(misfit(text, node, path, "a list")),
    }
}

/// Removes an item from the object or list at this path. `None` if it is not there.
pub(crate) fn remove(
    text: &str,
    dialect: Dialect,
    path: &[&str],
    which: Position<'_>,
) -> Result<Option<String>, SyntaxError> {
    let root = parse(text, dialect)?;
    let mut chain = vec![&root];
    for key in path {
        let Some(node) = chain.last().and_then(|node| node.get(key)) else { return Ok(None) };
        chain.push(node);
    }
    let Some((index, item)) = chain.last().and_then(|node| find(node, which, text)) else { return Ok(None) };

    // Candidates: from the item itself up to the outermost container that holds nothing else.
    let mut cuts = Vec::new();
    let mut index = index;
    for (depth, container) in chain.iter().enumerate().rev() {
        let cut = cut(text, container, index);
        cuts.push(collapsed(&cut, dialect, &path[..depth]).unwrap_or_else(|| cut.clone()));
        cuts.push(cut);
        let Some(parent) = depth.checked_sub(1).filter(|_| container.items().len() == 1) else { break };
        let Some((found, _)) = find(chain[parent], Position::Key(path[parent]), text) else { break };
        index = found;
    }
    let restores = |cut: &&String| insert(cut, dialect, path, item.clone()).is_ok_and(|again| again == text);
    let fallback = cuts.first().cloned();
    // The widest cut first; of equal width, the one without space in empty brackets.
    let mut widest: Vec<&String> = cuts.chunks(2).rev().flatten().collect();
    widest.dedup();
    Ok(widest.into_iter().find(restores).cloned().or(fallback))
}

/// Replaces the value at this position.
pub(crate) fn replace(text: &str, span: Range<usize>, value: &Value) -> String {
    let layout = of_text(text);
    let rendered = if text[span.clone()].contains('\n') {
        value.render(indent_at(text, span.start), &layout)
    } else {
        value.render_line(layout.gap)
    };
    [&text[..span.start], &rendered, &text[span.end..]].concat()
}

fn misfit(text: &str, node: &Node, path: &[&str], wanted: &str) -> SyntaxError {
    let what = if path.is_empty() { "the document".to_owned() } else { format!("`{}`", path.join(".")) };
    SyntaxError { line: line_of(text, node.span.start), what: format!("{what} is not {wanted}") }
}

/// Wraps the item in objects with these names.
fn nest(path: &[&str], item: Item) -> Value {
    let innermost = match item {
        Item::Member(key, value) => Value::Object(vec![(key, value)]),
        Item::Element(value) => Value::List(vec![value]),
    };
    path.iter().rev().fold(innermost, |value, key| Value::object([(*key, value)]))
}

fn find(node: &Node, which: Position<'_>, text: &str) -> Option<(usize, Item)> {
    match (&node.kind, which) {
        (Kind::Object(members), Position::Key(key)) => {
            let index = members.iter().rposition(|member| member.key == key)?;
            Some((index, Item::Member(key.to_owned(), Value::of(&members[index].value, text))))
        }
        (Kind::Array(items), Position::Index(index)) => {
            Some((index, Item::Element(Value::of(items.get(index)?, text))))
        }
        _ => None,
    }
}

/// Adds at the end of a container: on the same line if the container is on one line, otherwise on a new line.
fn add(text: &str, container: &Node, is_root: bool, item: &Item) -> String {
    let (open, close) = (container.span.start, container.span.end - 1);
    let items = container.items();
    let last = items.last().map_or(open + 1, |item| item.end);
    let comma = comma_after(text, last);
    let solid = solid_end(text, comma.map_or(last, |comma| comma + 1), close);
    let layout = of_text(text);
    let is_line = !text[open..close].contains('\n');
    let separator = if items.is_empty() || comma.is_some() { "" } else { "," };
    let trailing = if comma.is_some() { "," } else { "" };

    let is_closed = close == open + 1;
    let (lead, added, tail) = if is_line && !(is_root && is_closed) {
        // A space inside the brackets distinguishes a container that existed from one that was created with the item.
        let (lead, tail) = match (items.is_empty(), is_closed) {
            (true, true) => (" ", " "),
            (true, false) => (" ", ""),
            (false, _) => (layout.gap, ""),
        };
        (lead.to_owned(), render_line(item, &layout), tail.to_owned())
    } else {
        let outer = indent_at(text, open);
        let indent = match items.last() {
            Some(item)
                if text[..item.start].ends_with(indent_at(text, item.start)) && starts_line(text, item.start) =>
            {
                indent_at(text, item.start).to_owned()
            }
            _ => format!("{outer}{}", layout.unit),
        };
        let tail = if is_line { format!("{}{outer}", layout.newline) } else { String::new() };
        (format!("{}{indent}", layout.newline), render(item, &indent, &layout), tail)
    };
    [&text[..last], separator, &text[last..solid], &lead, &added, trailing, &tail, &text[solid..]].concat()
}

fn render_line(item: &Item, layout: &Layout<'_>) -> String {
    match item {
        Item::Member(key, value) => format!("{}:{}{}", quoted(key), layout.gap, value.render_line(layout.gap)),
        Item::Element(value) => value.render_line(layout.gap),
    }
}

fn render(item: &Item, indent: &str, layout: &Layout<'_>) -> String {
    match item {
        Item::Member(key, value) => format!("{}:{}{}", quoted(key), layout.gap, value.render(indent, layout)),
        Item::Element(value) => value.render(indent, layout),
    }
}

fn starts_line(text: &str, at: usize) -> bool {
    text[..at].trim_end_matches([' ', '\t']).ends_with('\n')
}

/// The position of the next comma, if only white space and comments are before it.
fn comma_after(text: &str, at: usize) -> Option<usize> {
    let at = after_trivia(text, at);
    text[at..].starts_with(',').then_some(at)
}

/// The end of the last comment before the closing bracket; `from` if there is none.
fn solid_end(text: &str, from: usize, close: usize) -> usize {
    let end = after_trivia(text, from).min(close);
    from + text[from..end].trim_end_matches([' ', '\t', '\r', '\n']).len()
}

/// The text without an item, its comma and the white space before it.
fn cut(text: &str, container: &Node, index: usize) -> String {
    let items = container.items();
    let item = items[index].clone();
    let comma = comma_after(text, item.end);
    let rest = comma.map_or(item.end, |comma| comma + 1);
    let blank = [' ', '\t', '\r', '\n'];
    let lead = text[..item.start].trim_end_matches(blank).len();
    // Do not join two lines unless only a bracket follows: the first may end in a comment.
    let line = &text[..lead];
    let may_comment = line[line.rfind('\n').map_or(0, |newline| newline + 1)..].contains("//");
    let next = text[rest..].trim_start_matches([' ', '\t']);
    let keeps_break = text[lead..item.start].contains('\n')
        && !next.starts_with(['\r', '\n'])
        && (may_comment || !next.starts_with(['}', ']']));
    let from = if keeps_break { item.start } else { lead };
    let after = match comma {
        Some(comma) => [&text[item.end..comma], &text[comma + 1..]].concat(),
        None => text[item.end..].to_owned(),
    };
    let after = if keeps_break { after.trim_start_matches([' ', '\t']) } else { after.as_str() };
    // Removing the last of several items also removes the comma before it.
    let before = match (comma, index.checked_sub(1)) {
        (None, Some(previous)) => match comma_after(text, items[previous].end) {
            Some(comma) => [&text[..comma], &text[comma + 1..from]].concat(),
            None => text[..from].to_owned(),
        },
        _ => text[..from].to_owned(),
    };
    before + after
}

/// The text without the white space in the container at this path, if the container is empty.
fn collapsed(text: &str, dialect: Dialect, path: &[&str]) -> Option<String> {
    let root = parse(text, dialect).ok()?;
    let node = path.iter().try_fold(&root, |node, key| node.get(key))?;
    let inside = node.span.start + 1..node.span.end - 1;
    let is_empty = !inside.is_empty() && text[inside.clone()].trim().is_empty();
    is_empty.then(|| [&text[..inside.start], &text[inside.end..]].concat())
}
