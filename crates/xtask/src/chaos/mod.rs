//! `cargo xtask chaos`: injects faults into a real daemon with many processes of known behaviour, then checks every process, byte,
//! outcome and event. Losses are printed, the home is kept as evidence, and the exit code is 1.
//!
//! `random` makes decisions, `workloads` are the processes, `campaign_home` the home and its daemon, `clients` start and stop, `inputs` sends input,
//! `agents` use MCP, `faults` and `foreign_connections` inject faults, `check` verifies, `report` prints the figures.

mod agents;
mod campaign_home;
mod check;
mod clients;
mod faults;
mod foreign_connections;
mod inputs;
mod random;
mod report;
mod workloads;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use tokio::signal::unix::{SignalKind, signal};

use crate::cargo_build::{Profile, build};
use campaign_home::CampaignHome;
use check::{CheckResult, Checker};
use clients::{Campaign, STARTERS, lock};
use faults::{Done, FaultInjector};
use report::Figures;

/// A string that is only in programs with crash points.
const CRASH_POINTS: &[u8] = b"PINFOLD_CRASH";

#[derive(Debug, clap::Args)]
pub struct Options {
    /// How long faults are injected; the checks come after
    #[arg(long, default_value_t = 2.0)]
    minutes: f64,
    /// Seed: repeats the decisions of an earlier run
    #[arg(long)]
    seed: Option<u64>,
    /// Maximum number of live processes
    #[arg(long, default_value_t = 40)]
    processes: u64,
    /// Binary to test [default: a debug build of this tree]
    #[arg(long)]
    pinfold: Option<PathBuf>,
    /// Write the figures to docs/reliability.md
    #[arg(long)]
    markdown: bool,
}

/// Set by INT and TERM: stops the faults; checks and cleanup follow.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Runs a campaign.
pub fn run(root: &Path, options: &Options) -> anyhow::Result<ExitCode> {
    let seed = options.seed.unwrap_or_else(fresh_seed);
    let binary = match &options.pinfold {
        Some(binary) => binary.clone(),
        None => build(root, Profile::Dev, ["pinfold"])?[0].clone(),
    };
    let program = std::fs::read(&binary).with_context(|| format!("cannot read {}", binary.display()))?;
    let has_points = program.windows(CRASH_POINTS.len()).any(|window| window == CRASH_POINTS);
    ensure!(!has_points, "{} has crash points: use a release build", binary.display());

    listen_for_signals();
    let scene = CampaignHome::set_up(&binary)?;
    let containment = begin(&scene);
    let cgroup = containment.as_ref().is_ok_and(|containment| containment.contains("cgroup"));
    let play = Campaign::new(scene, seed, options.processes, cgroup);
    let performed = containment.and_then(|containment| {
        let (account, done) = perform(&play, Duration::from_secs_f64(60.0 * options.minutes))?;
        let command =
            format!("cargo xtask chaos --minutes {} --seed {seed} --processes {}", options.minutes, options.processes);
        let (repeated, losses) = (play.repeated.load(Ordering::Relaxed), lock(&play.violations).len());
        let machine = machine(&containment);
        let figures = Figures { command, machine, account: &account, done: &done, repeated, losses };
        print!("{}", figures.render_text());
        if options.markdown { figures.write_into(&root.join("docs/reliability.md")) } else { Ok(()) }
    });
    let losses = lock(&play.violations).clone();
    losses.iter().for_each(|loss| println!("LOST: {loss}"));
    let evidence = play.scene.clear(performed.is_err() || !losses.is_empty())?;
    if let Some(evidence) = &evidence {
        println!("seed {seed}; the home is kept in {}", evidence.display());
    }
    performed?;
    Ok(if evidence.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Starts the first daemon; returns its containment.
fn begin(scene: &CampaignHome) -> anyhow::Result<String> {
    scene.start_daemon()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(scene.client().health())?.containment)
}

/// Runs the campaign and the checks.
fn perform(play: &Campaign, time: Duration) -> anyhow::Result<(CheckResult, Done)> {
    let until = Instant::now() + time;
    let mut saboteur = FaultInjector::new(play);
    let sabotaged = std::thread::scope(|scope| {
        let starters: [fn(&Campaign) -> anyhow::Result<()>; STARTERS] = [Campaign::start_processes; STARTERS];
        let others: [fn(&Campaign) -> anyhow::Result<()>; 8] = [
            |play| play.act_as_agent(0),
            |play| play.act_as_agent(1),
            Campaign::feed_processes,
            Campaign::pause_processes,
            Campaign::stop_processes,
            Campaign::stop_processes,
            Campaign::read_output,
            Campaign::follow_events,
        ];
        let crew = starters.into_iter().chain(others);
        let hands: Vec<_> = crew.map(|work| scope.spawn(move || work(play))).collect();
        let sabotaged = saboteur.work(until);
        play.last_call.store(true, Ordering::Relaxed);
        // Without a daemon the campaign cannot continue.
        play.over.store(sabotaged.is_err(), Ordering::Relaxed);
        let last = hands.len() - 2;
        for (place, hand) in hands.into_iter().enumerate() {
            if place == last {
                play.over.store(true, Ordering::Relaxed);
            }
            match hand.join() {
                Ok(Ok(())) => {}
                Ok(Err(error)) => play.violation(format!("a client of the campaign failed: {error:#}")),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        sabotaged
    });
    sabotaged?;
    let mut done = saboteur.done;
    done.counts.insert("process paused for a while", play.paused.load(Ordering::Relaxed));
    let account = Checker::new(play, &done)?.check()?;
    Ok((account, done))
}

fn listen_for_signals() {
    std::thread::spawn(|| {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
        runtime.block_on(async {
            let (Ok(mut int), Ok(mut term)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate())) else {
                return;
            };
            tokio::select! {
                _ = int.recv() => {}
                _ = term.recv() => {}
            }
            eprintln!("chaos: interrupted; checking and stopping what was started");
            INTERRUPTED.store(true, Ordering::Relaxed);
        });
    });
}

fn fresh_seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    now.as_millis() as u64 % 1_000_000
}

/// Kernel, cores and containment: what a reader needs to compare the figures.
fn machine(containment: &str) -> String {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("Linux {}, {cores} cores, containment: {containment}", kernel.trim())
}
