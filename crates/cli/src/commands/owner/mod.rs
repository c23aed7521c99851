//! `owner`: list and end owners, release their waits.

pub(crate) mod handover;
pub(crate) mod token;

use clap::{Args, Subcommand};
use pinfold_api::input::Span;
use pinfold_api::types::EndRequest;

use crate::console::Console;
use crate::exit;
use crate::failure::Failure;
use crate::render::owner::{render_end, render_owners};
use crate::render::quantity::render_count;
use crate::session::Session;

/// List owners, end one, or release its waits
///
/// An owner is the chat, session or agent that processes belong to. It sees its own processes and those of its descendants.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  pinfold owner ls\n  pinfold owner end chat-7 --grace 2s\n  pinfold owner release chat-7"
)]
pub(crate) struct OwnerArgs {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// List owners with parent, live processes and last contact
    #[command(visible_aliases = ["ps", "list"])]
    Ls,
    /// End an owner: stop, hand over or keep each process according to its lifetime
    ///
    /// Descendants of the owner end too. Exits with 1 and lists the survivors if anything could not be stopped.
    End {
        /// Name of the owner, as `pinfold owner ls` shows it
        owner: String,
        /// Time between the stop signal and KILL; 0 kills at once [default: that of each process]
        #[arg(long, value_name = "DURATION")]
        grace: Option<String>,
    },
    /// Make an owner's open waits return; its processes keep running
    Release {
        /// Name of the owner, as `pinfold owner ls` shows it
        owner: String,
    },
}

/// Runs the command.
pub(crate) async fn run(session: &Session, args: &OwnerArgs, console: &mut Console) -> Result<u8, Failure> {
    match &args.verb {
        Verb::Ls => {
            let list = session.ask(async |client| client.owners().await).await?;
            match console.json {
                true => console.document(&list)?,
                false => {
                    console.text(&render_owners(&list, jiff::Timestamp::now(), console.width(), console.paint()))?
                }
            }
            Ok(0)
        }
        Verb::End { owner, grace } => {
            let request = EndRequest { grace: grace.as_deref().map(Span::from) };
            let answer = session.ask(async |client| client.end_owner(owner, &request).await).await?;
            match console.json {
                true => console.document(&answer)?,
                false => console.text(&render_end(&answer, console.paint()))?,
            }
            Ok(if answer.survivors.is_empty() { 0 } else { exit::FAILED })
        }
        Verb::Release { owner } => {
            let answer = session.ask(async |client| client.release_owner(owner).await).await?;
            match console.json {
                true => console.document(&answer)?,
                false => {
                    console.text(&format!("{owner}  released {}\n", render_count(answer.released, "wait", "waits")))?
                }
            }
            Ok(0)
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use crate::args::Args;

    #[test]
    fn an_owner_is_named() {
        for line in ["pinfold owner ls", "pinfold owner end o --grace 0", "pinfold owner release o"] {
            assert!(Args::try_parse_from(line.split(' ')).is_ok(), "{line}");
        }
        for line in ["pinfold owner", "pinfold owner end", "pinfold owner ls o"] {
            assert!(Args::try_parse_from(line.split(' ')).is_err(), "{line}");
        }
    }
}
