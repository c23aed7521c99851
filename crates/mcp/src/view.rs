//! How much output a result shows.
//!
//! Small output is shown whole, larger output by head and tail. For a failed command less is shown, with the lines of the whole
//! log that look like the reason.

use pinfold_api::types::{Match, OutputPage, OutputQuery, Record};

use crate::arguments::Arguments;
use crate::daemon_access::DaemonAccess;
use crate::facts::{self, Line, OutputView};
use crate::tool_error::ToolError;

/// Output up to this size is shown whole; also the budget of a command that succeeded.
const WHOLE: u64 = 8 << 10;
/// The budget of a running command.
const RUNNING: u64 = 4 << 10;
/// The budget of a failed command.
const FAILED: u64 = 1_100;
/// Maximum budget: text and structured content together stay below 256 KiB however they are escaped.
pub(crate) const MAX_BUDGET: u64 = 48 << 10;
/// Minimum budget.
const MIN_BUDGET: u64 = 256;

/// Lines that look like the reason of a failure. Ranked by [`weight`].
const ERROR_LIKE: &str = r"(?i)error|fail|fatal|panic|exception|traceback|undefined|not found|no such|cannot|can't|denied|abort|segfault|\*\*\*";
/// How many such lines are shown, their maximum length, and the budget of one search.
const ERROR_LINES: usize = 6;
const MAX_ERROR_LINE: usize = 110;
const ERROR_SEARCH: &str = "64k";
/// How far before the end a second search begins, if the first did not get there.
const ERROR_TAIL: u64 = 256 << 10;

/// Where to read and how much to show.
#[derive(Clone, Debug, Default)]
pub(crate) struct Look {
    pub(crate) cursor: Option<u64>,
    pub(crate) tail: Option<String>,
    pub(crate) budget: Option<u64>,
    pub(crate) stream: Option<String>,
}

/// The budget that the arguments ask for, and a note if it was reduced.
pub(crate) fn budget(arguments: &Arguments) -> Result<(Option<u64>, Option<String>), ToolError> {
    let bytes = arguments.size("max_output")?;
    let asked = match arguments.count("max_tokens")? {
        Some(tokens) => Some(bytes.unwrap_or(u64::MAX).min(tokens.saturating_mul(4))),
        None => bytes,
    };
    let cut = asked.is_some_and(|asked| asked > MAX_BUDGET);
    let note =
        cut.then(|| format!("at most {MAX_BUDGET} bytes of output fit into one result; read on by cursor for more"));
    Ok((asked.map(|asked| asked.clamp(MIN_BUDGET, MAX_BUDGET)), note))
}

/// Reads the output of a process with a budget that fits its state. Returns it with the next cursor and a hint, if any.
pub(crate) async fn look(
    daemon: &DaemonAccess,
    record: &Record,
    look: &Look,
) -> Result<((OutputView, u64), Option<String>), ToolError> {
    let failed = facts::has_failed(record);
    let new = record.output.bytes.saturating_sub(look.cursor.unwrap_or(0));
    let budget = look.budget.unwrap_or(match () {
        () if new <= WHOLE => WHOLE,
        () if failed => FAILED,
        () if facts::is_over(record) => WHOLE,
        () => RUNNING,
    });
    let query = OutputQuery {
        cursor: look.cursor,
        tail: look.tail.clone(),
        budget: Some(budget.to_string()),
        stream: look.stream.clone(),
        strip_ansi: Some(true),
        collapse_cr: Some(true),
        ..OutputQuery::default()
    };
    let page = ask(daemon, &record.id, &query).await?;
    let (mut sight, next) = facts::sight(&page, look.cursor);
    if failed && page.omitted_bytes > 0 {
        sight.error_lines = error_lines(daemon, record, look, sight.output.as_deref().unwrap_or_default()).await?;
    }
    Ok(((sight, next), page.hint))
}

/// Asks for a page of output.
pub(crate) async fn ask(daemon: &DaemonAccess, id: &str, query: &OutputQuery) -> Result<OutputPage, ToolError> {
    daemon.ask(|client| async move { client.output(id, query).await }).await
}

/// The lines that most likely explain the failure, in order, without those already shown.
async fn error_lines(daemon: &DaemonAccess, record: &Record, look: &Look, shown: &str) -> Result<Vec<Line>, ToolError> {
    let query = OutputQuery {
        cursor: look.cursor,
        grep: Some(ERROR_LIKE.to_owned()),
        budget: Some(ERROR_SEARCH.to_owned()),
        stream: look.stream.clone(),
        ..OutputQuery::default()
    };
    let page = ask(daemon, &record.id, &query).await?;
    let mut found = page.matches.unwrap_or_default();
    if page.next_cursor < page.end {
        let tail = page.next_cursor.max(page.end.saturating_sub(ERROR_TAIL));
        let query = OutputQuery { cursor: Some(tail), ..query };
        found.extend(ask(daemon, &record.id, &query).await?.matches.unwrap_or_default());
    }
    Ok(telling(&found, shown))
}

fn telling(found: &[Match], shown: &str) -> Vec<Line> {
    let mut lines: Vec<(u32, Line)> = Vec::new();
    for one in found {
        let line = facts::printable(one.text.trim());
        let known = shown.contains(line.as_str()) || lines.iter().any(|(_, other)| other.line == line);
        if !known && weight(&line) > 0 {
            lines.push((weight(&line), Line { cursor: one.cursor, line, context: false }));
        }
    }
    // Stable: among equals the first comes first, as the cause does before its consequences.
    lines.sort_by_key(|(weight, _)| std::cmp::Reverse(*weight));
    lines.truncate(ERROR_LINES);
    lines.sort_by_key(|(_, line)| line.cursor);
    lines.into_iter().map(|(_, line)| Line { line: short(&line.line), ..line }).collect()
}

/// How likely a line explains a failure: 0 for lines such as "0 errors".
fn weight(line: &str) -> u32 {
    let line = line.to_lowercase();
    let any = |words: &[&str]| words.iter().any(|word| line.contains(word));
    match () {
        () if any(&["0 error", "no error", "0 fail", "errors: 0", "error: 0", "failures: 0", "failed: 0"]) => 0,
        () if any(&[
            "error:",
            "error[",
            "fatal",
            "panicked",
            "traceback",
            "undefined reference",
            "***",
            "segfault",
        ]) =>
        {
            3
        }
        () if any(&["error", "fail", "exception", "not found", "no such file", "denied"]) => 2,
        () => 1,
    }
}

fn short(line: &str) -> String {
    match line.char_indices().nth(MAX_ERROR_LINE) {
        None => line.to_owned(),
        Some((at, _)) => format!("{}…", &line[..at]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(lines: &[&str]) -> Vec<Match> {
        let line = |(at, text): (usize, &&str)| Match { cursor: at as u64, text: (*text).to_owned(), context: false };
        lines.iter().enumerate().map(line).collect()
    }

    fn told(lines: &[&str], shown: &str) -> Vec<String> {
        telling(&found(lines), shown).into_iter().map(|line| line.line).collect()
    }

    #[test]
    fn the_likeliest_lines_are_told_in_their_order() {
        let mut lines = vec!["aborting soon maybe"; 1];
        lines.extend(["src/a.rs:1: error: one", "cannot frobnicate", "0 errors so far", "error[E0001]: two"]);
        assert_eq!(told(&lines[1..4], ""), ["src/a.rs:1: error: one", "cannot frobnicate"]);
        assert_eq!(told(&lines, ""), [lines[0], lines[1], lines[2], lines[4]]);
    }

    #[test]
    fn weak_lines_give_way_repeated_and_shown_ones_are_left_out() {
        let strong: Vec<String> = (1..8).map(|n| format!("error: {n}")).collect();
        let mut lines = vec!["it failed"];
        lines.extend(strong.iter().map(String::as_str));
        assert_eq!(told(&lines, ""), &lines[1..7]);
        assert_eq!(told(&["error: x", "error: x", "error: y"], "… error: y …"), ["error: x"]);
    }

    #[test]
    fn a_long_line_is_cut() {
        let long = format!("error: {}", "é".repeat(500));
        assert_eq!(told(&[&long], "")[0].chars().count(), MAX_ERROR_LINE + 1);
    }
}
