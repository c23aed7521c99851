//! `events`: print the event log.

use std::time::Duration;

use clap::Args;
use pinfold_api::types::{Event, EventsQuery};

use crate::console::Console;
use crate::failure::Failure;
use crate::render::event::render_event;
use crate::session::{Session, reader};

/// Events in one page.
const PAGE: u32 = 1000;
/// Pause before a stream that ended is reopened.
const PAUSE: Duration = Duration::from_millis(100);
/// How long a request of a consumer waits for events; it is then repeated.
const DEADLINE: &str = "5m";

/// Print the event log: started, exited, closed, finished, lost, matched and so on
///
/// Without -f it prints the log and returns. With -f it follows new events, starting now unless --after is given; no event is
/// missed or repeated, even if the daemon is replaced meanwhile.
///
/// The daemon stores a cursor for each consumer: events that were acknowledged (--ack) are not shown to it again, and events
/// leased to one reader are not given to another reader of the same consumer meanwhile.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  pinfold events -f --owner chat-7 --json\n  \
                        pinfold events --consumer desk --ack --kinds announce")]
pub(crate) struct EventsArgs {
    /// Follow new events
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Only events after this number, or `latest`
    #[arg(long, value_name = "N|latest")]
    pub(crate) after: Option<String>,
    /// Only events of this owner
    #[arg(long)]
    pub(crate) owner: Option<String>,
    /// Only events of this process
    #[arg(long, value_name = "ID")]
    pub(crate) process: Option<String>,
    /// Only these kinds, separated by commas; `announce` selects those that owners are notified of
    #[arg(long, value_name = "KINDS")]
    pub(crate) kinds: Option<String>,
    /// Read as this consumer, from where it left off
    #[arg(long, value_name = "NAME")]
    pub(crate) consumer: Option<String>,
    /// Acknowledge the printed events
    #[arg(long, requires = "consumer")]
    pub(crate) ack: bool,
    /// How long unacknowledged events stay leased to this reader [default: 30s]
    #[arg(long, value_name = "DURATION", requires = "consumer")]
    pub(crate) lease: Option<String>,
}

/// Prints the log, then follows it with `--follow`.
pub(crate) async fn run(session: &Session, args: &EventsArgs, console: &mut Console) -> Result<u8, Failure> {
    let mut query = EventsQuery {
        after: args.after.clone(),
        owner: args.owner.clone(),
        process: args.process.clone(),
        limit: Some(PAGE),
        kinds: args.kinds.clone(),
        consumer: args.consumer.clone(),
        lease: args.lease.clone(),
        reader: args.consumer.as_ref().map(|_| reader()),
        wait: None,
    };
    if let Some(consumer) = &args.consumer {
        query.wait = args.follow.then(|| DEADLINE.to_owned());
        return consume(session, &query, consumer, args, console).await;
    }
    query.after = query.after.or_else(|| args.follow.then(|| "latest".to_owned()));
    loop {
        let page = session.ask(async |client| client.events(&query).await).await?;
        if page.truncated {
            console.note("older events have been removed: the log starts later than --after");
        }
        page.events.iter().try_for_each(|event| print(event, console))?;
        let done = page.events.is_empty();
        query.after = Some(page.next.to_string());
        if done {
            break;
        }
    }
    if args.follow {
        follow(session, query, console).await?;
    }
    Ok(0)
}

/// Prints the unacknowledged events of a consumer; with `--ack` acknowledges them after printing.
async fn consume(
    session: &Session,
    query: &EventsQuery,
    consumer: &str,
    args: &EventsArgs,
    console: &mut Console,
) -> Result<u8, Failure> {
    loop {
        let page = session.ask(async |client| client.events(query).await).await?;
        page.events.iter().try_for_each(|event| print(event, console))?;
        if args.ack
            && let Some(last) = page.events.last()
        {
            session.ask(async |client| client.ack(consumer, last.seq).await).await?;
        }
        if page.events.is_empty() && !args.follow {
            return Ok(0);
        }
    }
}

/// Follows forever; a stream that ends is reopened after the last printed event.
async fn follow(session: &Session, mut query: EventsQuery, console: &mut Console) -> Result<(), Failure> {
    query.limit = None;
    loop {
        let mut stream = session.ask(async |client| client.events_stream(&query).await).await?;
        while let Some(Ok(event)) = stream.next().await {
            print(&event, console)?;
            query.after = Some(event.seq.to_string());
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn print(event: &Event, console: &mut Console) -> Result<(), Failure> {
    if console.json {
        return console.json_line(event);
    }
    console.text_now(&render_event(event, console.width(), console.paint()))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use crate::args::{Args, Command};

    #[test]
    fn arguments_are_taken() {
        let line = "pinfold events -f --after latest --owner o --process k3 --consumer c --ack --lease 1m";
        let Command::Events(args) = Args::try_parse_from(line.split(' ')).expect("parses").command else {
            panic!("not events")
        };
        assert!(args.follow && args.ack);
        assert_eq!((args.after.as_deref(), args.process.as_deref()), (Some("latest"), Some("k3")));
        assert!(Args::try_parse_from(["pinfold", "events", "--ack"]).is_err(), "needs --consumer");
    }
}
