//! `stop`: end whole trees, and say what would not end.

use clap::Args;
use pinfold_api::input::Span;
use pinfold_api::types::{ListQuery, Record, StopAnswer, StopRequest};
use tokio::task::{JoinSet, LocalSet};

use super::ps;
use crate::console::Screen;
use crate::exit;
use crate::failure::Failure;
use crate::render::summary::render_stop;
use crate::session::Session;

/// How far back restarts that wait are looked for among what ended.
const WAITING_MOST: u32 = 500;

/// Stop processes with everything that descends from them: signal, grace, KILL, verified
///
/// Exits with 1 if anything survived, and names it.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  pinfold stop web k3v9\n  pinfold stop --owner chat-7 --grace 2s\n  pinfold stop --all"
)]
pub(crate) struct StopArgs {
    /// Ids, beginnings of ids, or names of live processes
    #[arg(value_name = "ID", required_unless_present_any = ["all", "owner"], conflicts_with_all = ["all", "owner"])]
    pub(crate) ids: Vec<String>,
    /// How long to wait before KILL; 0 kills at once [default: the process's own]
    #[arg(long, value_name = "D")]
    pub(crate) grace: Option<String>,
    /// The first signal [default: the process's own]
    #[arg(long, value_name = "SIG")]
    pub(crate) signal: Option<String>,
    /// Stop every live process
    #[arg(long)]
    pub(crate) all: bool,
    /// Stop every live process of this owner
    #[arg(long)]
    pub(crate) owner: Option<String>,
}

/// Stops all of them at the same time.
pub(crate) async fn run(session: &Session, args: &StopArgs, screen: &mut Screen) -> Result<u8, Failure> {
    let ids = if args.ids.is_empty() { live_ids(session, args.owner.clone()).await? } else { args.ids.clone() };
    if ids.is_empty() {
        screen.note("nothing to stop");
    }
    let request = StopRequest {
        signal: args.signal.clone(),
        grace: args.grace.as_deref().map(Span::from),
        by: Some("pinfold stop".into()),
    };
    let (mut stopping, here) = (JoinSet::new(), LocalSet::new());
    for id in ids {
        let (session, request) = (session.clone(), request.clone());
        stopping.spawn_local_on(async move { stop(&session, &id, &request).await }, &here);
    }
    here.run_until(print_all(stopping, screen)).await
}

/// Prints each as it ends; gives the exit code for all.
async fn print_all(mut stopping: JoinSet<Result<StopAnswer, Failure>>, screen: &mut Screen) -> Result<u8, Failure> {
    let mut code = 0;
    while let Some(stopped) = stopping.join_next().await {
        match stopped.map_err(std::io::Error::other)? {
            Ok(answer) => {
                print(&answer, screen)?;
                code = code.max(if answer.survivors.is_empty() { 0 } else { exit::TROUBLE });
            }
            Err(failure) => code = code.max(screen.report(&failure)),
        }
    }
    Ok(code)
}

/// Stopping twice is stopping once: a new daemon may be asked again.
async fn stop(session: &Session, id: &str, request: &StopRequest) -> Result<StopAnswer, Failure> {
    session.ask(async |client| client.stop(id, request).await).await
}

fn print(answer: &StopAnswer, screen: &mut Screen) -> Result<(), Failure> {
    if screen.json {
        return screen.json_line(answer);
    }
    screen.text(&render_stop(answer, jiff::Timestamp::now(), screen.paint()))
}

async fn live_ids(session: &Session, owner: Option<String>) -> Result<Vec<String>, Failure> {
    let query = |status: &str| ListQuery { owner: owner.clone(), status: Some(status.into()), ..Default::default() };
    let mut all = ps::list(session, query("live"), u32::MAX).await?.processes;
    // What is to live again would be there a moment later.
    let ended = ps::list(session, query("ended"), WAITING_MOST).await?.processes;
    let waits =
        |record: &Record| record.life.as_ref().is_some_and(|life| life.restarting_at.is_some() || life.awaits_turn);
    all.extend(ended.into_iter().filter(waits));
    Ok(all.into_iter().map(|record| record.id).collect())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use crate::args::Args;

    #[test]
    fn what_is_stopped_must_be_said() {
        for line in ["pinfold stop a b --grace 2s --signal INT", "pinfold stop --all", "pinfold stop --owner o"] {
            assert!(Args::try_parse_from(line.split(' ')).is_ok(), "{line}");
        }
        for line in ["pinfold stop", "pinfold stop a --all", "pinfold stop a --owner o"] {
            assert!(Args::try_parse_from(line.split(' ')).is_err(), "{line}");
        }
    }
}
