//! `cargo xtask simulate`: builds and runs crates/simulation, in a profile of its own: a hundred thousand histories in a minute
//! need optimised code.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::Context;

use crate::cargo_build::{Profile, build};

/// The simulation has its own options and help.
#[derive(Clone, Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub struct Options {
    /// Options of the simulation: --histories N, --seed N, --trace; --help lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub arguments: Vec<OsString>,
}

/// Builds and runs the simulation; fails if a history violates an invariant.
pub fn run(root: &Path, options: &Options) -> anyhow::Result<ExitCode> {
    let [program] = build(root, Profile::Simulate, ["pinfold-simulation"])?;
    let status = Command::new(program).args(&options.arguments).status().context("cannot run the simulation")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
