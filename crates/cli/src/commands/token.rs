//! `token`: who may come in over TCP.

use clap::{Args, Subcommand};
use pinfold_api::input::Span;
use pinfold_api::types::TokenRequest;

use crate::console::Screen;
use crate::failure::Failure;
use crate::render::owner::render_tokens;
use crate::session::Session;

/// Add, list and revoke the tokens that TCP asks for
///
/// A token is bound to one owner, or is the operator's. Its text is shown once and kept nowhere.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  pinfold token add --owner chat-7 --label laptop --expires 30d\n  pinfold token ls\n  \
                        pinfold token revoke t5k2"
)]
pub(crate) struct TokenArgs {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Make a token and print it
    Add {
        /// The one owner it acts as [default: an operator, who sees all]
        #[arg(long)]
        owner: Option<String>,
        /// What it is for
        #[arg(long)]
        label: Option<String>,
        /// It ends after this time [default: never]
        #[arg(long, value_name = "D")]
        expires: Option<String>,
    },
    /// List tokens, without their text
    #[command(visible_aliases = ["ps", "list"])]
    Ls,
    /// End a token at once
    Revoke {
        /// Its id, as `ls` shows it
        id: String,
    },
}

/// Does it.
pub(crate) async fn run(session: &Session, args: &TokenArgs, screen: &mut Screen) -> Result<u8, Failure> {
    match &args.verb {
        Verb::Add { owner, label, expires } => {
            let expires = expires.as_deref().map(Span::from);
            let request = TokenRequest { owner: owner.clone(), label: label.clone(), expires };
            // Once: a second one would be a token that nobody knows of.
            let answer = session.once().add_token(&request).await?;
            match screen.json {
                true => screen.document(&answer)?,
                false => {
                    screen.hint(&format!("token {}, shown this once", answer.shown.id));
                    screen.text(&format!("{}\n", answer.token))?;
                }
            }
        }
        Verb::Ls => {
            let list = session.ask(async |client| client.tokens().await).await?;
            match screen.json {
                true => screen.document(&list)?,
                false => screen.text(&render_tokens(&list, screen.width(), screen.paint()))?,
            }
        }
        Verb::Revoke { id } => {
            let token = session.once().revoke_token(id).await?;
            match screen.json {
                true => screen.document(&token)?,
                false => screen.text(&format!("{}  revoked\n", token.id))?,
            }
        }
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use crate::args::Args;

    #[test]
    fn arguments_are_taken() {
        for line in ["pinfold token add --owner o --expires 1d", "pinfold token ls", "pinfold token revoke t"] {
            assert!(Args::try_parse_from(line.split(' ')).is_ok(), "{line}");
        }
        assert!(Args::try_parse_from(["pinfold", "token", "revoke"]).is_err());
    }
}
