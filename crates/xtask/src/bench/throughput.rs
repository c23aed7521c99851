//! Sixteen concurrent clients, each on its own connection, compared with sixteen threads with bare spawns.

use std::sync::Barrier;
use std::time::Instant;

use super::report::{Row, Target};
use super::stats::{Better, Samples};
use super::test_bed::{self, Daemon, TestDir, joined, settle};
use super::{Scale, bare};

const CLIENTS: usize = 16;
const RUNS_EACH: usize = 50;
const ROUNDS: usize = 10;

/// Requests per run.
#[derive(Clone, Copy, Debug)]
enum Asking {
    TwoRequests,
    OneRequest,
}

pub(super) fn measure(stage: &TestDir, scale: Scale) -> anyhow::Result<Vec<Row>> {
    let daemon = stage.daemon("throughput")?;
    let [mut bare, mut two, mut one] = [const { Samples::new() }; 3];
    let runs = scale.of(RUNS_EACH);
    kept(&daemon, runs, Asking::TwoRequests)?;
    for _ in 0..ROUNDS {
        settle();
        bare.push(rate(runs, |ready| {
            ready.wait();
            (0..runs).try_for_each(|_| bare::spawn_and_wait())
        })?);
        settle();
        two.push(kept(&daemon, runs, Asking::TwoRequests)?);
        settle();
        one.push(kept(&daemon, runs, Asking::OneRequest)?);
    }
    let what = "16 threads, each posix_spawn + waitpid";
    let bare = bare.summary(Better::More);
    Ok(vec![
        Row::new("throughput_16", "16 clients at once, two requests", "runs/s", two.summary(Better::More))
            .against(what, bare)
            .target(Target::RatioAtLeast(0.75)),
        Row::new("throughput_16_wait", "16 clients at once, one request", "runs/s", one.summary(Better::More))
            .against(what, bare),
    ])
}

fn kept(daemon: &Daemon, runs: usize, asking: Asking) -> anyhow::Result<f64> {
    rate(runs, |ready| {
        let (runtime, client) = (test_bed::runtime()?, daemon.client());
        let connected = runtime.block_on(client.connect());
        ready.wait();
        connected?;
        runtime.block_on(async {
            for _ in 0..runs {
                match asking {
                    Asking::TwoRequests => test_bed::start_exit_output(&client).await?,
                    Asking::OneRequest => test_bed::start_and_wait(&client).await?,
                }
            }
            Ok(())
        })
    })
}

/// Runs per second of all clients together, from the moment all of them are ready.
fn rate(runs: usize, client: impl Fn(&Barrier) -> anyhow::Result<()> + Sync) -> anyhow::Result<f64> {
    let ready = Barrier::new(CLIENTS + 1);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(|| client(&ready))).collect();
        ready.wait();
        let started = Instant::now();
        threads.into_iter().try_for_each(joined)?;
        Ok((CLIENTS * runs) as f64 / started.elapsed().as_secs_f64())
    })
}
