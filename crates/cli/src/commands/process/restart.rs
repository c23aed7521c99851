//! `restart`: stop a process that has a restart policy and start it again.

use clap::Args;
use pinfold_api::input::Span;
use pinfold_api::types::StopRequest;

use crate::console::Console;
use crate::failure::Failure;
use crate::session::Session;

/// Stop a process and start it again; print the id of the new process
///
/// Works for processes with a restart policy (`run --restart`). The new process has the same command, environment, name,
/// labels, owner and ports. A process that has already ended is started again.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  pinfold run -d --name web --restart on-failure npm run dev\n  pinfold restart web"
)]
pub(crate) struct RestartArgs {
    /// Its id, the beginning of it, or its name
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// Time between the stop signal and KILL; 0 kills at once [default: that of the process]
    #[arg(long, value_name = "DURATION")]
    pub(crate) grace: Option<String>,
}

/// Sends the request and prints the id of the new process.
pub(crate) async fn run(session: &Session, args: &RestartArgs, console: &mut Console) -> Result<u8, Failure> {
    let request =
        StopRequest { signal: None, grace: args.grace.as_deref().map(Span::from), by: Some("pinfold restart".into()) };
    let record = session.ask(async |client| client.restart(&args.id, &request).await).await?;
    match console.json {
        true => console.document(&record)?,
        false => console.text(&format!("{}\n", record.id))?,
    }
    Ok(0)
}
