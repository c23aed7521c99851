//! `ps`: the processes, live ones first.

use clap::Args;
use pinfold_api::types::{ListQuery, ProcessList};

use crate::console::Screen;
use crate::failure::Failure;
use crate::render::list::render_list;
use crate::session::Session;

/// How many are shown unless more are asked for.
const SHOWN: u32 = 20;
/// The most that one page of the API holds.
const PAGE_MOST: u32 = 500;

/// List processes: live ones first, then the most recent
///
/// AGE is the time since the start, RAN how long the command itself ran.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  pinfold ps --owner chat-7 --status live")]
pub(crate) struct PsArgs {
    /// Show all that are kept
    #[arg(short, long, conflicts_with = "limit")]
    pub(crate) all: bool,
    /// Only this owner's
    #[arg(long)]
    pub(crate) owner: Option<String>,
    /// Only these, separated by commas: live, starting, running, lingering, finished, lost
    #[arg(long)]
    pub(crate) status: Option<String>,
    /// Only those with this label
    #[arg(long, value_name = "K=V")]
    pub(crate) label: Option<String>,
    /// Only those with this name
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Show at most this many
    #[arg(long, value_name = "N", default_value_t = SHOWN, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) limit: u32,
}

/// Lists and prints.
pub(crate) async fn run(session: &Session, args: &PsArgs, screen: &mut Screen) -> Result<u8, Failure> {
    let list = list(session, query(args), if args.all { u32::MAX } else { args.limit }).await?;
    if screen.json {
        screen.document(&list)?;
    } else {
        screen.text(&render_list(&list, jiff::Timestamp::now(), screen.width(), screen.paint()))?;
    }
    Ok(0)
}

/// Pages until there are so many, or no more.
pub(super) async fn list(session: &Session, query: ListQuery, most: u32) -> Result<ProcessList, Failure> {
    let page =
        |limit: u32, page: Option<String>| ListQuery { limit: Some(limit.min(PAGE_MOST)), page, ..query.clone() };
    let first = page(most, None);
    let mut list = session.ask(async |client| client.list(&first).await).await?;
    while let Some(next) = list.next.clone() {
        let missing = most.saturating_sub(list.processes.len() as u32);
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
        let args = Args::try_parse_from(["pinfold", "ps", "--owner", "o", "--status", "live", "--label", "a=b"]);
        let Command::Ps(args) = args.expect("parses").command else { panic!("not ps") };
        let query = super::query(&args);
        assert_eq!((query.owner.as_deref(), query.status.as_deref()), (Some("o"), Some("live")));
        assert_eq!((query.label.as_deref(), args.limit), (Some("a=b"), 20));
        assert!(Args::try_parse_from(["pinfold", "ps", "-a", "--limit", "3"]).is_err());
        assert!(Args::try_parse_from(["pinfold", "ps", "--limit", "0"]).is_err());
    }
}
