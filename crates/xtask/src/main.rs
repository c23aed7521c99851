//! `cargo xtask`: development tasks.

use std::path::Path;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use xtask::checks::{escapes, fuzz, instructions, simulate};
use xtask::external::{clients, conformance, dashboard, scenarios, schemathesis};
use xtask::generate::Mode;
use xtask::tidy::{self, Tree};
use xtask::{bench, chaos, demo, generate, package, workspace_root};

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "Development tasks of pinfold")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check crate dependencies, file headers and sizes, `unsafe`, invariants, generated documents
    Tidy,
    /// Write docs/lifecycle.md, docs/openapi.json and docs/map.md from the code
    Generate {
        /// Write nothing; fail if a document is out of date
        #[arg(long)]
        check: bool,
    },
    /// Build pinfold and show what it does: a command leaves a stray, which is listed and stopped
    Demo,
    /// Install the agents for `cargo test --test clients` below target/, in pinned versions
    Clients,
    /// Run the official MCP conformance suite against its fixtures and against pinfold
    Conformance,
    /// Build the web dashboard's bundle, compare it with the committed one, or test it in Chromium
    Dashboard(dashboard::Options),
    /// Measure costs, as ratios against bare spawns in the same run
    Bench(bench::Options),
    /// Inject faults into a real daemon, then check every process, byte, outcome and event
    Chaos(chaos::Options),
    /// Try every way to escape a stop, with and without cgroups, as root and as an ordinary user
    Escapes(escapes::Options),
    /// Fuzz every parser of outside input, guided by coverage
    Fuzz(fuzz::Options),
    /// Count the instructions of common operations and compare them with the recorded counts
    Instructions(instructions::Options),
    /// Build the packages (wheel, npm, deb, tarball) into target/package, and try each in an empty place
    Package(package::Options),
    /// Play twenty scenarios with real agents, with pinfold's tools and with their own, and count calls and bytes
    Scenarios(scenarios::Options),
    /// Test the HTTP API against its OpenAPI document
    Schemathesis(schemathesis::Options),
    /// Simulate daemon, keepers and clients in memory, with faults chosen by a seed
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
        Command::Dashboard(options) => dashboard::run(&root, options),
        Command::Bench(options) => bench::run(&root, &options),
        Command::Chaos(options) => chaos::run(&root, &options),
        Command::Escapes(options) => escapes::run(&root, &options),
        Command::Fuzz(options) => fuzz::run(&root, &options),
        Command::Instructions(options) => instructions::run(&root, &options),
        Command::Package(options) => package::run(&root, &options),
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
            Mode::Check => println!("{} is out of date: run `cargo xtask generate`", path.display()),
        }
    }
    Ok(if mode == Mode::Check && !stale.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
