//! `handover`: a process gets another owner.

use clap::Args;
use pinfold_api::types::HandoverRequest;

use crate::console::Screen;
use crate::failure::Failure;
use crate::render::paint::Tone;
use crate::session::Session;

/// Hand a process over to another owner, who is told so with its purpose
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  pinfold handover k3v9 --to chat-7 --purpose 'stop it when the tests are done'")]
pub(crate) struct HandoverArgs {
    /// An id, the beginning of one, or a live process's name
    pub(crate) id: String,
    /// The new owner [default: the parent of the owner it has]
    #[arg(long, value_name = "OWNER")]
    pub(crate) to: Option<String>,
    /// What the new owner is to do with it, in a sentence
    #[arg(long, value_name = "TEXT")]
    pub(crate) purpose: String,
}

/// Asks and says whose it is now.
pub(crate) async fn run(session: &Session, args: &HandoverArgs, screen: &mut Screen) -> Result<u8, Failure> {
    let request = HandoverRequest { to: args.to.clone(), purpose: args.purpose.clone() };
    // Once: a second time would hand it on to the parent's parent.
    let record = session.once().handover(&args.id, &request).await?;
    if screen.json {
        screen.document(&record)?;
    } else {
        screen.text(&format!(
            "{}  belongs to {} now\n",
            screen.paint().apply(Tone::Strong, &record.id),
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
    fn a_purpose_is_said() {
        assert!(Args::try_parse_from(["pinfold", "handover", "k3", "--purpose", "watch it"]).is_ok());
        assert!(Args::try_parse_from(["pinfold", "handover", "k3", "--to", "o"]).is_err());
    }
}
