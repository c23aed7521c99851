//! A keeper's death: its process's record tells the end, or the process is lost; then its remains are stopped first.

use std::sync::Arc;
use std::time::Duration;

use pinfold_model::facts::{Fact, History};
use pinfold_os::cgroup::Cgroup;
use pinfold_os::sweep;
use pinfold_store::record::{append_lost, read_record};

use crate::clock::now;
use crate::registry::Entry;
use crate::service::{Core, blocking};

/// How long the remains of a process whose keeper died are hunted.
const SWEEP: Duration = Duration::from_secs(5);

impl Core {
    /// A keeper ended while it kept a process: its record tells the end, or the process is lost.
    pub(crate) async fn keeper_went(self: &Arc<Self>, entry: Arc<Entry>) {
        if entry.status().is_over() {
            return;
        }
        let core = Arc::clone(self);
        let history = entry.snapshot().history;
        let found = blocking(move || core.settle(history)).await;
        match found {
            Ok(facts) => {
                for fact in facts {
                    self.note_fact(&entry, fact).await;
                }
            }
            Err(refusal) => tracing::error!(process = %entry.id, error = %refusal.0, "cannot settle a lost process"),
        }
    }

    /// The facts that end a process whose keeper is dead: those in its record, or its loss, after its remains
    /// are stopped. Blocks.
    pub(crate) fn settle(&self, history: History) -> Vec<Fact> {
        let directory = self.home.process(&history.intent.id);
        let mut history = history;
        let mut facts = Vec::new();
        if let Ok(record) = read_record(&directory) {
            for fact in record.facts {
                let before = history.clone();
                history.add(fact.clone());
                if history != before {
                    facts.push(fact);
                }
            }
        }
        if history.status().is_over() {
            return facts;
        }
        let lost = Fact::Lost { evidence: self.hunt(&history), at: now() };
        if let Err(error) = append_lost(&directory, &lost, self.durability()) {
            tracing::error!(process = %history.intent.id, %error, "cannot record a loss");
        }
        facts.push(lost);
        facts
    }

    /// Stops what a dead keeper left, and says what was found.
    fn hunt(&self, history: &History) -> String {
        let intent = &history.intent;
        // A living keeper may have its pid, or be the same one, with another process: socket and cgroup are then
        // that one's.
        let is_taken = |entry: &Arc<Entry>| {
            entry.id != intent.id && entry.state.borrow().history.intent.keeper.pid == intent.keeper.pid
        };
        let taken = self.registry.live().iter().any(is_taken);
        if !taken {
            let _ = std::fs::remove_file(self.home.keepers().join(intent.keeper.pid.to_string()));
        }
        let who = format!("keeper {} ended without an exit record", intent.keeper.pid);
        let ran = match &history.start {
            Some(start) => format!("the leader was pid {}", start.pid),
            None => "no leader is known to have started".to_owned(),
        };
        if intent.boot_id != self.boot_id {
            return format!("the machine was restarted while it ran; {ran}");
        }
        let mark = format!("PINFOLD_MARK={}", intent.mark);
        // A limited tree has cgroups of its own: the v2 one contains it, the others are only removed.
        let limits = if taken { vec![] } else { self.limits_of_keeper(intent.keeper.pid) };
        let limiting = limits.iter().find_map(|path| Cgroup::open(path).ok());
        let own = intent.keeper.cgroup.as_deref().filter(|_| !taken).and_then(|path| Cgroup::open(path).ok());
        let cgroup = limiting.or(own);
        let swept = sweep::sweep(mark.as_bytes(), cgroup.as_ref(), SWEEP);
        if let Some(cgroup) = cgroup {
            let _ = cgroup.remove();
        }
        if let Some(own) = intent.keeper.cgroup.as_deref().filter(|_| !taken) {
            let _ = Cgroup::open(own).and_then(|cgroup| cgroup.remove());
        }
        if !limits.is_empty() {
            self.remove_dead_limits();
        }
        let name = |(pid, command): &(u32, String)| format!("{pid} {command}");
        let left = match swept.survivors.is_empty() {
            true => "none is left".to_owned(),
            false => format!("left: {}", swept.survivors.iter().map(name).collect::<Vec<_>>().join(", ")),
        };
        format!("{who}; {ran}; {} processes of its tree were killed, {left}", swept.killed.len())
    }
}
