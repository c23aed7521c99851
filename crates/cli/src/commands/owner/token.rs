//! `token`: tokens for access over TCP.

use clap::{Args, Subcommand};
use pinfold_api::input::Span;
use pinfold_api::types::TokenRequest;

use crate::console::Console;
use crate::failure::Failure;
use crate::render::owner::render_tokens;
use crate::session::Session;

/// Add, list and revoke tokens for access over TCP
///
/// A token acts as one owner, or as the operator. It is printed once; only its hash is stored.
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
    /// Create a token and print it
    Add {
        /// Owner that the token acts as [default: the operator, who sees everything]
        #[arg(long)]
        owner: Option<String>,
        /// Description shown by `token ls`
        #[arg(long)]
        label: Option<String>,
        /// Time until it expires [default: never]
        #[arg(long, value_name = "DURATION")]
        expires: Option<String>,
    },
    /// List tokens (not the secrets)
    #[command(visible_aliases = ["ps", "list"])]
    Ls,
    /// Revoke a token, effective immediately
    Revoke {
        /// Id of the token, as `pinfold token ls` shows it
        id: String,
    },
}

/// Runs the command.
pub(crate) async fn run(session: &Session, args: &TokenArgs, console: &mut Console) -> Result<u8, Failure> {
    match &args.verb {
        Verb::Add { owner, label, expires } => {
            let expires = expires.as_deref().map(Span::from);
            let request = TokenRequest { owner: owner.clone(), label: label.clone(), expires };
            // No retry: a repeated request would create a second token that is never printed.
            let answer = session.once().add_token(&request).await?;
            match console.json {
                true => console.document(&answer)?,
                false => {
                    console.hint(&format!("token {}: copy it now, it is not shown again", answer.shown.id));
                    console.text(&format!("{}\n", answer.token))?;
                }
            }
        }
        Verb::Ls => {
            let list = session.ask(async |client| client.tokens().await).await?;
            match console.json {
                true => console.document(&list)?,
                false => console.text(&render_tokens(&list, console.width(), console.paint()))?,
            }
        }
        Verb::Revoke { id } => {
            let token = session.once().revoke_token(id).await?;
            match console.json {
                true => console.document(&token)?,
                false => console.text(&format!("{}  revoked\n", token.id))?,
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
