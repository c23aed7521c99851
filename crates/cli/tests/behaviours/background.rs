//! Background processes, waits and events. Readiness, restarts and leased ports are in `services`.

mod consumers;
mod crowds;
mod deliveries;
mod matches;
mod monitors;
mod notices;
mod ports;
mod waits;

use std::collections::BTreeMap;

use pinfold_api::client::Client;
use pinfold_api::error::ErrorCode;
use pinfold_api::types::{EventKind, Outcome, StartRequest, Status, WaitAnswer, WaitQuery};
use pinfold_testkit::{Pinfold, until_some};
use tokio::task::JoinSet;

use crate::PINFOLD;

/// A wait of up to a minute.
fn until(what: &str) -> WaitQuery {
    WaitQuery { until: Some(what.into()), timeout: Some("60s".into()), ..WaitQuery::default() }
}

/// The same wait without blocking.
fn now(query: WaitQuery) -> WaitQuery {
    WaitQuery { timeout: Some("0".into()), ..query }
}

/// A wait as a request of its own, to be run in parallel.
fn waiting(pinfold: &Pinfold, id: &str, query: WaitQuery) -> impl Future<Output = WaitAnswer> + Send + use<> {
    let (client, id) = (pinfold.client().clone(), id.to_owned());
    async move { client.wait(&id, &query).await.expect("a wait") }
}

/// How many requests the daemon has received.
async fn requests_taken(client: &Client) -> usize {
    let metrics = client.metrics().await.expect("metrics");
    let count = metrics.lines().find_map(|line| line.strip_prefix("pinfold_http_requests_total "));
    count.expect("the counter").parse().expect("a number")
}

/// Sends requests, acts once the daemon has received all of them, and returns their responses.
pub(crate) fn meanwhile<T: Send + 'static>(
    pinfold: &Pinfold,
    requests: impl IntoIterator<Item = impl Future<Output = T> + Send + 'static>,
    act: impl AsyncFnOnce(),
) -> Vec<T> {
    pinfold.block(async {
        let before = requests_taken(pinfold.client()).await;
        let requests: JoinSet<T> = requests.into_iter().collect();
        let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(60);
        while requests_taken(pinfold.client()).await < before + requests.len() {
            assert!(tokio::time::Instant::now() < deadline, "the daemon does not take up the requests");
        }
        act().await;
        requests.join_all().await
    })
}

#[test]
fn bg_start_fast() {
    let pinfold = Pinfold::start(PINFOLD);
    let started = pinfold.start_request(&StartRequest { command: Some("exec sleep 300".into()), ..Default::default() });
    assert_eq!((started.record.status, started.record.outcome, started.created), (Status::Running, None, true));
    let cli = pinfold.cli(&["run", "-d", "exec sleep 300"]);
    assert_eq!(cli.code, Some(0), "{cli:?}");
    assert_eq!(pinfold.show(cli.stdout.trim()).status, Status::Running);
    assert_eq!(pinfold.show(&started.record.id).status, Status::Running);
}

#[test]
fn bg_early_failure_reported() {
    let pinfold = Pinfold::start(PINFOLD);
    // Directories in PATH that may not be entered would give another exit code.
    let id = pinfold.sh("PATH=/usr/bin:/bin; definitely-not-a-command").id;
    let end = until_some("the end of the command", || {
        let events = pinfold.events(0).events;
        events.into_iter().find(|event| event.kind == EventKind::Finished)
    });
    assert_eq!((end.process.as_str(), end.outcome), (id.as_str(), Some(Outcome::Exited { code: 127 })));
    assert!(pinfold.text(&id).contains("definitely-not-a-command: not found"));
    // Without a shell nothing can be started, and the response says so.
    let argv = Some(vec!["definitely-not-a-command".to_owned()]);
    let refusal = pinfold.try_start(&StartRequest { argv, ..StartRequest::default() }).expect_err("no program");
    assert_eq!(refusal.code, ErrorCode::NoProgram);
    assert!(refusal.message.contains("definitely-not-a-command"), "{refusal}");
    let cli = pinfold.cli(&["run", "-d", "--", "definitely-not-a-command", "x"]);
    assert_eq!((cli.code, cli.stdout.as_str()), (Some(127), ""));
}

/// A late end is reported for its own run, not for the one that replaced it.
#[test]
fn superseded_run_marked() {
    let pinfold = Pinfold::start(PINFOLD);
    let request = StartRequest {
        command: Some("sleep 300; echo never".into()),
        name: Some("web".into()),
        ..StartRequest::default()
    };
    let (old, new) = (pinfold.start_request(&request), pinfold.start_request(&request));
    assert!(new.hints.iter().any(|hint| hint.contains(&old.record.id)), "{:?}", new.hints);
    pinfold.stop(&new.record.id);
    pinfold.stop(&old.record.id);
    let events = pinfold.events(0).events;
    let ends: BTreeMap<_, _> = events
        .iter()
        .filter(|event| event.kind == EventKind::Finished)
        .map(|event| (event.process.as_str(), (event.seq, event.started_at.clone(), event.command.as_str())))
        .collect();
    let (late, early) = (&ends[old.record.id.as_str()], &ends[new.record.id.as_str()]);
    assert!(late.0 > early.0 && ends.len() == 2);
    assert_eq!((&late.1, &early.1), (&old.record.started_at, &new.record.started_at));
    assert!(late.1 < early.1 && late.2 == "sleep 300; echo never");
}
