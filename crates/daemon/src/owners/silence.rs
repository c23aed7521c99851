//! Owners that have gone silent: what they left ends as if they had been ended.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use pinfold_model::id::ProcessId;

use crate::agents::EndingAgents;
use crate::core::Core;
use crate::registry::Entry;

/// How often owners that have gone silent are looked for.
const LOOK: Duration = Duration::from_millis(500);

/// Ends what owners left that were not heard of for as long as it was to live on. Sleeps while nothing has such a time.
pub(crate) async fn tend(core: Arc<Core>) {
    let mut shutdown = core.shutdown.subscribe();
    let mut ending = HashSet::new();
    loop {
        let rest = async {
            match is_anything_graced(&core) {
                true => tokio::time::sleep(LOOK).await,
                false => core.owners.grace_noted().await,
            }
        };
        tokio::select! {
            () = rest => {}
            _ = shutdown.wait_for(|shutdown| *shutdown) => return,
        }
        end_agents(&core, &mut ending);
        end_processes(&core, &mut ending);
        // What is neither alive nor hosted any more need not be remembered.
        ending.retain(|id| core.registry.get(id).is_some() || core.agents.get(id).is_some());
    }
}

fn is_anything_graced(core: &Core) -> bool {
    core.registry.live().iter().any(|entry| grace_of(entry).is_some()) || !core.graced_agents().is_empty()
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
        tracing::info!(owner, processes = entries.len(), "an owner has gone silent");
        let heir = core.owners.parent(&owner);
        let core = Arc::clone(core);
        tokio::spawn(async move { core.end_all(entries, heir, None).await });
    }
}

fn end_agents(core: &Arc<Core>, ending: &mut HashSet<ProcessId>) {
    let mut left = EndingAgents::default();
    for (seat, grace) in core.graced_agents() {
        let owner = seat.owner();
        if core.owners.silence(&owner) >= grace && ending.insert(seat.id.clone()) {
            tracing::info!(owner, agent = %seat.id, "an owner has gone silent");
            let heir = core.owners.parent(&owner);
            core.end_with_owner(seat, heir.as_deref(), None, &mut left);
        }
    }
}

/// How long the owner of a process may be silent. What was handed over is no longer bound to whoever started it.
fn grace_of(entry: &Entry) -> Option<Duration> {
    let state = entry.state.borrow();
    state.history.intent.spec.lifetime.grace().filter(|_| state.history.handovers.is_empty())
}
