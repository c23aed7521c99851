//! What others see of an agent, and how they reach the one that drives it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use pinfold_api::types::{Agent, AnswerRequest, Rung, Turn};
use pinfold_model::id::ProcessId;
use pinfold_model::outcome::Cause;
use pinfold_store::agents::AgentDir;
use tokio::sync::{mpsc, oneshot, watch};

use super::events::Ring;
use super::spec::{AgentSpec, Env};
use crate::lock::lock;
use crate::refusal::Refusal;

/// Requests to a driver that may wait.
pub(crate) const COMMANDS: usize = 64;

/// One agent, for everybody but its driver.
#[derive(Debug)]
pub(crate) struct Seat {
    pub(crate) id: ProcessId,
    pub(crate) spec: AgentSpec,
    pub(crate) dir: AgentDir,
    /// Written by the driver alone.
    pub(crate) view: watch::Sender<View>,
    pub(crate) commands: mpsc::Sender<Command>,
    pub(crate) events: Ring,
    /// The values of its environment; gone after a crash of the daemon.
    pub(crate) env: Mutex<Option<Env>>,
    /// Whom it was handed over to, when the owner it began with ended. Written by the driver alone.
    pub(crate) heir: Mutex<Option<String>>,
    /// The rung that an interrupt stands on, for the driver to say which one worked.
    pub(crate) rung: Mutex<Option<Rung>>,
}

/// An agent as it stands.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    pub(crate) agent: Agent,
    /// The turn that runs, as far as it came.
    pub(crate) running: Option<Turn>,
    /// Turns up to this number are over.
    pub(crate) over_through: u64,
}

/// What a driver is asked.
#[derive(Debug)]
pub(crate) enum Command {
    Turn(Box<Turn>, bool, oneshot::Sender<Result<u64, Refusal>>),
    /// Answered with the number of the turn that runs.
    Interrupt(String, oneshot::Sender<Option<u64>>),
    Answer(AnswerRequest, oneshot::Sender<Result<(), Refusal>>),
    /// With the grace, if not the agent's own.
    Stop(Cause, Option<Duration>, oneshot::Sender<()>),
    /// To another owner, since its own ended. Answered when that is written down.
    HandOver(String, oneshot::Sender<()>),
    /// Nothing of a former life is left.
    Emptied(ProcessId),
}

/// All agents.
#[derive(Debug, Default)]
pub(crate) struct Agents {
    seats: Mutex<HashMap<ProcessId, Arc<Seat>>>,
    /// One lock for each key under which an agent is being made.
    keys: Mutex<HashMap<AgentKey, Weak<KeyLock>>>,
}

/// An owner and its idempotency key.
type AgentKey = (String, String);
type KeyLock = tokio::sync::Mutex<()>;

impl Agents {
    /// Waits until no other request makes an agent under this key, and keeps others waiting until it is dropped.
    pub(crate) async fn lock_key(&self, owner: &str, key: &str) -> tokio::sync::OwnedMutexGuard<()> {
        let one = {
            let mut keys = lock(&self.keys);
            keys.retain(|_, one| one.strong_count() > 0);
            let name = (owner.to_owned(), key.to_owned());
            let known = keys.get(&name).and_then(Weak::upgrade);
            known.unwrap_or_else(|| {
                let new = Arc::<KeyLock>::default();
                keys.insert(name, Arc::downgrade(&new));
                new
            })
        };
        one.lock_owned().await
    }

    pub(crate) fn insert(&self, seat: &Arc<Seat>) {
        lock(&self.seats).insert(seat.id.clone(), Arc::clone(seat));
    }

    pub(crate) fn remove(&self, id: &ProcessId) {
        lock(&self.seats).remove(id);
    }

    pub(crate) fn get(&self, id: &ProcessId) -> Option<Arc<Seat>> {
        lock(&self.seats).get(id).cloned()
    }

    /// All of them, newest first.
    pub(crate) fn all(&self) -> Vec<Arc<Seat>> {
        let mut all: Vec<_> = lock(&self.seats).values().cloned().collect();
        all.sort_by(|one, other| (other.spec.at, &other.id).cmp(&(one.spec.at, &one.id)));
        all
    }
}

impl Seat {
    pub(crate) fn is_over(&self) -> bool {
        self.view.borrow().agent.ended_at.is_some()
    }

    /// Whose it is now.
    pub(crate) fn owner(&self) -> String {
        lock(&self.heir).clone().unwrap_or_else(|| self.spec.owner.clone())
    }

    /// How long its owner may be silent. What was handed over is no longer bound to whoever started it.
    pub(crate) fn grace(&self) -> Option<Duration> {
        self.spec.grace().filter(|_| lock(&self.heir).is_none())
    }
}
