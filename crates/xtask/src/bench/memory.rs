//! Memory: overhead of each running process, the daemon at rest, and the daemon during a flood of output.

use std::time::Duration;

use anyhow::Context;
use pinfold_api::types::{StartRequest, WaitQuery};

use super::Scale;
use super::procfs::{peak_mib, pss_mib, reset_peak, rss_mib, running};
use super::report::{Row, Target};
use super::stats::Summary;
use super::test_bed::{self, Daemon, TestDir};

const PROCESSES: usize = 500;
const FLOOD: usize = 1 << 30;
/// Runs before the daemon counts as used.
const RUNS: usize = 1000;
/// Allowed growth: a few buffers, not the output.
const FLAT_MIB: f64 = 1.0;
/// Time for background work to finish.
const CALM: Duration = Duration::from_secs(2);

pub(super) fn measure(stage: &TestDir, scale: Scale) -> anyhow::Result<Vec<Row>> {
    let mut rows = beside_processes(stage, scale.of(PROCESSES))?;
    rows.extend(at_rest_and_in_the_flood(stage, scale)?);
    Ok(rows)
}

/// PSS of daemon, nursery and keepers, with and without processes; without the memory of the processes themselves.
fn beside_processes(stage: &TestDir, processes: usize) -> anyhow::Result<Vec<Row>> {
    let daemon = stage.daemon("memory")?;
    calm();
    let (daemon_before, before) = (pss_mib(daemon.pid())?, total_pss(stage)?);
    daemon.start_many(processes, &test_bed::sleeper())?;
    calm();
    let (daemon_after, after) = (pss_mib(daemon.pid())?, total_pss(stage)?);
    let each = |grown: f64| Summary::of_one(grown / processes as f64);
    let what = format!("memory per running process ({processes} × `sleep`), PSS beyond its own");
    Ok(vec![
        Row::new("memory_per_process", what, "MiB", each(after - before)).target(Target::AtMost(0.2)),
        Row::new("memory_per_process_daemon", "of which in the daemon", "MiB", each(daemon_after - daemon_before)),
    ])
}

fn at_rest_and_in_the_flood(stage: &TestDir, scale: Scale) -> anyhow::Result<Vec<Row>> {
    let daemon = stage.daemon("rest")?;
    calm();
    let fresh = rss_mib(daemon.pid())?;
    let runs = scale.of(RUNS);
    daemon.start_many(runs, &test_bed::shell_true())?;
    calm();
    let used = rss_mib(daemon.pid())?;
    reset_peak(daemon.pid())?;
    let flooded = scale.of(FLOOD);
    flood(&daemon, flooded)?;
    let peak = peak_mib(daemon.pid())?;
    let keepers = running(stage.binary()).into_iter().filter(|pid| *pid != daemon.pid());
    let keeper_peak = keepers.filter_map(|pid| peak_mib(pid).ok()).fold(0.0, f64::max);
    let row = |id, what: &str, value| Row::new(id, what, "MiB", Summary::of_one(value));
    let used_what = format!("daemon idle after {runs} runs, RSS");
    let flood_what = format!("daemon's peak RSS beyond that while a process writes {} MiB", flooded >> 20);
    Ok(vec![
        row("daemon_idle", "daemon idle, RSS", fresh).target(Target::AtMost(20.0)),
        row("daemon_idle_used", &used_what, used).target(Target::AtMost(20.0)),
        row("daemon_flood", &flood_what, peak - used).target(Target::AtMost(FLAT_MIB)),
        row("keeper_peak", "largest keeper or nursery, peak RSS, after that", keeper_peak),
    ])
}

fn flood(daemon: &Daemon, bytes: usize) -> anyhow::Result<()> {
    let (runtime, client) = (test_bed::runtime()?, daemon.client());
    runtime.block_on(async {
        let command = Some(format!("head -c {bytes} /dev/zero"));
        let started = client.start(&StartRequest { command, ..StartRequest::default() }).await?;
        let query = WaitQuery { until: Some("finished".into()), timeout: Some("10m".into()), ..WaitQuery::default() };
        client.wait(&started.record.id, &query).await?;
        Ok(())
    })
}

fn total_pss(stage: &TestDir) -> anyhow::Result<f64> {
    running(stage.binary()).into_iter().map(|pid| pss_mib(pid).context("a process went while it was looked at")).sum()
}

fn calm() {
    std::thread::sleep(CALM);
}
