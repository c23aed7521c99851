//! The typed client: one method per route, over the daemon's Unix socket.
//!
//! Owns how a request is encoded and a response is decoded. It does not start a daemon, and leaves it to the caller what
//! an error means. Invariant A1, *no request is done twice*: a request is retried only if its pooled connection closed
//! before the first byte of the response, and only if the request was not sent or is safe to repeat.

mod agents;
mod attach;
mod query;
mod sessions;
mod sse;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
mod transport;
mod views;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use http_body_util::BodyExt;
use hyper::body::{Bytes, Incoming};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::{ApiError, ErrorCode};
use crate::types::*;
pub use attach::{AttachReader, AttachWriter, Received};
use transport::{Answer, Ask, Connection, Transport};
pub use views::OutputStream;

/// The header with the owner that a request acts as.
pub const OWNER_HEADER: HeaderName = HeaderName::from_static("pinfold-owner");
/// The header with the parent of that owner.
pub const PARENT_HEADER: HeaderName = HeaderName::from_static("pinfold-parent");
/// The header that says how long after its last contact the owner counts as gone.
pub const GRACE_HEADER: HeaderName = HeaderName::from_static("pinfold-owner-grace");

/// A client of one daemon. Clones share a connection pool; concurrent requests use several connections.
#[derive(Clone, Debug)]
pub struct Client {
    transport: Arc<Transport>,
    /// Headers of the owner it acts as.
    owner_headers: Arc<[(HeaderName, HeaderValue)]>,
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Cannot connect to the socket, or the connection broke.
    #[error("cannot reach the daemon at {}: {source}", socket.display())]
    Unreachable {
        /// The daemon's socket.
        socket: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The daemon refused or failed.
    #[error("{error}")]
    Api {
        /// The HTTP status.
        status: u16,
        /// The daemon's error.
        error: ApiError,
    },
    /// The response is not one of this API.
    #[error("unexpected response from the daemon: {0}")]
    Protocol(String),
}

/// A range of output as raw bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawOutput {
    /// The bytes.
    pub bytes: Bytes,
    /// Cursor of the first byte.
    pub cursor: u64,
    /// Cursor for the next read.
    pub next_cursor: u64,
    /// Total bytes of output so far.
    pub end: u64,
    /// Range before `bytes` that is no longer stored.
    pub gap: Option<Range>,
    /// Whether the leader has exited.
    pub exited: bool,
    /// Whether the output is complete: all of its writers have closed it.
    pub closed: bool,
    /// The status of the process.
    pub status: Status,
}

/// A live stream of events. It ends when the daemon stops: reconnect with `after` set to the last `seq`.
#[derive(Debug)]
pub struct EventStream {
    transport: Arc<Transport>,
    body: Incoming,
    /// Not pooled: it closes when the stream is dropped.
    _connection: Connection,
    parser: sse::Parser,
    ready: std::collections::VecDeque<String>,
}

impl Client {
    /// A client of the daemon at this socket. Connects on the first request.
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Client { transport: Arc::new(Transport::new(socket.into())), owner_headers: Arc::new([]) }
    }

    /// The same client acting as an owner: it sees and changes only what belongs to that owner and its descendants. The
    /// daemon validates the names; a name that is not a valid header value is replaced by one that the daemon rejects.
    pub fn acting_as(&self, owner: &str, parent: Option<&str>) -> Self {
        let value = |text: &str| HeaderValue::from_bytes(text.as_bytes()).unwrap_or(HeaderValue::from_static("\t"));
        let mut owner_headers = vec![(OWNER_HEADER, value(owner))];
        owner_headers.extend(parent.map(|parent| (PARENT_HEADER, value(parent))));
        Client { transport: Arc::clone(&self.transport), owner_headers: owner_headers.into() }
    }

    /// The same client, sending a default `owner_grace` with every request. It applies to processes that this owner starts with
    /// `lifetime` `owner` or `parent` and without an `owner_grace`: after this long without contact, the owner counts as ended.
    pub fn with_owner_grace(&self, grace: &str) -> Self {
        let value = HeaderValue::from_str(grace).unwrap_or(HeaderValue::from_static("invalid"));
        let owner_headers = self.owner_headers.iter().cloned().chain([(GRACE_HEADER, value)]).collect::<Vec<_>>();
        Client { transport: Arc::clone(&self.transport), owner_headers: owner_headers.into() }
    }

    /// The daemon's socket.
    pub fn socket(&self) -> &Path {
        self.transport.socket()
    }

    /// Connects now, to check that the daemon is running; the next request uses the connection.
    pub async fn connect(&self) -> Result<(), ClientError> {
        self.transport.connect().await
    }

    /// `POST /v1/processes`.
    pub async fn start(&self, request: &StartRequest) -> Result<Started, ClientError> {
        let ask = Ask { repeatable: request.idempotency_key.is_some(), ..post("/v1/processes", request)? };
        self.ask(ask).await
    }

    /// `GET /v1/processes`.
    pub async fn list(&self, query: &ListQuery) -> Result<ProcessList, ClientError> {
        self.ask(get("/v1/processes", query)?).await
    }

    /// `GET /v1/processes/{id}`.
    pub async fn show(&self, id: &str) -> Result<Record, ClientError> {
        self.ask(get(&of_process(id, ""), &())?).await
    }

    /// `GET /v1/processes/{id}/output` as text.
    pub async fn output(&self, id: &str, query: &OutputQuery) -> Result<OutputPage, ClientError> {
        self.ask(get(&of_process(id, "/output"), query)?).await
    }

    /// `GET /v1/processes/{id}/output` as bytes; sets the query's `format`.
    pub async fn output_raw(&self, id: &str, query: &OutputQuery) -> Result<RawOutput, ClientError> {
        let query = OutputQuery { format: Some("raw".to_owned()), ..query.clone() };
        let answer = self.succeed(get(&of_process(id, "/output"), &query)?).await?;
        let headers = &answer.headers;
        let gap = match (parsed(headers, "pinfold-gap-from")?, parsed(headers, "pinfold-gap-to")?) {
            (Some(from), Some(to)) => Some(Range { from, to }),
            _ => None,
        };
        Ok(RawOutput {
            cursor: required(headers, "pinfold-cursor")?,
            next_cursor: required(headers, "pinfold-next-cursor")?,
            end: required(headers, "pinfold-end")?,
            gap,
            exited: required(headers, "pinfold-exited")?,
            closed: required(headers, "pinfold-closed")?,
            status: status_header(headers)?,
            bytes: answer.body,
        })
    }

    /// `GET /v1/processes/{id}/wait`.
    pub async fn wait(&self, id: &str, query: &WaitQuery) -> Result<WaitAnswer, ClientError> {
        self.ask(get(&of_process(id, "/wait"), query)?).await
    }

    /// `POST /v1/wait`.
    pub async fn wait_many(&self, request: &WaitManyRequest) -> Result<WaitManyAnswer, ClientError> {
        self.ask(Ask { repeatable: true, ..post("/v1/wait", request)? }).await
    }

    /// `POST /v1/processes/{id}/restart`.
    pub async fn restart(&self, id: &str, request: &StopRequest) -> Result<Record, ClientError> {
        self.ask(post(&of_process(id, "/restart"), request)?).await
    }

    /// `POST /v1/processes/{id}/stop`.
    pub async fn stop(&self, id: &str, request: &StopRequest) -> Result<StopAnswer, ClientError> {
        self.ask(post(&of_process(id, "/stop"), request)?).await
    }

    /// `POST /v1/processes/{id}/signal`.
    pub async fn signal(&self, id: &str, request: &SignalRequest) -> Result<SignalAnswer, ClientError> {
        self.ask(post(&of_process(id, "/signal"), request)?).await
    }

    /// `POST /v1/processes/{id}/input`. Safe to repeat with an `input_id`.
    pub async fn input(&self, id: &str, request: &InputRequest) -> Result<InputAnswer, ClientError> {
        let ask = Ask { repeatable: request.input_id.is_some(), ..post(&of_process(id, "/input"), request)? };
        self.ask(ask).await
    }

    /// `GET /v1/processes/{id}/screen`.
    pub async fn screen(&self, id: &str) -> Result<Screen, ClientError> {
        self.ask(get(&of_process(id, "/screen"), &())?).await
    }

    /// `POST /v1/processes/{id}/resize`.
    pub async fn resize(&self, id: &str, request: &ResizeRequest) -> Result<Screen, ClientError> {
        self.ask(Ask { repeatable: true, ..post(&of_process(id, "/resize"), request)? }).await
    }

    /// `POST /v1/processes/{id}/pause`.
    pub async fn pause(&self, id: &str) -> Result<SignalAnswer, ClientError> {
        self.ask(bare_post(&of_process(id, "/pause"))).await
    }

    /// `POST /v1/processes/{id}/resume`.
    pub async fn resume(&self, id: &str) -> Result<SignalAnswer, ClientError> {
        self.ask(bare_post(&of_process(id, "/resume"))).await
    }

    /// `GET /v1/events`, one page.
    pub async fn events(&self, query: &EventsQuery) -> Result<EventPage, ClientError> {
        self.ask(get("/v1/events", query)?).await
    }

    /// `GET /v1/events`, as a live stream.
    pub async fn events_stream(&self, query: &EventsQuery) -> Result<EventStream, ClientError> {
        let (response, connection) =
            self.transport.send(&get("/v1/events", query)?, &self.owner_headers, "text/event-stream").await?;
        let status = response.status();
        let mut stream = EventStream {
            transport: Arc::clone(&self.transport),
            body: response.into_body(),
            _connection: connection,
            parser: sse::Parser::default(),
            ready: std::collections::VecDeque::new(),
        };
        if status.is_success() { Ok(stream) } else { Err(error_response(status, &stream.rest().await?)) }
    }

    /// `POST /v1/consumers/{name}/ack`.
    pub async fn ack(&self, consumer: &str, through: u64) -> Result<Consumer, ClientError> {
        let path = format!("/v1/consumers/{}/ack", query::escape(consumer));
        self.ask(Ask { repeatable: true, ..post(&path, &AckRequest { through })? }).await
    }

    /// `GET /v1/consumers`.
    pub async fn consumers(&self) -> Result<ConsumerList, ClientError> {
        self.ask(get("/v1/consumers", &())?).await
    }

    /// `DELETE /v1/consumers/{name}`.
    pub async fn forget_consumer(&self, consumer: &str) -> Result<Consumer, ClientError> {
        self.ask(delete(&format!("/v1/consumers/{}", query::escape(consumer)))).await
    }

    /// `POST /v1/processes/{id}/handover`.
    pub async fn handover(&self, id: &str, request: &HandoverRequest) -> Result<Record, ClientError> {
        self.ask(post(&of_process(id, "/handover"), request)?).await
    }

    /// `GET /v1/owners`.
    pub async fn owners(&self) -> Result<OwnerList, ClientError> {
        self.ask(get("/v1/owners", &())?).await
    }

    /// `POST /v1/owners/{owner}/end`.
    pub async fn end_owner(&self, owner: &str, request: &EndRequest) -> Result<EndAnswer, ClientError> {
        let path = format!("/v1/owners/{}/end", query::escape(owner));
        self.ask(Ask { repeatable: true, ..post(&path, request)? }).await
    }

    /// `POST /v1/owners/{owner}/release`.
    pub async fn release_owner(&self, owner: &str) -> Result<ReleaseAnswer, ClientError> {
        self.ask(bare_post(&format!("/v1/owners/{}/release", query::escape(owner)))).await
    }

    /// `POST /v1/tokens`.
    pub async fn add_token(&self, request: &TokenRequest) -> Result<TokenAnswer, ClientError> {
        self.ask(post("/v1/tokens", request)?).await
    }

    /// `GET /v1/tokens`.
    pub async fn tokens(&self) -> Result<TokenList, ClientError> {
        self.ask(get("/v1/tokens", &())?).await
    }

    /// `DELETE /v1/tokens/{id}`.
    pub async fn revoke_token(&self, id: &str) -> Result<Token, ClientError> {
        self.ask(delete(&format!("/v1/tokens/{}", query::escape(id)))).await
    }

    /// `POST /v1/dashboard`.
    pub async fn open_dashboard(&self, request: &DashboardRequest) -> Result<DashboardAnswer, ClientError> {
        self.ask(post("/v1/dashboard", request)?).await
    }

    /// `DELETE /v1/dashboard`.
    pub async fn close_dashboard(&self) -> Result<DashboardClosed, ClientError> {
        self.ask(delete("/v1/dashboard")).await
    }

    /// `GET /v1/doctor`.
    pub async fn doctor(&self) -> Result<DoctorAnswer, ClientError> {
        self.ask(get("/v1/doctor", &())?).await
    }

    /// `POST /v1/gc`.
    pub async fn gc(&self, request: &GcRequest) -> Result<GcAnswer, ClientError> {
        self.ask(post("/v1/gc", request)?).await
    }

    /// `POST /v1/shutdown`.
    pub async fn shutdown(&self, request: &ShutdownRequest) -> Result<ShutdownAnswer, ClientError> {
        self.ask(post("/v1/shutdown", request)?).await
    }

    /// `GET /healthz`.
    pub async fn health(&self) -> Result<Health, ClientError> {
        self.ask(get("/healthz", &())?).await
    }

    /// `GET /metrics`.
    pub async fn metrics(&self) -> Result<String, ClientError> {
        let answer = self.succeed(get("/metrics", &())?).await?;
        Ok(String::from_utf8_lossy(&answer.body).into_owned())
    }

    /// `GET /openapi.json`.
    pub async fn openapi(&self) -> Result<Value, ClientError> {
        self.ask(get("/openapi.json", &())?).await
    }

    async fn ask<T: DeserializeOwned>(&self, ask: Ask) -> Result<T, ClientError> {
        let answer = self.succeed(ask).await?;
        serde_json::from_slice(&answer.body).map_err(|error| ClientError::Protocol(error.to_string()))
    }

    async fn succeed(&self, ask: Ask) -> Result<Answer, ClientError> {
        let answer = self.transport.exchange(&ask, &self.owner_headers).await?;
        if answer.status.is_success() { Ok(answer) } else { Err(error_response(answer.status, &answer.body)) }
    }
}

impl EventStream {
    /// The next event; `None` when the daemon ended the stream.
    pub async fn next(&mut self) -> Option<Result<Event, ClientError>> {
        loop {
            if let Some(data) = self.ready.pop_front() {
                return Some(serde_json::from_str(&data).map_err(|error| ClientError::Protocol(error.to_string())));
            }
            match self.body.frame().await? {
                Ok(frame) => {
                    let bytes = frame.into_data().unwrap_or_default();
                    match self.parser.feed(&bytes) {
                        Ok(messages) => self.ready.extend(messages),
                        Err(error) => return Some(Err(ClientError::Protocol(error.to_string()))),
                    }
                }
                Err(error) => return Some(Err(self.transport.disconnected(&error))),
            }
        }
    }

    /// The rest of the body: of an error response.
    async fn rest(&mut self) -> Result<Bytes, ClientError> {
        let body = http_body_util::Limited::new(&mut self.body, sse::MAX_MESSAGE);
        body.collect().await.map(|body| body.to_bytes()).map_err(|error| ClientError::Protocol(error.to_string()))
    }
}

fn of_process(id: &str, verb: &str) -> String {
    format!("/v1/processes/{}{verb}", query::escape(id))
}

fn get<T: Serialize>(path: &str, fields: &T) -> Result<Ask, ClientError> {
    let fields = query::encode(fields).map_err(|error| ClientError::Protocol(error.to_string()))?;
    Ok(Ask { method: Method::GET, target: format!("{path}{fields}"), body: None, repeatable: true })
}

fn post<T: Serialize>(path: &str, request: &T) -> Result<Ask, ClientError> {
    let body = serde_json::to_vec(request).map_err(|error| ClientError::Protocol(error.to_string()))?;
    Ok(Ask { body: Some(body.into()), ..bare_post(path) })
}

fn bare_post(path: &str) -> Ask {
    Ask { method: Method::POST, target: path.to_owned(), body: None, repeatable: false }
}

fn delete(path: &str) -> Ask {
    Ask { method: Method::DELETE, target: path.to_owned(), body: None, repeatable: false }
}

/// The error in the body of a response; if there is none, an error with the status and the first bytes of the body.
fn error_response(status: StatusCode, body: &[u8]) -> ClientError {
    let error = serde_json::from_slice(body).unwrap_or_else(|_| {
        let text: String = String::from_utf8_lossy(body).trim().chars().take(200).collect();
        ApiError { code: ErrorCode::Internal, message: format!("the daemon answered {status}: {text}"), id: None }
    });
    ClientError::Api { status: status.as_u16(), error }
}

fn parsed<T: std::str::FromStr>(headers: &HeaderMap, name: &str) -> Result<Option<T>, ClientError> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    let value = value.to_str().ok().and_then(|text| text.parse().ok());
    value.map(Some).ok_or_else(|| ClientError::Protocol(format!("the header {name} has an invalid value")))
}

fn required<T: std::str::FromStr>(headers: &HeaderMap, name: &str) -> Result<T, ClientError> {
    parsed(headers, name)?.ok_or_else(|| ClientError::Protocol(format!("the header {name} is missing")))
}

fn status_header(headers: &HeaderMap) -> Result<Status, ClientError> {
    let text: String = required(headers, "pinfold-status")?;
    serde_json::from_value(Value::String(text)).map_err(|error| ClientError::Protocol(error.to_string()))
}
