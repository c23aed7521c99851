//! Measures what pinfold costs: every figure next to a baseline from the same run on the same machine.
//!
//! Owns the order of the sections and the release build that they use. Each section starts its own daemon in its own home and
//! returns rows. This is a benchmark, not a test: a missed target is printed, and the exit code is still 0.

mod attach;
mod bare;
mod capture;
mod fan_out;
mod full_store;
mod load;
mod machine;
mod mcp;
mod memory;
mod peers;
mod procfs;
mod report;
mod restart;
mod sandbox;
mod start;
mod stats;
mod test_bed;
mod throughput;
mod views;
mod waiter;

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::Context;
use clap::{Args, ValueEnum};

use machine::Machine;
use report::{Report, Row};
use test_bed::TestDir;

use crate::cargo_build::{Profile, build};
use crate::document_section;

/// The comparison in docs/benchmarks.md.
const PEERS: document_section::Section = document_section::Section {
    begin: "<!-- peers: written by `cargo xtask bench --peers --write` -->",
    end: "<!-- peers: end -->",
};

/// Options of the command.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Use a tenth of all counts: for a quick look, not for publication
    #[arg(long)]
    quick: bool,
    /// Also write the report as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Only these sections
    #[arg(long, value_name = "SECTION", value_delimiter = ',')]
    only: Vec<Section>,
    /// Compare with other tools, installed below target/peers; measures nothing else
    #[arg(long)]
    peers: bool,
    /// Only these tools
    #[arg(long, value_name = "TOOL", value_delimiter = ',', requires = "peers")]
    tools: Vec<String>,
    /// Write the comparison to docs/benchmarks.md, docs/peers.svg and docs/peers.json
    #[arg(long, requires = "peers", conflicts_with = "quick")]
    write: bool,
    /// Directory for homes and files, on the filesystem to measure [default: the temporary directory]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Release build to measure
    #[arg(long, value_name = "FILE", hide = true)]
    pinfold: Option<PathBuf>,
}

/// A part of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Section {
    Start,
    Throughput,
    Capture,
    Memory,
    Waiter,
    Notify,
    FullStore,
    Views,
    Restart,
    Mcp,
    Attach,
    Sandbox,
    Load,
}

/// Scale of all counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scale {
    Full,
    Quick,
}

impl Scale {
    /// The full count, or a tenth.
    fn of(self, full: usize) -> usize {
        match self {
            Scale::Full => full,
            Scale::Quick => full.div_ceil(10),
        }
    }
}

/// Measures and prints. The first call builds a release and runs that instead: a client in a debug build would dominate the
/// figures.
pub fn run(root: &Path, options: &Options) -> anyhow::Result<ExitCode> {
    let Some(pinfold) = &options.pinfold else { return Err(continue_in_release(root)?) };
    let directory = options.dir.clone().unwrap_or_else(std::env::temp_dir);
    let stage = TestDir::set_up(pinfold, &directory)?;
    let scale = if options.quick { Scale::Quick } else { Scale::Full };
    if options.peers {
        return compare(root, &stage, scale, options);
    }
    let mut report = Report { machine: Machine::look(&stage)?, scale, rows: Vec::new() };
    for section in Section::value_variants() {
        if options.only.is_empty() || options.only.contains(section) {
            eprintln!("bench: {section:?} …");
            let rows = measure(*section, &stage, scale).with_context(|| format!("in the section {section:?}"))?;
            report.rows.extend(rows);
        }
    }
    report.machine.look_again();
    println!("{}", report.render_markdown());
    if let Some(path) = &options.json {
        let text = format!("{:#}\n", report.to_json());
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Compares pinfold with other tools.
fn compare(root: &Path, stage: &TestDir, scale: Scale, options: &Options) -> anyhow::Result<ExitCode> {
    let mut machine = Machine::look(stage)?;
    let comparison = peers::measure(stage, scale, &options.tools)?;
    machine.look_again();
    let text = comparison.render(&machine);
    println!("{text}");
    let json = format!("{:#}\n", comparison.to_json(&machine));
    if let Some(path) = &options.json {
        std::fs::write(path, &json).with_context(|| format!("cannot write {}", path.display()))?;
    }
    if options.write {
        let docs = root.join("docs");
        std::fs::write(docs.join("peers.svg"), comparison.chart())?;
        std::fs::write(docs.join("peers.json"), &json)?;
        PEERS.write(&docs.join("benchmarks.md"), &format!("\n{}\n\n", text.trim()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Builds pinfold and this program in release mode and execs that program. Returns only the error if that fails.
fn continue_in_release(root: &Path) -> anyhow::Result<anyhow::Error> {
    let [xtask, pinfold] = build(root, Profile::Release, ["xtask", "pinfold"])?;
    let mut command = Command::new(&xtask);
    command.args(std::env::args_os().skip(1)).arg("--pinfold").arg(pinfold);
    // Variables set by cargo would slow down every exec below.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO") || text.starts_with("RUST") || text == "LD_LIBRARY_PATH" {
            command.env_remove(&name);
        }
    }
    Ok(anyhow::Error::new(command.exec()).context(format!("cannot run {}", xtask.display())))
}

fn measure(section: Section, stage: &TestDir, scale: Scale) -> anyhow::Result<Vec<Row>> {
    match section {
        Section::Start => start::measure(stage, scale),
        Section::Throughput => throughput::measure(stage, scale),
        Section::Capture => capture::measure(stage, scale),
        Section::Memory => memory::measure(stage, scale),
        Section::Waiter => waiter::measure(stage, scale),
        Section::Notify => fan_out::measure(stage, scale),
        Section::FullStore => full_store::measure(stage, scale),
        Section::Views => views::measure(stage, scale),
        Section::Restart => restart::measure(stage, scale),
        Section::Mcp => mcp::measure(stage, scale),
        Section::Attach => attach::measure(stage, scale),
        Section::Sandbox => sandbox::measure(stage, scale),
        Section::Load => load::measure(stage, scale),
    }
}
