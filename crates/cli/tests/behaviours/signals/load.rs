//! Hundreds at once, thousands one after another: afterwards the daemon holds what it held before.

use std::path::PathBuf;

use pinfold_api::client::Client;
use pinfold_api::types::{GcRequest, ListQuery, StartRequest, StopRequest};
use pinfold_testkit::{DEADLINE, Pinfold, alive, children_of, until};
use tokio::task::JoinSet;

use super::traces::descriptors;
use crate::PINFOLD;
use crate::records::intent;
use crate::requests::request;

const AT_ONCE: usize = 300;
const ONE_AFTER_ANOTHER: usize = 2_000;
const CLIENTS: usize = 16;
/// How many idle keepers a daemon may have.
const MAX_IDLE: usize = 16;

/// Each client does its share over its own connection; all connections are closed afterwards.
fn with_clients<F>(pinfold: &Pinfold, count: usize, act: impl Fn(Client, usize) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut clients = JoinSet::new();
        for number in 0..CLIENTS {
            let share = count / CLIENTS + usize::from(number < count % CLIENTS);
            clients.spawn(act(Client::new(pinfold.home().join("socket")), share));
        }
        clients.join_all().await
    });
}

/// What the daemon holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    /// Without the connections to keepers, which open and close.
    descriptors: usize,
    keepers: usize,
    zombies: usize,
    cgroups: usize,
    directories: usize,
}

impl Held {
    fn now(pinfold: &Pinfold, cgroups: Option<&PathBuf>) -> Self {
        let (daemon, keepers) = (pinfold.daemon_pid(), pinfold.keepers());
        let ours = [vec![daemon], children_of(daemon), keepers.clone()].concat();
        let entries = |path: PathBuf| std::fs::read_dir(path).into_iter().flatten().flatten();
        let directories = |path: PathBuf| entries(path).filter(|entry| entry.path().is_dir()).count();
        Held {
            descriptors: descriptors(daemon).saturating_sub(keepers.len()),
            keepers: keepers.len(),
            zombies: ours.into_iter().flat_map(children_of).filter(|pid| !alive(*pid)).count(),
            cgroups: cgroups.map_or(0, |base| directories(base.clone())),
            directories: directories(pinfold.home().join("processes")),
        }
    }

    /// Only idle keepers, each with a cgroup and a directory created in advance, and no further descriptor.
    fn is_at_rest(self, descriptors: usize) -> bool {
        // A keeper that starts or exits at this moment may be counted in one number and not in the other.
        self.descriptors <= descriptors + 2
            && self.keepers <= MAX_IDLE
            && self.zombies == 0
            // The nursery and the daemon may leave the cgroups that they created to test the controllers.
            && self.cgroups <= self.keepers
            && self.directories <= self.keepers
    }
}

fn back_at_rest(pinfold: &Pinfold, cgroups: Option<&PathBuf>, descriptors: usize) {
    let everything = GcRequest { older_than: Some("0s".into()), dry_run: false };
    let mut held = None;
    let mut rests = || {
        pinfold.block(pinfold.client().gc(&everything)).expect("a gc");
        held.insert(Held::now(pinfold, cgroups)).is_at_rest(descriptors)
    };
    let deadline = std::time::Instant::now() + DEADLINE;
    while !rests() {
        assert!(
            std::time::Instant::now() < deadline,
            "more than {descriptors} descriptors, or more than idle: {held:?}"
        );
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn many_at_once_and_one_after_another_leave_nothing() {
    let pinfold = Pinfold::start(PINFOLD);
    let first = pinfold.wait_finished(&pinfold.sh("exit 0").id);
    let cgroups = intent(&pinfold, &first.id).keeper.cgroup.and_then(|leaf| leaf.parent().map(PathBuf::from));
    let descriptors = Held::now(&pinfold, cgroups.as_ref()).descriptors;
    back_at_rest(&pinfold, cgroups.as_ref(), descriptors);

    with_clients(&pinfold, AT_ONCE, |client, share| async move {
        let sleeper = StartRequest { argv: Some(vec!["sleep".into(), "300".into()]), ..StartRequest::default() };
        for _ in 0..share {
            client.start(&sleeper).await.expect("it starts");
        }
    });
    let live = ListQuery { status: Some("live".into()), limit: Some(500), ..ListQuery::default() };
    let running = pinfold.list(&live);
    assert_eq!((running.total, pinfold.keepers().len() >= AT_ONCE), (AT_ONCE as u64, true));
    let ids: Vec<String> = running.processes.into_iter().map(|record| record.id).collect();
    let shares = std::cell::RefCell::new(ids.chunks(AT_ONCE.div_ceil(CLIENTS)));
    with_clients(&pinfold, AT_ONCE, |client, _| {
        let share = shares.borrow_mut().next().unwrap_or_default().to_vec();
        async move {
            for id in share {
                let stopped = client.stop(&id, &StopRequest::default()).await.expect("a stop");
                assert!(stopped.survivors.is_empty(), "{stopped:?}");
            }
        }
    });
    until("all are over", || pinfold.list(&live).total == 0);
    back_at_rest(&pinfold, cgroups.as_ref(), descriptors);

    with_clients(&pinfold, ONE_AFTER_ANOTHER, |client, share| async move {
        let run = StartRequest { wait: Some("60s".into()), ..request("true") };
        for _ in 0..share {
            let record = client.start(&run).await.expect("it runs").record;
            assert!(record.exited_at.is_some(), "{record:?}");
        }
    });
    until("all are over", || pinfold.list(&live).total == 0);
    back_at_rest(&pinfold, cgroups.as_ref(), descriptors);
}
