//! Fan-out: a hundred waiters on one process compared with one, a thousand events to ten consumers compared with one.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use pinfold_api::client::Client;
use pinfold_api::types::{EventsQuery, StartRequest, WaitQuery, WaitReason};

use super::Scale;
use super::report::Row;
use super::stats::{Better, Samples};
use super::test_bed::{self, Daemon, TestDir, joined, settle};

const WAITERS: usize = 100;
const WAIT_RUNS: usize = 30;
const EVENTS: usize = 1_000;
const CONSUMERS: usize = 10;
/// Events that a consumer reads and acknowledges at a time.
const PAGE: u32 = 100;
const READ_RUNS: usize = 20;
/// Ends by itself if the cleanup fails.
const COMMAND: &str = "exec sleep 1000";

pub(super) fn measure(stage: &TestDir, scale: Scale) -> anyhow::Result<Vec<Row>> {
    let mut rows = waiters(stage, scale)?;
    rows.extend(consumers(stage, scale)?);
    Ok(rows)
}

fn waiters(stage: &TestDir, scale: Scale) -> anyhow::Result<Vec<Row>> {
    let daemon = stage.daemon("waiters")?;
    let [mut one, mut many] = [const { Samples::new() }; 2];
    for _ in 0..scale.of(WAIT_RUNS) {
        settle();
        one.push_ms(woken(&daemon, 1)?);
        settle();
        many.push_ms(woken(&daemon, WAITERS)?);
    }
    let row = Row::new(
        "waiters_100",
        "100 blocked waiters on one process: from its stop to the last answer",
        "ms",
        many.summary(Better::Less),
    );
    Ok(vec![row.against("one waiter", one.summary(Better::Less))])
}

/// Time from a kill until the last of this many waiters has its answer.
fn woken(daemon: &Daemon, waiters: usize) -> anyhow::Result<Duration> {
    let runtime = test_bed::runtime()?;
    let client = daemon.client();
    runtime.block_on(async {
        let request = StartRequest { command: Some(COMMAND.to_owned()), ..StartRequest::default() };
        let id = client.start(&request).await?.record.id;
        let before = requests(&client).await?;
        let mut waits = tokio::task::JoinSet::new();
        for _ in 0..waiters {
            let (client, id) = (client.clone(), id.clone());
            let query = WaitQuery { timeout: Some("60s".to_owned()), ..WaitQuery::default() };
            waits.spawn(async move { client.wait(&id, &query).await });
        }
        while requests(&client).await? < before + waiters {
            tokio::task::yield_now().await;
            waits.try_join_next();
        }
        let started = Instant::now();
        client.signal(&id, &pinfold_api::types::SignalRequest { signal: "KILL".to_owned(), by: None }).await?;
        let mut answers = 0;
        while let Some(answer) = waits.join_next().await {
            ensure!(answer??.reason == WaitReason::Exited, "a wait ended otherwise");
            answers += 1;
        }
        ensure!(answers == waiters, "{answers} of {waiters} waits were open");
        Ok(started.elapsed())
    })
}

/// Number of requests that the daemon has accepted.
async fn requests(client: &Client) -> anyhow::Result<usize> {
    let metrics = client.metrics().await?;
    let count = metrics.lines().find_map(|line| line.strip_prefix("pinfold_http_requests_total "));
    Ok(count.context("no counter of requests")?.parse()?)
}

fn consumers(stage: &TestDir, scale: Scale) -> anyhow::Result<Vec<Row>> {
    let daemon = stage.daemon("consumers")?;
    let events = scale.of(EVENTS);
    daemon.start_many(events, &test_bed::shell_true())?;
    let runtime = test_bed::runtime()?;
    let client = daemon.client();
    // All events are in the log before the first read.
    let announced = EventsQuery { kinds: Some("announce".to_owned()), limit: Some(1000), ..EventsQuery::default() };
    while runtime.block_on(client.events(&announced))?.events.len() < events.min(1000) {
        settle();
    }
    let [mut one, mut many] = [const { Samples::new() }; 2];
    for run in 0..scale.of(READ_RUNS) {
        settle();
        one.push(read_by(&daemon, run, 1, events)?);
        settle();
        many.push(read_by(&daemon, run, CONSUMERS, events)?);
    }
    let what = format!("{events} events to 10 consumers, each reads and acks by {PAGE}: per event and consumer");
    let row = Row::new("consumers_10", what, "µs", many.summary(Better::Less));
    Ok(vec![row.against("one consumer", one.summary(Better::Less))])
}

/// Microseconds per event and consumer until this many new consumers, concurrently, have read and acknowledged all events.
fn read_by(daemon: &Daemon, run: usize, consumers: usize, events: usize) -> anyhow::Result<f64> {
    let ready = Barrier::new(consumers + 1);
    let read = |name: String| {
        let (runtime, client) = (test_bed::runtime()?, daemon.client());
        let connected = runtime.block_on(client.connect());
        ready.wait();
        connected?;
        runtime.block_on(read_all(&client, &name, events))
    };
    let read = &read;
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..consumers).map(|one| scope.spawn(move || read(format!("c-{consumers}-{run}-{one}")))).collect();
        ready.wait();
        let started = Instant::now();
        threads.into_iter().try_for_each(joined)?;
        Ok(started.elapsed().as_secs_f64() * 1e6 / (events * consumers) as f64)
    })
}

async fn read_all(client: &Client, name: &str, events: usize) -> anyhow::Result<()> {
    let query = EventsQuery {
        kinds: Some("announce".to_owned()),
        consumer: Some(name.to_owned()),
        limit: Some(PAGE),
        ..EventsQuery::default()
    };
    let mut seen = 0;
    while seen < events {
        let page = client.events(&query).await?;
        let last = page.events.last().context("the log ends too early")?;
        seen += page.events.len();
        client.ack(name, last.seq).await?;
    }
    ensure!(seen == events, "{seen} events instead of {events}");
    Ok(())
}
