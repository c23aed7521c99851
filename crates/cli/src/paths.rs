//! The state directory and configuration file: `--home`, otherwise the daemon's rules.

use std::path::{Path, PathBuf};

use pinfold_daemon::config::{Config, Paths};

use crate::args::Global;
use crate::failure::Failure;

/// Absolute paths: a daemon that is started from here has another working directory.
pub(crate) fn resolve(global: &Global) -> Result<Paths, Failure> {
    let mut paths = match &global.home {
        Some(home) => Paths::at(absolute(home)?),
        None => Paths::resolve().map_err(|error| Failure::invalid(error.to_string()))?,
    };
    paths.home = absolute(&paths.home)?;
    paths.config = absolute(&paths.config)?;
    Ok(paths)
}

/// The configuration at these paths.
pub(crate) fn load_config(paths: &Paths) -> Result<Config, Failure> {
    Config::load(paths).map_err(|error| Failure::invalid(error.to_string()))
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(|error| Failure::invalid(format!("{}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn home_moves_everything_and_becomes_absolute() {
        let global = Global { home: Some("some/where".into()), ..Global::default() };
        let paths = resolve(&global).expect("resolves");
        assert!(paths.home.is_absolute() && paths.home.ends_with("some/where"));
        assert_eq!(paths.config, paths.home.join("config.toml"));
        assert_eq!(paths.moved_home(), Some(paths.home.as_path()));
    }
}
