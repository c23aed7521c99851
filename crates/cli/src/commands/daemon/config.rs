//! `config`: show the configuration, its path and the defaults.

use clap::{Args, Subcommand};
use pinfold_daemon::config::Config;
use serde_json::json;

use crate::args::Global;
use crate::console::Console;
use crate::failure::Failure;
use crate::paths;

/// Show the configuration
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  pinfold config default > \"$(pinfold config path)\"")]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    pub(crate) what: Option<What>,
}

/// What to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Subcommand)]
pub(crate) enum What {
    /// Show the effective configuration with a comment on every setting (the default)
    Show,
    /// Print the path of the configuration file, whether it exists or not
    Path,
    /// Show the default configuration
    Default,
}

/// Prints it; needs no daemon.
pub(crate) fn run(args: &ConfigArgs, global: &Global, console: &mut Console) -> Result<u8, Failure> {
    let paths = paths::resolve(global)?;
    let text = match args.what.unwrap_or(What::Show) {
        What::Show => paths::load_config(&paths)?.render_toml(),
        What::Path => format!("{}\n", paths.config.display()),
        What::Default => Config::default().render_toml(),
    };
    if !console.json {
        console.text(&text)?;
        return Ok(0);
    }
    let toml = (args.what != Some(What::Path)).then_some(text);
    console.document(&json!({ "path": paths.config, "home": paths.home, "socket": paths.socket(), "toml": toml }))?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Args, Command};

    #[test]
    fn show_is_what_config_alone_does() {
        for (line, what) in [("pinfold config", None), ("pinfold config path", Some(What::Path))] {
            let Command::Config(args) = Args::try_parse_from(line.split(' ')).expect(line).command else {
                panic!("not config")
            };
            assert_eq!(args.what, what);
        }
    }
}
