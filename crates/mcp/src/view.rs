//! Decides how much output a result shows.
//!
//! Small output is shown whole, larger output as head and tail. For a failed command the head and tail are smaller, and
//! lines of the whole output that look like errors are added.

use pinfold_api::types::{Match, OutputPage, OutputQuery, Record};

use crate::arguments::Arguments;
use crate::daemon_access::DaemonAccess;
use crate::facts::{self, Line, OutputView};
use crate::tool_error::ToolError;

/// Output up to this size is shown whole. Also the budget for a command that succeeded.
pub(crate) const MAX_WHOLE_OUTPUT: u64 = 8 << 10;
/// Budget for a running command.
const RUNNING_BUDGET: u64 = 4 << 10;
/// Budget for a failed command.
const FAILED_BUDGET: u64 = 1_100;
/// Maximum budget: even when escaped, text and structured content together stay below 256 KiB.
pub(crate) const MAX_BUDGET: u64 = 48 << 10;
/// Minimum budget.
const MIN_BUDGET: u64 = 256;

/// Matches lines that look like errors. [`likelihood`] ranks them.
const ERROR_PATTERN: &str = r"(?i)error|fail|fatal|panic|exception|traceback|undefined|not found|no such|cannot|can't|denied|abort|segfault|\*\*\*";
/// Maximum number of these lines, their maximum length, and the budget of one search.
const MAX_ERROR_LINES: usize = 6;
const MAX_ERROR_LINE_CHARS: usize = 110;
const ERROR_SEARCH_BUDGET: &str = "64k";
/// If the first search did not reach the end of the output, a second one covers this many bytes before it.
const ERROR_SEARCH_TAIL: u64 = 256 << 10;

/// The range of output to read and how much of it to show.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReadRange {
    pub(crate) cursor: Option<u64>,
    pub(crate) tail: Option<String>,
    pub(crate) budget: Option<u64>,
    pub(crate) stream: Option<String>,
}

/// Returns the requested budget, and a note if it was reduced to the maximum.
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

/// Reads output with a budget that depends on the state of the process. Returns it with the next cursor, and the
/// daemon's hint if there is one. A `page` of the same range that the daemon has already sent is used if it shows the
/// same.
pub(crate) async fn read_output(
    daemon: &DaemonAccess,
    record: &Record,
    range: &ReadRange,
    page: Option<OutputPage>,
) -> Result<((OutputView, u64), Option<String>), ToolError> {
    let failed = facts::has_failed(record);
    let new = record.output.bytes.saturating_sub(range.cursor.unwrap_or(0));
    let budget = range.budget.unwrap_or(match () {
        () if new <= MAX_WHOLE_OUTPUT => MAX_WHOLE_OUTPUT,
        () if failed => FAILED_BUDGET,
        () if facts::has_ended(record) => MAX_WHOLE_OUTPUT,
        () => RUNNING_BUDGET,
    });
    let query = OutputQuery {
        cursor: range.cursor,
        tail: range.tail.clone(),
        budget: Some(budget.to_string()),
        stream: range.stream.clone(),
        strip_ansi: Some(true),
        collapse_cr: Some(true),
        ..OutputQuery::default()
    };
    let page = match page.filter(|page| is_whole(page) && facts::has_ended(record)) {
        Some(page) => page,
        None => fetch_page(daemon, &record.id, &query).await?,
    };
    let (mut view, next) = facts::output_view(&page, range.cursor);
    if failed && page.omitted_bytes > 0 {
        view.error_lines = error_lines(daemon, record, range, view.output.as_deref().unwrap_or_default()).await?;
    }
    Ok(((view, next), page.hint))
}

/// Whether a page shows everything up to its end, and has no escape sequences to be removed.
fn is_whole(page: &OutputPage) -> bool {
    page.cursor == 0 && page.gap.is_none() && page.omitted_bytes == 0 && !page.text.contains('\u{1b}')
}

/// Fetches one page of output.
pub(crate) async fn fetch_page(daemon: &DaemonAccess, id: &str, query: &OutputQuery) -> Result<OutputPage, ToolError> {
    daemon.retry(|client| async move { client.output(id, query).await }).await
}

/// Returns the lines that most likely explain the failure, in output order, without those already shown.
async fn error_lines(
    daemon: &DaemonAccess,
    record: &Record,
    range: &ReadRange,
    shown: &str,
) -> Result<Vec<Line>, ToolError> {
    let query = OutputQuery {
        cursor: range.cursor,
        grep: Some(ERROR_PATTERN.to_owned()),
        budget: Some(ERROR_SEARCH_BUDGET.to_owned()),
        stream: range.stream.clone(),
        ..OutputQuery::default()
    };
    let page = fetch_page(daemon, &record.id, &query).await?;
    let mut found = page.matches.unwrap_or_default();
    if page.next_cursor < page.end {
        let tail = page.next_cursor.max(page.end.saturating_sub(ERROR_SEARCH_TAIL));
        let query = OutputQuery { cursor: Some(tail), ..query };
        found.extend(fetch_page(daemon, &record.id, &query).await?.matches.unwrap_or_default());
    }
    Ok(select_error_lines(&found, shown))
}

fn select_error_lines(found: &[Match], shown: &str) -> Vec<Line> {
    let mut lines: Vec<(u32, Line)> = Vec::new();
    for one in found {
        let line = facts::printable(one.text.trim());
        let known = shown.contains(line.as_str()) || lines.iter().any(|(_, other)| other.line == line);
        if !known && likelihood(&line) > 0 {
            lines.push((likelihood(&line), Line { cursor: one.cursor, line, context: false }));
        }
    }
    // The sort is stable: among equal lines the first wins, because causes precede their consequences.
    lines.sort_by_key(|(likelihood, _)| std::cmp::Reverse(*likelihood));
    lines.truncate(MAX_ERROR_LINES);
    lines.sort_by_key(|(_, line)| line.cursor);
    lines.into_iter().map(|(_, line)| Line { line: truncate(&line.line), ..line }).collect()
}

/// Ranks how likely a line explains a failure; 0 excludes it ("0 errors").
fn likelihood(line: &str) -> u32 {
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

fn truncate(line: &str) -> String {
    match line.char_indices().nth(MAX_ERROR_LINE_CHARS) {
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

    fn selected(lines: &[&str], shown: &str) -> Vec<String> {
        select_error_lines(&found(lines), shown).into_iter().map(|line| line.line).collect()
    }

    #[test]
    fn the_likeliest_lines_are_selected_in_output_order() {
        let mut lines = vec!["aborting soon maybe"; 1];
        lines.extend(["src/a.rs:1: error: one", "cannot frobnicate", "0 errors so far", "error[E0001]: two"]);
        assert_eq!(selected(&lines[1..4], ""), ["src/a.rs:1: error: one", "cannot frobnicate"]);
        assert_eq!(selected(&lines, ""), [lines[0], lines[1], lines[2], lines[4]]);
    }

    #[test]
    fn unlikely_repeated_and_shown_lines_are_left_out() {
        let strong: Vec<String> = (1..8).map(|n| format!("error: {n}")).collect();
        let mut lines = vec!["it failed"];
        lines.extend(strong.iter().map(String::as_str));
        assert_eq!(selected(&lines, ""), &lines[1..7]);
        assert_eq!(selected(&["error: x", "error: x", "error: y"], "… error: y …"), ["error: x"]);
    }

    #[test]
    fn a_long_line_is_cut() {
        let long = format!("error: {}", "é".repeat(500));
        assert_eq!(selected(&[&long], "")[0].chars().count(), MAX_ERROR_LINE_CHARS + 1);
    }
}
