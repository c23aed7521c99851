//! `owner`: who there is, and what their end means.

use clap::{Args, Subcommand};
use pinfold_api::input::Span;
use pinfold_api::types::EndRequest;

use crate::console::Screen;
use crate::exit;
use crate::failure::Failure;
use crate::render::owner::{render_end, render_owners};
use crate::render::quantity::render_count;
use crate::session::Session;

/// List owners, end one, or release its waits
///
/// An owner is the chat, session or agent that processes belong to. It sees its own and those of its descendants.
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
    /// List owners: parent, live processes, when last heard of
    #[command(visible_aliases = ["ps", "list"])]
    Ls,
    /// End an owner: stop its processes, hand them over or keep them, as their lifetime says
    ///
    /// Its descendants end with it. Exits with 1 if anything survived, and names it.
    End {
        owner: String,
        /// How long to wait before KILL; 0 kills at once [default: each process's own]
        #[arg(long, value_name = "D")]
        grace: Option<String>,
    },
    /// Let an owner's open waits return; processes go on
    Release { owner: String },
}

/// Does it.
pub(crate) async fn run(session: &Session, args: &OwnerArgs, screen: &mut Screen) -> Result<u8, Failure> {
    match &args.verb {
        Verb::Ls => {
            let list = session.ask(async |client| client.owners().await).await?;
            match screen.json {
                true => screen.document(&list)?,
                false => screen.text(&render_owners(&list, jiff::Timestamp::now(), screen.width(), screen.paint()))?,
            }
            Ok(0)
        }
        Verb::End { owner, grace } => {
            let request = EndRequest { grace: grace.as_deref().map(Span::from) };
            let answer = session.ask(async |client| client.end_owner(owner, &request).await).await?;
            match screen.json {
                true => screen.document(&answer)?,
                false => screen.text(&render_end(&answer, screen.paint()))?,
            }
            Ok(if answer.survivors.is_empty() { 0 } else { exit::TROUBLE })
        }
        Verb::Release { owner } => {
            let answer = session.ask(async |client| client.release_owner(owner).await).await?;
            match screen.json {
                true => screen.document(&answer)?,
                false => {
                    screen.text(&format!("{owner}  released {}\n", render_count(answer.released, "wait", "waits")))?
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
