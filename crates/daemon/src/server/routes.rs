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
    AckRequest, AdoptRequest, AttachQuery, DashboardRequest, EndRequest, EventsQuery, GcRequest, HandoverRequest,
    InboxQuery, InputRequest, ListQuery, OutputQuery, ResizeRequest, SamplesQuery, SearchQuery, SeenRequest,
    SessionRequest, ShutdownAnswer, ShutdownRequest, SignalRequest, StartRequest, StopRequest, TokenRequest,
    WaitManyRequest, WaitQuery,
};

use crate::access::caller::Caller;
use crate::access::closable::ConnectionHandle;
use crate::agents;
use crate::coder;
use crate::core::Core;
use crate::diagnostics::metrics;
use crate::extract::{Answer, Id, JsonBody, OptionalJsonBody, Params, Shared, TraceHeader, last_event_id};
use crate::json::Json;
use crate::output::follow::Followed;
use crate::output::read::RawPage;
use crate::owners::sessions::PeerPid;
use crate::processes::attach;
use crate::request_error::RequestError;
use crate::server::dashboard;

/// Every route.
pub(crate) fn routes(core: Arc<Core>) -> Router {
    Router::new()
        .route("/v1/processes", post(start).get(list))
        .route("/v1/processes/{id}", get(show).delete(remove))
        .route("/v1/processes/{id}/samples", get(samples))
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
        .route("/v1/search", get(search))
        .route("/v1/inbox", get(inbox))
        .route("/v1/inbox/seen", post(mark_seen))
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
        .route("/v1/dashboard", post(open_dashboard).delete(close_dashboard))
        .route("/v1/doctor", get(doctor))
        .route("/v1/gc", post(gc))
        .route("/v1/shutdown", post(shutdown))
        .route("/healthz", get(health))
        .route("/metrics", get(show_metrics))
        .route("/openapi.json", get(openapi))
        .merge(agents::routes(&core))
        .nest(coder::MOUNT, coder::routes(&core))
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        .with_state(core)
}

async fn start(
    State(core): Shared,
    caller: Caller,
    TraceHeader(header): TraceHeader,
    JsonBody(mut request): JsonBody<StartRequest>,
) -> Answer<Response> {
    request.traceparent = request.traceparent.or(header);
    let started = core.start(&caller, request).await?;
    let status = if started.created { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(started)).into_response())
}

async fn list(State(core): Shared, caller: Caller, Params(query): Params<ListQuery>) -> Answer<impl IntoResponse> {
    core.list(&caller.viewer, query).await.map(Json)
}

async fn show(State(core): Shared, caller: Caller, Id(id): Id) -> Answer<impl IntoResponse> {
    let found = core.find(&caller.viewer, &id).await?;
    core.record_with_request(&found).await.map(Json)
}

async fn remove(State(core): Shared, caller: Caller, Id(id): Id) -> Answer<impl IntoResponse> {
    let found = core.find(&caller.viewer, &id).await?;
    core.remove_ended(found).await.map(Json)
}

async fn samples(
    State(core): Shared,
    caller: Caller,
    Id(id): Id,
    Params(query): Params<SamplesQuery>,
) -> Answer<impl IntoResponse> {
    let found = core.find(&caller.viewer, &id).await?;
    core.samples(&found, &query).await.map(Json)
}

async fn output(
    State(core): Shared,
    caller: Caller,
    Id(id): Id,
    Params(query): Params<OutputQuery>,
) -> Answer<Response> {
    let found = core.find(&caller.viewer, &id).await?;
    match query.format.as_deref() {
        _ if query.follow == Some(true) => {
            let is_raw = query.format.as_deref() == Some("raw");
            Ok(stream_response(core.follow_output(found, &query, caller).await?, is_raw))
        }
        Some("raw") => Ok(raw_response(core.raw_output(&found, &query).await?)),
        _ => {
            let page = core.output(&found, &query).await?;
            core.note_read(&caller.viewer, &found, &query, &page);
            Ok(Json(page).into_response())
        }
    }
}

/// A raw response: the bytes, with cursors and state in headers.
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

/// Bytes as they are written, and where they begin.
fn stream_response(Followed { cursor, gap, body }: Followed, is_raw: bool) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    let content_type = if is_raw { "application/octet-stream" } else { "text/plain; charset=utf-8" };
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    // Output must not be rendered as HTML: a browser may not guess its type.
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(HeaderName::from_static("pinfold-cursor"), HeaderValue::from(cursor));
    if let Some(gap) = gap {
        headers.insert(HeaderName::from_static("pinfold-gap-from"), HeaderValue::from(gap.start));
        headers.insert(HeaderName::from_static("pinfold-gap-to"), HeaderValue::from(gap.end));
    }
    response
}

async fn search(State(core): Shared, caller: Caller, Params(query): Params<SearchQuery>) -> Answer<impl IntoResponse> {
    core.search(&caller.viewer, query).await.map(Json)
}

async fn inbox(State(core): Shared, caller: Caller, Params(query): Params<InboxQuery>) -> Answer<impl IntoResponse> {
    core.inbox(&caller.viewer, query).await.map(Json)
}

async fn mark_seen(
    State(core): Shared,
    caller: Caller,
    JsonBody(request): JsonBody<SeenRequest>,
) -> Answer<impl IntoResponse> {
    core.mark_seen(&caller.viewer, request).await.map(Json)
}

async fn wait(
    State(core): Shared,
    caller: Caller,
    Id(id): Id,
    Params(query): Params<WaitQuery>,
) -> Answer<impl IntoResponse> {
    let found = core.find(&caller.viewer, &id).await?;
    core.wait(&caller.viewer, found, query).await.map(Json)
}

async fn wait_many(
    State(core): Shared,
    caller: Caller,
    JsonBody(request): JsonBody<WaitManyRequest>,
) -> Answer<impl IntoResponse> {
    core.wait_many(&caller.viewer, request).await.map(Json)
}

async fn stop(
    State(core): Shared,
    caller: Caller,
    Id(id): Id,
    OptionalJsonBody(request): OptionalJsonBody<StopRequest>,
) -> Answer<impl IntoResponse> {
    let found = core.find(&caller.viewer, &id).await?;
    core.stop(found, request).await.map(Json)
}

async fn restart(
    State(core): Shared,
    caller: Caller,
    Id(id): Id,
    OptionalJsonBody(request): OptionalJsonBody<StopRequest>,
) -> Answer<impl IntoResponse> {
    let found = core.find(&caller.viewer, &id).await?;
    core.restart_request(found, request).await.map(Json)
}

async fn signal(
    State(core): Shared,
    caller: Caller,
    Id(id): Id,
    JsonBody(request): JsonBody<SignalRequest>,
) -> Answer<impl IntoResponse> {
    let found = core.find(&caller.viewer, &id).await?;
    core.signal(found, request).await.map(Json)
}

async fn input(
    State(core): Shared,
    caller: Caller,
    Id(id): Id,
    JsonBody(request): JsonBody<InputRequest>,
) -> Answer<impl IntoResponse> {
    let found = core.find(&caller.viewer, &id).await?;
    core.input(&found, request).await.map(Json)
}

async fn screen(State(core): Shared, caller: Caller, Id(id): Id) -> Answer<impl IntoResponse> {
    let found = core.find(&caller.viewer, &id).await?;
    core.screen(&found).await.map(Json)
}

async fn resize(
    State(core): Shared,
    caller: Caller,
    Id(id): Id,
    JsonBody(request): JsonBody<ResizeRequest>,
) -> Answer<impl IntoResponse> {
    let found = core.find(&caller.viewer, &id).await?;
    core.resize(&found, request).await.map(Json)
}

async fn attach_to(
    State(core): Shared,
    caller: Caller,
    Id(id): Id,
    Params(query): Params<AttachQuery>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Answer<Response> {
    let found = core.find(&caller.viewer, &id).await?;
    attach::begin(core, caller, found, query, upgrade).await
}

async fn pause(State(core): Shared, caller: Caller, Id(id): Id) -> Answer<impl IntoResponse> {
    let found = core.find(&caller.viewer, &id).await?;
    core.pause(found).await.map(Json)
}

async fn resume(State(core): Shared, caller: Caller, Id(id): Id) -> Answer<impl IntoResponse> {
    let found = core.find(&caller.viewer, &id).await?;
    core.resume(found).await.map(Json)
}

async fn handover(
    State(core): Shared,
    caller: Caller,
    Id(id): Id,
    JsonBody(request): JsonBody<HandoverRequest>,
) -> Answer<impl IntoResponse> {
    let found = core.find(&caller.viewer, &id).await?;
    core.hand_over(&caller, found, request).await.map(Json)
}

async fn consumers(State(core): Shared, caller: Caller) -> Answer<impl IntoResponse> {
    core.list_consumers(&caller.viewer).await.map(Json)
}

async fn forget_consumer(State(core): Shared, caller: Caller, Id(name): Id) -> Answer<impl IntoResponse> {
    core.forget_consumer(&caller.viewer, &name).await.map(Json)
}

async fn ack(
    State(core): Shared,
    caller: Caller,
    Id(name): Id,
    JsonBody(request): JsonBody<AckRequest>,
) -> Answer<impl IntoResponse> {
    core.ack(&caller.viewer, &name, request.through).await.map(Json)
}

async fn owners(State(core): Shared, caller: Caller) -> impl IntoResponse {
    Json(core.list_owners(&caller.viewer))
}

async fn end_owner(
    State(core): Shared,
    caller: Caller,
    Id(owner): Id,
    OptionalJsonBody(request): OptionalJsonBody<EndRequest>,
) -> Answer<impl IntoResponse> {
    core.end_owner(&caller.viewer, &owner, request).await.map(Json)
}

async fn release_owner(State(core): Shared, caller: Caller, Id(owner): Id) -> Answer<impl IntoResponse> {
    core.release_owner(&caller.viewer, &owner).map(Json)
}

async fn register_session(
    State(core): Shared,
    caller: Caller,
    peer: Option<Extension<PeerPid>>,
    JsonBody(request): JsonBody<SessionRequest>,
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
    JsonBody(request): JsonBody<AdoptRequest>,
) -> Answer<impl IntoResponse> {
    core.adopt_left_behind(&caller, peer.map(|Extension(peer)| peer), request).await.map(Json)
}

async fn add_token(
    State(core): Shared,
    caller: Caller,
    OptionalJsonBody(request): OptionalJsonBody<TokenRequest>,
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
    handle: Option<Extension<Arc<ConnectionHandle>>>,
) -> Answer<impl IntoResponse> {
    caller.must_be_operator()?;
    core.revoke_token(&id, handle.as_ref().map(|Extension(handle)| &**handle)).map(Json)
}

async fn events(
    State(core): Shared,
    caller: Caller,
    Params(query): Params<EventsQuery>,
    request: Request,
) -> Answer<Response> {
    let accept = request.headers().get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    if accept.is_some_and(|accept| accept.contains("text/event-stream")) {
        let resumed = last_event_id(request.headers())?;
        return Ok(core.event_stream(caller, query, resumed).await?.into_response());
    }
    Ok(Json(core.events(&caller.viewer, query).await?).into_response())
}

async fn open_dashboard(
    State(core): Shared,
    caller: Caller,
    OptionalJsonBody(request): OptionalJsonBody<DashboardRequest>,
) -> Answer<impl IntoResponse> {
    dashboard::open(&core, &caller, request).await.map(Json)
}

async fn close_dashboard(State(core): Shared, caller: Caller) -> Answer<impl IntoResponse> {
    caller.must_be_operator()?;
    Ok(Json(dashboard::close(&core).await))
}

async fn doctor(State(core): Shared, caller: Caller) -> Answer<impl IntoResponse> {
    caller.must_be_operator()?;
    core.doctor().await.map(Json)
}

async fn gc(
    State(core): Shared,
    caller: Caller,
    OptionalJsonBody(request): OptionalJsonBody<GcRequest>,
) -> Answer<impl IntoResponse> {
    caller.must_be_operator()?;
    core.gc(request).await.map(Json)
}

async fn shutdown(
    State(core): Shared,
    caller: Caller,
    OptionalJsonBody(request): OptionalJsonBody<ShutdownRequest>,
) -> Answer<impl IntoResponse> {
    caller.must_be_operator()?;
    if request.stop_processes {
        core.recovery.until_read().await?;
    }
    let (stopped, survivors) = match request.stop_processes {
        true => core.stop_all("daemon stop").await,
        false => (0, vec![]),
    };
    core.stop_unrecoverable().await;
    let left_running = core.registry.live_count() as u64;
    core.index_writer.drain().await;
    core.shutdown.send_replace(true);
    Ok(Json(ShutdownAnswer { stopped, left_running, survivors }))
}

async fn health(State(core): Shared, caller: Caller) -> impl IntoResponse {
    Json(core.health(&caller.viewer).await)
}

async fn show_metrics(State(core): Shared, caller: Caller) -> Answer<impl IntoResponse> {
    caller.must_be_operator()?;
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], metrics::render(&core)))
}

async fn openapi() -> impl IntoResponse {
    Json(pinfold_api::openapi::document())
}

async fn no_route(request: Request) -> RequestError {
    let message = format!("there is no {} {}: see /openapi.json", request.method(), request.uri().path());
    RequestError::new(ErrorCode::NoSuchRoute, message)
}

/// The router adds the `Allow` header.
async fn no_method(request: Request) -> RequestError {
    let message = format!("{} does not take {}: see /openapi.json", request.uri().path(), request.method());
    RequestError::new(ErrorCode::MethodNotAllowed, message)
}
