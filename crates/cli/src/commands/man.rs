//! `man`: manual pages from the same definition as the help.

use std::path::PathBuf;

use clap::{Args, CommandFactory};

use crate::failure::Failure;
use crate::screen::Screen;

/// Print the manual page, or write the pages of all commands to a directory
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  pinfold man ~/.local/share/man/man1")]
pub(crate) struct ManArgs {
    /// Write a page per command here
    pub(crate) dir: Option<PathBuf>,
}

/// Prints or writes; needs no daemon.
pub(crate) fn run(args: &ManArgs, screen: &mut Screen) -> Result<u8, Failure> {
    let command = crate::args::Args::command();
    match &args.dir {
        Some(dir) => {
            let written = std::fs::create_dir_all(dir).and_then(|()| clap_mangen::generate_to(command, dir));
            written.map_err(|error| Failure::trouble(format!("{}: {error}", dir.display())))?;
        }
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(command).render(&mut page)?;
            screen.bytes(&page)?;
        }
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use crate::args::Args;

    #[test]
    fn a_directory_may_be_named() {
        assert!(Args::try_parse_from(["pinfold", "man"]).is_ok());
        assert!(Args::try_parse_from(["pinfold", "man", "/x"]).is_ok());
    }
}
