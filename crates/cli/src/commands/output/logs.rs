//! `logs`: print the output of a process, as raw bytes or as text. Several processes: `interleave`.

use clap::Args;
use pinfold_api::types::{Match, OutputPage, OutputQuery, Status};

use super::copy_output::{self, ReadPosition, Stream};
use super::interleave;
use crate::console::Console;
use crate::failure::Failure;
use crate::session::Session;

/// Raw bytes in one page of text.
const PAGE: u64 = 1 << 20;
/// How long one read waits with `--follow`.
const DEADLINE: &str = "5m";

/// Print the output of processes
///
/// Prints the bytes as they were written. With --grep, --times, --strip-ansi or --budget they are converted to text. The lines of several
/// processes are printed in the order in which they arrived, each after the name of its process.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  pinfold logs --tail 50 -f web\n  pinfold logs --grep 'error|warn' -C 2 k3v9\n  \
                        pinfold logs --budget 4k k3v9      head and tail, with the size of what is omitted\n  \
                        pinfold logs -f web db worker      all three, interleaved\n  \
                        pinfold logs --since 10m --until 2026-01-31T12:00:00Z web")]
pub(crate) struct LogsArgs {
    /// Processes: ids, unique prefixes of ids, or names (the live process of that name, otherwise the latest that ended)
    #[arg(required = true, value_name = "ID")]
    pub(crate) ids: Vec<String>,
    /// Follow new output until the process closes it
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Only the last N lines, or the last bytes (4k)
    #[arg(long, value_name = "N|SIZE")]
    pub(crate) tail: Option<String>,
    /// Start at this byte offset
    #[arg(long, value_name = "N", conflicts_with = "tail")]
    pub(crate) cursor: Option<u64>,
    /// Only output that arrived at this time or later, such as 2026-01-31T12:00:00Z, or in the last 10m
    #[arg(long, value_name = "TIME|DURATION", conflicts_with_all = ["tail", "cursor"])]
    pub(crate) since: Option<String>,
    /// Only output that arrived before this time, or more than this long ago
    #[arg(long, value_name = "TIME|DURATION", conflicts_with_all = ["tail", "follow"])]
    pub(crate) until: Option<String>,
    /// Only lines that match
    #[arg(long, value_name = "REGEX")]
    pub(crate) grep: Option<String>,
    /// Lines of context around each match
    #[arg(short = 'C', long, value_name = "N", requires = "grep")]
    pub(crate) context: Option<u32>,
    /// Only stdout (for processes started with --streams separate)
    #[arg(long, conflicts_with = "stderr")]
    pub(crate) stdout: bool,
    /// Only stderr (for processes started with --streams separate)
    #[arg(long)]
    pub(crate) stderr: bool,
    /// Prefix each line with the time it arrived
    #[arg(long)]
    pub(crate) times: bool,
    /// Remove escape sequences, and show only the last state of lines that were overwritten
    #[arg(long)]
    pub(crate) strip_ansi: bool,
    /// Shorten the output to this many bytes of text
    #[arg(long, value_name = "SIZE", conflicts_with_all = ["follow", "grep"])]
    pub(crate) budget: Option<String>,
    /// Print the bytes as they were written (the default)
    #[arg(long, conflicts_with_all = ["grep", "times", "strip_ansi", "budget"])]
    pub(crate) raw: bool,
}

/// Prints the output, and follows it with `--follow`.
pub(crate) async fn run(session: &Session, args: &LogsArgs, console: &mut Console) -> Result<u8, Failure> {
    let [id] = args.ids.as_slice() else {
        if let Some(option) = args.option_for_one_process() {
            return Err(Failure::invalid(format!("{option} works with one process: give one, or leave out {option}")));
        }
        return interleave::run(session, args, console).await;
    };
    // Use the id from here on: the name may refer to another process later.
    let id = session.ask(async |client| client.show(id).await).await?.id;
    let cursor = match &args.since {
        Some(since) => Some(cursor_at(session, &id, since).await?),
        None => args.cursor,
    };
    let end = end_cursor(session, &id, args).await?;
    if console.json || args.wants_text() {
        print_text(session, (id, cursor, end), args, console).await?;
        return Ok(0);
    }
    let position = ReadPosition { id, cursor: cursor.unwrap_or(0), end, tail: args.tail.as_deref().map(tail_of) };
    let stream = match (args.stdout, args.stderr) {
        (true, _) => Stream::Stdout,
        (_, true) => Stream::StderrToStdout,
        (false, false) => Stream::Merged,
    };
    if args.follow {
        copy_output::until_closed(session, position, stream).await?;
    } else {
        copy_output::until_caught_up(session, position, stream).await?;
    }
    Ok(0)
}

/// Prints text: one page with `--budget` or as one JSON document, otherwise all pages.
async fn print_text(
    session: &Session,
    (id, cursor, end): (String, Option<u64>, Option<u64>),
    args: &LogsArgs,
    console: &mut Console,
) -> Result<(), Failure> {
    let mut query = query(args);
    query.cursor = cursor;
    if end.is_some_and(|end| end <= cursor.unwrap_or(0)) {
        return Ok(());
    }
    let whole = args.budget.is_some() || (console.json && !args.follow);
    if whole {
        query.max_bytes = query.max_bytes.take().map(|_| page_size(cursor, end));
        let page = until_end(session.ask(async |client| client.output(&id, &query).await).await?, end);
        return match console.json {
            true => console.document(&page),
            false => console.bytes(render_page(&page, args.context).as_bytes()),
        };
    }
    loop {
        query.max_bytes = query.max_bytes.take().map(|_| page_size(query.cursor, end));
        let page = until_end(session.ask(async |client| client.output(&id, &query).await).await?, end);
        if console.json {
            console.json_line(&page)?;
        } else {
            console.bytes(render_page(&page, args.context).as_bytes())?;
        }
        let stuck = query.cursor == Some(page.next_cursor);
        let over = page.closed || matches!(page.status, Status::Finished | Status::Lost);
        if (over || !args.follow) && (stuck || page.next_cursor >= end.unwrap_or(page.end)) {
            return Ok(());
        }
        query.tail = None;
        query.max_bytes = Some(String::new());
        query.cursor = Some(page.next_cursor);
    }
}

/// The size of the next page, which must not go beyond the end.
fn page_size(cursor: Option<u64>, end: Option<u64>) -> String {
    end.map_or(PAGE, |end| end.saturating_sub(cursor.unwrap_or(0)).min(PAGE)).to_string()
}

/// A search goes beyond the end.
fn until_end(mut page: OutputPage, end: Option<u64>) -> OutputPage {
    if let (Some(end), Some(matches)) = (end, &mut page.matches) {
        matches.retain(|found| found.cursor < end);
    }
    page
}

/// The cursor of the first output that arrived at this time or later.
async fn cursor_at(session: &Session, id: &str, time: &str) -> Result<u64, Failure> {
    let query = OutputQuery { since: Some(time.to_owned()), max_bytes: Some("1".into()), ..OutputQuery::default() };
    Ok(session.ask(async |client| client.output_raw(id, &query).await).await?.cursor)
}

/// The cursor at which `--until` ends the output.
pub(super) async fn end_cursor(session: &Session, id: &str, args: &LogsArgs) -> Result<Option<u64>, Failure> {
    let Some(until) = &args.until else { return Ok(None) };
    let end = cursor_at(session, id, until).await;
    // The API knows the time as `since`.
    let rename = |mut failure: Failure| {
        failure.error.message = failure.error.message.replacen("since", "until", 1);
        failure
    };
    end.map(Some).map_err(rename)
}

fn query(args: &LogsArgs) -> OutputQuery {
    let paged = args.tail.is_none() && args.budget.is_none();
    OutputQuery {
        cursor: args.cursor,
        tail: args.tail.as_deref().map(tail_of),
        max_bytes: paged.then(|| PAGE.to_string()),
        budget: args.budget.clone(),
        grep: args.grep.clone(),
        context: args.context,
        stream: args.stream().map(str::to_owned),
        strip_ansi: args.strip_ansi.then_some(true),
        collapse_cr: args.strip_ansi.then_some(true),
        times: args.times.then_some(true),
        wait: args.follow.then(|| DEADLINE.to_owned()),
        ..Default::default()
    }
}

/// A plain number counts lines, a number with a unit bytes.
pub(super) fn tail_of(text: &str) -> String {
    let lines = text.bytes().all(|byte| byte.is_ascii_digit());
    if lines { format!("{text} lines") } else { text.to_owned() }
}

/// The text, or the matching lines with `--` where lines between them are omitted.
fn render_page(page: &OutputPage, context: Option<u32>) -> String {
    let Some(matches) = &page.matches else { return page.text.clone() };
    let mut text = String::new();
    let mut before: Option<&Match> = None;
    for line in matches {
        let apart = before.is_some_and(|before| line.cursor > before.cursor + before.text.len() as u64 + 2);
        if apart && context.is_some_and(|lines| lines > 0) {
            text.push_str("--\n");
        }
        text.push_str(line.text.trim_end_matches(['\n', '\r']));
        text.push('\n');
        before = Some(line);
    }
    text
}

impl LogsArgs {
    /// The stream that is read, if only one is.
    pub(super) fn stream(&self) -> Option<&'static str> {
        match (self.stdout, self.stderr) {
            (true, _) => Some("stdout"),
            (_, true) => Some("stderr"),
            (false, false) => None,
        }
    }

    /// An option that is given and does not work with several processes.
    fn option_for_one_process(&self) -> Option<&'static str> {
        let given = [
            ("--grep", self.grep.is_some()),
            ("--cursor", self.cursor.is_some()),
            ("--budget", self.budget.is_some()),
            ("--raw", self.raw),
        ];
        given.into_iter().find(|(_, is_given)| *is_given).map(|(option, _)| option)
    }

    fn wants_text(&self) -> bool {
        self.grep.is_some() || self.times || self.strip_ansi || self.budget.is_some()
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Args, Command};

    fn parsed(line: &str) -> LogsArgs {
        let args = Args::try_parse_from(line.split(' ')).expect(line);
        let Command::Logs(args) = args.command else { panic!("not logs") };
        args
    }

    #[test]
    fn a_plain_tail_counts_lines_and_one_with_a_unit_bytes() {
        assert_eq!(tail_of("20"), "20 lines");
        assert_eq!(tail_of("4k"), "4k");
    }

    #[test]
    fn arguments_become_the_query() {
        let args = parsed("pinfold logs web --grep err -C 2 --stderr --times --strip-ansi -f --tail 5");
        assert!(args.wants_text() && args.follow);
        let query = query(&args);
        assert_eq!((query.grep.as_deref(), query.context), (Some("err"), Some(2)));
        assert_eq!((query.stream.as_deref(), query.tail.as_deref()), (Some("stderr"), Some("5 lines")));
        assert_eq!((query.times, query.strip_ansi, query.max_bytes), (Some(true), Some(true), None));
        assert!(query.wait.is_some());
    }

    #[test]
    fn bytes_are_printed_as_they_are_unless_text_is_asked_for() {
        assert!(!parsed("pinfold logs web --raw --cursor 7").wants_text());
        for line in ["pinfold logs web --raw --grep x", "pinfold logs web -C 2", "pinfold logs a --stdout --stderr"] {
            assert!(Args::try_parse_from(line.split(' ')).is_err(), "{line}");
        }
    }

    #[test]
    fn matches_are_printed_with_a_rule_where_lines_are_left_out() {
        let line = |cursor, text: &str| Match { cursor, text: text.into(), context: false };
        let page = OutputPage {
            id: "a".into(),
            text: String::new(),
            cursor: 0,
            next_cursor: 99,
            end: 99,
            gap: None,
            omitted: None,
            original_bytes: 99,
            shown_bytes: 9,
            omitted_bytes: 0,
            collapsed_bytes: 0,
            matches: Some(vec![line(0, "one"), line(4, "two\n"), line(80, "three")]),
            exited: true,
            closed: true,
            status: Status::Finished,
            outcome: None,
            hint: None,
        };
        assert_eq!(render_page(&page, Some(1)), "one\ntwo\n--\nthree\n");
        assert_eq!(render_page(&page, None), "one\ntwo\nthree\n");
    }
}
