//! What a sandbox costs: start and wait of `sh -c true` in one request, without a sandbox and in each tier.
//!
//! The kinds take turns run by run, so that changes of the machine affect all alike.

use anyhow::ensure;
use pinfold_api::client::Client;
use pinfold_api::types::{Outcome, SandboxRequest, StartRequest};

use super::Scale;
use super::report::{Row, Target};
use super::stats::{Better, Samples};
use super::test_bed::{self, TestDir, settle, shell_true};

const RUNS: usize = 2000;
const BASELINE: &str = "the same without a sandbox";
/// Runs of each kind before the first one that counts.
const WARM_UP: usize = 20;
/// Runs of each kind after which the daemon's background work may finish.
const BLOCK: usize = 20;

/// A sandbox to measure: the row's id, the sandbox, and the goal.
type Kind = (&'static str, &'static str, Option<Target>);
const KINDS: [Kind; 4] = [
    ("sandbox_landlock", "workspace-write,tier=landlock", Some(Target::RatioAtMost(1.05))),
    ("sandbox_landlock_alone", "read-only,network=none,tier=landlock", Some(Target::RatioAtMost(1.05))),
    ("sandbox_namespaces", "workspace-write,tier=namespaces", None),
    ("sandbox_network_namespace", "workspace-write,network=none,tier=namespaces,secrets=hidden", None),
];

pub(super) fn measure(stage: &TestDir, scale: Scale) -> anyhow::Result<Vec<Row>> {
    let daemon = stage.daemon("sandbox")?;
    let work = stage.directory().join("sandbox-work");
    std::fs::create_dir_all(&work)?;
    let (runtime, client) = (test_bed::runtime()?, daemon.client());
    let request = |sandbox: Option<&str>| StartRequest {
        cwd: Some(work.to_string_lossy().into_owned()),
        sandbox: sandbox.map(|text| SandboxRequest::Text(text.to_owned())),
        wait: Some("30s".into()),
        ..shell_true()
    };
    let without = request(None);
    let mut kinds = Vec::new();
    for kind in KINDS {
        let request = request(Some(kind.1));
        // A tier that this machine does not have is left out.
        match runtime.block_on(run(&client, &request)) {
            Ok(()) => kinds.push((kind, request, Samples::new())),
            Err(error) => eprintln!("bench: left out {}: {error:#}", kind.1),
        }
    }
    let mut baseline = Samples::new();
    for request in kinds.iter().map(|(_, request, _)| request).chain([&without]) {
        (0..WARM_UP).try_for_each(|_| runtime.block_on(run(&client, request)))?;
    }
    for turn in 0..scale.of(RUNS) {
        if turn % BLOCK == 0 {
            settle();
        }
        baseline.time(|| runtime.block_on(run(&client, &without)))?;
        for (_, request, samples) in &mut kinds {
            samples.time(|| runtime.block_on(run(&client, request)))?;
        }
    }
    let baseline = baseline.summary(Better::Less);
    let row = |((id, sandbox, target), _, samples): (Kind, StartRequest, Samples)| {
        let what = format!("start and wait in the sandbox `{sandbox}`");
        let row = Row::new(id, what, "ms", samples.summary(Better::Less)).against(BASELINE, baseline);
        match target {
            Some(target) => row.target(target),
            None => row,
        }
    };
    Ok(kinds.into_iter().map(row).collect())
}

/// Runs it to its end.
async fn run(client: &Client, request: &StartRequest) -> anyhow::Result<()> {
    let record = client.start(request).await?.record;
    let well = record.outcome.as_ref().is_some_and(|outcome| *outcome == Outcome::Exited { code: 0 });
    ensure!(well, "`true` ended with {:?}", record.outcome);
    Ok(())
}
