//! Run by `cargo xtask simulate`: simulated histories, one for each seed.

use std::process::ExitCode;

use clap::Parser;
use pinfold_simulation::history;

/// Print progress after this many histories.
const REPORT_EVERY: u64 = 50_000;

#[derive(Debug, Parser)]
#[command(name = "cargo xtask simulate", about = "Histories of daemon, keepers and clients, chosen by a seed")]
struct Options {
    /// Number of histories
    #[arg(long, default_value_t = 100_000)]
    histories: u64,
    /// Seed of the first history; each further one adds 1
    #[arg(long, default_value_t = 51_000_000)]
    seed: u64,
    /// Print every step of the first history, even if it succeeds
    #[arg(long)]
    trace: bool,
}

/// Runs histories until one fails; prints its trace and seed.
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
                "{} histories from seed {}: all passed. {} steps, {} starts, {} lost, {} events, {seconds:.1} s",
                summary.histories, options.seed, summary.steps, summary.processes, summary.lost, summary.events
            );
            ExitCode::SUCCESS
        }
        Err(failed) => {
            failed.trace.iter().for_each(|line| println!("{line}"));
            println!("\nseed {}: {}", failed.seed, failed.what);
            println!("run it again with `cargo xtask simulate --histories 1 --seed {}`", failed.seed);
            ExitCode::FAILURE
        }
    }
}
