//! `rm`: remove ended processes and their output.

use clap::Args;
use pinfold_api::error::ErrorCode;
use pinfold_api::types::{Removed, StopRequest};

use crate::console::Console;
use crate::exit;
use crate::failure::Failure;
use crate::render::paint::Tone;
use crate::render::quantity::render_size;
use crate::session::Session;

/// Remove ended processes and their output
///
/// A live process, or one that is about to be restarted, is refused: stop it first, or use --force. If one cannot be removed,
/// the others still are, and the exit code is not 0.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  pinfold rm k3v9 build\n  pinfold rm --force web      stop it first if it is live\n\n\
                        To remove everything that ended some time ago, use `pinfold gc --older-than 1d`."
)]
pub(crate) struct RmArgs {
    /// Processes: ids, unique prefixes of ids, or names (the live process of that name, otherwise the latest that ended)
    #[arg(required = true, value_name = "ID")]
    pub(crate) ids: Vec<String>,
    /// Stop live processes with everything they started, then remove them
    #[arg(short, long)]
    pub(crate) force: bool,
}

/// Removes them one after another; returns the highest exit code.
pub(crate) async fn run(session: &Session, args: &RmArgs, console: &mut Console) -> Result<u8, Failure> {
    let mut code = 0;
    for name in &args.ids {
        match remove(session, name, args.force).await {
            Ok(removed) => print(&removed, console)?,
            Err(failure) => code = code.max(console.report(&failure)),
        }
    }
    Ok(code)
}

async fn remove(session: &Session, name: &str, force: bool) -> Result<Removed, Failure> {
    // Use the id from here on: once this process is removed, the name refers to an earlier one.
    let record = session.ask(async |client| client.show(name).await).await?;
    let id = record.id;
    let removed = session.ask(async |client| client.remove(&id).await).await;
    match removed {
        Err(failure) if failure.error.code == ErrorCode::StillRunning && force => {}
        Err(mut failure) if failure.error.code == ErrorCode::StillRunning => {
            failure.error.message.push_str(", or use `pinfold rm --force`");
            return Err(failure);
        }
        other => return other,
    }
    let request = StopRequest { signal: None, grace: None, by: Some("pinfold rm --force".into()) };
    let stopped = session.ask(async |client| client.stop(&id, &request).await).await?;
    if !stopped.survivors.is_empty() {
        let message =
            format!("{id} was not removed: some of its processes could not be stopped: see `pinfold show {id}`");
        return Err(Failure::new(ErrorCode::StillRunning, message, exit::FAILED));
    }
    session.ask(async |client| client.remove(&id).await).await
}

fn print(removed: &Removed, console: &mut Console) -> Result<(), Failure> {
    if console.json {
        return console.json_line(removed);
    }
    let id = console.paint().apply(Tone::Strong, &removed.id);
    console.text(&format!("{id}  removed, {}\n", render_size(removed.freed_bytes)))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use crate::args::{Args, Command};

    #[test]
    fn processes_are_named_and_force_is_optional() {
        let args = Args::try_parse_from(["pinfold", "rm", "-f", "a", "b"]).expect("parses");
        let Command::Rm(args) = args.command else { panic!("not rm") };
        assert!(args.force && args.ids == ["a", "b"]);
        assert!(Args::try_parse_from(["pinfold", "rm"]).is_err());
    }
}
