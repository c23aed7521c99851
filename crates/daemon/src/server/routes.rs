//! The HTTP routes: each handler reads the request, calls another room of the daemon, and answers.
//!
//! Bounds (D4): bodies in `extract`.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::{Extension, Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use pinfold_api::error::ErrorCode;
use pinfold_api::types::{
    AckRequest, AdoptRequest, AttachQuery, EndRequest, EventsQuery, GcRequest, HandoverRequest, InputRequest,
    ListQuery, OutputQuery, ResizeRequest, SessionRequest, ShutdownAnswer, ShutdownRequest, SignalRequest,
    StartRequest, StopRequest, TokenRequest, WaitManyRequest, WaitQuery,
};

use crate::access::caller::Caller;
use crate::access::closable::Line;
use crate::agents;
use crate::coder;
use crate::core::Core;
use crate::diagnostics::metrics;
use crate::extract::{Answer, Id, Input, MaybeInput, Params, Shared};
use crate::json::Json;
use crate::output::read::RawPage;
use crate::owners::sessions::PeerPid;
use crate::processes::attach;
use crate::refusal::Refusal;

/// Every route.
pub(crate) fn routes(core: Arc<Core>) -> Router {
    Router::new()
        .route("/v1/processes", post(start).get(list))
        .route("/v1/processes/{id}", get(show))
        .route("/v1/processes/{id}/output", get(output))
        .route("/v1/processes/{id}/wait", get(wait))
        .route("/v1/processes/{id}/stop", post(stop))
        .route("/v1/processes/{id}/restart", post(restart))
        .route("/v1/processes/{id}/signal", post(signal))
        .route("/v1/processes/{id}/input", post(input))
        .route("/v1/processes/{id}/screen", get(screen))
        .route("/v1/processes/{id}/resize", post(resize))
        .route("/v1/processes/{id}/attach", get(attach_to))
        .route("/v1/processes/{id}/pause", post(pause))
        .route("/v1/processes/{id}/resume", post(resume))
        .route("/v1/wait", post(wait_many))
        .route("/v1/events", get(events))
        .route("/v1/processes/{id}/handover", post(handover))
        .route("/v1/consumers", get(consumers))
        .route("/v1/consumers/{id}", delete(forget_consumer))
        .route("/v1/consumers/{id}/ack", post(ack))
        .route("/v1/owners", get(owners))
        .route("/v1/owners/{id}/end", post(end_owner))
        .route("/v1/owners/{id}/release", post(release_owner))
        .route("/v1/sessions", post(register_session))
        .route("/v1/sessions/left_behind", get(left_behind))
        .route("/v1/sessions/adopt", post(adopt))
        .route("/v1/tokens", post(add_token).get(tokens))
        .route("/v1/tokens/{id}", delete(revoke_token))
        .route("/v1/gc", post(gc))
        .route("/v1/shutdown", post(shutdown))
        .route("/healthz", get(health))
        .route("/metrics", get(show_metrics))
        .route("/openapi.json", get(openapi))
        .merge(agents::routes())
        .nest(coder::MOUNT, coder::routes(&core))
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        .with_state(core)
}

async fn start(State(core): Shared, caller: Caller, Input(request): Input<StartRequest>) -> Answer<Response> {
    let started = core.start(&caller, request).await?;
    let status = if started.created { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(started)).into_response())
}

async fn list(State(core): Shared, caller: Caller, Params(query): Params<ListQuery>) -> Answer<impl IntoResponse> {
    core.list(&caller.scope, query).await.map(Json)
}

async fn show(State(core): Shared, caller: Caller, Id(id): Id) -> Answer<impl IntoResponse> {
    let found = core.find(&caller.scope, &id).await?;
    core.record(&found).await.map(Json)
}

async fn output(
    State(core): Shared,
    caller: Caller,
    Id(id): Id,
    Params(query): Params<OutputQuery>,
) -> Answer<Response> {
    let found = core.find(&caller.scope, &id).await?;
    match query.format.as_deref() {
        Some("raw") => Ok(raw_response(core.raw_output(&found, &query).await?)),
        _ => {
            let page = core.output(&found, &query).await?;
            core.note_read(&caller.scope, &found, &query, &page);
            Ok(Json(page).into_response())
        }
    }
}

/// The bytes as they are, their accounts in headers.
fn raw_response(RawPage { piece, state }: RawPage) -> Response {
    let history = &state.history;
    let exited = history.exit.is_some() || history.status().is_over();
    let closed = history.closed_at.is_some() || history.status().is_over();
    let mut facts = vec![
        ("pinfold-cursor", piece.at.to_string()),
        ("pinfold-next-cursor", piece.next.to_string()),
        ("pinfold-end", piece.end.to_string()),
        ("pinfold-exited", exited.to_string()),
        ("pinfold-closed", closed.to_string()),
        ("pinfold-status", history.status().name().to_owned()),
    ];
    if let Some(gap) = &piece.gap {
        facts.push(("pinfold-gap-from", gap.start.to_string()));
        facts.push(("pinfold-gap-to", gap.end.to_string()));
    }
    let mut response = Response::new(Body::from(piece.bytes));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    for (name, value) in facts {
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
    response
}

async fn wait(
    State(core): Shared,
    caller: Caller,
    Id(id): Id,
    Params(query): Params<WaitQuery>,
) -> Answer<impl IntoResponse> {
    let found = core.find(&caller.scope, &id).await?;
    core.wait(&caller.scope, found, query).await.map(Json)
}

async fn wait_many(
    State(core): Shared,
    caller: Caller,
    Input(request): Input<WaitManyRequest>,
) -> Answer<impl IntoResponse> {
    core.wait_many(&caller.scope, request).await.map(Json)
}

async fn stop(
    State(core): Shared,
    caller: Caller,
    Id(id): Id,
    MaybeInput(request): MaybeInput<StopRequest>,
) -> Answer<impl IntoResponse> {
    let found = core.find(&caller.scope, &id).await?;
    core.stop(found, request).await.map(Json)
}

async fn restart(
    State(core): Shared,
    caller: Caller,
    Id(id): Id,
    MaybeInput(request): MaybeInput<StopRequest>,
) -> Answer<impl IntoResponse> {
    let found = core.find(&caller.scope, &id).await?;
    core.restart_request(found, request).await.map(Json)
}

async fn signal(
    State(core): Shared,
    caller: Caller,
    Id(id): Id,
    Input(request): Input<SignalRequest>,
) -> Answer<impl IntoResponse> {
    let found = core.find(&caller.scope, &id).await?;
    core.signal(found, request).await.map(Json)
}

async fn input(
    State(core): Shared,
    caller: Caller,
    Id(id): Id,
    Input(request): Input<InputRequest>,
) -> Answer<impl IntoResponse> {
    let found = core.find(&caller.scope, &id).await?;
    core.input(&found, request).await.map(Json)
}

async fn screen(State(core): Shared, caller: Caller, Id(id): Id) -> Answer<impl IntoResponse> {
    let found = core.find(&caller.scope, &id).await?;
    core.screen(&found).await.map(Json)
}

async fn resize(
    State(core): Shared,
    caller: Caller,
    Id(id): Id,
    Input(request): Input<ResizeRequest>,
) -> Answer<impl IntoResponse> {
    let found = core.find(&caller.scope, &id).await?;
    core.resize(&found, request).await.map(Json)
}

async fn attach_to(
    State(core): Shared,
    caller: Caller,
    Id(id): Id,
    Params(query): Params<AttachQuery>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Answer<Response> {
    let found = core.find(&caller.scope, &id).await?;
    attach::begin(core, caller, found, query, upgrade).await
}

async fn pause(State(core): Shared, caller: Caller, Id(id): Id) -> Answer<impl IntoResponse> {
    let found = core.find(&caller.scope, &id).await?;
    core.pause(found).await.map(Json)
}

async fn resume(State(core): Shared, caller: Caller, Id(id): Id) -> Answer<impl IntoResponse> {
    let found = core.find(&caller.scope, &id).await?;
    core.resume(found).await.map(Json)
}

async fn handover(
    State(core): Shared,
    caller: Caller,
    Id(id): Id,
    Input(request): Input<HandoverRequest>,
) -> Answer<impl IntoResponse> {
    let found = core.find(&caller.scope, &id).await?;
    core.hand_over(&caller, found, request).await.map(Json)
}

async fn consumers(State(core): Shared, caller: Caller) -> Answer<impl IntoResponse> {
    core.list_consumers(&caller.scope).await.map(Json)
}

async fn forget_consumer(State(core): Shared, caller: Caller, Id(name): Id) -> Answer<impl IntoResponse> {
    core.forget_consumer(&caller.scope, &name).await.map(Json)
}

async fn ack(
    State(core): Shared,
    caller: Caller,
    Id(name): Id,
    Input(request): Input<AckRequest>,
) -> Answer<impl IntoResponse> {
    core.ack(&caller.scope, &name, request.through).await.map(Json)
}

async fn owners(State(core): Shared, caller: Caller) -> impl IntoResponse {
    Json(core.list_owners(&caller.scope))
}

async fn end_owner(
    State(core): Shared,
    caller: Caller,
    Id(owner): Id,
    MaybeInput(request): MaybeInput<EndRequest>,
) -> Answer<impl IntoResponse> {
    core.end_owner(&caller.scope, &owner, request).await.map(Json)
}

async fn release_owner(State(core): Shared, caller: Caller, Id(owner): Id) -> Answer<impl IntoResponse> {
    core.release_owner(&caller.scope, &owner).map(Json)
}

async fn register_session(
    State(core): Shared,
    caller: Caller,
    peer: Option<Extension<PeerPid>>,
    Input(request): Input<SessionRequest>,
) -> Answer<impl IntoResponse> {
    core.register_session(&caller, peer.map(|Extension(peer)| peer), request).await.map(Json)
}

async fn left_behind(
    State(core): Shared,
    caller: Caller,
    peer: Option<Extension<PeerPid>>,
) -> Answer<impl IntoResponse> {
    core.list_left_behind(&caller, peer.map(|Extension(peer)| peer)).await.map(Json)
}

async fn adopt(
    State(core): Shared,
    caller: Caller,
    peer: Option<Extension<PeerPid>>,
    Input(request): Input<AdoptRequest>,
) -> Answer<impl IntoResponse> {
    core.adopt_left_behind(&caller, peer.map(|Extension(peer)| peer), request).await.map(Json)
}

async fn add_token(
    State(core): Shared,
    caller: Caller,
    MaybeInput(request): MaybeInput<TokenRequest>,
) -> Answer<impl IntoResponse> {
    caller.must_be_operator()?;
    Ok((StatusCode::CREATED, Json(core.add_token(request)?)))
}

async fn tokens(State(core): Shared, caller: Caller) -> Answer<impl IntoResponse> {
    caller.must_be_operator()?;
    Ok(Json(core.list_tokens()))
}

async fn revoke_token(
    State(core): Shared,
    caller: Caller,
    Id(id): Id,
    line: Option<Extension<Arc<Line>>>,
) -> Answer<impl IntoResponse> {
    caller.must_be_operator()?;
    core.revoke_token(&id, line.as_ref().map(|Extension(line)| &**line)).map(Json)
}

async fn events(
    State(core): Shared,
    caller: Caller,
    Params(query): Params<EventsQuery>,
    request: Request,
) -> Answer<Response> {
    let accept = request.headers().get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    if accept.is_some_and(|accept| accept.contains("text/event-stream")) {
        return Ok(core.event_stream(caller, query).await?.into_response());
    }
    Ok(Json(core.events(&caller.scope, query).await?).into_response())
}

async fn gc(
    State(core): Shared,
    caller: Caller,
    MaybeInput(request): MaybeInput<GcRequest>,
) -> Answer<impl IntoResponse> {
    caller.must_be_operator()?;
    core.gc(request).await.map(Json)
}

async fn shutdown(
    State(core): Shared,
    caller: Caller,
    MaybeInput(request): MaybeInput<ShutdownRequest>,
) -> Answer<impl IntoResponse> {
    caller.must_be_operator()?;
    if request.stop_processes {
        core.recovery.until_read().await?;
    }
    let (stopped, survivors) = match request.stop_processes {
        true => core.stop_all("daemon stop").await,
        false => (0, vec![]),
    };
    core.stop_homeless().await;
    let left_running = core.registry.live_count() as u64;
    core.ledger.drain().await;
    core.shutdown.send_replace(true);
    Ok(Json(ShutdownAnswer { stopped, left_running, survivors }))
}

async fn health(State(core): Shared, caller: Caller) -> impl IntoResponse {
    Json(core.health(&caller.scope).await)
}

async fn show_metrics(State(core): Shared, caller: Caller) -> Answer<impl IntoResponse> {
    caller.must_be_operator()?;
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], metrics::render(&core)))
}

async fn openapi() -> impl IntoResponse {
    Json(pinfold_api::openapi::document())
}

async fn no_route(request: Request) -> Refusal {
    let message = format!("there is no {} {}: see /openapi.json", request.method(), request.uri().path());
    Refusal::new(ErrorCode::NoSuchRoute, message)
}

/// The router adds which methods there are, as `Allow`.
async fn no_method(request: Request) -> Refusal {
    let message = format!("{} does not take {}: see /openapi.json", request.uri().path(), request.method());
    Refusal::new(ErrorCode::MethodNotAllowed, message)
}
