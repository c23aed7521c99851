//! `ps`: list processes.

use clap::Args;
use pinfold_api::types::{EventsQuery, ListQuery, ProcessList, Record};

use crate::console::Console;
use crate::failure::Failure;
use crate::render::paint::guard;
use crate::render::ps::render_list;
use crate::session::Session;

/// Default of `--limit`.
const DEFAULT_LIMIT: u32 = 20;
/// Maximum page size of the API.
const MAX_PAGE: u32 = 500;
/// How often `--watch` shows new ages and sizes when nothing else happens.
const REFRESH: &str = "2s";

/// List processes: live ones first, then the most recent
///
/// AGE is the time since the start, RAN the run time of the command itself.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  pinfold ps --owner chat-7 --status live\n  pinfold ps --status ended --label team=ui\n  \
                        pinfold stop $(pinfold ps -q --status live)\n  pinfold ps --watch --label team=ui"
)]
pub(crate) struct PsArgs {
    /// Show all processes, without a limit
    #[arg(short, long, conflicts_with = "limit")]
    pub(crate) all: bool,
    /// Only processes of this owner
    #[arg(long)]
    pub(crate) owner: Option<String>,
    /// Only these statuses, separated by commas: live, starting, running, lingering, finished, lost; ended means finished and lost
    #[arg(long)]
    pub(crate) status: Option<String>,
    /// Only processes with this label; if repeated, with all of them
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) label: Vec<String>,
    /// Only processes with this name
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Maximum number of processes to show
    #[arg(long, value_name = "N", default_value_t = DEFAULT_LIMIT, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) limit: u32,
    /// Print only ids, one per line
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Show the list again whenever something changes, until interrupted
    #[arg(short, long, conflicts_with = "quiet")]
    pub(crate) watch: bool,
}

/// Lists and prints.
pub(crate) async fn run(session: &Session, args: &PsArgs, console: &mut Console) -> Result<u8, Failure> {
    if args.quiet && console.json {
        return Err(Failure::invalid(
            "--quiet and --json exclude each other: the ids are in `ps --json` as `processes[].id`",
        ));
    }
    let max = if args.all { u32::MAX } else { args.limit };
    if args.watch {
        return watch(session, args, max, console).await;
    }
    let list = list(session, query(args), max).await?;
    if console.json {
        console.document(&list)?;
    } else if args.quiet {
        list.processes.iter().try_for_each(|record| console.text(&format!("{}\n", record.id)))?;
        list.notes.iter().for_each(|note| console.note(note));
    } else {
        console.text(&render_list(&list, jiff::Timestamp::now(), console.width(), console.paint()))?;
    }
    Ok(0)
}

/// Prints the list again and again: at once when an event arrives, and every [`REFRESH`] for ages and output. On a
/// terminal it replaces the earlier list; otherwise, and with `--json`, only a list that changed is printed.
async fn watch(session: &Session, args: &PsArgs, max: u32, console: &mut Console) -> Result<u8, Failure> {
    let mut printed: Option<ProcessList> = None;
    let mut after = "latest".to_owned();
    loop {
        let list = list(session, query(args), max).await?;
        if console.is_terminal() && !console.json {
            let text = render_list(&list, jiff::Timestamp::now(), console.width(), console.paint());
            let shown = cut_to_height(&text, console.height());
            // Home, the list with each line cleared to its end, then clear what an earlier list left below.
            let frame = format!("\u{1b}[H{}\u{1b}[J", visible_frame(&shown, console));
            console.bytes(if printed.is_none() { format!("\u{1b}[2J{frame}") } else { frame }.as_bytes())?;
        } else if printed.as_ref().is_none_or(|printed| !is_same(printed, &list)) {
            match console.json {
                true => console.json_line(&list)?,
                false => console.text_now(&render_list(&list, jiff::Timestamp::now(), None, console.paint()))?,
            }
        }
        printed = Some(list);
        let query = EventsQuery {
            after: Some(after.clone()),
            owner: args.owner.clone(),
            wait: Some(REFRESH.to_owned()),
            ..EventsQuery::default()
        };
        let page = session.ask(async |client| client.events(&query).await).await?;
        after = if page.next == 0 { after } else { page.next.to_string() };
    }
}

/// Whether two lists show the same processes in the same states.
fn is_same(one: &ProcessList, other: &ProcessList) -> bool {
    let state = |list: &ProcessList| {
        let of = |record: &Record| (record.id.clone(), record.status, record.outcome.clone(), record.paused);
        (list.total, list.processes.iter().map(of).collect::<Vec<_>>())
    };
    state(one) == state(other)
}

/// The first lines, as many as a terminal shows.
fn cut_to_height(text: &str, height: usize) -> String {
    text.lines().take(height.saturating_sub(1)).map(|line| format!("{line}\n")).collect()
}

/// The lines with control characters escaped, each cleared to the end of the screen's line.
fn visible_frame(text: &str, console: &Console) -> String {
    text.lines().map(|line| format!("{}\u{1b}[K\n", guard(line, console.paint()))).collect()
}

/// Fetches pages until `max` processes are listed or there are no more.
pub(crate) async fn list(session: &Session, query: ListQuery, max: u32) -> Result<ProcessList, Failure> {
    let page = |limit: u32, page: Option<String>| ListQuery { limit: Some(limit.min(MAX_PAGE)), page, ..query.clone() };
    let first = page(max, None);
    let mut list = session.ask(async |client| client.list(&first).await).await?;
    while let Some(next) = list.next.clone() {
        let missing = max.saturating_sub(list.processes.len() as u32);
        if missing == 0 {
            break;
        }
        let following = page(missing, Some(next));
        let more = session.ask(async |client| client.list(&following).await).await?;
        list.processes.extend(more.processes);
        list.total = more.total;
        list.next = more.next;
    }
    Ok(list)
}

fn query(args: &PsArgs) -> ListQuery {
    ListQuery {
        owner: args.owner.clone(),
        status: args.status.clone(),
        name: args.name.clone(),
        label: args.label.clone(),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use crate::args::{Args, Command};

    #[test]
    fn arguments_become_filters() {
        let labels = ["--label", "a=b", "--label", "c=d"];
        let args = Args::try_parse_from(["pinfold", "ps", "--owner", "o", "--status", "live"].iter().chain(&labels));
        let Command::Ps(args) = args.expect("parses").command else { panic!("not ps") };
        let query = super::query(&args);
        assert_eq!((query.owner.as_deref(), query.status.as_deref()), (Some("o"), Some("live")));
        assert_eq!((query.label, args.limit), (vec!["a=b".to_owned(), "c=d".to_owned()], 20));
        assert!(Args::try_parse_from(["pinfold", "ps", "-a", "--limit", "3"]).is_err());
        assert!(Args::try_parse_from(["pinfold", "ps", "--limit", "0"]).is_err());
    }
}
