//! `stop`: stop whole process trees and report survivors.

use clap::Args;
use pinfold_api::input::Span;
use pinfold_api::types::{ListQuery, Record, StopAnswer, StopRequest};
use tokio::task::{JoinSet, LocalSet};

use super::ps;
use crate::console::Console;
use crate::exit;
use crate::failure::Failure;
use crate::render::summary::render_stop;
use crate::session::Session;

/// How many ended processes are searched for pending restarts.
const MAX_ENDED: u32 = 500;

/// Stop processes and everything they started
///
/// With --owner or --label, the processes that match when the command starts are stopped. If none matches, it says so and
/// exits with 0.
///
/// Sends TERM (or --signal), waits for the grace period, sends KILL, and checks that the whole tree is gone. Exits with 1 and
/// lists the survivors if anything could not be stopped.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  pinfold stop web k3v9\n  pinfold stop --owner chat-7 --grace 2s\n  \
                  pinfold stop --label team=ui --label env=dev\n  pinfold stop --all")]
pub(crate) struct StopArgs {
    /// Processes: ids, unique prefixes of ids, or names (the live process of that name, otherwise the latest that ended)
    #[arg(value_name = "ID", required_unless_present_any = ["all", "owner", "label"], conflicts_with_all = ["all", "owner", "label"])]
    pub(crate) ids: Vec<String>,
    /// Time between the first signal and KILL; 0 kills at once [default: that of the process]
    #[arg(long, value_name = "DURATION")]
    pub(crate) grace: Option<String>,
    /// First signal [default: that of the process]
    #[arg(long, value_name = "SIGNAL")]
    pub(crate) signal: Option<String>,
    /// Stop every live process
    #[arg(long)]
    pub(crate) all: bool,
    /// Stop every live process of this owner
    #[arg(long)]
    pub(crate) owner: Option<String>,
    /// Stop every live process with this label; if repeated, with all of them
    #[arg(long, value_name = "KEY=VALUE", conflicts_with = "all")]
    pub(crate) label: Vec<String>,
}

/// Stops all of them concurrently.
pub(crate) async fn run(session: &Session, args: &StopArgs, console: &mut Console) -> Result<u8, Failure> {
    let ids = if args.ids.is_empty() { live_ids(session, args).await? } else { args.ids.clone() };
    if ids.is_empty() {
        console.note("nothing to stop: no live process matches");
    }
    let request = StopRequest {
        signal: args.signal.clone(),
        grace: args.grace.as_deref().map(Span::from),
        by: Some("pinfold stop".into()),
    };
    stop_all(session, ids, &request, console).await
}

/// Stops these processes concurrently and prints each result; returns the exit code for all.
pub(super) async fn stop_all(
    session: &Session,
    ids: Vec<String>,
    request: &StopRequest,
    console: &mut Console,
) -> Result<u8, Failure> {
    let (mut stopping, here) = (JoinSet::new(), LocalSet::new());
    for id in ids {
        let (session, request) = (session.clone(), request.clone());
        stopping.spawn_local_on(async move { stop(&session, &id, &request).await }, &here);
    }
    here.run_until(print_all(stopping, console)).await
}

/// Whether a process is live or will be restarted.
pub(crate) fn is_live_or_restarts(record: &Record) -> bool {
    !record.status.is_over() || record.awaits_restart()
}

/// Prints each result when it arrives; returns the exit code for all.
async fn print_all(mut stopping: JoinSet<Result<StopAnswer, Failure>>, console: &mut Console) -> Result<u8, Failure> {
    let mut code = 0;
    while let Some(stopped) = stopping.join_next().await {
        match stopped.map_err(std::io::Error::other)? {
            Ok(answer) => {
                print(&answer, console)?;
                code = code.max(if answer.survivors.is_empty() { 0 } else { exit::FAILED });
            }
            Err(failure) => code = code.max(console.report(&failure)),
        }
    }
    Ok(code)
}

/// Stops one process. A repeated stop does no harm, so the request may be retried.
async fn stop(session: &Session, id: &str, request: &StopRequest) -> Result<StopAnswer, Failure> {
    session.ask(async |client| client.stop(id, request).await).await
}

fn print(answer: &StopAnswer, console: &mut Console) -> Result<(), Failure> {
    if console.json {
        return console.json_line(answer);
    }
    console.text(&render_stop(answer, jiff::Timestamp::now(), console.paint()))
}

async fn live_ids(session: &Session, args: &StopArgs) -> Result<Vec<String>, Failure> {
    let query = |status: &str| ListQuery {
        owner: args.owner.clone(),
        label: args.label.clone(),
        status: Some(status.into()),
        ..Default::default()
    };
    let mut all = ps::list(session, query("live"), u32::MAX).await?.processes;
    // A process that is about to be restarted counts too: it would be back a moment later.
    let ended = ps::list(session, query("ended"), MAX_ENDED).await?.processes;
    all.extend(ended.into_iter().filter(is_live_or_restarts));
    Ok(all.into_iter().map(|record| record.id).collect())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use crate::args::Args;

    #[test]
    fn what_is_stopped_must_be_said() {
        for line in [
            "pinfold stop a b --grace 2s --signal INT",
            "pinfold stop --all",
            "pinfold stop --owner o --label a=b --label c=d",
        ] {
            assert!(Args::try_parse_from(line.split(' ')).is_ok(), "{line}");
        }
        for line in [
            "pinfold stop",
            "pinfold stop a --all",
            "pinfold stop a --owner o",
            "pinfold stop a --label k=v",
            "pinfold stop --all --label k=v",
        ] {
            assert!(Args::try_parse_from(line.split(' ')).is_err(), "{line}");
        }
    }
}
