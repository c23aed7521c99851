//! The typed client: one method per route, over the daemon's Unix socket.
//!
//! Owns how a request is written and an answer is read. Starts no daemon and decides nothing: whoever uses it
//! decides what an error means. Invariant A1, *no request is done twice*: a request is repeated only if its kept
//! connection closed before a byte of the answer, and only if it was not sent or is safe to repeat.

mod agents;
mod attach;
mod query;
mod sessions;
mod sse;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
mod transport;

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

/// The header that says which owner a request acts as.
pub const OWNER_HEADER: HeaderName = HeaderName::from_static("pinfold-owner");
/// The header that says who that owner's parent is.
pub const PARENT_HEADER: HeaderName = HeaderName::from_static("pinfold-parent");
/// The header that says how long after its last contact the owner counts as gone.
pub const GRACE_HEADER: HeaderName = HeaderName::from_static("pinfold-owner-grace");

/// A client of one daemon. Clones share its connections; requests made at the same time use several.
#[derive(Clone, Debug)]
pub struct Client {
    transport: Arc<Transport>,
    /// Headers of the owner it acts as.
    scope: Arc<[(HeaderName, HeaderValue)]>,
}

/// Why a request has no good answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody answers at the socket, or the connection broke.
    #[error("cannot reach the daemon at {}: {source}", socket.display())]
    Unreachable {
        /// Where the daemon was looked for.
        socket: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The daemon refused or failed.
    #[error("{error}")]
    Api {
        /// The HTTP status.
        status: u16,
        /// What the daemon said.
        error: ApiError,
    },
    /// What answered does not speak this API.
    #[error("the daemon's answer is not understood: {0}")]
    Protocol(String),
}

/// A stretch of output as the bytes themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawOutput {
    /// The bytes.
    pub bytes: Bytes,
    /// Where they begin.
    pub cursor: u64,
    /// Where the next read continues.
    pub next_cursor: u64,
    /// How much output there is now.
    pub end: u64,
    /// Bytes that are no longer kept.
    pub gap: Option<Range>,
    /// Whether the leader has exited.
    pub exited: bool,
    /// Whether nothing more can come.
    pub closed: bool,
    /// Where the process is in its life.
    pub status: Status,
}

/// Events as they happen. Ends when the daemon does: ask again with `after` the last `seq`.
#[derive(Debug)]
pub struct EventStream {
    transport: Arc<Transport>,
    body: Incoming,
    /// The stream's own connection: it closes with the stream.
    _connection: Connection,
    parser: sse::Parser,
    ready: std::collections::VecDeque<sse::Message>,
}

impl Client {
    /// A client of the daemon at this socket. Connects at the first request.
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Client { transport: Arc::new(Transport::new(socket.into())), scope: Arc::new([]) }
    }

    /// The same client acting as an owner: it sees and touches only what belongs to it and its descendants. The
    /// daemon judges the names; a text that no header can carry is replaced by one that it refuses.
    pub fn acting_as(&self, owner: &str, parent: Option<&str>) -> Self {
        let value = |text: &str| HeaderValue::from_bytes(text.as_bytes()).unwrap_or(HeaderValue::from_static("\t"));
        let mut scope = vec![(OWNER_HEADER, value(owner))];
        scope.extend(parent.map(|parent| (PARENT_HEADER, value(parent))));
        Client { transport: Arc::clone(&self.transport), scope: scope.into() }
    }

    /// The same, saying with every request that its owner counts as gone this long after its last contact. What is
    /// started in that owner's name to end with it, without an `owner_grace`, gets this one.
    pub fn leaving_after(&self, grace: &str) -> Self {
        let value = HeaderValue::from_str(grace).unwrap_or(HeaderValue::from_static("invalid"));
        let scope = self.scope.iter().cloned().chain([(GRACE_HEADER, value)]).collect::<Vec<_>>();
        Client { transport: Arc::clone(&self.transport), scope: scope.into() }
    }

    /// Where the daemon is looked for.
    pub fn socket(&self) -> &Path {
        self.transport.socket()
    }

    /// Connects now, to see whether anybody is there; the connection serves the next request.
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

    /// Asks for the next life of a process, the current one ended first.
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

    /// `GET /v1/events`, as they happen.
    pub async fn events_stream(&self, query: &EventsQuery) -> Result<EventStream, ClientError> {
        let (response, connection) =
            self.transport.send(&get("/v1/events", query)?, &self.scope, "text/event-stream").await?;
        let status = response.status();
        let mut stream = EventStream {
            transport: Arc::clone(&self.transport),
            body: response.into_body(),
            _connection: connection,
            parser: sse::Parser::default(),
            ready: std::collections::VecDeque::new(),
        };
        if status.is_success() { Ok(stream) } else { Err(refusal(status, &stream.rest().await?)) }
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
        let answer = self.transport.exchange(&ask, &self.scope).await?;
        if answer.status.is_success() { Ok(answer) } else { Err(refusal(answer.status, &answer.body)) }
    }
}

impl EventStream {
    /// The next event; `None` when the daemon ended the stream.
    pub async fn next(&mut self) -> Option<Result<Event, ClientError>> {
        loop {
            if let Some(message) = self.ready.pop_front() {
                return Some(
                    serde_json::from_str(&message.data).map_err(|error| ClientError::Protocol(error.to_string())),
                );
            }
            match self.body.frame().await? {
                Ok(frame) => {
                    let bytes = frame.into_data().unwrap_or_default();
                    match self.parser.feed(&bytes) {
                        Ok(messages) => self.ready.extend(messages),
                        Err(error) => return Some(Err(ClientError::Protocol(error.to_string()))),
                    }
                }
                Err(error) => return Some(Err(self.transport.gone(&error))),
            }
        }
    }

    /// What is left of the body, for a refusal.
    async fn rest(&mut self) -> Result<Bytes, ClientError> {
        let body = http_body_util::Limited::new(&mut self.body, sse::LARGEST);
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

/// The error in a body; an answer that carries none is told by its status and first bytes.
fn refusal(status: StatusCode, body: &[u8]) -> ClientError {
    let error = serde_json::from_slice(body).unwrap_or_else(|_| {
        let text: String = String::from_utf8_lossy(body).trim().chars().take(200).collect();
        ApiError { code: ErrorCode::Internal, message: format!("the daemon answered {status}: {text}"), id: None }
    });
    ClientError::Api { status: status.as_u16(), error }
}

fn parsed<T: std::str::FromStr>(headers: &HeaderMap, name: &str) -> Result<Option<T>, ClientError> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    let value = value.to_str().ok().and_then(|text| text.parse().ok());
    value.map(Some).ok_or_else(|| ClientError::Protocol(format!("the header {name} has an unusable value")))
}

fn required<T: std::str::FromStr>(headers: &HeaderMap, name: &str) -> Result<T, ClientError> {
    parsed(headers, name)?.ok_or_else(|| ClientError::Protocol(format!("the header {name} is missing")))
}

fn status_header(headers: &HeaderMap) -> Result<Status, ClientError> {
    let text: String = required(headers, "pinfold-status")?;
    serde_json::from_value(Value::String(text)).map_err(|error| ClientError::Protocol(error.to_string()))
}
