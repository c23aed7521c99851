//! Compares a full store with an empty one: the same list and the same start in two daemons, alternating.

use anyhow::ensure;
use pinfold_api::client::Client;
use pinfold_api::types::ListQuery;
use tokio::runtime::Runtime;

use super::Scale;
use super::procfs::rss_mib;
use super::report::{Row, Target};
use super::stats::{Better, Samples, Summary};
use super::test_bed::{self, Daemon, TestDir, settle};

const RUNNING: usize = 1_000;
const FINISHED: usize = 10_000;
/// Processes of each kind in the small store.
const FEW: usize = 10;
const LISTS: usize = 500;
const STARTS: usize = 300;
const BLOCK: usize = 20;
const TARGET: Target = Target::RatioAtMost(1.5);

/// Samples from the small store and from the large one.
#[derive(Debug, Default)]
struct Pair {
    small: Samples,
    large: Samples,
}

pub(super) fn measure(stage: &TestDir, scale: Scale) -> anyhow::Result<Vec<Row>> {
    let small = filled(stage, "small", FEW, FEW)?;
    let large = filled(stage, "large", scale.of(RUNNING), scale.of(FINISHED))?;
    let runtime = test_bed::runtime()?;
    let clients = [small.client(), large.client()];
    let lists = scale.of(LISTS);
    let live = compare(lists, &clients, |client| list(&runtime, client, "live"))?;
    let finished = compare(lists, &clients, |client| list(&runtime, client, "finished"))?;
    let starts = compare(scale.of(STARTS), &clients, |client| runtime.block_on(test_bed::start_exit_output(client)))?;
    let rss = Summary::of_one(rss_mib(large.pid())?);
    let (running, over) = (scale.of(RUNNING), scale.of(FINISHED));
    let store = format!("with {running} running and {over} finished");
    Ok(vec![
        live.row("list_live", format!("list of 10 live {store}")),
        finished.row("list_finished", format!("list of 10 finished {store}")),
        starts.row("start_in_full_store", format!("start → exit → output {store}")),
        Row::new("daemon_full_store", format!("daemon {store}, RSS"), "MiB", rss),
    ])
}

fn filled(stage: &TestDir, name: &str, running: usize, finished: usize) -> anyhow::Result<Daemon> {
    let daemon = stage.daemon(name)?;
    daemon.start_many(finished, &test_bed::shell_true())?;
    daemon.start_many(running, &test_bed::sleeper())?;
    Ok(daemon)
}

fn list(runtime: &Runtime, client: &Client, status: &str) -> anyhow::Result<()> {
    let query = ListQuery { status: Some(status.to_owned()), limit: Some(FEW as u32), ..ListQuery::default() };
    let list = runtime.block_on(client.list(&query))?;
    ensure!(list.processes.len() == FEW, "a list of {} {status}", list.processes.len());
    Ok(())
}

/// The same operation in both stores, in alternating blocks.
fn compare(
    count: usize,
    [small, large]: &[Client; 2],
    mut act: impl FnMut(&Client) -> anyhow::Result<()>,
) -> anyhow::Result<Pair> {
    let mut pair = Pair::default();
    act(small)?;
    act(large)?;
    for _ in 0..count.div_ceil(BLOCK) {
        for (samples, client) in [(&mut pair.small, small), (&mut pair.large, large)] {
            settle();
            (0..BLOCK).try_for_each(|_| samples.time(|| act(client)))?;
        }
    }
    Ok(pair)
}

impl Pair {
    fn row(&self, id: &'static str, what: String) -> Row {
        let baseline = format!("the same with {FEW} running and {FEW} finished at first");
        Row::new(id, what, "ms", self.large.summary(Better::Less))
            .against(baseline, self.small.summary(Better::Less))
            .target(TARGET)
    }
}
