//! `cargo xtask`: the commands of the people who work on pinfold.

use std::path::Path;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use xtask::generate::Mode;
use xtask::tidy::{self, Tree};
use xtask::{
    bench, chaos, clients, conformance, demo, escapes, fuzz, generate, instructions, scenarios, schemathesis, simulate,
    workspace_root,
};

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "What keeps pinfold honest")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check the rules of the house: arrows, rooms, headers, sizes, reasons, invariants, generated documents
    Tidy,
    /// Write docs/lifecycle.md and docs/openapi.json from the code
    Generate {
        /// Write nothing; fail if a document is not what would be written
        #[arg(long)]
        check: bool,
    },
    /// Build pinfold and show its main job: a command with a stray, kept, listed and stopped
    Demo,
    /// Install the agents that the tests of `--test clients` drive, in the versions that are pinned, below target/
    Clients,
    /// Run the official MCP conformance suite, for both eras, against its fixtures and against pinfold itself
    Conformance,
    /// Measure what pinfold costs, against bare spawns in the same run
    Bench(bench::Options),
    /// Attack a real daemon from all sides, then account for every process, byte, outcome and event
    Chaos(chaos::Options),
    /// Try every way out of a stop, with and without cgroups, as root and as an ordinary user
    Escapes(escapes::Options),
    /// Look for bytes that break what reads bytes from outside, guided by coverage
    Fuzz(fuzz::Options),
    /// Count the instructions of what everybody does, and compare them with those that are kept
    Instructions(instructions::Options),
    /// Play twenty scenarios with real agents, with pinfold's tools and with their own, and count what each costs
    Scenarios(scenarios::Options),
    /// Try the HTTP API with whatever its document allows and forbids
    Schemathesis(schemathesis::Options),
    /// Run histories of daemon, keepers and clients on a machine in memory, with faults chosen by a seed
    Simulate(simulate::Options),
}

fn main() -> ExitCode {
    let root = workspace_root();
    let done = match Args::parse().command {
        Command::Tidy => tidy(&root),
        Command::Generate { check } => generate(&root, if check { Mode::Check } else { Mode::Write }),
        Command::Demo => demo::run(&root).map(|()| ExitCode::SUCCESS),
        Command::Clients => clients::run(),
        Command::Conformance => conformance::run(&root),
        Command::Bench(options) => bench::run(&root, &options),
        Command::Chaos(options) => chaos::run(&root, &options),
        Command::Escapes(options) => escapes::run(&root, &options),
        Command::Fuzz(options) => fuzz::run(&root, &options),
        Command::Instructions(options) => instructions::run(&root, &options),
        Command::Scenarios(options) => scenarios::run(&root, &options),
        Command::Schemathesis(options) => schemathesis::run(&root, &options),
        Command::Simulate(options) => simulate::run(&root, &options),
    };
    done.unwrap_or_else(|error| {
        eprintln!("xtask: {error:#}");
        ExitCode::FAILURE
    })
}

fn tidy(root: &Path) -> anyhow::Result<ExitCode> {
    let report = tidy::check(&Tree::read(root)?);
    print!("{}", report.render());
    Ok(if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn generate(root: &Path, mode: Mode) -> anyhow::Result<ExitCode> {
    let stale = generate::run(root, mode)?;
    for path in &stale {
        match mode {
            Mode::Write => println!("wrote {}", path.display()),
            Mode::Check => println!("{} is not current: run `cargo xtask generate`", path.display()),
        }
    }
    Ok(if mode == Mode::Check && !stale.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
