//! Restart after `kill -9` with many live processes: from the start of the new daemon until its list shows every process as
//! running, with the same pid as before.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::ensure;
use pinfold_api::client::{Client, ClientError};
use pinfold_api::types::{ListQuery, Status};

use super::Scale;
use super::report::{Row, Target};
use super::stats::{Better, Samples};
use super::test_bed::{self, TestDir, settle};

const PROCESSES: usize = 500;
const RESTARTS: usize = 10;
const LOOK: Duration = Duration::from_millis(1);
const DEADLINE: Duration = Duration::from_secs(60);

/// Running processes and their pids.
type Running = BTreeMap<String, Option<u32>>;

pub(super) fn measure(stage: &TestDir, scale: Scale) -> anyhow::Result<Vec<Row>> {
    let processes = scale.of(PROCESSES);
    let mut daemon = stage.daemon("restart")?;
    daemon.start_many(processes, &test_bed::sleeper())?;
    let runtime = test_bed::runtime()?;
    let before = runtime.block_on(running(&daemon.client()))?;
    ensure!(before.len() == processes, "{} of {processes} run before the restart", before.len());
    let [mut listed, mut shown] = [const { Samples::new() }; 2];
    for _ in 0..RESTARTS {
        daemon.kill()?;
        settle();
        let started = Instant::now();
        daemon.spawn_again()?;
        let client = daemon.client();
        runtime.block_on(until_all_run(&client, &before))?;
        listed.push(started.elapsed().as_secs_f64());
        runtime.block_on(show_each(&client, &before))?;
        shown.push(started.elapsed().as_secs_f64());
    }
    let what = format!("daemon restart with {processes} live processes, until all are listed as running");
    let target = Target::AtMost(1.0);
    Ok(vec![
        Row::new("restart", what, "s", listed.summary(Better::Less)).target(target),
        Row::new("restart_each", "until the record of each was also read", "s", shown.summary(Better::Less)),
    ])
}

async fn until_all_run(client: &Client, before: &Running) -> anyhow::Result<()> {
    let deadline = Instant::now() + DEADLINE;
    loop {
        let now = match running(client).await {
            Ok(now) if now == *before => return Ok(()),
            Ok(now) => format!("{} run", now.len()),
            Err(error) => error.to_string(),
        };
        ensure!(Instant::now() < deadline, "{} ran before the restart; now: {now}", before.len());
        tokio::time::sleep(LOOK).await;
    }
}

async fn show_each(client: &Client, all: &Running) -> anyhow::Result<()> {
    for id in all.keys() {
        let record = client.show(id).await?;
        ensure!(record.status == Status::Running && !record.tree.is_empty(), "not running any more: {record:?}");
    }
    Ok(())
}

async fn running(client: &Client) -> Result<Running, ClientError> {
    let mut found = Running::new();
    let mut query = ListQuery { status: Some("running".to_owned()), limit: Some(500), ..ListQuery::default() };
    loop {
        let list = client.list(&query).await?;
        found.extend(list.processes.into_iter().map(|record| (record.id, record.pid)));
        match list.next {
            Some(next) => query.page = Some(next),
            None => return Ok(found),
        }
    }
}
