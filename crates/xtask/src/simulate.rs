//! `cargo xtask simulate`: histories of daemon, keepers and clients on a machine in memory (crates/simulation).
//!
//! Built in a profile of its own: a hundred thousand histories in a minute need optimised code, and nothing else does.

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::Context;
use clap::Args;

use crate::build::{Profile, build};

#[derive(Debug, Args)]
pub struct Options {
    /// How many histories to run
    #[arg(long, default_value_t = 100_000)]
    histories: u64,
    /// The seed of the first; the others count on from it
    #[arg(long, default_value_t = 51_000_000)]
    seed: u64,
    /// Print what happens in the first, line by line, also if nothing breaks
    #[arg(long)]
    trace: bool,
}

/// Builds the simulation and runs it; it fails if a history breaks.
pub fn run(root: &Path, options: &Options) -> anyhow::Result<ExitCode> {
    let [program] = build(root, Profile::Simulate, ["pinfold-simulation"])?;
    let mut command = Command::new(program);
    command.args(["--histories", &options.histories.to_string(), "--seed", &options.seed.to_string()]);
    if options.trace {
        command.arg("--trace");
    }
    let status = command.status().context("cannot run the simulation")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
