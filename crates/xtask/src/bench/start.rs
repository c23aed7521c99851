//! Start → exit → output of `sh -c true` on one kept-alive connection, against a bare spawn.
//!
//! Blocks of each kind alternate, so that the machine's drift falls on all alike. A pause before each block lets what
//! the block before left to be done be done: it shall not flatter one by slowing the other.

use super::report::{Row, Target};
use super::stage::{self, Stage, settle};
use super::stats::{Better, Samples};
use super::{Scale, bare};

/// Runs of one kind between two of another.
const BLOCK: usize = 20;
const RUNS: usize = 1000;

pub(super) fn measure(stage: &Stage, scale: Scale) -> anyhow::Result<Vec<Row>> {
    let daemon = stage.daemon("start")?;
    let (runtime, client) = (stage::runtime()?, daemon.client());
    let [mut plain, mut piped, mut two, mut one] = [const { Samples::new() }; 4];
    let two_requests = || runtime.block_on(stage::start_exit_output(&client));
    let one_request = || runtime.block_on(stage::start_and_wait(&client));
    for _ in 0..BLOCK {
        bare::spawn_and_wait()?;
        two_requests()?;
    }
    for _ in 0..scale.of(RUNS).div_ceil(BLOCK) {
        block(&mut plain, bare::spawn_and_wait)?;
        block(&mut two, two_requests)?;
        block(&mut piped, bare::spawn_read_and_wait)?;
        block(&mut one, one_request)?;
    }
    let bare = plain.summary(Better::Less);
    Ok(vec![
        Row::new("start_exit_output", "start → exit → output, two requests", "ms", two.summary(Better::Less))
            .against(bare::SPAWN_AND_WAIT, bare)
            .target(Target::RatioAtMost(1.6)),
        Row::new("start_and_wait", "the same in one request (`wait`)", "ms", one.summary(Better::Less))
            .against(bare::SPAWN_AND_WAIT, bare),
        Row::new("bare_piped", "bare spawn with its output read through a pipe", "ms", piped.summary(Better::Less))
            .against(bare::SPAWN_AND_WAIT, bare),
    ])
}

fn block(samples: &mut Samples, mut run: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<()> {
    settle();
    (0..BLOCK).try_for_each(|_| samples.time(&mut run))
}
