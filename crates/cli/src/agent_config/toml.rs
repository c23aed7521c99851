//! Our entry in the configuration of Codex, which is TOML.
//!
//! A new table is appended and removed as text. `toml_edit` alone would not restore the file: it replaces CRLF by LF in the
//! whole file and adds a missing line end (2 of the 9 test files do not come back). It is used for reading, for updates
//! and for servers in an inline table.

use std::ops::Range;

use toml_edit::{Array, Document, DocumentMut, InlineTable, Item, Table, TomlError, Value};

use super::entry::{Entry, MAX_CALL_S, MAX_START_S, is_ours};
use super::jsonc::parse::line_of;
use super::server::not_ours;
use super::{Change, ConfigError};

const SERVERS: &str = "mcp_servers";

/// Adds or updates our entry.
pub(super) fn connect(text: &str, name: &str, entry: &Entry) -> Result<(String, Change), ConfigError> {
    let document = parse(text)?;
    if let Some(found) = find(&document, name) {
        check_ours(text, found, name)?;
        let updated = update(text, name, entry)?;
        let change = if updated == text { Change::Unchanged } else { Change::Updated };
        return Ok((updated, change));
    }
    match document.get(SERVERS) {
        None | Some(Item::Table(_)) => {}
        Some(Item::Value(Value::InlineTable(_))) => return Ok((insert_inline(text, name, entry)?, Change::Added)),
        Some(other) => {
            let line = other.span().map(|span| line_of(text, span.start));
            return Err(ConfigError { line, what: format!("`{SERVERS}` is not a table: correct it first") });
        }
    }
    let added = append(text, &block(name, entry));
    parse(&added)?;
    Ok((added, Change::Added))
}

/// Removes our entry; `None` if the file contains nothing else.
pub(super) fn disconnect(text: &str, name: &str) -> Result<(Option<String>, Change), ConfigError> {
    let document = parse(text)?;
    let Some(found) = find(&document, name) else { return Ok((Some(text.to_owned()), Change::Absent)) };
    check_ours(text, found, name)?;
    let Item::Table(table) = found else { return Ok((Some(remove_inline(text, name)?), Change::Removed)) };
    let mut lines = lines_of(text, table);
    lines.sort_by_key(|lines| lines.start);
    if lines.first().is_some_and(|lines| lines.start == 0) && lines.last().is_some_and(|lines| lines.end == text.len())
    {
        return Ok((None, Change::Removed));
    }
    let mut left = text.to_owned();
    for lines in lines.iter().rev() {
        left = cut(&left, lines.clone());
    }
    parse(&left)?;
    Ok((Some(left), Change::Removed))
}

/// Parses the file; an error names the line.
fn parse(text: &str) -> Result<Document<String>, ConfigError> {
    Document::parse(text.to_owned()).map_err(|error| config_error(text, &error))
}

fn parse_mutable(text: &str) -> Result<DocumentMut, ConfigError> {
    text.parse().map_err(|error| config_error(text, &error))
}

fn config_error(text: &str, error: &TomlError) -> ConfigError {
    let what = error.message().lines().next().unwrap_or("not TOML").to_owned();
    ConfigError { line: error.span().map(|span| line_of(text, span.start)), what }
}

fn find<'a>(document: &'a Document<String>, name: &str) -> Option<&'a Item> {
    document.get(SERVERS)?.as_table_like()?.get(name)
}

fn check_ours(text: &str, found: &Item, name: &str) -> Result<(), ConfigError> {
    let string = |item: &Item| item.as_str().map(str::to_owned);
    let words = found.as_table_like().and_then(|entry| {
        let mut words = vec![string(entry.get("command")?)?];
        for word in entry.get("args")?.as_array()? {
            words.push(word.as_str()?.to_owned());
        }
        Some(words)
    });
    if words.is_some_and(|words| is_ours(&words)) {
        return Ok(());
    }
    Err(ConfigError { line: found.span().map(|span| line_of(text, span.start)), what: not_ours(name) })
}

/// The keys that define the command.
fn members(entry: &Entry) -> Vec<(&'static str, Value)> {
    let args: Array = entry.args.iter().map(String::as_str).collect();
    let mut members = vec![("command", Value::from(&entry.command)), ("args", Value::from(args))];
    if !entry.env.is_empty() {
        let env: InlineTable = entry.env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        members.push(("env", Value::from(env)));
    }
    members
}

/// All keys of a new entry.
fn all_members(entry: &Entry) -> Vec<(&'static str, Value)> {
    let seconds = |number: u64| Value::from(i64::try_from(number).unwrap_or(i64::MAX));
    let limits = [("startup_timeout_sec", seconds(MAX_START_S)), ("tool_timeout_sec", seconds(MAX_CALL_S))];
    members(entry).into_iter().chain(limits).collect()
}

fn block(name: &str, entry: &Entry) -> String {
    let line = |(key, value): (&'static str, Value)| format!("{key} = {}\n", value.to_string().trim());
    let lines: String = all_members(entry).into_iter().map(line).collect();
    format!("[{SERVERS}.{name}]\n{lines}")
}

/// Appends the block after an empty line, with the line ends of the file, and without a final one if it had none.
fn append(text: &str, block: &str) -> String {
    if text.is_empty() {
        return block.to_owned();
    }
    let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let block = block.replace('\n', newline);
    match text.ends_with('\n') {
        true => format!("{text}{newline}{block}"),
        false => format!("{text}{newline}{newline}{}", block.trim_end()),
    }
}

/// The line ranges of a table and of all tables below it.
fn lines_of(text: &str, table: &Table) -> Vec<Range<usize>> {
    let mut lines = Vec::new();
    let ends =
        table.iter().filter(|(_, item)| item.is_value()).filter_map(|(_, item)| item.span()).map(|span| span.end);
    if let Some(header) = table.span() {
        let start = text[..header.start].rfind('\n').map_or(0, |newline| newline + 1);
        let end = ends.chain([header.end]).max().unwrap_or(header.end);
        let end = text[end..].find('\n').map_or(text.len(), |newline| end + newline + 1);
        lines.push(start..end);
    }
    let below = table.iter().filter_map(|(_, item)| item.as_table());
    lines.extend(below.flat_map(|table| lines_of(text, table)));
    lines
}

/// Removes lines and the empty line before them that `append` adds.
fn cut(text: &str, lines: Range<usize>) -> String {
    let (before, after) = (&text[..lines.start], &text[lines.end..]);
    let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let is_spaced = before == newline || before.ends_with(&newline.repeat(2));
    let mut before = if is_spaced { &before[..before.len() - newline.len()] } else { before };
    if after.is_empty() && !text.ends_with('\n') {
        before = before.strip_suffix(newline).unwrap_or(before);
    }
    [before, after].concat()
}

/// Updates the keys that define the command; all others stay unchanged.
fn update(text: &str, name: &str, entry: &Entry) -> Result<String, ConfigError> {
    let mut document = parse_mutable(text)?;
    let servers = document.get_mut(SERVERS).and_then(Item::as_table_like_mut);
    let Some(found) = servers.and_then(|servers| servers.get_mut(name)).and_then(Item::as_table_like_mut) else {
        return Ok(text.to_owned());
    };
    let mut changed = false;
    for (key, mut value) in members(entry) {
        let there = found.get(key).and_then(Item::as_value);
        if there.is_some_and(|there| same(there, &value)) {
            continue;
        }
        if let Some(there) = there {
            *value.decor_mut() = there.decor().clone();
        }
        found.insert(key, Item::Value(value));
        changed = true;
    }
    Ok(if changed { document.to_string() } else { text.to_owned() })
}

/// Whether two values are equal, however they are written.
fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Value::InlineTable(one), Value::InlineTable(other)) => {
            one.len() == other.len()
                && one.iter().all(|(key, value)| other.get(key).is_some_and(|other| same(value, other)))
        }
        _ => one.as_str().is_some() && one.as_str() == other.as_str(),
    }
}

fn insert_inline(text: &str, name: &str, entry: &Entry) -> Result<String, ConfigError> {
    let mut document = parse_mutable(text)?;
    let table: InlineTable = all_members(entry).into_iter().collect();
    if let Some(servers) = document.get_mut(SERVERS).and_then(Item::as_inline_table_mut) {
        servers.insert(name, Value::from(table));
    }
    Ok(document.to_string())
}

fn remove_inline(text: &str, name: &str) -> Result<String, ConfigError> {
    let mut document = parse_mutable(text)?;
    if let Some(servers) = document.get_mut(SERVERS).and_then(Item::as_table_like_mut) {
        servers.remove(name);
    }
    Ok(document.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(command: &str) -> Entry {
        Entry { command: command.into(), args: vec!["mcp".into()], env: [].into() }
    }

    fn connected(text: &str) -> String {
        connect(text, "pinfold", &entry("/opt/pinfold")).unwrap_or_else(|error| panic!("{text}: {error:?}")).0
    }

    const TEXTS: &[&str] = &[
        "model = \"x\"\n",
        "model = \"x\" # no line end",
        "# a comment\n\nmodel = \"x\"\n\n[mcp_servers.other]\ncommand = \"y\"\n# args = [\"off\"]\n",
        "model = \"x\"\r\n[a]\r\nb = 1\r\n",
        "mcp_servers.other.command = \"y\"\n",
        "[mcp_servers]\n",
        "mcp_servers = { other = { command = \"y\" } } # inline\nmodel = \"x\"\n",
        "\n\n# nothing\n\n",
        "\n",
    ];

    #[test]
    fn connecting_twice_changes_nothing_and_disconnecting_restores_the_same_bytes() {
        for text in TEXTS {
            let once = connected(text);
            assert!(once.contains("43200"), "{once}");
            let again = connect(&once, "pinfold", &entry("/opt/pinfold")).expect("connected");
            assert_eq!(again, (once.clone(), Change::Unchanged), "{text:?}");
            let left = disconnect(&once, "pinfold").expect("disconnected");
            assert_eq!(left, (Some((*text).to_owned()), Change::Removed), "by way of\n{once}");
        }
        assert_eq!(disconnect(&connected(""), "pinfold").expect("disconnected"), (None, Change::Removed));
    }

    #[test]
    fn the_block_is_what_codex_reads() {
        let expected = "[mcp_servers.pinfold]\ncommand = \"/opt/pinfold\"\nargs = [\"mcp\"]\n\
                        startup_timeout_sec = 30\ntool_timeout_sec = 43200\n";
        assert_eq!(connected(""), expected);
        let moved = Entry { env: [("A".to_owned(), "b".to_owned())].into(), ..entry("/opt/pinfold") };
        assert!(connect("", "pinfold", &moved).expect("connected").0.contains("env = { A = \"b\" }\n"));
    }

    #[test]
    fn an_update_keeps_what_the_user_added() {
        let old =
            connected("a = 1\n").replace("43200", "60 # shorter") + "\n[mcp_servers.pinfold.env]\nX = \"y\"\n\n[z]\n";
        let (new, change) = connect(&old, "pinfold", &entry("/new/pinfold")).expect("connected");
        assert_eq!((new, change), (old.replace("/opt/", "/new/"), Change::Updated));
        let (left, _) = disconnect(&old, "pinfold").expect("disconnected");
        assert_eq!(left.as_deref(), Some("a = 1\n\n[z]\n"));
    }

    #[test]
    fn errors_name_the_line() {
        for (text, line) in [
            ("a = 1\nb = \n", 2),
            ("\n[mcp_servers.pinfold]\ncommand = \"npx\"\nargs = [\"pinfold\"]\n", 2),
            ("\n\nmcp_servers = 3\n", 3),
        ] {
            let refused = connect(text, "pinfold", &entry("/opt/pinfold")).expect_err(text);
            assert_eq!(refused.line, Some(line), "{text}: {refused:?}");
        }
    }
}
