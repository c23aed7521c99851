//! The changes: put something in, take it out again, replace a value.
//!
//! Taking out is the inverse of putting in. What was created on the way (a section, a line break) goes with it if
//! putting the same thing in again would create it again, byte for byte; else only the thing itself goes.

use std::ops::Range;

use super::layout::{indent_at, of_text};
use super::parse::{Dialect, Flaw, Kind, Node, after_trivia, line_of, parse};
use super::value::{Layout, Value, quoted};

/// Something that an object or a list holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    Member(String, Value),
    Element(Value),
}

/// Which of the things that a container holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which<'a> {
    Key(&'a str),
    Index(usize),
}

/// The whole text of a document that holds nothing but this.
pub(crate) fn create(path: &[&str], item: Item) -> String {
    let layout = Layout { unit: "  ", newline: "\n", gap: " " };
    format!("{}\n", nest(path, item).render("", &layout))
}

/// Adds to the object or list at this path, making what is missing on the way.
pub(crate) fn insert(text: &str, dialect: Dialect, path: &[&str], item: Item) -> Result<String, Flaw> {
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

/// Takes one thing out of the object or list at this path. `None` if it is not there.
pub(crate) fn remove(text: &str, dialect: Dialect, path: &[&str], which: Which<'_>) -> Result<Option<String>, Flaw> {
    let root = parse(text, dialect)?;
    let mut chain = vec![&root];
    for key in path {
        let Some(node) = chain.last().and_then(|node| node.get(key)) else { return Ok(None) };
        chain.push(node);
    }
    let Some((index, item)) = chain.last().and_then(|node| find(node, which, text)) else { return Ok(None) };

    // From the thing itself up to the outermost container that holds nothing else.
    let mut cuts = Vec::new();
    let mut index = index;
    for (depth, container) in chain.iter().enumerate().rev() {
        let cut = cut(text, container, index);
        cuts.push(collapsed(&cut, dialect, &path[..depth]).unwrap_or_else(|| cut.clone()));
        cuts.push(cut);
        let Some(parent) = depth.checked_sub(1).filter(|_| container.items().len() == 1) else { break };
        let Some((found, _)) = find(chain[parent], Which::Key(path[parent]), text) else { break };
        index = found;
    }
    let restores = |cut: &&String| insert(cut, dialect, path, item.clone()).is_ok_and(|again| again == text);
    let fallback = cuts.first().cloned();
    // The widest cut first; of one width, the one that leaves empty brackets closed.
    let mut widest: Vec<&String> = cuts.chunks(2).rev().flatten().collect();
    widest.dedup();
    Ok(widest.into_iter().find(restores).cloned().or(fallback))
}

/// The text with another value in this place.
pub(crate) fn replace(text: &str, span: Range<usize>, value: &Value) -> String {
    let layout = of_text(text);
    let rendered = if text[span.clone()].contains('\n') {
        value.render(indent_at(text, span.start), &layout)
    } else {
        value.render_line(layout.gap)
    };
    [&text[..span.start], &rendered, &text[span.end..]].concat()
}

fn misfit(text: &str, node: &Node, path: &[&str], wanted: &str) -> Flaw {
    let what = if path.is_empty() { "the document".to_owned() } else { format!("`{}`", path.join(".")) };
    Flaw { line: line_of(text, node.span.start), what: format!("{what} is not {wanted}") }
}

/// The item within objects of these names.
fn nest(path: &[&str], item: Item) -> Value {
    let innermost = match item {
        Item::Member(key, value) => Value::Object(vec![(key, value)]),
        Item::Element(value) => Value::List(vec![value]),
    };
    path.iter().rev().fold(innermost, |value, key| Value::object([(*key, value)]))
}

fn find(node: &Node, which: Which<'_>, text: &str) -> Option<(usize, Item)> {
    match (&node.kind, which) {
        (Kind::Object(members), Which::Key(key)) => {
            let index = members.iter().rposition(|member| member.key == key)?;
            Some((index, Item::Member(key.to_owned(), Value::of(&members[index].value, text))))
        }
        (Kind::Array(items), Which::Index(index)) => Some((index, Item::Element(Value::of(items.get(index)?, text)))),
        _ => None,
    }
}

/// Adds at the end of a container: on its line if it stands on one, else on a line of its own.
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
        // Spaces within the brackets tell a container that was there from one that was made with the item.
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

/// The comma that follows, if one does.
fn comma_after(text: &str, at: usize) -> Option<usize> {
    let at = after_trivia(text, at);
    text[at..].starts_with(',').then_some(at)
}

/// Where the last comment before the closing bracket ends; `from` if there is none.
fn solid_end(text: &str, from: usize, close: usize) -> usize {
    let end = after_trivia(text, from).min(close);
    from + text[from..end].trim_end_matches([' ', '\t', '\r', '\n']).len()
}

/// The text without one item, its comma, and the white space before it.
fn cut(text: &str, container: &Node, index: usize) -> String {
    let items = container.items();
    let item = items[index].clone();
    let comma = comma_after(text, item.end);
    let rest = comma.map_or(item.end, |comma| comma + 1);
    let blank = [' ', '\t', '\r', '\n'];
    let lead = text[..item.start].trim_end_matches(blank).len();
    // Two lines must not become one, unless only a bracket follows: the first may end in a comment.
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
    // The last of several takes the comma before it along.
    let before = match (comma, index.checked_sub(1)) {
        (None, Some(previous)) => match comma_after(text, items[previous].end) {
            Some(comma) => [&text[..comma], &text[comma + 1..from]].concat(),
            None => text[..from].to_owned(),
        },
        _ => text[..from].to_owned(),
    };
    before + after
}

/// The same with the brackets of the container at this path closed, if nothing but white space is in it.
fn collapsed(text: &str, dialect: Dialect, path: &[&str]) -> Option<String> {
    let root = parse(text, dialect).ok()?;
    let node = path.iter().try_fold(&root, |node, key| node.get(key))?;
    let inside = node.span.start + 1..node.span.end - 1;
    let is_empty = !inside.is_empty() && text[inside.clone()].trim().is_empty();
    is_empty.then(|| [&text[..inside.start], &text[inside.end..]].concat())
}
