//! Load: very many processes at once, and very many one after another: what remains of them, and the cost of the last compared
//! with the first.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use pinfold_api::client::Client;
use pinfold_api::types::{GcRequest, ListQuery, StopRequest};
use pinfold_testkit::environments::cgroup_mount;

use super::Scale;
use super::procfs::{children, descriptors, is_zombie, pss_mib, rss_mib, running};
use super::report::{Row, Target};
use super::stats::{Better, Samples, Summary};
use super::test_bed::{self, Daemon, TestDir, joined};

const AT_ONCE: usize = 1_000;
const ONE_AFTER_ANOTHER: usize = 50_000;
/// This many of the first are compared with this many of the last.
const BLOCK: usize = 1_000;
/// Ended processes are removed soon, so that the store has the same size at the end as at the start.
const CONFIG: &str = "[limits]\nprocesses = 5000\nretention = \"5s\"\n";
/// Idle keepers of a daemon at rest, and the time until it is at rest.
const IDLE_KEEPERS: usize = 2;
const DEADLINE: Duration = Duration::from_secs(90);
const LOOK: Duration = Duration::from_millis(200);
const STOPPERS: usize = 8;
const FLAT: Target = Target::RatioAtMost(1.25);
const SAME: Target = Target::RatioAtMost(1.0);

pub(super) fn measure(stage: &TestDir, scale: Scale) -> anyhow::Result<Vec<Row>> {
    let mut rows = at_once(stage, scale.of(AT_ONCE))?;
    rows.extend(one_after_another(stage, scale.of(ONE_AFTER_ANOTHER), scale.of(BLOCK))?);
    Ok(rows)
}

/// A daemon at rest before and after this many processes ran concurrently.
fn at_once(stage: &TestDir, processes: usize) -> anyhow::Result<Vec<Row>> {
    let daemon = stage.daemon_with("at-once", CONFIG)?;
    let base = cgroup_base(&daemon)?;
    // Warm up: what the first use allocates is not a leak.
    let warm = processes / 10;
    run_and_stop(&daemon, warm)?;
    let before = Weight::at_rest(stage, &daemon, base.as_deref())?;
    let started = Instant::now();
    let peak = run_and_stop(&daemon, processes)?;
    let took = started.elapsed();
    let after = Weight::at_rest(stage, &daemon, base.as_deref())?;
    let ids = ["once_rss", "once_pss", "once_fds", "once_keepers", "once_cgroups", "once_dirs", "once_zombies"];
    let mut rows = rows(&ids, &format!("after {processes} at once"), &format!("after {warm} at once"), &before, &after);
    let each = Summary::of_one(took.as_secs_f64() * 1e3 / processes as f64);
    rows.push(Row::new("once_each", format!("{processes} at once, start and stop, each"), "ms", each));
    rows.push(Row::new("once_peak", format!("daemon with {processes} at once, RSS"), "MiB", Summary::of_one(peak)));
    Ok(rows)
}

/// Starts this many and stops them all; returns the daemon's memory while all were running.
fn run_and_stop(daemon: &Daemon, processes: usize) -> anyhow::Result<f64> {
    daemon.start_many(processes, &test_bed::sleeper())?;
    let runtime = test_bed::runtime()?;
    let ids = runtime.block_on(live(&daemon.client()))?;
    ensure!(ids.len() == processes, "{} of {processes} run at once", ids.len());
    let peak = rss_mib(daemon.pid())?;
    let share = ids.len().div_ceil(STOPPERS).max(1);
    std::thread::scope(|scope| {
        let stop = |ids: &[String]| {
            let client = daemon.client();
            test_bed::runtime()?.block_on(async {
                for id in ids {
                    let stopped = client.stop(id, &StopRequest::default()).await?;
                    ensure!(stopped.survivors.is_empty(), "{stopped:?}");
                }
                Ok(())
            })
        };
        let threads: Vec<_> = ids.chunks(share).map(|ids| scope.spawn(move || stop(ids))).collect();
        threads.into_iter().try_for_each(joined)
    })?;
    Ok(peak)
}

async fn live(client: &Client) -> anyhow::Result<Vec<String>> {
    let mut query = ListQuery { status: Some("live".to_owned()), limit: Some(500), ..ListQuery::default() };
    let mut ids = Vec::new();
    loop {
        let list = client.list(&query).await?;
        ids.extend(list.processes.into_iter().map(|record| record.id));
        match list.next {
            Some(next) => query.page = Some(next),
            None => return Ok(ids),
        }
    }
}

/// One client that runs one process after another.
fn one_after_another(stage: &TestDir, runs: usize, block: usize) -> anyhow::Result<Vec<Row>> {
    let daemon = stage.daemon_with("in-turn", CONFIG)?;
    let base = cgroup_base(&daemon)?;
    let (runtime, client) = (test_bed::runtime()?, daemon.client());
    let run = |count: usize| {
        let mut times = Samples::new();
        (0..count).try_for_each(|_| times.time(|| runtime.block_on(test_bed::start_and_wait(&client))))?;
        anyhow::Ok(times.summary(Better::Less))
    };
    run(block / 10)?;
    let first = run(block)?;
    let before = Weight::at_rest(stage, &daemon, base.as_deref())?;
    let started = Instant::now();
    run(runs.saturating_sub(2 * block))?;
    eprintln!("bench: {} more runs in {:.0} s", runs.saturating_sub(2 * block), started.elapsed().as_secs_f64());
    let last = run(block)?;
    let after = Weight::at_rest(stage, &daemon, base.as_deref())?;
    let what = format!("start → exit, the last {block} of {runs} one after another");
    let first_what = format!("the first {block}");
    let ids = ["turn_rss", "turn_pss", "turn_fds", "turn_keepers", "turn_cgroups", "turn_dirs", "turn_zombies"];
    let mut rows = rows(&ids, &format!("after {runs} runs"), &format!("after {block} runs"), &before, &after);
    rows.insert(0, Row::new("turn_time", what, "ms", last).against(first_what, first).target(FLAT));
    let mib = |bytes: u64| Summary::of_one(bytes as f64 / f64::from(1 << 20));
    let index = Row::new("turn_index", format!("index and event log after {runs} runs"), "MiB", mib(after.index_bytes));
    rows.push(index.against(format!("after {block} runs"), mib(before.index_bytes)));
    Ok(rows)
}

/// Resources of a daemon at rest.
#[derive(Clone, Copy, Debug)]
struct Weight {
    rss_mib: f64,
    /// Sum over daemon, nursery and keepers.
    pss_mib: f64,
    descriptors: usize,
    keepers: usize,
    cgroups: usize,
    directories: usize,
    zombies: usize,
    index_bytes: u64,
}

impl Weight {
    /// Waits until surplus keepers have exited and ended processes are removed; then measures.
    fn at_rest(stage: &TestDir, daemon: &Daemon, base: Option<&Path>) -> anyhow::Result<Self> {
        let (runtime, client) = (test_bed::runtime()?, daemon.client());
        let gc = GcRequest { older_than: Some("0s".into()), dry_run: false };
        let deadline = Instant::now() + DEADLINE;
        loop {
            runtime.block_on(client.gc(&gc))?;
            let weight = Self::now(stage, daemon, base)?;
            let rests = weight.keepers <= IDLE_KEEPERS && weight.directories <= IDLE_KEEPERS;
            if rests || Instant::now() > deadline {
                return Ok(weight);
            }
            std::thread::sleep(LOOK);
        }
    }

    fn now(stage: &TestDir, daemon: &Daemon, base: Option<&Path>) -> anyhow::Result<Self> {
        let ours = running(stage.binary());
        let keepers = std::fs::read_dir(daemon.home().join("keepers")).map_or(0, Iterator::count);
        let index = ["index.db", "index.db-wal"].iter().filter_map(|name| daemon.home().join(name).metadata().ok());
        Ok(Weight {
            rss_mib: rss_mib(daemon.pid())?,
            pss_mib: ours.iter().filter_map(|pid| pss_mib(*pid).ok()).sum(),
            descriptors: descriptors(daemon.pid())?,
            keepers,
            cgroups: base.map_or(0, directories_in),
            directories: directories_in(&daemon.home().join("processes")),
            zombies: ours.iter().flat_map(|pid| children(*pid)).filter(|pid| is_zombie(*pid)).count(),
            index_bytes: index.map(|file| file.len()).sum(),
        })
    }
}

/// The parent of the keepers' cgroups, found through one process; `None` without cgroups.
fn cgroup_base(daemon: &Daemon) -> anyhow::Result<Option<PathBuf>> {
    let (runtime, client) = (test_bed::runtime()?, daemon.client());
    runtime.block_on(async {
        if client.health().await?.containment != "cgroup" {
            return Ok(None);
        }
        let record = client.start(&test_bed::sleeper()).await?.record;
        let pid = record.pid.context("it runs")?;
        let lines = std::fs::read_to_string(format!("/proc/{pid}/cgroup"))?;
        client.stop(&record.id, &StopRequest::default()).await?;
        let own = lines.lines().find_map(|line| line.strip_prefix("0::/")).context("it is in a cgroup v2")?;
        let mount = cgroup_mount().context("a cgroup v2 mount")?;
        Ok(mount.join(own).parent().map(PathBuf::from))
    })
}

fn directories_in(path: &Path) -> usize {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).count()
}

fn rows(ids: &[&'static str; 7], when: &str, before_when: &str, before: &Weight, after: &Weight) -> Vec<Row> {
    let figures = [
        ("daemon, RSS", "MiB", before.rss_mib, after.rss_mib, FLAT),
        ("daemon, nursery and keepers, PSS", "MiB", before.pss_mib, after.pss_mib, FLAT),
        ("descriptors of the daemon", "", before.descriptors as f64, after.descriptors as f64, SAME),
        ("keepers", "", before.keepers as f64, after.keepers as f64, SAME),
        ("cgroups", "", before.cgroups as f64, after.cgroups as f64, SAME),
        ("directories of processes, after gc", "", before.directories as f64, after.directories as f64, SAME),
        ("zombies", "", before.zombies as f64, after.zombies as f64, Target::AtMost(0.0)),
    ];
    let row = |(id, (what, unit, before, after, target)): (&&'static str, (&str, _, _, _, _))| {
        let row = Row::new(id, format!("{what}, {when}"), unit, Summary::of_one(after)).target(target);
        row.against(before_when, Summary::of_one(before))
    };
    ids.iter().zip(figures).map(row).collect()
}
