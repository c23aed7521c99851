//! The HTTP face: who is asking, what is asked, and the answer. Handlers parse, call `service`, and render.
//!
//! Bounds (D4): bodies in `extract`, headers by hyper's defaults and [`HEADER_TIME`], connections by the
//! descriptor limit. Only the daemon's own user and root may speak.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::{Extension, Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use pinfold_api::error::ErrorCode;
use pinfold_api::quiet::QuietStream;
use pinfold_api::types::{
    AckRequest, AdoptRequest, AttachQuery, EndRequest, EventsQuery, GcRequest, HandoverRequest, InputRequest,
    ListQuery, OutputQuery, ResizeRequest, SessionRequest, ShutdownAnswer, ShutdownRequest, SignalRequest,
    StartRequest, StopRequest, TokenRequest, WaitManyRequest, WaitQuery,
};
use pinfold_os::socket;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{UnixListener, UnixStream};

use crate::agents;
use crate::attach;
use crate::coder;
use crate::cut::{Cuttable, Line};
use crate::extract::{Id, Input, MaybeInput, Params};
use crate::json::Json;
use crate::metrics;
use crate::origin::Connection;
use crate::output::RawPage;
use crate::refusal::Refusal;
use crate::scope::{Caller, Unproven};
use crate::service::Core;
use crate::sessions::PeerPid;
use crate::spare::Spare;

/// A client that does not finish its headers within this time is cut off.
const HEADER_TIME: Duration = Duration::from_secs(30);

pub(crate) type Shared = State<Arc<Core>>;
pub(crate) type Answer<T> = Result<T, Refusal>;

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

/// By which way a connection came.
#[derive(Clone, Debug)]
pub(crate) enum Entrance {
    /// The socket: whoever opens it from outside is the operator, and may ask to see less.
    Socket(Arc<Connection>),
    /// TCP: each request must show a token, and the connection can be cut.
    Tcp(Arc<Line>),
}

/// Accepts connections until shutdown.
pub(crate) async fn serve(core: Arc<Core>, router: Router, listener: UnixListener) {
    let mut shutdown = core.shutdown.subscribe();
    let mut spare = Spare::new();
    loop {
        tokio::select! {
            stream = spare.accept(&listener) => if let Some(stream) = stream {
                tokio::spawn(serve_connection(Arc::clone(&core), router.clone(), stream));
            },
            () = async { drop(shutdown.wait_for(|shutdown| *shutdown).await) } => return,
        }
    }
}

async fn serve_connection(core: Arc<Core>, router: Router, stream: UnixStream) {
    use std::os::fd::AsFd;
    let own = socket::own_uid();
    match socket::peer_uid(stream.as_fd()) {
        Ok(uid) if uid == own || uid == 0 => match open(stream) {
            Ok((stream, entrance)) => serve_stream(core, router, stream, entrance).await,
            Err(error) => tracing::error!(%error, "a connection cannot be served"),
        },
        Ok(uid) => tracing::warn!(uid, "another user's connection is refused"),
        Err(error) => tracing::warn!(%error, "a connection without credentials is refused"),
    }
}

fn open(stream: UnixStream) -> std::io::Result<(Cuttable<QuietStream>, Entrance)> {
    let connection = Arc::new(Connection::new(&stream)?);
    let stream = Cuttable { stream: QuietStream::new(stream.into_std()?)?, line: Arc::clone(&connection.line) };
    Ok((stream, Entrance::Socket(connection)))
}

/// Serves one connection until it or the daemon ends.
pub(crate) async fn serve_stream<S>(core: Arc<Core>, router: Router, stream: S, entrance: Entrance)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let routes = TowerToHyperService::new(router);
    let asked = Arc::clone(&core);
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        let (routes, core, entrance) = (routes.clone(), Arc::clone(&asked), entrance.clone());
        async move {
            if core.recovery.is_reading()
                && let Err(refusal) = core.recovery.admit(request.method().as_str(), request.uri().path()).await
            {
                return Ok(refusal.into_response());
            }
            // Only now: where a connection comes from is known when the processes are.
            match &entrance {
                Entrance::Socket(connection) => {
                    match connection.proof(&core) {
                        Ok(proof) => drop(request.extensions_mut().insert(proof)),
                        Err(reason) => drop(request.extensions_mut().insert(Unproven(reason))),
                    }
                    if let Some(pid) = connection.pid.filter(|_| request.uri().path().starts_with("/v1/sessions")) {
                        request.extensions_mut().insert(PeerPid(pid));
                    }
                }
                Entrance::Tcp(line) => drop(request.extensions_mut().insert(Arc::clone(line))),
            }
            routes.call(request).await
        }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEADER_TIME);
    // Attached observers go on where the request for it ended.
    let connection = builder.serve_connection(TokioIo::new(stream), service).with_upgrades();
    let mut connection = std::pin::pin!(connection);
    let mut shutdown = core.shutdown.subscribe();
    // A client that breaks off is its own business.
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = shutdown.wait_for(|shutdown| *shutdown) => connection.as_mut().graceful_shutdown(),
    }
    let _ = tokio::time::timeout(Duration::from_secs(1), connection).await;
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
