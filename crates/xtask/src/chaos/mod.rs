//! `cargo xtask chaos`: a real daemon with many processes of known behaviour, shot at from all sides; then everything is
//! accounted for. What is lost is printed, the home is kept as evidence, and the exit code is 1.
//!
//! `dice` decides, `cast` are the processes, `scene` the home and its daemon, `crew` the clients, `feed` the one who sends input, `agents` those that speak
//! MCP, `faults` what is done to them, `intruder` the faults that foreign programs cause, `check` the accounting, `report` the figures.

mod agents;
mod cast;
mod check;
mod crew;
mod dice;
mod faults;
mod feed;
mod intruder;
mod report;
mod scene;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use tokio::signal::unix::{SignalKind, signal};

use crate::build::{Profile, build};
use check::{Account, Checker};
use crew::{Play, STARTERS, lock};
use faults::{Done, Saboteur};
use report::Figures;
use scene::Scene;

/// What is in a program that has crash points, and never in one that ships.
const CRASH_POINTS: &[u8] = b"PINFOLD_CRASH";

#[derive(Debug, clap::Args)]
pub struct Options {
    /// How long faults are injected; the accounting comes after
    #[arg(long, default_value_t = 2.0)]
    minutes: f64,
    /// Repeats the decisions of an earlier run
    #[arg(long)]
    seed: Option<u64>,
    /// The most processes alive at once
    #[arg(long, default_value_t = 40)]
    processes: u64,
    /// The binary to attack. Default: built from this tree, as it ships
    #[arg(long)]
    pinfold: Option<PathBuf>,
    /// Write the figures into docs/reliability.md
    #[arg(long)]
    markdown: bool,
}

/// Set by INT and TERM: no more faults; the accounting follows, and nothing is left.
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
    ensure!(!has_points, "{} has crash points: what ships has none, so attack what ships", binary.display());

    listen_for_signals();
    let scene = Scene::set_up(&binary)?;
    let containment = begin(&scene);
    let cgroup = containment.as_ref().is_ok_and(|containment| containment.contains("cgroup"));
    let play = Play::new(scene, seed, options.processes, cgroup);
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
        println!("seed {seed}; the evidence is in {}", evidence.display());
    }
    performed?;
    Ok(if evidence.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The first daemon; says how trees are contained.
fn begin(scene: &Scene) -> anyhow::Result<String> {
    scene.start_daemon()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(scene.client().health())?.containment)
}

/// The campaign, and its accounting.
fn perform(play: &Play, time: Duration) -> anyhow::Result<(Account, Done)> {
    let until = Instant::now() + time;
    let mut saboteur = Saboteur::new(play);
    let sabotaged = std::thread::scope(|scope| {
        let starters: [fn(&Play) -> anyhow::Result<()>; STARTERS] = [Play::start_processes; STARTERS];
        let others: [fn(&Play) -> anyhow::Result<()>; 8] = [
            |play| play.act_as_agent(0),
            |play| play.act_as_agent(1),
            Play::feed_processes,
            Play::pause_processes,
            Play::stop_processes,
            Play::stop_processes,
            Play::read_output,
            Play::follow_events,
        ];
        let crew = starters.into_iter().chain(others);
        let hands: Vec<_> = crew.map(|work| scope.spawn(move || work(play))).collect();
        let sabotaged = saboteur.work(until);
        play.last_call.store(true, Ordering::Relaxed);
        // Without a daemon nothing more can be done.
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
            eprintln!("chaos: interrupted; what was started is accounted for and ended");
            INTERRUPTED.store(true, Ordering::Relaxed);
        });
    });
}

fn fresh_seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    now.as_millis() as u64 % 1_000_000
}

/// Where it ran.
fn machine(containment: &str) -> String {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("Linux {}, {cores} cores, containment: {containment}", kernel.trim())
}
