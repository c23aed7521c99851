//! `man`: manual pages, generated from the same definition as the help.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use clap::{Args, CommandFactory};

use crate::console::Console;
use crate::failure::Failure;

/// Show the manual page, or write the pages of all commands to a directory
///
/// On a terminal the page is shown with `man`; otherwise its source is printed.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  pinfold man ~/.local/share/man/man1")]
pub(crate) struct ManArgs {
    /// Directory to write one page per command to
    pub(crate) dir: Option<PathBuf>,
}

/// Prints or writes; needs no daemon.
pub(crate) fn run(args: &ManArgs, console: &mut Console) -> Result<u8, Failure> {
    let command = crate::args::Args::command();
    match &args.dir {
        Some(dir) => {
            let written = std::fs::create_dir_all(dir).and_then(|()| clap_mangen::generate_to(command, dir));
            written.map_err(|error| Failure::internal(format!("{}: {error}", dir.display())))?;
        }
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(command).render(&mut page)?;
            match console.is_terminal() {
                true if shown_by_man(&page) => {}
                // `man` is missing: print the help instead.
                true => console.bytes(crate::args::Args::command().render_long_help().ansi().to_string().as_bytes())?,
                false => console.bytes(&page)?,
            }
        }
    }
    Ok(0)
}

/// Shows a page with `man`; false if that fails.
fn shown_by_man(page: &[u8]) -> bool {
    let Ok(mut man) = Command::new("man").args(["-l", "-"]).stdin(Stdio::piped()).spawn() else { return false };
    // An error only means that the pager was closed early.
    let _ = man.stdin.take().map(|mut stdin| stdin.write_all(page));
    man.wait().is_ok_and(|status| status.success())
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
