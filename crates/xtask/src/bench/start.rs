//! Start → exit → output of `sh -c true` on a kept-alive connection and by the command line, compared with a bare spawn.
//!
//! Blocks of each kind alternate, so that changes of the machine affect all kinds alike. A pause before each block lets the
//! background work of the previous block finish.

use std::process::{Command, Stdio};

use anyhow::ensure;

use super::report::{Row, Target};
use super::stats::{Better, Samples};
use super::test_bed::{self, TestDir, settle};
use super::{Scale, bare};

/// Runs in one block.
const BLOCK: usize = 20;
const RUNS: usize = 1000;

pub(super) fn measure(stage: &TestDir, scale: Scale) -> anyhow::Result<Vec<Row>> {
    let daemon = stage.daemon("start")?;
    let (runtime, client) = (test_bed::runtime()?, daemon.client());
    let [mut plain, mut piped, mut two, mut one, mut command] = [const { Samples::new() }; 5];
    let two_requests = || runtime.block_on(test_bed::start_exit_output(&client));
    let one_request = || runtime.block_on(test_bed::start_and_wait(&client));
    let by_command = || {
        let mut command = Command::new(daemon.binary());
        command.args(["run", "true"]).env("PINFOLD_HOME", daemon.home()).stdin(Stdio::null());
        let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status()?;
        ensure!(status.success(), "`pinfold run true` ended with {status}");
        Ok(())
    };
    for _ in 0..BLOCK {
        bare::spawn_and_wait()?;
        two_requests()?;
        by_command()?;
    }
    for _ in 0..scale.of(RUNS).div_ceil(BLOCK) {
        block(&mut plain, bare::spawn_and_wait)?;
        block(&mut two, two_requests)?;
        block(&mut piped, bare::spawn_read_and_wait)?;
        block(&mut one, one_request)?;
        block(&mut command, by_command)?;
    }
    let bare = plain.summary(Better::Less);
    Ok(vec![
        Row::new("start_exit_output", "start → exit → output, two requests", "ms", two.summary(Better::Less))
            .against(bare::SPAWN_AND_WAIT, bare)
            .target(Target::RatioAtMost(1.35)),
        Row::new("start_and_wait", "the same in one request (`wait`)", "ms", one.summary(Better::Less))
            .against(bare::SPAWN_AND_WAIT, bare),
        Row::new("cli_run", "`pinfold run true`, the daemon running", "ms", command.summary(Better::Less))
            .against(bare::SPAWN_AND_WAIT, bare)
            .target(Target::RatioAtMost(2.5)),
        Row::new("bare_piped", "bare spawn with its output read through a pipe", "ms", piped.summary(Better::Less))
            .against(bare::SPAWN_AND_WAIT, bare),
    ])
}

fn block(samples: &mut Samples, mut run: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<()> {
    settle();
    (0..BLOCK).try_for_each(|_| samples.time(&mut run))
}
