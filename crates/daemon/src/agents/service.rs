//! What the routes call: hosting an agent, finding it, its turns, its events, its end.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use pinfold_api::error::ErrorCode;
use pinfold_api::input::Span;
use pinfold_api::types::{
    Agent, AgentEventPage, AgentEventsQuery, AgentFault, AgentList, AgentListQuery, AgentMode, AgentRequest,
    AgentStatus, AnswerRequest, FaultCode, IfBusy, InterruptAnswer, InterruptRequest, Lifetime, Turn, TurnList,
    TurnRequest, TurnsQuery,
};
use pinfold_model::id::is_prefix;
use pinfold_model::units::{Moment, parse_duration};
use pinfold_store::agents::{AgentDir, list_agents};
use tokio::sync::{mpsc, oneshot, watch};

use super::driver::Driver;
use super::events::Ring;
use super::ladder::{self, Waits};
use super::seat::{COMMANDS, Command, Seat, View};
use super::spec::{AgentSpec, Env, PROMPT_MOST};
use super::state::AgentState;
use super::turns::over;
use crate::access::caller::Caller;
use crate::clock::{now, rfc3339};
use crate::core::{Core, blocking};
use crate::lock::lock;
use crate::refusal::Refusal;
use crate::registry::Scope;

/// Agents that are not over, and agents in one list.
pub(crate) const AGENTS_MOST: usize = 256;
const LIST_MOST: usize = 500;
/// Agents that are over and kept; beyond, those go that ended first.
const OVER_MOST: usize = 1000;
/// The longest that a request waits.
const WAIT_MOST: Duration = Duration::from_secs(3600);
/// Events and turns in one answer.
const EVENTS: u32 = 100;
const EVENTS_MOST: u32 = 1000;
const TURNS_MOST: u32 = 100;
/// How often agents that ended long ago are looked for.
const EVERY: Duration = Duration::from_secs(300);

impl Core {
    /// Hosts an agent. A persistent one is started at once, so that a program that is missing leaves nothing.
    pub(crate) async fn host_agent(
        self: &Arc<Self>,
        caller: &Caller,
        request: AgentRequest,
    ) -> Result<(Agent, bool), Refusal> {
        let wait = request.wait.as_ref().map(|wait| parse_duration(&wait.text())).transpose()?.unwrap_or_default();
        if self.is_shutting_down() {
            return Err(Refusal::new(ErrorCode::ShuttingDown, "the daemon is shutting down: try again in a moment"));
        }
        let (owner, _) = self.owner_of_start(caller, request.owner.clone(), request.parent.clone())?;
        let (env, key) = (request.env.clone(), request.idempotency_key.clone());
        let id = lock(&self.ids).next().map_err(Refusal::internal)?;
        let mut request = request;
        if request.lifetime.is_some_and(|lifetime| lifetime != Lifetime::Keep) && request.owner_grace.is_none() {
            let grace = self.grace_for(caller, &owner);
            request.owner_grace = grace.map(|grace| Span::Text(format!("{}ms", grace.as_millis())));
        }
        let spec = AgentSpec::parse(request, id.clone(), now(), owner)?;
        // Until the agent is in the list: of several requests with one key, one makes it.
        let alone = match &key {
            Some(key) => Some(self.agents.lock_key(&spec.owner, key).await),
            None => None,
        };
        if let Some(seat) = self.holder_of_agent_key(&spec) {
            if !seat.spec.is_same_request(&spec) {
                let message = "this idempotency key was used for another agent: use a fresh key for each agent";
                return Err(Refusal::new(ErrorCode::KeyReused, message).about(&seat.id));
            }
            drop(alone);
            return Ok((self.ready_agent(&seat, wait).await, false));
        }
        let living = self.agents.all().iter().filter(|seat| !seat.is_over()).count();
        if living >= AGENTS_MOST {
            let message = format!("{living} agents are hosted, which is the most: stop one first");
            return Err(Refusal::new(ErrorCode::LimitReached, message));
        }
        let (home, durability, written) = (self.home.clone(), self.durability(), spec.clone());
        let dir = blocking(move || AgentDir::create(&home, &id, durability, &written)).await?;
        let dir = dir.map_err(|error| {
            Refusal::new(ErrorCode::StoreUnwritable, format!("the agent cannot be written down: {error}"))
        })?;
        let (seat, commands) = seat_for(spec, dir, Some(env), &AgentState::default());
        let mut driver = Driver::new(Arc::clone(self), Arc::clone(&seat), AgentState::default(), commands);
        self.agents.insert(&seat);
        if seat.spec.mode == AgentMode::Persistent
            && let Err(refusal) = driver.begin_life().await
        {
            self.agents.remove(&seat.id);
            let dir = seat.dir.clone();
            let _ = blocking(move || dir.remove()).await;
            return Err(refusal);
        }
        tokio::spawn(driver.run());
        drop(alone);
        if seat.grace().is_some() {
            self.owners.note_grace();
        }
        Ok((self.ready_agent(&seat, wait).await, true))
    }

    /// The agent that was asked for under the same key by the same owner, whoever it belongs to now.
    fn holder_of_agent_key(&self, spec: &AgentSpec) -> Option<Arc<Seat>> {
        spec.key.as_ref()?;
        let same = |seat: &Arc<Seat>| seat.spec.owner == spec.owner && seat.spec.key == spec.key;
        self.agents.all().into_iter().find(same)
    }

    /// The agent, once it is ready or has failed, or the time is over.
    async fn ready_agent(&self, seat: &Seat, wait: Duration) -> Agent {
        let mut view = seat.view.subscribe();
        let ready = view.wait_for(|view| !view.agent.id.is_empty() && view.agent.status != AgentStatus::Starting);
        let _ = tokio::time::timeout(wait.min(WAIT_MOST), ready).await;
        let mut known = seat.view.subscribe();
        // Its driver has shown it once, a moment after it was made.
        let _ = tokio::time::timeout(Duration::from_secs(5), known.wait_for(|view| !view.agent.id.is_empty())).await;
        seat.view.borrow().agent.clone()
    }

    /// Finds an agent by id, by the name of one that is not over, by the name of the latest that is, or by prefix. What is out
    /// of the caller's view is not there.
    pub(crate) fn find_agent(&self, scope: &Scope, wanted: &str) -> Result<Arc<Seat>, Refusal> {
        let seen: Vec<_> = self.agents.all().into_iter().filter(|seat| self.sees_agent(scope, seat)).collect();
        if let Some(seat) = seen.iter().find(|seat| seat.id.as_str() == wanted) {
            return Ok(Arc::clone(seat));
        }
        let named = seen.iter().filter(|seat| !seat.is_over() && seat.spec.name.as_deref() == Some(wanted));
        let begun = seen.iter().filter(|seat| is_prefix(wanted) && seat.id.as_str().starts_with(wanted));
        // Newest first.
        let ended = seen.iter().filter(|seat| seat.is_over() && seat.spec.name.as_deref() == Some(wanted)).take(1);
        for found in [named.collect::<Vec<_>>(), ended.collect::<Vec<_>>(), begun.collect::<Vec<_>>()] {
            match found.as_slice() {
                [] => {}
                [seat] => return Ok(Arc::clone(seat)),
                many => {
                    let message = format!("`{wanted}` could be any of {} agents: use a whole id", many.len());
                    return Err(Refusal::new(ErrorCode::AmbiguousId, message));
                }
            }
        }
        let wanted: String = wanted.chars().take(60).collect();
        let message = format!("no agent `{wanted}`: `pinfold agent ps --all` lists those that are kept");
        Err(Refusal::new(ErrorCode::NotFound, message))
    }

    fn sees_agent(&self, scope: &Scope, seat: &Seat) -> bool {
        match scope {
            Scope::Operator => true,
            Scope::Owner(viewer) => self.owners.sees(viewer, &seat.owner()),
        }
    }

    pub(crate) fn list_agents(&self, scope: &Scope, query: &AgentListQuery) -> AgentList {
        let all = query.all.unwrap_or(false);
        let mut seats = self.agents.all();
        seats.retain(|seat| {
            let wanted = query.owner.as_ref().is_none_or(|owner| *owner == seat.owner());
            wanted && (all || !seat.is_over()) && self.sees_agent(scope, seat)
        });
        let more = seats.len().saturating_sub(LIST_MOST) as u64;
        let agents = seats.iter().take(LIST_MOST).map(|seat| seat.view.borrow().agent.clone()).collect();
        AgentList { agents, more }
    }

    /// Gives an agent a turn, and waits for its end if that is asked for.
    pub(crate) async fn give_turn(self: &Arc<Self>, seat: &Arc<Seat>, request: TurnRequest) -> Result<Turn, Refusal> {
        let wait = request.wait.as_ref().map(|wait| parse_duration(&wait.text())).transpose()?.unwrap_or_default();
        if request.text.trim().is_empty() {
            return Err(Refusal::invalid("`text` is empty: say what the agent is to do"));
        }
        if request.text.len() > PROMPT_MOST {
            let message =
                format!("`text` has {} bytes, at most {PROMPT_MOST} are taken: put it into a file", request.text.len());
            return Err(Refusal::invalid(message));
        }
        if request.idempotency_key.as_ref().is_some_and(|key| key.is_empty() || key.len() > 200) {
            return Err(Refusal::invalid("`idempotency_key` must have 1 to 200 bytes"));
        }
        if !request.env.is_empty() {
            lock(&seat.env).get_or_insert_with(Env::new).extend(request.env);
        }
        let turn = Turn {
            agent: seat.id.to_string(),
            prompt: request.text,
            idempotency_key: request.idempotency_key,
            ..Turn::default()
        };
        let may_wait = request.if_busy.unwrap_or_default() == IfBusy::Wait;
        let (answer, number) = oneshot::channel();
        ask(seat, Command::Turn(Box::new(turn), may_wait, answer)).await?;
        let number = number.await.map_err(|_| over(seat.id.as_str()))??;
        wait_turn(seat, number, wait).await
    }

    pub(crate) async fn interrupt_agent(
        self: &Arc<Self>,
        seat: &Arc<Seat>,
        request: InterruptRequest,
    ) -> Result<InterruptAnswer, Refusal> {
        let waits = Waits::parse(&request)?;
        let by = request.by.unwrap_or_else(|| "a client".to_owned());
        let (core, seat) = (Arc::clone(self), Arc::clone(seat));
        // Goes on even if the client goes away.
        tokio::spawn(async move { ladder::climb(&core, &seat, by, waits).await }).await.map_err(Refusal::internal)
    }

    pub(crate) async fn answer_agent(&self, seat: &Seat, request: AnswerRequest) -> Result<Agent, Refusal> {
        let (answer, answered) = oneshot::channel();
        ask(seat, Command::Answer(request, answer)).await?;
        answered.await.map_err(|_| over(seat.id.as_str()))??;
        Ok(seat.view.borrow().agent.clone())
    }

    pub(crate) async fn turns(&self, seat: &Seat, query: &TurnsQuery) -> Result<TurnList, Refusal> {
        let last = seat.view.borrow().agent.turns;
        let first = query.after.unwrap_or(0) + 1;
        let limit = u64::from(query.limit.unwrap_or(TURNS_MOST).clamp(1, TURNS_MOST));
        let mut turns = Vec::new();
        for number in first..first.saturating_add(limit).min(last + 1) {
            turns.push(read_turn(seat, number).await?);
        }
        Ok(TurnList { more: first.saturating_add(limit) <= last, turns })
    }

    pub(crate) async fn agent_events(&self, seat: &Seat, query: &AgentEventsQuery) -> Result<AgentEventPage, Refusal> {
        let after = parse_after(seat, query.after.as_deref())?;
        let limit = query.limit.unwrap_or(EVENTS).clamp(1, EVENTS_MOST) as usize;
        let wait = query.wait.as_deref().map(parse_duration).transpose()?.unwrap_or_default().min(WAIT_MOST);
        let mut latest = seat.events.subscribe();
        let _ = tokio::time::timeout(wait, latest.wait_for(|latest| *latest > after)).await;
        Ok(seat.events.page(after, limit))
    }
}

/// From which event on a reader reads.
pub(crate) fn parse_after(seat: &Seat, after: Option<&str>) -> Result<u64, Refusal> {
    match after {
        None => Ok(0),
        Some("latest") => Ok(seat.events.latest()),
        Some(text) => {
            let bad = |_| Refusal::invalid(format!("after `{text}`: give the number of an event, or `latest`"));
            text.parse().map_err(bad)
        }
    }
}

pub(super) async fn ask(seat: &Seat, command: Command) -> Result<(), Refusal> {
    seat.commands.send(command).await.map_err(|_| over(seat.id.as_str()))
}

/// A turn, once it is over or the time is.
pub(crate) async fn wait_turn(seat: &Seat, number: u64, wait: Duration) -> Result<Turn, Refusal> {
    let mut view = seat.view.subscribe();
    let over = view.wait_for(|view| view.over_through >= number);
    let _ = tokio::time::timeout(wait.min(WAIT_MOST), over).await;
    read_turn(seat, number).await
}

/// A turn as it stands: from the one that leads it, or from disk.
pub(crate) async fn read_turn(seat: &Seat, number: u64) -> Result<Turn, Refusal> {
    let running = seat.view.borrow().running.clone().filter(|turn| turn.number == number);
    if let Some(turn) = running {
        return Ok(turn);
    }
    let dir = seat.dir.clone();
    let turn = blocking(move || super::state::read_turn(&dir, number)).await?;
    let turn =
        turn.map_err(|error| Refusal::new(ErrorCode::Damaged, format!("turn {number} cannot be read: {error}")))?;
    turn.ok_or_else(|| Refusal::new(ErrorCode::NotFound, format!("agent {} has no turn {number}", seat.id)))
}

fn seat_for(
    spec: AgentSpec,
    dir: AgentDir,
    env: Option<Env>,
    state: &AgentState,
) -> (Arc<Seat>, mpsc::Receiver<Command>) {
    let (commands, incoming) = mpsc::channel(COMMANDS);
    let seat = Seat {
        id: spec.id.clone(),
        spec,
        dir,
        view: watch::Sender::new(View::default()),
        commands,
        events: Ring::after(state.seq),
        heir: Mutex::new(state.heir.clone()),
        env: Mutex::new(env),
        rung: Mutex::new(None),
    };
    (Arc::new(seat), incoming)
}

/// Takes up the agents that an earlier daemon hosted. One that cannot be read harms no other.
pub(crate) async fn recover(core: &Arc<Core>) {
    let (home, durability) = (core.home.clone(), core.durability());
    let Ok(Ok(ids)) = blocking(move || list_agents(&home)).await else { return };
    for id in ids {
        let dir = AgentDir::open(&core.home, &id, durability);
        let spec = match dir.read_agent::<AgentSpec>() {
            Ok(spec) => spec,
            Err(error) => {
                tracing::warn!(agent = %id, %error, "an agent cannot be read");
                continue;
            }
        };
        let (state, damage) = match dir.read_state::<AgentState>() {
            Ok(state) => (state.unwrap_or_default(), None),
            Err(error) => (AgentState::default(), Some(error.to_string())),
        };
        take_up(core, spec, dir, state, damage).await;
    }
}

async fn take_up(core: &Arc<Core>, spec: AgentSpec, dir: AgentDir, mut state: AgentState, damage: Option<String>) {
    let (seat, commands) = seat_for(spec, dir, None, &state);
    core.agents.insert(&seat);
    if let Some(damage) = damage {
        // Nothing is written over what could not be read.
        let message = format!("its state on disk cannot be read: {damage}");
        state.fault = Some(AgentFault { code: FaultCode::Damaged, message });
        state.ended = Some(now());
    }
    let over = state.is_over();
    let mut driver = Driver::new(Arc::clone(core), Arc::clone(&seat), state, commands);
    if !over && let Err(reason) = driver.take_up().await {
        driver.fail(FaultCode::Damaged, reason).await;
    }
    tokio::spawn(driver.run());
}

/// Forgets agents that ended long ago, until shutdown.
pub(crate) async fn tend(core: Arc<Core>) {
    let mut shutdown = core.shutdown.subscribe();
    while tokio::time::timeout(EVERY, shutdown.wait_for(|shutdown| *shutdown)).await.is_err() {
        let oldest = rfc3339(Moment(now().0.saturating_sub(core.config.limits.retention.as_micros() as u64)));
        let mut over: Vec<(String, Arc<Seat>)> = Vec::new();
        for seat in core.agents.all() {
            let ended = seat.view.borrow().agent.ended_at.clone();
            over.extend(ended.map(|ended| (ended, seat)));
        }
        over.sort_by(|one, other| other.0.cmp(&one.0));
        let keep = over.iter().take(OVER_MOST).take_while(|(ended, _)| *ended >= oldest).count();
        for (_, seat) in over.drain(keep..) {
            core.agents.remove(&seat.id);
            let dir = seat.dir.clone();
            if let Ok(Err(error)) = blocking(move || dir.remove()).await {
                tracing::warn!(agent = %seat.id, %error, "cannot remove an agent");
            }
        }
    }
}
