//! Time from the exit record until a blocked waiter has its answer: the difference between the time in the record and the client's
//! clock when the answer arrives.

use std::time::SystemTime;

use anyhow::{Context, ensure};
use pinfold_api::types::{Record, StartRequest, WaitQuery};

use super::Scale;
use super::report::{Row, Target};
use super::stats::{Better, Samples};
use super::test_bed::{self, TestDir};

const RUNS: usize = 300;
/// Long enough for the waiter to block, nearly always: on a busy machine a start may be answered later.
const COMMAND: &str = "sleep 0.03";
/// One in this many runs may end before the wait starts.
const ONE_UNBLOCKED_IN: usize = 10;

/// What is waited for, and the corresponding time in the record.
struct Moment {
    id: &'static str,
    what: &'static str,
    until: &'static str,
    of: fn(&Record) -> Option<&str>,
}

const MOMENTS: [Moment; 2] = [
    Moment {
        id: "waiter_exit",
        what: "blocked `wait until=exit`, after `exited_at`",
        until: "exit",
        of: |record| record.exited_at.as_deref(),
    },
    Moment {
        id: "waiter_finished",
        what: "blocked `wait until=finished`, after `finished_at`",
        until: "finished",
        of: |record| record.finished_at.as_deref(),
    },
];

pub(super) fn measure(stage: &TestDir, scale: Scale) -> anyhow::Result<Vec<Row>> {
    let daemon = stage.daemon("waiter")?;
    let (runtime, client) = (test_bed::runtime()?, daemon.client());
    let mut samples = [const { Samples::new() }; MOMENTS.len()];
    let (runs, mut unblocked) = (scale.of(RUNS), 0);
    for _ in 0..runs {
        for (moment, samples) in MOMENTS.iter().zip(&mut samples) {
            let request = StartRequest { command: Some(COMMAND.to_owned()), ..StartRequest::default() };
            let (answer, arrived) = runtime.block_on(async {
                let id = client.start(&request).await?.record.id;
                let query = WaitQuery { until: Some(moment.until.to_owned()), ..WaitQuery::default() };
                let answer = client.wait(&id, &query).await?;
                anyhow::Ok((answer, SystemTime::now()))
            })?;
            if answer.waited_ms == 0 {
                unblocked += 1;
                ensure!(unblocked <= runs / ONE_UNBLOCKED_IN, "{unblocked} waits did not block: {answer:?}");
                continue;
            }
            let text = (moment.of)(&answer.record).context("the record lacks its moment")?;
            let at: jiff::Timestamp = text.parse().with_context(|| format!("`{text}` is not a timestamp"))?;
            let late = jiff::Timestamp::try_from(arrived)?.duration_since(at);
            samples.push(late.as_secs_f64() * 1e3);
        }
    }
    let rows = MOMENTS.iter().zip(&samples).map(|(moment, samples)| {
        Row::new(moment.id, moment.what, "ms", samples.summary(Better::Less)).target(Target::AtMost(0.3))
    });
    Ok(rows.collect())
}
