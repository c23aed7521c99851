//! `events`: the numbered log of what happened.

use std::time::Duration;

use clap::Args;
use pinfold_api::types::{Event, EventsQuery};

use crate::console::Screen;
use crate::failure::Failure;
use crate::render::event::render_event;
use crate::session::{Session, reader};

/// The most events of one page.
const PAGE: u32 = 1000;
/// The pause before a stream that ended is taken up again.
const PAUSE: Duration = Duration::from_millis(100);
/// How long one request of a consumer waits for events; it is then repeated.
const PATIENCE: &str = "5m";

/// Print what happened: started, exited, closed, finished, lost, matched and so on
///
/// Without -f it prints the log and returns. With -f it goes on as things happen, from now on unless --after says
/// from where; an event is never missed nor shown twice, even if the daemon is replaced meanwhile.
///
/// A consumer has a cursor of its own that the daemon keeps: what it was shown and acknowledged (--ack) is never
/// shown to it again, and what is leased to one reader no other reader of that name gets meanwhile.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  pinfold events -f --owner chat-7 --json\n  \
                        pinfold events --consumer desk --ack --kinds announce")]
pub(crate) struct EventsArgs {
    /// Go on as things happen
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Only events with a higher number, or `latest`
    #[arg(long, value_name = "N|latest")]
    pub(crate) after: Option<String>,
    /// Only this owner's
    #[arg(long)]
    pub(crate) owner: Option<String>,
    /// Only those of this process
    #[arg(long, value_name = "ID")]
    pub(crate) process: Option<String>,
    /// Only these kinds, separated by commas; `announce` for those worth telling their owner
    #[arg(long, value_name = "KINDS")]
    pub(crate) kinds: Option<String>,
    /// Read as this consumer, from where it stopped
    #[arg(long, value_name = "NAME")]
    pub(crate) consumer: Option<String>,
    /// Acknowledge what was printed
    #[arg(long, requires = "consumer")]
    pub(crate) ack: bool,
    /// How long they stay ours unless acknowledged [default: 30s]
    #[arg(long, value_name = "D", requires = "consumer")]
    pub(crate) lease: Option<String>,
}

/// Prints the log, then follows it if asked to.
pub(crate) async fn run(session: &Session, args: &EventsArgs, screen: &mut Screen) -> Result<u8, Failure> {
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
        query.wait = args.follow.then(|| PATIENCE.to_owned());
        return consume(session, &query, consumer, args, screen).await;
    }
    query.after = query.after.or_else(|| args.follow.then(|| "latest".to_owned()));
    loop {
        let page = session.ask(async |client| client.events(&query).await).await?;
        if page.truncated {
            screen.note("the log no longer reaches back that far: older events are gone");
        }
        page.events.iter().try_for_each(|event| print(event, screen))?;
        let done = page.events.is_empty();
        query.after = Some(page.next.to_string());
        if done {
            break;
        }
    }
    if args.follow {
        follow(session, query, screen).await?;
    }
    Ok(0)
}

/// Prints what a consumer has not dealt with, and acknowledges it once it is printed.
async fn consume(
    session: &Session,
    query: &EventsQuery,
    consumer: &str,
    args: &EventsArgs,
    screen: &mut Screen,
) -> Result<u8, Failure> {
    loop {
        let page = session.ask(async |client| client.events(query).await).await?;
        page.events.iter().try_for_each(|event| print(event, screen))?;
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

/// Follows for ever; a stream that ends is taken up after the last event seen.
async fn follow(session: &Session, mut query: EventsQuery, screen: &mut Screen) -> Result<(), Failure> {
    query.limit = None;
    loop {
        let mut stream = session.ask(async |client| client.events_stream(&query).await).await?;
        while let Some(Ok(event)) = stream.next().await {
            print(&event, screen)?;
            query.after = Some(event.seq.to_string());
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn print(event: &Event, screen: &mut Screen) -> Result<(), Failure> {
    if screen.json {
        return screen.json_line(event);
    }
    screen.text_now(&render_event(event, screen.width(), screen.paint()))
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
        assert!(Args::try_parse_from(["pinfold", "events", "--ack"]).is_err(), "whose?");
    }
}
