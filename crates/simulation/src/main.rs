//! What `cargo xtask simulate` runs: histories of daemon, keepers and clients on a machine in memory, each from its seed.

use std::process::ExitCode;

use clap::Parser;
use pinfold_simulation::history;

/// After so many histories a line says how far it is.
const REPORT_EVERY: u64 = 50_000;

#[derive(Debug, Parser)]
#[command(name = "cargo xtask simulate", about = "Histories of daemon, keepers and clients, chosen by a seed")]
struct Options {
    /// How many histories to run
    #[arg(long, default_value_t = 100_000)]
    histories: u64,
    /// The seed of the first; the others count on from it
    #[arg(long, default_value_t = 51_000_000)]
    seed: u64,
    /// Print what happens, line by line, also if nothing breaks
    #[arg(long)]
    trace: bool,
}

/// Runs histories until one breaks; then its trace and its seed are printed.
fn main() -> ExitCode {
    let options = Options::parse();
    let report = |number: u64| {
        if (number + 1).is_multiple_of(REPORT_EVERY) {
            println!("{} histories", number + 1);
        }
    };
    if options.trace {
        history::trace(options.seed).iter().for_each(|line| println!("{line}"));
    }
    match history::run(options.seed, options.histories, report) {
        Ok(summary) => {
            let seconds = summary.took.as_secs_f64();
            println!(
                "{} histories from seed {}: nothing broke. {} steps, {} starts, {} lost with their keeper, {} events, {seconds:.1} s",
                summary.histories, options.seed, summary.steps, summary.processes, summary.lost, summary.events
            );
            ExitCode::SUCCESS
        }
        Err(broken) => {
            broken.trace.iter().for_each(|line| println!("{line}"));
            println!("\nseed {}: {}", broken.seed, broken.what);
            println!("run it again with `cargo xtask simulate --histories 1 --seed {}`", broken.seed);
            ExitCode::FAILURE
        }
    }
}
