//! `completions`: print a completion script for a shell.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::console::Console;
use crate::failure::Failure;

/// Print the completion script for a shell
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  pinfold completions bash > ~/.local/share/bash-completion/completions/pinfold")]
pub(crate) struct CompletionsArgs {
    /// Shell to print it for
    pub(crate) shell: Shell,
}

/// Prints the script; needs no daemon.
pub(crate) fn run(args: &CompletionsArgs, console: &mut Console) -> Result<u8, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::args::Args::command(), "pinfold", &mut script);
    console.bytes(&script)?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use crate::args::Args;

    #[test]
    fn shells_are_named() {
        assert!(Args::try_parse_from(["pinfold", "completions", "fish"]).is_ok());
        assert!(Args::try_parse_from(["pinfold", "completions", "cmd.exe"]).is_err());
    }
}
