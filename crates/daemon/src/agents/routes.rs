//! The routes of hosted agents.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::{StatusCode, header};
use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use pinfold_api::types::{
    AgentEventsQuery, AgentListQuery, AgentRequest, AgentStopRequest, AnswerRequest, InterruptRequest, TurnQuery,
    TurnRequest, TurnsQuery,
};
use pinfold_model::units::parse_duration;
use tokio::sync::mpsc;

use super::seat::Seat;
use super::service::{parse_after, wait_turn};
use crate::access::caller::Caller;
use crate::core::Core;
use crate::events::log::Queue;
use crate::extract::{Answer, Id, Input, MaybeInput, Params, Shared};
use crate::json::Json;
use crate::refusal::Refusal;

/// Events that may wait for a slow reader.
const STREAM_QUEUE: usize = 64;
/// Events read at a time.
const PAGE: usize = 256;

pub(crate) fn routes() -> Router<Arc<Core>> {
    Router::new()
        .route("/v1/agents", post(host).get(list))
        .route("/v1/agents/{id}", get(show))
        .route("/v1/agents/{id}/turns", post(turn).get(turns))
        .route("/v1/agents/{id}/turns/{number}", get(show_turn))
        .route("/v1/agents/{id}/interrupt", post(interrupt))
        .route("/v1/agents/{id}/answer", post(answer))
        .route("/v1/agents/{id}/stop", post(stop))
        .route("/v1/agents/{id}/events", get(events))
        .route("/v1/agents/{id}/attach", get(super::observe::attach))
}

async fn host(State(core): Shared, caller: Caller, Input(request): Input<AgentRequest>) -> Answer<Response> {
    // Goes on even if the client goes away: the agent is then found by its key or in the list.
    let hosting = tokio::spawn(async move { core.host_agent(&caller, request).await });
    let (agent, created) = hosting.await.map_err(Refusal::internal)??;
    let status = if created { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(agent)).into_response())
}

async fn list(State(core): Shared, caller: Caller, Params(query): Params<AgentListQuery>) -> impl IntoResponse {
    Json(core.list_agents(&caller.scope, &query))
}

async fn show(State(core): Shared, caller: Caller, Id(id): Id) -> Answer<impl IntoResponse> {
    let seat = core.find_agent(&caller.scope, &id)?;
    let agent = seat.view.borrow().agent.clone();
    Ok(Json(agent))
}

async fn turn(
    State(core): Shared,
    caller: Caller,
    Id(id): Id,
    Input(request): Input<TurnRequest>,
) -> Answer<impl IntoResponse> {
    let seat = core.find_agent(&caller.scope, &id)?;
    core.give_turn(&seat, request).await.map(Json)
}

async fn turns(
    State(core): Shared,
    caller: Caller,
    Id(id): Id,
    Params(query): Params<TurnsQuery>,
) -> Answer<impl IntoResponse> {
    let seat = core.find_agent(&caller.scope, &id)?;
    core.turns(&seat, &query).await.map(Json)
}

async fn show_turn(
    State(core): Shared,
    caller: Caller,
    Path((id, number)): Path<(String, String)>,
    Params(query): Params<TurnQuery>,
) -> Answer<impl IntoResponse> {
    let seat = core.find_agent(&caller.scope, &id)?;
    let bad = |_| Refusal::invalid(format!("`{number}` is no turn: turns are numbered from 1 on"));
    let number = number.parse::<u64>().map_err(bad)?;
    let wait = query.wait.as_deref().map(parse_duration).transpose()?.unwrap_or_default();
    wait_turn(&seat, number, wait).await.map(Json)
}

async fn interrupt(
    State(core): Shared,
    caller: Caller,
    Id(id): Id,
    MaybeInput(request): MaybeInput<InterruptRequest>,
) -> Answer<impl IntoResponse> {
    let seat = core.find_agent(&caller.scope, &id)?;
    core.interrupt_agent(&seat, request).await.map(Json)
}

async fn answer(
    State(core): Shared,
    caller: Caller,
    Id(id): Id,
    Input(request): Input<AnswerRequest>,
) -> Answer<impl IntoResponse> {
    let seat = core.find_agent(&caller.scope, &id)?;
    core.answer_agent(&seat, request).await.map(Json)
}

async fn stop(
    State(core): Shared,
    caller: Caller,
    Id(id): Id,
    MaybeInput(request): MaybeInput<AgentStopRequest>,
) -> Answer<impl IntoResponse> {
    let seat = core.find_agent(&caller.scope, &id)?;
    core.stop_agent(&seat, request).await.map(Json)
}

async fn events(
    State(core): Shared,
    caller: Caller,
    Id(id): Id,
    Params(query): Params<AgentEventsQuery>,
    request: Request,
) -> Answer<Response> {
    let seat = core.find_agent(&caller.scope, &id)?;
    let accept = request.headers().get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    if accept.is_none_or(|accept| !accept.contains("text/event-stream")) {
        return Ok(Json(core.agent_events(&seat, &query).await?).into_response());
    }
    let after = parse_after(&seat, query.after.as_deref())?;
    let (queue, events) = mpsc::channel(STREAM_QUEUE);
    tokio::spawn(async move {
        follow(&core, &seat, after, queue).await;
        // As long as somebody reads, the owner is in contact.
        drop(caller);
    });
    Ok(Sse::new(Queue(events)).keep_alive(KeepAlive::new().interval(Duration::from_secs(15))).into_response())
}

/// Hands over what is heard, in order; a slow reader slows only its own stream, and is told of a gap.
async fn follow(core: &Core, seat: &Seat, mut after: u64, queue: mpsc::Sender<SseEvent>) -> Option<Infallible> {
    let mut latest = seat.events.subscribe();
    let mut shutdown = core.shutdown.subscribe();
    loop {
        let page = seat.events.page(after, PAGE);
        if page.gap {
            let gone = page.events.first().map_or(page.next, |event| event.seq - 1);
            let data = format!(r#"{{"after":{after},"through":{gone}}}"#);
            queue.send(SseEvent::default().event("gap").data(data)).await.ok()?;
        }
        after = page.next;
        for event in &page.events {
            let kind = serde_json::to_value(event.kind).ok()?;
            let message = SseEvent::default().id(event.seq.to_string()).event(kind.as_str()?);
            queue.send(message.data(serde_json::to_string(event).ok()?)).await.ok()?;
        }
        tokio::select! {
            more = latest.wait_for(|latest| *latest > after) => drop(more.ok()?),
            () = queue.closed() => return None,
            _ = shutdown.wait_for(|shutdown| *shutdown) => return None,
        }
    }
}
