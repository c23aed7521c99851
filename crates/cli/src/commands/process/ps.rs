//! `ps`: list processes.

use clap::Args;
use pinfold_api::types::{ListQuery, ProcessList};

use crate::console::Console;
use crate::failure::Failure;
use crate::render::ps::render_list;
use crate::session::Session;

/// Default of `--limit`.
const DEFAULT_LIMIT: u32 = 20;
/// Maximum page size of the API.
const MAX_PAGE: u32 = 500;

/// List processes: live ones first, then the most recent
///
/// AGE is the time since the start, RAN the run time of the command itself.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  pinfold ps --owner chat-7 --status live\n  pinfold ps --status ended --label team=ui\n  \
                        pinfold stop $(pinfold ps -q --status live)"
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
}

/// Lists and prints.
pub(crate) async fn run(session: &Session, args: &PsArgs, console: &mut Console) -> Result<u8, Failure> {
    if args.quiet && console.json {
        return Err(Failure::invalid(
            "--quiet and --json exclude each other: the ids are in `ps --json` as `processes[].id`",
        ));
    }
    let list = list(session, query(args), if args.all { u32::MAX } else { args.limit }).await?;
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
