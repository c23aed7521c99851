//! `handover`: give a process to another owner.

use clap::Args;
use pinfold_api::types::HandoverRequest;

use crate::console::Console;
use crate::failure::Failure;
use crate::render::paint::Tone;
use crate::session::Session;

/// Hand a process over to another owner, and notify that owner of the purpose
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  pinfold handover k3v9 --to chat-7 --purpose 'stop it when the tests are done'")]
pub(crate) struct HandoverArgs {
    /// Process: id, unique prefix of an id, or name of a live process
    pub(crate) id: String,
    /// New owner [default: the parent of the current one]
    #[arg(long, value_name = "OWNER")]
    pub(crate) to: Option<String>,
    /// What the new owner should do with it, in a sentence
    #[arg(long, value_name = "TEXT")]
    pub(crate) purpose: String,
}

/// Sends the request and prints the new owner.
pub(crate) async fn run(session: &Session, args: &HandoverArgs, console: &mut Console) -> Result<u8, Failure> {
    let request = HandoverRequest { to: args.to.clone(), purpose: args.purpose.clone() };
    // No retry: a repeated request would hand it on to the parent's parent.
    let record = session.once().handover(&args.id, &request).await?;
    if console.json {
        console.document(&record)?;
    } else {
        console.text(&format!(
            "{}  now belongs to {}\n",
            console.paint().apply(Tone::Strong, &record.id),
            record.owner
        ))?;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use crate::args::Args;

    #[test]
    fn a_purpose_is_required() {
        assert!(Args::try_parse_from(["pinfold", "handover", "k3", "--purpose", "watch it"]).is_ok());
        assert!(Args::try_parse_from(["pinfold", "handover", "k3", "--to", "o"]).is_err());
    }
}
