//! Plays twenty scenarios with every client, once with pinfold's tools and once with the client's own shell, and counts the
//! requests of its model and the bytes of results that it reads. The table is in docs/clients.md.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::{Context, bail};
use clap::Args;
use pinfold_clients::agents::{Agent, Program};
use pinfold_clients::dialect::ToolSet;
use pinfold_clients::model::Cost;
use pinfold_clients::play::{Played, play};
use pinfold_clients::scenarios::{SCENARIOS, Scenario};
use pinfold_clients::shells::Stop;

use crate::cargo_build::{Profile, build};
use crate::document_section::Section;

/// The section with the table.
const SECTION: Section = Section { begin: "<!-- begin: cargo xtask scenarios -->", end: "<!-- end -->" };

/// Maximum characters of a printed failure.
const MAX_REASON: usize = 400;

/// What to run.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Only this client: codex, claude, gemini or opencode
    #[arg(long)]
    client: Option<String>,
    /// Only the scenario of this name
    #[arg(long)]
    scenario: Option<String>,
    /// Only with these tools: pinfold or own
    #[arg(long)]
    tools: Option<String>,
    /// Number of concurrent runs
    #[arg(long, default_value_t = 4)]
    jobs: usize,
    /// Write the table to docs/clients.md
    #[arg(long)]
    write: bool,
    /// Write a log of each run (calls and results) to this directory
    #[arg(long)]
    logs: Option<PathBuf>,
    /// Binary to use instead of building one
    #[arg(long)]
    binary: Option<PathBuf>,
}

/// One run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Job {
    scenario: usize,
    agent: Agent,
    from: ToolSet,
}

type Results = Vec<(Job, Played)>;

/// Runs the chosen scenarios with each client and prints the table. Fails if a scenario fails with pinfold's tools.
pub fn run(root: &Path, options: &Options) -> anyhow::Result<ExitCode> {
    let programs = programs(options.client.as_deref())?;
    let jobs = jobs(options, &programs)?;
    if options.write && (options.client.is_some() || options.scenario.is_some() || options.tools.is_some()) {
        bail!("--write needs the whole table: leave out --client, --scenario and --tools");
    }
    let binary = match &options.binary {
        // Clients run in directories of their own.
        Some(binary) => std::path::absolute(binary).context("the binary")?,
        None => build(root, Profile::Dev, ["pinfold"])?.into_iter().next().context("no binary")?,
    };
    if let Some(directory) = &options.logs {
        std::fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    }
    // Failures are printed as one line; backtraces of the harness add nothing.
    std::panic::set_hook(Box::new(|_| {}));
    let results = run_all(&binary, &programs, jobs, options);
    let _ = std::panic::take_hook();
    let agents: Vec<Agent> = programs.iter().map(Program::agent).collect();
    let table = table(&agents, &results);
    print!("{table}");
    let failures = failures(&results);
    print!("{failures}");
    if options.write {
        SECTION.write(&root.join("docs/clients.md"), &table)?;
    }
    Ok(if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn programs(only: Option<&str>) -> anyhow::Result<Vec<Program>> {
    let agents: Vec<Agent> = match only {
        None => Agent::ALL.to_vec(),
        Some(name) => {
            let agent = Agent::ALL.into_iter().find(|agent| agent.name() == name);
            vec![agent.with_context(|| format!("no client `{name}`: codex, claude, gemini or opencode"))?]
        }
    };
    Ok(agents.into_iter().filter_map(Agent::installed).collect())
}

fn jobs(options: &Options, programs: &[Program]) -> anyhow::Result<VecDeque<Job>> {
    let names = || SCENARIOS.iter().map(|scenario| scenario.name).collect::<Vec<_>>().join(", ");
    if let Some(name) = &options.scenario
        && Scenario::named(name).is_none()
    {
        bail!("no scenario `{name}`; there are: {}", names());
    }
    let sets: &[ToolSet] = match options.tools.as_deref() {
        None => &[ToolSet::Pinfold, ToolSet::Own],
        Some("pinfold") => &[ToolSet::Pinfold],
        Some("own") => &[ToolSet::Own],
        Some(other) => bail!("no tools `{other}`: pinfold or own"),
    };
    let mut jobs = VecDeque::new();
    for (scenario, Scenario { name, .. }) in SCENARIOS.iter().enumerate() {
        if options.scenario.as_deref().is_none_or(|wanted| wanted == *name) {
            for program in programs {
                jobs.extend(sets.iter().map(|from| Job { scenario, agent: program.agent(), from: *from }));
            }
        }
    }
    Ok(jobs)
}

fn run_all(binary: &Path, programs: &[Program], jobs: VecDeque<Job>, options: &Options) -> Results {
    let queue = Mutex::new(jobs);
    let results = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..options.jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let Some(job) = queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front() else { break };
                    let Some(program) = programs.iter().find(|program| program.agent() == job.agent) else { continue };
                    let played = play(binary, program, SCENARIOS[job.scenario], job.from);
                    eprintln!("{}", line(job, &played));
                    if let Some(directory) = &options.logs
                        && let Err(error) = write_log(directory, job, &played)
                    {
                        eprintln!("{}: {error}", directory.display());
                    }
                    results.lock().unwrap_or_else(PoisonError::into_inner).push((job, played));
                }
            });
        }
    });
    results.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// One run on one line.
fn line(job: Job, played: &Played) -> String {
    let outcome = match &played.outcome {
        Ok(Cost { requests, bytes }) => format!("{requests} requests, {bytes} bytes"),
        Err(Stop::Cannot(why)) => format!("cannot: {why}"),
        Err(Stop::Failed(why)) => format!("FAILED: {}", why.chars().take(MAX_REASON).collect::<String>()),
    };
    format!("{} {} {}: {outcome}", job.agent.name(), SCENARIOS[job.scenario].name, tools(job.from))
}

fn tools(from: ToolSet) -> &'static str {
    match from {
        ToolSet::Pinfold => "pinfold",
        ToolSet::Own => "own",
    }
}

fn write_log(directory: &Path, job: Job, played: &Played) -> std::io::Result<()> {
    let name = format!("{}-{}-{}.log", job.agent.name(), SCENARIOS[job.scenario].name, tools(job.from));
    std::fs::write(directory.join(name), format!("{}\n{}", line(job, played), played.log))
}

fn failures(results: &Results) -> String {
    let failed = results.iter().filter(|(_, played)| matches!(played.outcome, Err(Stop::Failed(_))));
    failed.map(|(job, played)| line(*job, played) + "\n").collect()
}

/// The table: a row for each scenario, two columns for each client, and totals over the scenarios that work with both.
fn table(agents: &[Agent], results: &Results) -> String {
    let of = |scenario: usize, agent: Agent, from: ToolSet| {
        let job = Job { scenario, agent, from };
        results.iter().find(|(known, _)| *known == job).map(|(_, played)| &played.outcome)
    };
    let mut text = String::from("| calls / bytes |");
    for agent in agents {
        let _ = write!(text, " {} with pinfold | its own |", agent.name());
    }
    let _ = write!(text, "\n|---|{}\n", "---|---|".repeat(agents.len()));
    let mut totals = vec![[Cost::default(); 2]; agents.len()];
    for (scenario, Scenario { title, .. }) in SCENARIOS.iter().enumerate() {
        if !results.iter().any(|(job, _)| job.scenario == scenario) {
            continue;
        }
        let _ = write!(text, "| {title} |");
        for (agent, totals) in agents.iter().zip(&mut totals) {
            let both = [ToolSet::Pinfold, ToolSet::Own].map(|from| of(scenario, *agent, from));
            if let [Some(Ok(with)), Some(Ok(own))] = both {
                for (total, cost) in totals.iter_mut().zip([with, own]) {
                    total.requests += cost.requests;
                    total.bytes += cost.bytes;
                }
            }
            let _ = write!(text, " {} | {} |", cell(both[0]), cell(both[1]));
        }
        text.push('\n');
    }
    text.push_str("| **total of the scenarios that work with both** |");
    for [with, own] in totals {
        let _ = write!(text, " **{}** | **{}** |", figures(&with), figures(&own));
    }
    text.push('\n');
    text
}

fn cell(outcome: Option<&Result<Cost, Stop>>) -> String {
    match outcome {
        None => "–".to_owned(),
        Some(Ok(cost)) => figures(cost),
        Some(Err(Stop::Cannot(_))) => "cannot".to_owned(),
        Some(Err(Stop::Failed(_))) => "failed".to_owned(),
    }
}

fn figures(cost: &Cost) -> String {
    format!("{} / {}", cost.requests, grouped(cost.bytes))
}

/// 12345 as 12,345.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_side_cannot_do_counts_for_neither_total() {
        let job = |scenario, from| Job { scenario, agent: Agent::Codex, from };
        let played = |outcome| Played { outcome, log: String::new() };
        let cost = |requests, bytes| Ok(Cost { requests, bytes });
        let results = vec![
            (job(0, ToolSet::Pinfold), played(cost(2, 1100))),
            (job(0, ToolSet::Own), played(cost(3, 90))),
            (job(1, ToolSet::Pinfold), played(cost(4, 5000))),
            (job(1, ToolSet::Own), played(Err(Stop::Cannot("it has no such tool")))),
        ];
        let table = table(&[Agent::Codex], &results);
        let rows: Vec<&str> = table.lines().collect();
        assert!(rows[2].ends_with("| 2 / 1,100 | 3 / 90 |"), "{table}");
        assert!(rows[3].ends_with("| 4 / 5,000 | cannot |"), "{table}");
        assert!(rows[4].ends_with("| **2 / 1,100** | **3 / 90** |"), "{table}");
    }
}
