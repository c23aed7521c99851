//! All agents, and what everything but its driver knows of one of them.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use pinfold_api::types::{Agent, AnswerRequest, Rung, Turn};
use pinfold_model::id::ProcessId;
use pinfold_model::outcome::Cause;
use pinfold_store::agents::AgentDir;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};

use super::own_thread::OwnThread;
use super::recent_events::RecentEvents;
use super::spec::{AgentSpec, Env};
use super::state::AgentState;
use crate::mutex::lock;
use crate::request_error::RequestError;

/// Commands that may wait for a driver. A request that would add one more waits.
const MAX_COMMANDS: usize = 64;

/// One agent. Only its driver has more: the conversation and the process.
#[derive(Debug)]
pub(super) struct AgentHandle {
    pub(super) id: ProcessId,
    pub(super) spec: AgentSpec,
    pub(super) dir: AgentDir,
    /// Written only by the driver, and by the code that replaces a driver that panicked.
    pub(super) view: watch::Sender<View>,
    pub(super) commands: mpsc::Sender<Command>,
    pub(super) events: RecentEvents,
    /// The values of its environment. Not on disk, so `None` in a daemon that did not start the agent.
    pub(super) env: Mutex<Option<Env>>,
    /// The owner it was handed over to. Written only by the driver.
    pub(super) new_owner: Mutex<Option<String>>,
    /// The step that an interrupt has reached, so that the driver can record which step ended the turn.
    pub(super) interrupt_step: Mutex<Option<Rung>>,
    /// Whether it is being ended because its owner lost contact.
    pub(super) owner_lost: AtomicBool,
}

/// The current state of an agent.
#[derive(Clone, Debug, Default)]
pub(super) struct View {
    pub(super) agent: Agent,
    /// The turn that is running, with its text so far.
    pub(super) running: Option<Turn>,
    /// Turns up to this number have ended.
    pub(super) over_through: u64,
}

/// A request to a driver. The answer is dropped if the driver ends first.
#[derive(Debug)]
pub(super) enum Command {
    /// Queue a turn. The flag says whether it may wait behind another turn.
    Turn(Box<Turn>, bool, oneshot::Sender<Result<u64, RequestError>>),
    /// Interrupt the running turn; the answer is its number.
    Interrupt(String, oneshot::Sender<Option<u64>>),
    Answer(AnswerRequest, oneshot::Sender<Result<(), RequestError>>),
    /// Stop the agent, with this grace instead of the agent's own.
    Stop(Cause, Option<Duration>, oneshot::Sender<()>),
    /// Make this owner the agent's, because the previous one ended. Answered when that is on disk.
    HandOver(String, oneshot::Sender<()>),
    /// The whole tree of a previous process has ended.
    Emptied(ProcessId),
}

/// All agents. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Agents {
    inner: Arc<Inner>,
    /// The daemon's event loop.
    pub(super) daemon: Handle,
}

#[derive(Debug, Default)]
struct Inner {
    handles: Mutex<HashMap<ProcessId, Arc<AgentHandle>>>,
    /// One lock for each idempotency key with which an agent is being created.
    keys: Mutex<HashMap<AgentKey, Weak<KeyLock>>>,
    thread: OwnThread,
}

/// An owner and its idempotency key.
type AgentKey = (String, String);
type KeyLock = tokio::sync::Mutex<()>;

impl Agents {
    /// No agents yet, for a daemon with this event loop.
    pub(crate) fn new(daemon: Handle) -> Self {
        Self { inner: Arc::default(), daemon }
    }

    /// The event loop of all code in this folder. Its thread is started when it is first needed.
    pub(super) fn event_loop(&self) -> Result<Handle, RequestError> {
        self.inner.thread.event_loop()
    }

    /// Waits until no other request creates an agent with this key, and locks the key until the guard is dropped.
    pub(super) async fn lock_key(&self, owner: &str, key: &str) -> tokio::sync::OwnedMutexGuard<()> {
        let one = {
            let mut keys = lock(&self.inner.keys);
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

    pub(super) fn insert(&self, handle: &Arc<AgentHandle>) {
        lock(&self.inner.handles).insert(handle.id.clone(), Arc::clone(handle));
    }

    pub(super) fn remove(&self, id: &ProcessId) {
        lock(&self.inner.handles).remove(id);
    }

    /// All of them, newest first.
    pub(super) fn all(&self) -> Vec<Arc<AgentHandle>> {
        let mut all: Vec<_> = lock(&self.inner.handles).values().cloned().collect();
        all.sort_by(|one, other| (other.spec.at, &other.id).cmp(&(one.spec.at, &one.id)));
        all
    }

    /// Those that have not ended, newest first.
    pub(super) fn living(&self) -> Vec<Arc<AgentHandle>> {
        let mut all = self.all();
        all.retain(|handle| !handle.is_over());
        all
    }
}

impl AgentHandle {
    /// A handle, and the commands for its driver.
    pub(super) fn new(
        spec: AgentSpec,
        dir: AgentDir,
        env: Option<Env>,
        state: &AgentState,
    ) -> (Arc<Self>, mpsc::Receiver<Command>) {
        let (commands, incoming) = mpsc::channel(MAX_COMMANDS);
        let handle = Self {
            id: spec.id.clone(),
            spec,
            dir,
            view: watch::Sender::new(View::default()),
            commands,
            events: RecentEvents::after(state.seq),
            new_owner: Mutex::new(state.new_owner.clone()),
            env: Mutex::new(env),
            interrupt_step: Mutex::new(None),
            owner_lost: AtomicBool::new(false),
        };
        (Arc::new(handle), incoming)
    }

    pub(super) fn is_over(&self) -> bool {
        self.view.borrow().agent.ended_at.is_some()
    }

    pub(super) fn owner(&self) -> String {
        lock(&self.new_owner).clone().unwrap_or_else(|| self.spec.owner.clone())
    }

    /// How long its owner may be without contact. Once handed over, an agent no longer depends on the owner that started it.
    pub(super) fn owner_grace(&self) -> Option<Duration> {
        self.spec.owner_grace().filter(|_| lock(&self.new_owner).is_none())
    }
}
