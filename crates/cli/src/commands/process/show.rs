//! `show`: details of one process.

use clap::Args;

use crate::console::Console;
use crate::failure::Failure;
use crate::render::record::render_record;
use crate::session::Session;

/// Show details of a process and its process tree
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  pinfold show k3v9")]
pub(crate) struct ShowArgs {
    /// Process: id, unique prefix of an id, or name (the live process of that name, otherwise the latest that ended)
    pub(crate) id: String,
}

/// Prints the record.
pub(crate) async fn run(session: &Session, args: &ShowArgs, console: &mut Console) -> Result<u8, Failure> {
    let record = session.ask(async |client| client.show(&args.id).await).await?;
    if console.json {
        console.document(&record)?;
    } else {
        console.text(&render_record(&record, jiff::Timestamp::now(), console.paint()))?;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use crate::args::Args;

    #[test]
    fn one_process_is_named() {
        assert!(Args::try_parse_from(["pinfold", "show", "k3"]).is_ok());
        assert!(Args::try_parse_from(["pinfold", "show"]).is_err());
    }
}
