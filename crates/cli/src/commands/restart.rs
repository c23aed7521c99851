//! `restart`: ask for the next life of a process.

use clap::Args;
use pinfold_api::input::Span;
use pinfold_api::types::StopRequest;

use crate::console::Screen;
use crate::failure::Failure;
use crate::session::Session;

/// End the current life of a process, if it lives, and begin the next; prints the id of the new one
///
/// For processes that were started with a restart policy: they have a next life, with the same command, environment,
/// name, labels, owner and ports.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  pinfold run -d --name web --restart on-failure npm run dev\n  pinfold restart web"
)]
pub(crate) struct RestartArgs {
    /// Its id, the beginning of it, or its name
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// How long to wait before KILL; 0 kills at once [default: the process's own]
    #[arg(long, value_name = "D")]
    pub(crate) grace: Option<String>,
}

/// Asks, and prints the new life.
pub(crate) async fn run(session: &Session, args: &RestartArgs, screen: &mut Screen) -> Result<u8, Failure> {
    let request =
        StopRequest { signal: None, grace: args.grace.as_deref().map(Span::from), by: Some("pinfold restart".into()) };
    let record = session.ask(async |client| client.restart(&args.id, &request).await).await?;
    match screen.json {
        true => screen.document(&record)?,
        false => screen.text(&format!("{}\n", record.id))?,
    }
    Ok(0)
}
