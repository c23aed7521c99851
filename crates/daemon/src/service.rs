//! What the routes call: the core of the daemon, and the requests that act on one process.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use pinfold_api::error::ErrorCode;
use pinfold_api::types::{
    EventKind as ApiEventKind, SignalAnswer, SignalRequest, StopAnswer, StopRequest, Survivor, Unreadable,
};
use pinfold_model::event::EventKind;
use pinfold_model::facts::{Fact, History, Status};
use pinfold_model::id::{ProcessId, is_prefix};
use pinfold_model::link::{self, FromKeeper, Kept, ToKeeper};
use pinfold_model::outcome::Cause;
use pinfold_model::signal::Signal;
use pinfold_model::spec::{GRACE_MOST, StopManner};
use pinfold_model::units::{Moment, parse_duration};
use pinfold_os::cgroup::{Base, Cgroup};
use pinfold_os::sweep;
use pinfold_store::Durability;
use pinfold_store::ids::IdSource;
use pinfold_store::index::Change;
use pinfold_store::layout::Home;
use pinfold_store::queries::Queries;
use pinfold_store::record::{append_lost, read_record};
use tokio::sync::watch;

use crate::clock::now;
use crate::config::Config;
use crate::keepers::Keepers;
use crate::ledger::Ledger;
use crate::link::{ANSWER, Link, NoAnswer};
use crate::metrics::Metrics;
use crate::refusal::Refusal;
use crate::registry::{Entry, Registered, Registry, State, lock};
use crate::render;

/// A stop may take this much longer than its grace: KILLs, their repetitions, the drain.
const STOP_SLACK: Duration = Duration::from_secs(10);
/// How long the remains of a process whose keeper died are hunted.
const SWEEP: Duration = Duration::from_secs(5);

/// Everything the daemon has. Shared by all its tasks.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) config: Config,
    pub(crate) home: Home,
    pub(crate) registry: Registry,
    pub(crate) keepers: Keepers,
    pub(crate) ledger: Ledger,
    /// Numbers for new processes.
    pub(crate) ids: Mutex<IdSource>,
    /// The index, for reading; used from blocking threads only.
    pub(crate) queries: Mutex<Queries>,
    pub(crate) metrics: Metrics,
    pub(crate) boot_id: String,
    pub(crate) user_home: String,
    pub(crate) started_at: Moment,
    /// Where keepers make their cgroups, or why they cannot.
    pub(crate) cgroups: Result<Base, String>,
    /// Directories that recovery could not read.
    pub(crate) unreadable: Mutex<Vec<Unreadable>>,
    pub(crate) shutdown: watch::Sender<bool>,
}

/// A process found by a client's word for it: in memory, or only in the index.
#[derive(Clone, Debug)]
pub(crate) enum Found {
    Here(Arc<Entry>),
    Ended(Box<History>),
}

impl Found {
    pub(crate) fn snapshot(&self) -> State {
        match self {
            Found::Here(entry) => entry.snapshot(),
            Found::Ended(history) => Entry::new((**history).clone()).snapshot(),
        }
    }

    pub(crate) fn id(&self) -> &ProcessId {
        match self {
            Found::Here(entry) => &entry.id,
            Found::Ended(history) => &history.intent.id,
        }
    }
}

impl Core {
    pub(crate) fn is_shutting_down(&self) -> bool {
        *self.shutdown.borrow()
    }

    pub(crate) fn durability(&self) -> Durability {
        match self.config.durability {
            crate::config::Durability::Programs => Durability::Programs,
            crate::config::Durability::Power => Durability::Power,
        }
    }

    /// Runs a question to the index on a thread that may block; what was told before is committed first.
    pub(crate) async fn query<T: Send + 'static>(
        self: &Arc<Self>,
        ask: impl FnOnce(&Queries) -> Result<T, pinfold_store::index::IndexError> + Send + 'static,
    ) -> Result<T, Refusal> {
        self.ledger.flush().await;
        let core = Arc::clone(self);
        blocking(move || ask(&lock(&core.queries))).await?.map_err(Refusal::from)
    }

    /// Finds a process by id, by the name of a live one, or by an unambiguous prefix, in this order: a name that
    /// somebody gave is never taken for the beginning of another's id.
    pub(crate) async fn find(self: &Arc<Self>, wanted: &str) -> Result<Found, Refusal> {
        if let Ok(id) = ProcessId::parse(wanted)
            && let Some(entry) = self.registry.get(&id)
        {
            return Ok(Found::Here(entry));
        }
        let mut named = self.registry.named(wanted);
        match (named.pop(), named.len()) {
            (Some(entry), 0) => return Ok(Found::Here(entry)),
            (Some(_), others) => {
                let message = format!("{} live processes are named `{wanted}`: use an id", others + 1);
                return Err(Refusal::new(ErrorCode::AmbiguousId, message));
            }
            (None, _) => {}
        }
        let found = if is_prefix(wanted) { self.find_by_prefix(wanted).await? } else { None };
        found.ok_or_else(|| self.missing(wanted))
    }

    async fn find_by_prefix(self: &Arc<Self>, prefix: &str) -> Result<Option<Found>, Refusal> {
        let text = prefix.to_owned();
        let mut ids = self.query(move |queries| queries.prefix(&text, 5)).await?;
        ids.extend(self.registry.prefix(prefix, 5));
        ids.sort();
        ids.dedup();
        let exact = ids.iter().position(|id| id.as_str() == prefix);
        let id = match (exact, ids.len()) {
            (Some(place), _) => ids.swap_remove(place),
            (None, 0) => return Ok(None),
            (None, 1) => ids.swap_remove(0),
            (None, _) => {
                let ids: Vec<_> = ids.iter().map(ProcessId::as_str).collect();
                let message = format!("`{prefix}` could be any of {}: give more characters", ids.join(", "));
                return Err(Refusal::new(ErrorCode::AmbiguousId, message));
            }
        };
        if let Some(entry) = self.registry.get(&id) {
            return Ok(Some(Found::Here(entry)));
        }
        let found = self.query(move |queries| queries.get(&id)).await?;
        Ok(found.map(|(history, _)| Found::Ended(Box::new(history))))
    }

    fn missing(&self, wanted: &str) -> Refusal {
        let unreadable = lock(&self.unreadable);
        match unreadable.iter().find(|unreadable| unreadable.id == wanted) {
            Some(unreadable) => {
                let message = format!("the record of `{wanted}` cannot be read: {}", unreadable.reason);
                Refusal::new(ErrorCode::Damaged, message)
            }
            None => Refusal::not_found(wanted),
        }
    }

    /// The record of a process, with a look at its living tree.
    pub(crate) async fn record(self: &Arc<Self>, found: &Found) -> Result<pinfold_api::types::Record, Refusal> {
        let (state, directory) = (found.snapshot(), self.home.process(found.id()));
        if state.history.status().is_over() {
            return Ok(render::record(&state, &directory, render::Look::Away));
        }
        blocking(move || render::record(&state, &directory, render::Look::Closely)).await
    }

    /// A keeper told a fact that it has written.
    pub(crate) async fn note_fact(&self, entry: &Arc<Entry>, fact: Fact) {
        let (kind, at) = (fact.event(), fact.at());
        entry.add(fact);
        let history = entry.state.borrow().history.clone();
        self.note_in_log(&history, kind);
        let mut changes = Vec::with_capacity(2);
        changes.extend(kind.map(|kind| event_of(&history, kind, at)));
        if history.status().is_over() {
            self.registry.retire(entry);
            self.metrics.note_end(&history);
            let bytes = render::disk_bytes(&history);
            changes.push(Change::Put(Box::new(history), bytes));
        }
        self.ledger.apply(changes).await;
    }

    fn note_in_log(&self, history: &History, kind: Option<EventKind>) {
        let (id, owner) = (&history.intent.id, &history.intent.spec.owner);
        let kind = kind.map_or("intended", EventKind::name);
        let pid = history.start.as_ref().map(|start| start.pid);
        let code = history.outcome().and_then(|outcome| outcome.shell_code());
        tracing::info!(process = %id, owner = %owner, pid, code, "{kind}");
    }

    /// The store refused a start: nothing is left of it.
    pub(crate) fn note_refused(&self, link: &Link, id: &ProcessId, error: String) {
        tracing::error!(process = %id, %error, "the store refused a start");
        if let Some(entry) = link.release() {
            self.registry.remove(&entry);
            entry.state.send_modify(|state| state.refused = Some(error));
        }
    }

    /// A keeper that lived through the death of an earlier daemon.
    pub(crate) async fn adopt(&self, link: &Arc<Link>, kept: Kept) {
        let history = kept.history;
        let entry = match self.registry.get(&history.intent.id) {
            Some(entry) => entry,
            None => {
                let entry = Entry::new(history.clone());
                if let Registered::KeyTaken(holder) = self.registry.insert(&entry) {
                    tracing::error!(process = %entry.id, holder = %holder.id, "two processes with one key");
                }
                entry
            }
        };
        link.keep(&entry);
        entry.state.send_modify(|state| {
            state.history = history.clone();
            state.paused = kept.paused;
            state.output_bytes = kept.output_bytes;
            state.note = None;
        });
        tracing::info!(process = %entry.id, owner = %history.intent.spec.owner, "adopted");
        self.ledger.apply(events_of(&history)).await;
        if history.status().is_over() {
            self.registry.retire(&entry);
            let bytes = render::disk_bytes(&history);
            self.ledger.apply(vec![Change::Put(Box::new(history), bytes)]).await;
        }
    }

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
        let cgroup = intent.keeper.cgroup.as_deref().filter(|_| !taken).and_then(|path| Cgroup::open(path).ok());
        let swept = sweep::sweep(mark.as_bytes(), cgroup.as_ref(), SWEEP);
        if let Some(cgroup) = cgroup {
            let _ = cgroup.remove();
        }
        let name = |(pid, command): &(u32, String)| format!("{pid} {command}");
        let left = match swept.survivors.is_empty() {
            true => "none is left".to_owned(),
            false => format!("left: {}", swept.survivors.iter().map(name).collect::<Vec<_>>().join(", ")),
        };
        format!("{who}; {ran}; {} processes of its tree were killed, {left}", swept.killed.len())
    }

    /// Ends a tree, and says what could not be ended.
    pub(crate) async fn stop(self: &Arc<Self>, found: Found, request: StopRequest) -> Result<StopAnswer, Refusal> {
        let mut manner = found.snapshot().history.intent.spec.stop;
        if let Some(signal) = &request.signal {
            manner.signal = Signal::parse(signal)?;
        }
        if let Some(grace) = &request.grace {
            manner.grace = parse_duration(&grace.text())?.min(GRACE_MOST);
        }
        let by = request.by.unwrap_or_else(|| "a client".to_owned());
        let Found::Here(entry) = &found else { return self.already_over(&found).await };
        if entry.status().is_over() {
            return self.already_over(&found).await;
        }
        let core = Arc::clone(self);
        let target = Arc::clone(entry);
        // The stop goes on even if its caller goes away.
        let survivors =
            tokio::spawn(async move { core.stop_entry(&target, Cause::StopRequested { by }, manner).await })
                .await
                .map_err(Refusal::internal)??;
        Ok(StopAnswer { record: self.record(&found).await?, already_over: false, survivors })
    }

    async fn already_over(self: &Arc<Self>, found: &Found) -> Result<StopAnswer, Refusal> {
        Ok(StopAnswer { record: self.record(found).await?, already_over: true, survivors: vec![] })
    }

    /// Stops one live process and waits until its tree is empty, or its survivors are certain.
    pub(crate) async fn stop_entry(
        &self,
        entry: &Arc<Entry>,
        cause: Cause,
        manner: StopManner,
    ) -> Result<Vec<Survivor>, Refusal> {
        self.settled_start(entry).await;
        let Some(link) = entry.link() else { return self.without_keeper(entry) };
        let within = manner.grace + STOP_SLACK;
        let id = entry.id.clone();
        match link.ask(within, |request| ToKeeper::Stop { request, id, cause, manner }).await {
            Ok(FromKeeper::Stopped { survivors, .. }) => {
                if survivors.is_empty() {
                    self.seen_over(entry).await;
                }
                Ok(survivors.into_iter().map(api_survivor).collect())
            }
            Ok(_) => Err(Refusal::internal("a keeper gave the wrong answer")),
            Err(NoAnswer::Gone) => {
                self.seen_over(entry).await;
                Ok(vec![])
            }
            Err(NoAnswer::Silent) => Err(keeper_silent(&entry.id)),
        }
    }

    /// Waits until the start of a process is decided: a stop before that would be lost.
    async fn settled_start(&self, entry: &Entry) {
        let mut state = entry.state.subscribe();
        let decided = state.wait_for(|state| state.history.status() != Status::Starting || state.refused.is_some());
        let _ = tokio::time::timeout(ANSWER, decided).await;
    }

    async fn seen_over(&self, entry: &Entry) {
        let mut state = entry.state.subscribe();
        let over = state.wait_for(|state| state.history.status().is_over());
        let _ = tokio::time::timeout(STOP_SLACK, over).await;
    }

    fn without_keeper(&self, entry: &Entry) -> Result<Vec<Survivor>, Refusal> {
        if entry.status().is_over() { Ok(vec![]) } else { Err(keeper_silent(&entry.id)) }
    }

    /// Sends a signal to a tree.
    pub(crate) async fn signal(
        self: &Arc<Self>,
        found: Found,
        request: SignalRequest,
    ) -> Result<SignalAnswer, Refusal> {
        let signal = Signal::parse(&request.signal)?;
        let by = request.by.unwrap_or_else(|| "a client".to_owned());
        let paused = match signal {
            Signal::STOP => Some(true),
            Signal::CONT => Some(false),
            _ => None,
        };
        self.act(found, paused, |request, id| ToKeeper::Signal { request, id, signal, by }).await
    }

    /// Freezes a tree.
    pub(crate) async fn pause(self: &Arc<Self>, found: Found) -> Result<SignalAnswer, Refusal> {
        self.act(found, Some(true), |request, id| ToKeeper::Pause { request, id }).await
    }

    /// Thaws a tree.
    pub(crate) async fn resume(self: &Arc<Self>, found: Found) -> Result<SignalAnswer, Refusal> {
        self.act(found, Some(false), |request, id| ToKeeper::Resume { request, id }).await
    }

    async fn act(
        self: &Arc<Self>,
        found: Found,
        paused: Option<bool>,
        message: impl FnOnce(u64, ProcessId) -> ToKeeper,
    ) -> Result<SignalAnswer, Refusal> {
        let Found::Here(entry) = &found else { return Err(over(found.id())) };
        self.settled_start(entry).await;
        if entry.status().is_over() {
            return Err(over(&entry.id));
        }
        let link = entry.link().ok_or_else(|| keeper_silent(&entry.id))?;
        let id = entry.id.clone();
        match link.ask(ANSWER, |request| message(request, id)).await {
            Ok(FromKeeper::Signaled { reached: 0, refused, .. }) if refused.is_empty() => Err(over(&entry.id)),
            Ok(FromKeeper::Signaled { reached, refused, .. }) => {
                if let Some(paused) = paused {
                    entry.state.send_modify(|state| state.paused = paused);
                }
                let refused = refused.into_iter().map(api_survivor).collect();
                Ok(SignalAnswer { record: self.record(&found).await?, reached, refused })
            }
            Ok(_) => Err(Refusal::internal("a keeper gave the wrong answer")),
            Err(NoAnswer::Gone) => Err(over(&entry.id)),
            Err(NoAnswer::Silent) => Err(keeper_silent(&entry.id)),
        }
    }

    /// Stops every live process, all at once. Returns how many, and who survived.
    pub(crate) async fn stop_all(self: &Arc<Self>, by: &str) -> (u64, Vec<Survivor>) {
        let mut stops = tokio::task::JoinSet::new();
        for entry in self.registry.live() {
            let (core, cause) = (Arc::clone(self), Cause::StopRequested { by: by.to_owned() });
            let manner = entry.state.borrow().history.intent.spec.stop;
            stops.spawn(async move { core.stop_entry(&entry, cause, manner).await });
        }
        let (mut count, mut survivors) = (0, Vec::new());
        while let Some(stopped) = stops.join_next().await {
            count += 1;
            survivors.extend(stopped.ok().and_then(Result::ok).unwrap_or_default());
        }
        (count, survivors)
    }
}

/// Runs what may block off the event loop.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Refusal> {
    tokio::task::spawn_blocking(work).await.map_err(Refusal::internal)
}

/// The event of a fact, with what its readers want to know.
fn event_of(history: &History, kind: EventKind, at: Moment) -> Change {
    let event = render::event(history, kind, at);
    Change::Event {
        process: history.intent.id.clone(),
        owner: history.intent.spec.owner.clone(),
        kind,
        at,
        payload: serde_json::to_string(&event).unwrap_or_default(),
    }
}

/// Every event that a history amounts to; those already in the log are ignored there (S4).
pub(crate) fn events_of(history: &History) -> Vec<Change> {
    let mut events = Vec::new();
    let mut add = |kind, at: Option<Moment>| events.extend(at.map(|at| event_of(history, kind, at)));
    add(EventKind::Started, history.start.as_ref().map(|start| start.at));
    // Facts that coincided with the end were never told apart.
    let end = history.finish.as_ref().map(|finish| finish.at);
    let apart = history.closed_at.filter(|at| end.is_none_or(|end| *at < end));
    let exited = history.exit.as_ref().map(|exit| exit.at);
    add(EventKind::Exited, exited.filter(|_| history.lingered()));
    add(EventKind::Closed, apart);
    add(EventKind::Finished, end);
    add(EventKind::Lost, history.lost.as_ref().map(|(_, at)| *at));
    events
}

fn api_survivor(survivor: link::Survivor) -> Survivor {
    Survivor { pid: survivor.pid, command: survivor.command, reason: survivor.reason }
}

fn over(id: &ProcessId) -> Refusal {
    Refusal::new(ErrorCode::AlreadyOver, format!("process {id} is over: there is nothing left to act on")).about(id)
}

fn keeper_silent(id: &ProcessId) -> Refusal {
    let message = format!("the keeper of {id} does not answer: if it is stopped, send it CONT, and try again");
    Refusal::new(ErrorCode::KeeperSilent, message).about(id)
}

/// The kind on the wire.
pub(crate) fn api_kind(kind: EventKind) -> ApiEventKind {
    match kind {
        EventKind::Started => ApiEventKind::Started,
        EventKind::Exited => ApiEventKind::Exited,
        EventKind::Closed => ApiEventKind::Closed,
        EventKind::Finished => ApiEventKind::Finished,
        EventKind::Lost => ApiEventKind::Lost,
    }
}
