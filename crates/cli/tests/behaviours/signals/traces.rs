//! Two hundred processes leave no zombies and no descriptors in the daemon and its keepers.

use pinfold_api::client::Client;
use pinfold_api::types::ListQuery;
use pinfold_testkit::{Pinfold, alive, children_of, until};
use tokio::task::JoinSet;

use crate::PINFOLD;
use crate::requests::request;

const LANES: usize = 25;

/// Starts `8 × LANES` processes, LANES at a time, each over its own connection; waits until all have ended.
fn churn(pinfold: &Pinfold) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let client = Client::new(pinfold.home().join("socket"));
    runtime.block_on(async {
        let mut lanes = JoinSet::new();
        (0..LANES).for_each(|_| drop(lanes.spawn(lane(client.clone()))));
        lanes.join_all().await
    });
    let live = ListQuery { status: Some("live".into()), ..ListQuery::default() };
    until("all are over", || pinfold.list(&live).total == 0);
}

async fn lane(client: Client) {
    let commands = ["true", "exit 3", "sleep 0.05 & true", "(setsid sleep 0.05 &)", "kill -9 $$"];
    for command in commands.iter().cycle().take(8) {
        let id = client.start(&request(command)).await.expect("it starts").record.id;
        client.wait(&id, &Default::default()).await.expect("a wait");
    }
}

/// The daemon, its nursery and its keepers.
fn ours(pinfold: &Pinfold) -> Vec<u32> {
    let daemon = pinfold.daemon_pid();
    [vec![daemon], children_of(daemon), pinfold.keepers()].concat()
}

pub(super) fn descriptors(pid: u32) -> usize {
    // A keeper that is exiting has none.
    std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, |entries| entries.count())
}

#[test]
fn no_zombies() {
    let pinfold = Pinfold::start(PINFOLD);
    churn(&pinfold);
    until("no zombies", || ours(&pinfold).into_iter().flat_map(children_of).all(alive));
    // Nor anything alive that belongs to no process.
    let keepers = pinfold.keepers();
    assert!(!keepers.is_empty() && keepers.into_iter().flat_map(children_of).count() == 0);
}

#[test]
fn no_fd_leak() {
    let pinfold = Pinfold::start(PINFOLD);
    let daemon = pinfold.daemon_pid();
    pinfold.run("true");
    // The connection to each keeper is counted; it opens and closes with the keeper.
    let own = || descriptors(daemon).saturating_sub(pinfold.keepers().len());
    let (baseline, idle) = (own(), pinfold.keepers().into_iter().map(descriptors).max().expect("a keeper"));
    churn(&pinfold);
    // A keeper that starts or exits at this moment may be counted in one number and not in the other.
    until("the daemon is back at its baseline", || own() <= baseline + 2);
    until("every keeper is, too", || pinfold.keepers().into_iter().all(|keeper| descriptors(keeper) <= idle));
}
