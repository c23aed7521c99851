//! Ends what absent owners left, after the grace period of each process or agent.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use pinfold_model::id::ProcessId;

use crate::agents::Hosting;
use crate::core::Core;
use crate::registry::Entry;

/// How often absent owners are checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Ends processes and agents whose owner has been out of contact for longer than their grace. Sleeps while none has a
/// grace.
pub(crate) async fn run(core: Arc<Core>) {
    let mut shutdown = core.shutdown.subscribe();
    let mut ending = HashSet::new();
    let hosting = Hosting::of(&core);
    loop {
        let rest = async {
            match has_grace(&core) {
                true => tokio::time::sleep(CHECK_INTERVAL).await,
                false => core.owners.grace_added().await,
            }
        };
        tokio::select! {
            () = rest => {}
            _ = shutdown.wait_for(|shutdown| *shutdown) => return,
        }
        hosting.end_without_contact();
        end_processes(&core, &mut ending);
        // Forget what is no longer in memory.
        ending.retain(|id| core.registry.get(id).is_some());
    }
}

fn has_grace(core: &Core) -> bool {
    core.registry.live().iter().any(|entry| grace_of(entry).is_some()) || core.agents.any_with_owner_grace()
}

fn end_processes(core: &Arc<Core>, ending: &mut HashSet<ProcessId>) {
    let mut left: HashMap<String, Vec<Arc<Entry>>> = HashMap::new();
    for entry in core.registry.live() {
        let owner = entry.state.borrow().history.owner().to_owned();
        let silent = grace_of(&entry).is_some_and(|grace| core.owners.silence(&owner) >= grace);
        if silent && ending.insert(entry.id.clone()) {
            left.entry(owner).or_default().push(entry);
        }
    }
    for (owner, entries) in left {
        tracing::info!(owner, processes = entries.len(), "owner out of contact: ending what it left");
        let heir = core.owners.parent(&owner);
        let core = Arc::clone(core);
        tokio::spawn(async move { core.end_all(entries, heir, None).await });
    }
}

/// The grace of a process. One that was handed over is no longer bound to the contact of an owner.
fn grace_of(entry: &Entry) -> Option<Duration> {
    let state = entry.state.borrow();
    state.history.intent.spec.lifetime.grace().filter(|_| state.history.handovers.is_empty())
}
