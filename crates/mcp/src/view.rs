//! How much of an output a result shows.
//!
//! All of it where it is small; else head and tail, less of what failed, because there the lines that say why are
//! looked for in the whole log and shown beside it.

use pinfold_api::types::{Match, OutputPage, OutputQuery, Record};

use crate::arguments::Arguments;
use crate::facts::{self, Line, Sight};
use crate::reach::Reach;
use crate::refusal::Refusal;

/// What is shown whole, and of a command that succeeded at most.
const WHOLE: u64 = 8 << 10;
/// What is shown of one that runs.
const RUNNING: u64 = 4 << 10;
/// What is shown of one that failed.
const FAILED: u64 = 1_100;
/// What may be asked for: text and structured content together stay below 256 KiB however it is escaped.
pub(crate) const MOST: u64 = 48 << 10;
/// The least that is worth asking for.
const LEAST: u64 = 256;

/// Lines that look like the reason of a failure. Ranked by [`weight`].
const ERROR_LIKE: &str = r"(?i)error|fail|fatal|panic|exception|traceback|undefined|not found|no such|cannot|can't|denied|abort|segfault|\*\*\*";
/// How many of them are shown, of what length, and how much of the log is searched in one go.
const ERROR_LINES: usize = 6;
const ERROR_LINE_MOST: usize = 110;
const ERROR_SEARCH: &str = "64k";
/// How far before the end a second search begins, if the first did not get there.
const ERROR_TAIL: u64 = 256 << 10;

/// Where a look begins and how much it may show.
#[derive(Clone, Debug, Default)]
pub(crate) struct Look {
    pub(crate) cursor: Option<u64>,
    pub(crate) tail: Option<String>,
    pub(crate) budget: Option<u64>,
    pub(crate) stream: Option<String>,
}

/// The budget that the arguments ask for, and whether it had to be cut.
pub(crate) fn budget(arguments: &Arguments) -> Result<(Option<u64>, Option<String>), Refusal> {
    let bytes = arguments.size("max_output")?;
    let asked = match arguments.count("max_tokens")? {
        Some(tokens) => Some(bytes.unwrap_or(u64::MAX).min(tokens.saturating_mul(4))),
        None => bytes,
    };
    let cut = asked.is_some_and(|asked| asked > MOST);
    let note = cut.then(|| format!("at most {MOST} bytes of output fit into one result; read on by cursor for more"));
    Ok((asked.map(|asked| asked.clamp(LEAST, MOST)), note))
}

/// Reads the output of a process as its record says it deserves; gives it with the cursor behind it and what is
/// odd about it.
pub(crate) async fn look(
    reach: &Reach,
    record: &Record,
    look: &Look,
) -> Result<((Sight, u64), Option<String>), Refusal> {
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
    let page = ask(reach, &record.id, &query).await?;
    let (mut sight, next) = facts::sight(&page, look.cursor);
    if failed && page.omitted_bytes > 0 {
        sight.error_lines = error_lines(reach, record, look, sight.output.as_deref().unwrap_or_default()).await?;
    }
    Ok(((sight, next), page.hint))
}

/// Asks for a page of output.
pub(crate) async fn ask(reach: &Reach, id: &str, query: &OutputQuery) -> Result<OutputPage, Refusal> {
    reach.ask(|client| async move { client.output(id, query).await }).await
}

/// The lines that most likely say why it failed, in their order, without those that are shown anyway.
async fn error_lines(reach: &Reach, record: &Record, look: &Look, shown: &str) -> Result<Vec<Line>, Refusal> {
    let query = OutputQuery {
        cursor: look.cursor,
        grep: Some(ERROR_LIKE.to_owned()),
        budget: Some(ERROR_SEARCH.to_owned()),
        stream: look.stream.clone(),
        ..OutputQuery::default()
    };
    let page = ask(reach, &record.id, &query).await?;
    let mut found = page.matches.unwrap_or_default();
    if page.next_cursor < page.end {
        let tail = page.next_cursor.max(page.end.saturating_sub(ERROR_TAIL));
        let query = OutputQuery { cursor: Some(tail), ..query };
        found.extend(ask(reach, &record.id, &query).await?.matches.unwrap_or_default());
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

/// How likely a line says why: 0 for lines that say there was no error.
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
    match line.char_indices().nth(ERROR_LINE_MOST) {
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
        assert_eq!(told(&[&long], "")[0].chars().count(), ERROR_LINE_MOST + 1);
    }
}
