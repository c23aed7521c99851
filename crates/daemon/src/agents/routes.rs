//! The routes of hosted agents.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::{Path, Request};
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

use super::handle::AgentHandle;
use super::host::{Caller, Host, Hosting, Routes, SseStream};
use super::requests::{parse_after, wait_turn};
use crate::extract::{Answer, Id, JsonBody, OptionalJsonBody, Params, last_event_id};
use crate::json::Json;
use crate::request_error::RequestError;

/// Events that may wait for a slow reader of a stream.
const STREAM_QUEUE: usize = 64;
/// Events read at a time.
const PAGE: usize = 256;

pub(super) fn routes() -> Routes {
    Routes::new()
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

async fn host(hosting: Hosting, caller: Caller, JsonBody(request): JsonBody<AgentRequest>) -> Answer<Response> {
    // Continues even if the client disconnects: it then finds the agent by its key or in the list.
    let hosted = tokio::spawn(async move { hosting.host_agent(&caller, request).await });
    let (agent, created) = hosted.await.map_err(RequestError::internal)??;
    let status = if created { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(agent)).into_response())
}

async fn list(hosting: Hosting, caller: Caller, Params(query): Params<AgentListQuery>) -> impl IntoResponse {
    Json(hosting.list_agents(&caller.viewer, &query))
}

async fn show(hosting: Hosting, caller: Caller, Id(id): Id) -> Answer<impl IntoResponse> {
    let handle = hosting.find_agent(&caller.viewer, &id)?;
    let agent = handle.view.borrow().agent.clone();
    Ok(Json(agent))
}

async fn turn(
    hosting: Hosting,
    caller: Caller,
    Id(id): Id,
    JsonBody(request): JsonBody<TurnRequest>,
) -> Answer<impl IntoResponse> {
    let handle = hosting.find_agent(&caller.viewer, &id)?;
    hosting.give_turn(&handle, request).await.map(Json)
}

async fn turns(
    hosting: Hosting,
    caller: Caller,
    Id(id): Id,
    Params(query): Params<TurnsQuery>,
) -> Answer<impl IntoResponse> {
    let handle = hosting.find_agent(&caller.viewer, &id)?;
    hosting.turns(&handle, &query).await.map(Json)
}

async fn show_turn(
    hosting: Hosting,
    caller: Caller,
    Path((id, number)): Path<(String, String)>,
    Params(query): Params<TurnQuery>,
) -> Answer<impl IntoResponse> {
    let handle = hosting.find_agent(&caller.viewer, &id)?;
    let bad = |_| RequestError::invalid(format!("`{number}` is not the number of a turn: the first turn is 1"));
    let number = number.parse::<u64>().map_err(bad)?;
    let wait = query.wait.as_deref().map(parse_duration).transpose()?.unwrap_or_default();
    wait_turn(&handle, number, wait).await.map(Json)
}

async fn interrupt(
    hosting: Hosting,
    caller: Caller,
    Id(id): Id,
    OptionalJsonBody(request): OptionalJsonBody<InterruptRequest>,
) -> Answer<impl IntoResponse> {
    let handle = hosting.find_agent(&caller.viewer, &id)?;
    hosting.interrupt_agent(&handle, request).await.map(Json)
}

async fn answer(
    hosting: Hosting,
    caller: Caller,
    Id(id): Id,
    JsonBody(request): JsonBody<AnswerRequest>,
) -> Answer<impl IntoResponse> {
    let handle = hosting.find_agent(&caller.viewer, &id)?;
    hosting.answer_agent(&handle, request).await.map(Json)
}

async fn stop(
    hosting: Hosting,
    caller: Caller,
    Id(id): Id,
    OptionalJsonBody(request): OptionalJsonBody<AgentStopRequest>,
) -> Answer<impl IntoResponse> {
    let handle = hosting.find_agent(&caller.viewer, &id)?;
    hosting.stop_agent(&handle, request).await.map(Json)
}

async fn events(
    hosting: Hosting,
    caller: Caller,
    Id(id): Id,
    Params(query): Params<AgentEventsQuery>,
    request: Request,
) -> Answer<Response> {
    let handle = hosting.find_agent(&caller.viewer, &id)?;
    let accept = request.headers().get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    if accept.is_none_or(|accept| !accept.contains("text/event-stream")) {
        return Ok(Json(hosting.agent_events(&handle, &query).await?).into_response());
    }
    let after = match last_event_id(request.headers())? {
        Some(received) => received,
        None => parse_after(&handle, query.after.as_deref())?,
    };
    let (queue, events) = mpsc::channel(STREAM_QUEUE);
    tokio::spawn(async move {
        follow(&*hosting.host, &handle, after, queue).await;
        // Until here the owner counts as in contact.
        drop(caller);
    });
    Ok(Sse::new(SseStream(events)).keep_alive(KeepAlive::new().interval(Duration::from_secs(15))).into_response())
}

/// Sends events in order. A slow reader delays only its own stream, and gets a `gap` event if it missed some.
async fn follow(
    host: &dyn Host,
    handle: &AgentHandle,
    mut after: u64,
    queue: mpsc::Sender<SseEvent>,
) -> Option<Infallible> {
    let mut latest = handle.events.subscribe();
    let mut shutdown = host.shutdown();
    loop {
        let page = handle.events.page(after, PAGE);
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
