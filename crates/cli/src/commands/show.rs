//! `show`: everything about one process.

use clap::Args;

use crate::console::Screen;
use crate::failure::Failure;
use crate::render::record::render_record;
use crate::session::Session;

/// Show everything about one process, with its living tree
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  pinfold show k3v9")]
pub(crate) struct ShowArgs {
    /// An id, the beginning of one, or a live process's name
    pub(crate) id: String,
}

/// Asks and prints.
pub(crate) async fn run(session: &Session, args: &ShowArgs, screen: &mut Screen) -> Result<u8, Failure> {
    let record = session.ask(async |client| client.show(&args.id).await).await?;
    if screen.json {
        screen.document(&record)?;
    } else {
        screen.text(&render_record(&record, jiff::Timestamp::now(), screen.paint()))?;
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
