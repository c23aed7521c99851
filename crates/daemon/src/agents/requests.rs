//! What the routes do: host an agent, find it, give it turns, read its turns and events.

use std::sync::Arc;
use std::time::Duration;

use pinfold_api::error::ErrorCode;
use pinfold_api::input::Span;
use pinfold_api::types::{
    Agent, AgentEventPage, AgentEventsQuery, AgentList, AgentListQuery, AgentMode, AgentRequest, AgentStatus,
    AnswerRequest, IfBusy, InterruptAnswer, InterruptRequest, Lifetime, Turn, TurnList, TurnRequest, TurnsQuery,
};
use pinfold_model::id::is_prefix;
use pinfold_model::units::parse_duration;
use pinfold_store::agents::AgentDir;
use tokio::sync::oneshot;

use super::driver::Driver;
use super::handle::{AgentHandle, Command};
use super::host::{Caller, Hosting, Viewer};
use super::interrupt::{self, Waits};
use super::spec::{AgentSpec, Env, MAX_PROMPT};
use super::state::AgentState;
use super::supervise;
use super::turns::ended;
use crate::clock::now;
use crate::mutex::lock;
use crate::request_error::RequestError;
use crate::threads::blocking;

/// Agents that have not ended.
pub(super) const MAX_AGENTS: usize = 256;
/// Agents in one answer.
const MAX_LIST: usize = 500;
/// The longest wait of a request.
const MAX_WAIT: Duration = Duration::from_secs(3600);
/// How long to wait for the first state of a new agent.
const FIRST_VIEW_TIMEOUT: Duration = Duration::from_secs(5);
/// Events in one answer unless the request says otherwise, and at most; and turns in one answer.
const EVENTS: u32 = 100;
const MAX_EVENTS: u32 = 1000;
const MAX_TURNS: u32 = 100;

impl Hosting {
    /// Hosts an agent. Returns it and whether it is new: `false` if one with the same idempotency key exists. The
    /// process of a persistent agent is started first, so that no agent is left if its program is missing.
    pub(super) async fn host_agent(
        &self,
        caller: &Caller,
        request: AgentRequest,
    ) -> Result<(Agent, bool), RequestError> {
        let wait = request.wait.as_ref().map(|wait| parse_duration(&wait.text())).transpose()?.unwrap_or_default();
        if *self.host.shutdown().borrow() {
            return Err(RequestError::new(
                ErrorCode::ShuttingDown,
                "the daemon is shutting down: try again in a moment",
            ));
        }
        let owner = self.host.owner_of_start(caller, request.owner.clone(), request.parent.clone())?;
        let (env, key) = (request.env.clone(), request.idempotency_key.clone());
        let id = self.host.new_id()?;
        let mut request = request;
        if request.lifetime.is_some_and(|lifetime| lifetime != Lifetime::Keep) && request.owner_grace.is_none() {
            let grace = self.host.default_owner_grace(caller, &owner);
            request.owner_grace = grace.map(|grace| Span::Text(format!("{}ms", grace.as_millis())));
        }
        let spec = AgentSpec::parse(request, id.clone(), now(), owner)?;
        // Of several requests with one key, only one creates the agent.
        let key_lock = match &key {
            Some(key) => Some(self.agents.lock_key(&spec.owner, key).await),
            None => None,
        };
        if let Some(handle) = self.holder_of_agent_key(&spec) {
            if !handle.spec.is_same_request(&spec) {
                let message = "this idempotency key was used for another agent: use a fresh key for each agent";
                return Err(RequestError::new(ErrorCode::KeyReused, message).about(&handle.id));
            }
            drop(key_lock);
            return Ok((self.ready_agent(&handle, wait).await, false));
        }
        let living = self.agents.living().len();
        if living >= MAX_AGENTS {
            let message = format!("{living} agents are hosted already, and no more are allowed: stop one first");
            return Err(RequestError::new(ErrorCode::LimitReached, message));
        }
        let ((home, durability), content) = (self.host.files(), spec.clone());
        let dir = blocking(move || AgentDir::create(&home, &id, durability, &content)).await?;
        let dir = dir.map_err(|error| {
            RequestError::new(ErrorCode::StoreUnwritable, format!("cannot write the agent: {error}"))
        })?;
        let (handle, commands) = AgentHandle::new(spec, dir, Some(env), &AgentState::default());
        let mut driver = Driver::new(Arc::clone(&self.host), Arc::clone(&handle), AgentState::default(), commands);
        self.agents.insert(&handle);
        if handle.spec.mode == AgentMode::Persistent {
            // A task of its own, so that a panic is an error here.
            let starting = tokio::spawn(async move { driver.start_process().await.map(|()| driver) });
            match starting.await.map_err(RequestError::internal).flatten() {
                Ok(started) => driver = started,
                Err(error) => {
                    self.agents.remove(&handle.id);
                    let dir = handle.dir.clone();
                    let _ = blocking(move || dir.remove()).await;
                    return Err(error);
                }
            }
        }
        supervise::spawn(driver);
        drop(key_lock);
        if handle.owner_grace().is_some() {
            self.host.watch_owner_contact();
        }
        Ok((self.ready_agent(&handle, wait).await, true))
    }

    /// The agent that this owner created with the same key, even if it was handed over since.
    fn holder_of_agent_key(&self, spec: &AgentSpec) -> Option<Arc<AgentHandle>> {
        spec.key.as_ref()?;
        let same = |handle: &Arc<AgentHandle>| handle.spec.owner == spec.owner && handle.spec.key == spec.key;
        self.agents.all().into_iter().find(same)
    }

    /// The agent once it is ready or has failed, or as it is when the time is over.
    async fn ready_agent(&self, handle: &AgentHandle, wait: Duration) -> Agent {
        let mut view = handle.view.subscribe();
        let ready = view.wait_for(|view| !view.agent.id.is_empty() && view.agent.status != AgentStatus::Starting);
        let _ = tokio::time::timeout(wait.min(MAX_WAIT), ready).await;
        let mut known = handle.view.subscribe();
        // A new driver publishes its agent immediately.
        let _ = tokio::time::timeout(FIRST_VIEW_TIMEOUT, known.wait_for(|view| !view.agent.id.is_empty())).await;
        handle.view.borrow().agent.clone()
    }

    /// Finds an agent by id, by the name of a living one, by the name of the one that ended last, or by a prefix of its
    /// id. Agents that the caller may not see are not found.
    pub(super) fn find_agent(&self, scope: &Viewer, wanted: &str) -> Result<Arc<AgentHandle>, RequestError> {
        let visible: Vec<_> =
            self.agents.all().into_iter().filter(|handle| self.host.sees(scope, &handle.owner())).collect();
        if let Some(handle) = visible.iter().find(|handle| handle.id.as_str() == wanted) {
            return Ok(Arc::clone(handle));
        }
        let named = visible.iter().filter(|handle| !handle.is_over() && handle.spec.name.as_deref() == Some(wanted));
        let prefixed = visible.iter().filter(|handle| is_prefix(wanted) && handle.id.as_str().starts_with(wanted));
        // Newest first.
        let ended =
            visible.iter().filter(|handle| handle.is_over() && handle.spec.name.as_deref() == Some(wanted)).take(1);
        for found in [named.collect::<Vec<_>>(), ended.collect::<Vec<_>>(), prefixed.collect::<Vec<_>>()] {
            match found.as_slice() {
                [] => {}
                [handle] => return Ok(Arc::clone(handle)),
                many => {
                    let message = format!("`{wanted}` matches {} agents: use a complete id", many.len());
                    return Err(RequestError::new(ErrorCode::AmbiguousId, message));
                }
            }
        }
        let wanted: String = wanted.chars().take(60).collect();
        let message = format!("no agent `{wanted}`: `pinfold agent ps --all` lists all agents");
        Err(RequestError::new(ErrorCode::NotFound, message))
    }

    pub(super) fn list_agents(&self, scope: &Viewer, query: &AgentListQuery) -> AgentList {
        let all = query.all.unwrap_or(false);
        let mut handles = self.agents.all();
        handles.retain(|handle| {
            let wanted = query.owner.as_ref().is_none_or(|owner| *owner == handle.owner());
            wanted && (all || !handle.is_over()) && self.host.sees(scope, &handle.owner())
        });
        let more = handles.len().saturating_sub(MAX_LIST) as u64;
        let agents = handles.iter().take(MAX_LIST).map(|handle| handle.view.borrow().agent.clone()).collect();
        AgentList { agents, more }
    }

    /// Queues a turn, and waits for its end as long as the request says.
    pub(super) async fn give_turn(
        &self,
        handle: &Arc<AgentHandle>,
        request: TurnRequest,
    ) -> Result<Turn, RequestError> {
        let wait = request.wait.as_ref().map(|wait| parse_duration(&wait.text())).transpose()?.unwrap_or_default();
        if request.text.trim().is_empty() {
            return Err(RequestError::invalid("`text` is empty: write what the agent should do"));
        }
        if request.text.len() > MAX_PROMPT {
            let message = format!(
                "`text` has {} bytes, at most {MAX_PROMPT} are allowed: put it into a file",
                request.text.len()
            );
            return Err(RequestError::invalid(message));
        }
        if request.idempotency_key.as_ref().is_some_and(|key| key.is_empty() || key.len() > 200) {
            return Err(RequestError::invalid("`idempotency_key` must have 1 to 200 bytes"));
        }
        if !request.env.is_empty() {
            lock(&handle.env).get_or_insert_with(Env::new).extend(request.env);
        }
        let turn = Turn {
            agent: handle.id.to_string(),
            prompt: request.text,
            idempotency_key: request.idempotency_key,
            ..Turn::default()
        };
        let may_wait = request.if_busy.unwrap_or_default() == IfBusy::Wait;
        let (answer, number) = oneshot::channel();
        ask(handle, Command::Turn(Box::new(turn), may_wait, answer)).await?;
        let number = number.await.map_err(|_| ended(handle.id.as_str()))??;
        wait_turn(handle, number, wait).await
    }

    pub(super) async fn interrupt_agent(
        &self,
        handle: &Arc<AgentHandle>,
        request: InterruptRequest,
    ) -> Result<InterruptAnswer, RequestError> {
        let waits = Waits::parse(&request)?;
        let by = request.by.unwrap_or_else(|| "a client".to_owned());
        let (host, handle) = (Arc::clone(&self.host), Arc::clone(handle));
        // Continues even if the client disconnects.
        tokio::spawn(async move { interrupt::interrupt_turn(&host, &handle, by, waits).await })
            .await
            .map_err(RequestError::internal)
    }

    pub(super) async fn answer_agent(
        &self,
        handle: &AgentHandle,
        request: AnswerRequest,
    ) -> Result<Agent, RequestError> {
        let (answer, answered) = oneshot::channel();
        ask(handle, Command::Answer(request, answer)).await?;
        answered.await.map_err(|_| ended(handle.id.as_str()))??;
        Ok(handle.view.borrow().agent.clone())
    }

    pub(super) async fn turns(&self, handle: &AgentHandle, query: &TurnsQuery) -> Result<TurnList, RequestError> {
        let last = handle.view.borrow().agent.turns;
        let first = query.after.unwrap_or(0) + 1;
        let limit = u64::from(query.limit.unwrap_or(MAX_TURNS).clamp(1, MAX_TURNS));
        let mut turns = Vec::new();
        for number in first..first.saturating_add(limit).min(last + 1) {
            turns.push(read_turn(handle, number).await?);
        }
        Ok(TurnList { more: first.saturating_add(limit) <= last, turns })
    }

    pub(super) async fn agent_events(
        &self,
        handle: &AgentHandle,
        query: &AgentEventsQuery,
    ) -> Result<AgentEventPage, RequestError> {
        let after = parse_after(handle, query.after.as_deref())?;
        let limit = query.limit.unwrap_or(EVENTS).clamp(1, MAX_EVENTS) as usize;
        let wait = query.wait.as_deref().map(parse_duration).transpose()?.unwrap_or_default().min(MAX_WAIT);
        let mut latest = handle.events.subscribe();
        let _ = tokio::time::timeout(wait, latest.wait_for(|latest| *latest > after)).await;
        Ok(handle.events.page(after, limit))
    }
}

/// The number of the event after which a reader starts.
pub(super) fn parse_after(handle: &AgentHandle, after: Option<&str>) -> Result<u64, RequestError> {
    match after {
        None => Ok(0),
        Some("latest") => Ok(handle.events.latest()),
        Some(text) => {
            let bad = |_| RequestError::invalid(format!("after `{text}`: use the number of an event, or `latest`"));
            text.parse().map_err(bad)
        }
    }
}

pub(super) async fn ask(handle: &AgentHandle, command: Command) -> Result<(), RequestError> {
    handle.commands.send(command).await.map_err(|_| ended(handle.id.as_str()))
}

/// A turn once it has ended, or as it is when the time is over.
pub(super) async fn wait_turn(handle: &AgentHandle, number: u64, wait: Duration) -> Result<Turn, RequestError> {
    let mut view = handle.view.subscribe();
    let over = view.wait_for(|view| view.over_through >= number);
    let _ = tokio::time::timeout(wait.min(MAX_WAIT), over).await;
    read_turn(handle, number).await
}

/// A turn as it is now: from the driver if it is running, else from disk.
pub(super) async fn read_turn(handle: &AgentHandle, number: u64) -> Result<Turn, RequestError> {
    let running = handle.view.borrow().running.clone().filter(|turn| turn.number == number);
    if let Some(turn) = running {
        return Ok(turn);
    }
    let dir = handle.dir.clone();
    let turn = blocking(move || dir.read_turn::<Turn>(number)).await?;
    let turn =
        turn.map_err(|error| RequestError::new(ErrorCode::Damaged, format!("turn {number} cannot be read: {error}")))?;
    turn.ok_or_else(|| RequestError::new(ErrorCode::NotFound, format!("agent {} has no turn {number}", handle.id)))
}
