//! The same work for every tool, alternating: cost, what is kept after a crash, and what a stop leaves running.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use pinfold_testkit::{Pidfd, carriers, command_line};

use super::Measured;
use super::peer::{Peer, ToolDir, polled};
use crate::bench::Scale;
use crate::bench::procfs::pss_mib;
use crate::bench::stats::{Better, Samples, Summary};
use crate::bench::test_bed::{joined, settle};

/// Rounds of one run each, and the time limit for all rounds of one tool.
const ROUNDS: usize = 300;
const SHARE: Duration = Duration::from_secs(30);
const CLIENTS: usize = 16;
/// How long sixteen clients run, and how often.
const STRETCH: Duration = Duration::from_secs(3);
const STRETCHES: usize = 3;
const OUTPUT_MB: usize = 500;
const CAPTURES: usize = 3;
const TICKS: usize = 30;
/// Time for background work to finish.
const CALM: Duration = Duration::from_secs(1);

/// Start → exit → result of `true`, every tool once in each round.
pub(super) fn single(peers: &mut [Measured], scale: Scale) {
    let mut samples = vec![Samples::new(); peers.len()];
    let mut spent = vec![Duration::ZERO; peers.len()];
    for round in 0..scale.of(ROUNDS) + 1 {
        for (at, peer) in peers.iter_mut().enumerate() {
            if peer.broken.is_some() || spent[at] > SHARE {
                continue;
            }
            let started = Instant::now();
            match once(peer.tool.as_ref(), "true", 0) {
                // The first one warms up.
                Ok(()) if round > 0 => samples[at].push_ms(started.elapsed()),
                Ok(()) => {}
                Err(error) => peer.fails("a single run", &error),
            }
            spent[at] += started.elapsed();
        }
    }
    for (peer, samples) in peers.iter_mut().zip(samples) {
        peer.single = peer.broken.is_none().then(|| samples.summary(Better::Less));
    }
}

/// The same by sixteen clients at once.
pub(super) fn sixteen(peers: &mut [Measured], scale: Scale) {
    let mut samples = vec![Samples::new(); peers.len()];
    for _ in 0..STRETCHES {
        for (peer, samples) in peers.iter_mut().zip(&mut samples) {
            settle();
            if peer.broken.is_none() {
                match rate(peer.tool.as_ref(), STRETCH / if scale == Scale::Quick { 10 } else { 1 }) {
                    Ok(rate) => samples.push(rate),
                    Err(error) => peer.fails("sixteen clients", &error),
                }
            }
        }
    }
    for (peer, samples) in peers.iter_mut().zip(samples) {
        peer.sixteen = peer.broken.is_none().then(|| samples.summary(Better::More));
    }
}

fn rate(tool: &dyn Peer, stretch: Duration) -> anyhow::Result<f64> {
    let ready = Barrier::new(CLIENTS + 1);
    std::thread::scope(|scope| {
        let client = || {
            ready.wait();
            let started = Instant::now();
            let mut runs = 0;
            while started.elapsed() < stretch {
                once(tool, "true", 0)?;
                runs += 1;
            }
            anyhow::Ok(runs)
        };
        let threads: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(client)).collect();
        ready.wait();
        let started = Instant::now();
        let mut runs = 0;
        for thread in threads {
            runs += joined(thread)?;
        }
        Ok(f64::from(runs) / started.elapsed().as_secs_f64())
    })
}

/// 500 MB of lines, until the last line can be read, in MB/s.
pub(super) fn capture(peers: &mut [Measured], scale: Scale) {
    let bytes = scale.of(OUTPUT_MB) * 1_000_000;
    let line = &"0123456789".repeat(10)[1..];
    let script = format!("yes {line} | head -c {bytes}; echo; echo the end");
    for peer in peers {
        let mut samples = Samples::new();
        for _ in 0..CAPTURES {
            settle();
            let started = Instant::now();
            let done = peer.tool.start(&script).and_then(|job| {
                peer.tool.wait(&job)?;
                // Some tools report the exit before they have read all output.
                polled(Duration::from_millis(1), || ends_well(peer, &job))
            });
            match done {
                Ok(()) => samples.push(bytes as f64 / 1e6 / started.elapsed().as_secs_f64()),
                Err(error) => {
                    peer.remark(format!("output: {error:#}"));
                    peer.revive();
                    break;
                }
            }
        }
        peer.capture = Some(samples.summary(Better::More)).filter(|summary| summary.count > 0);
    }
}

fn ends_well(peer: &Measured, job: &str) -> anyhow::Result<Option<()>> {
    Ok(peer.tool.tail(job)?.contains("the end").then_some(()))
}

/// Memory overhead in MiB at rest and with this many running jobs.
pub(super) fn memory(peers: &mut [Measured], scale: Scale) {
    let counts = [scale.of(100), scale.of(500)];
    for peer in peers.iter_mut().filter(|peer| !peer.keeps_nothing()) {
        peer.revive();
        std::thread::sleep(CALM);
        peer.memory[0] = Some(own_memory(&peer.den));
        let mut running = 0;
        for (at, count) in counts.into_iter().enumerate() {
            let started = (running..count).try_for_each(|_| peer.tool.start("exec sleep 1000").map(drop));
            if let Err(error) = started {
                peer.remark(format!("{count} at once: {error:#}"));
                break;
            }
            running = count;
            let all_run = || Ok((sleepers(&peer.den) >= count).then_some(()));
            if let Err(error) = polled(Duration::from_millis(100), all_run) {
                peer.remark(format!("{count} at once: {} run ({error:#})", sleepers(&peer.den)));
                break;
            }
            std::thread::sleep(CALM);
            peer.memory[at + 1] = Some(own_memory(&peer.den));
        }
        peer.revive();
    }
}

fn is_sleep(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == "sleep")
}

fn sleepers(den: &ToolDir) -> usize {
    den.processes().into_iter().filter(|pid| is_sleep(*pid)).count()
}

fn own_memory(den: &ToolDir) -> f64 {
    den.processes()
        .into_iter()
        .filter(|pid| !is_sleep(*pid))
        .filter_map(|pid| pss_mib(pid).ok())
        .fold(0.0, |sum, mib| sum + mib)
}

/// What remains of a job whose server is killed.
#[derive(Clone, Debug)]
pub(super) struct AfterCrash {
    /// It ran to its end.
    pub(super) ran_on: bool,
    /// A second copy of it was started.
    pub(super) doubled: bool,
    /// The last line that can still be read.
    pub(super) ticks: usize,
    pub(super) code: Option<i32>,
}

/// `kill -9` of the server under a job that counts to thirty and exits 7.
pub(super) fn crash(peers: &mut [Measured]) {
    for peer in peers {
        if let Some(server) = peer.tool.server() {
            peer.revive();
            match crashed(peer, server) {
                Ok(after) => peer.crash = Some(after),
                Err(error) => peer.remark(format!("crash: {error:#}")),
            }
            peer.revive();
        }
    }
}

fn crashed(peer: &Measured, server: &str) -> anyhow::Result<AfterCrash> {
    let ticks = peer.den.directory.join("ticks");
    let _ = std::fs::remove_file(&ticks);
    // It writes its progress to a file, so that the result is known without the tool.
    let script = format!(
        "for i in $(seq {TICKS}); do echo tick $i; echo $i >> {0}; sleep 0.1; done; echo over >> {0}; exit 7",
        ticks.display()
    );
    let job = peer.tool.start(&script)?;
    let noted = || std::fs::read_to_string(&ticks).unwrap_or_default();
    polled(Duration::from_millis(10), || Ok((noted().lines().count() >= 10).then_some(())))?;
    let servers =
        peer.den.processes().into_iter().filter(|pid| command_line(*pid).contains(server)).collect::<Vec<_>>();
    ensure!(!servers.is_empty(), "its server was not found");
    servers.iter().filter_map(|pid| Pidfd::open(*pid)).for_each(|server| server.kill());
    std::thread::sleep(CALM);
    peer.tool.boot().context("it does not start again")?;
    // Time for the job, and for a second copy of it.
    std::thread::sleep(Duration::from_millis(100) * TICKS as u32 * 2);
    let noted = noted();
    let firsts = noted.lines().filter(|line| *line == "1").count();
    let tail = peer.tool.tail(&job).unwrap_or_default();
    let kept = (1..=TICKS).rev().find(|tick| tail.lines().any(|line| line.trim().ends_with(&format!("tick {tick}"))));
    let known = |code: &Option<i32>| code.is_some();
    let code = bounded_wait(peer, &job).filter(known).flatten();
    Ok(AfterCrash { ran_on: noted.contains("over"), doubled: firsts > 1, ticks: kept.unwrap_or(0), code })
}

/// The exit code of a job that should have ended; a tool that has lost the job may never answer.
fn bounded_wait(peer: &Measured, job: &str) -> Option<Option<i32>> {
    let started = Instant::now();
    let answer = peer.tool.wait(job).ok();
    (started.elapsed() < Duration::from_secs(50)).then_some(answer).flatten()
}

/// Starts seven children, each with another way to escape a stop; returns how many survive.
pub(super) fn escapes(peers: &mut [Measured]) {
    for (at, peer) in peers.iter_mut().enumerate().filter(|(_, peer)| !peer.keeps_nothing()) {
        peer.revive();
        match survivors(peer.tool.as_ref(), at) {
            Ok(survivors) => peer.survivors = Some(survivors),
            Err(error) => peer.remark(format!("stop: {error:#}")),
        }
        peer.revive();
    }
}

fn survivors(tool: &dyn Peer, at: usize) -> anyhow::Result<usize> {
    let naps: Vec<String> = (1..=7).map(|child| format!("600.{:07}{at:02}{child}", std::process::id())).collect();
    let [child, background, session, nohup, daemon, deaf, wiped] = naps.as_slice() else { unreachable!("seven naps") };
    let script = format!(
        "sh -c 'sleep {background} & sleep {background}' & setsid sleep {session} & nohup sleep {nohup} >/dev/null 2>&1 & \
         (setsid sh -c 'sleep {daemon} & exit 0' &); sh -c 'trap \"\" TERM; sleep {deaf}; sleep {deaf}' & \
         env -i /usr/bin/setsid /bin/sleep {wiped} & sleep {child}; exit 0"
    );
    let living = || naps.iter().filter(|nap| is_living(nap)).count();
    let result = (|| {
        let job = tool.start(&script)?;
        polled(Duration::from_millis(20), || Ok((living() == naps.len()).then_some(())))?;
        std::thread::sleep(CALM);
        tool.stop(&job)?;
        // Some tools kill after they have answered: count when nothing changes any more.
        let mut before = usize::MAX;
        for _ in 0..12 {
            std::thread::sleep(CALM);
            let now = living();
            if now == before && now == 0 {
                break;
            }
            before = now;
        }
        Ok(before)
    })();
    naps.iter().for_each(|nap| carriers::kill_carriers(nap));
    result
}

/// Whether a `sleep` with this argument is alive; shells do not count.
fn is_living(nap: &str) -> bool {
    carriers::carriers_of(nap).iter().any(|member| member.stat.comm == "sleep")
}

fn once(tool: &dyn Peer, script: &str, expected: i32) -> anyhow::Result<()> {
    let job = tool.start(script)?;
    let code = tool.wait(&job)?;
    ensure!(code.is_none_or(|code| code == expected), "`{script}` ended with {code:?}");
    tool.tail(&job).map(drop)
}

/// The median, for the table.
pub(super) fn p50(summary: Option<Summary>) -> Option<f64> {
    summary.map(|summary| summary.p50)
}
