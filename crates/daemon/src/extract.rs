//! Extractors of handlers: bodies (and their maximum size), queries, ids and `Last-Event-ID`, with errors that say what is wrong.
//!
//! Bounds (D4): a body has at most [`MAX_BODY`] bytes and arrives within [`BODY_TIME`].

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{FromRequest, FromRequestParts, Path, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Uri};
use pinfold_api::error::ErrorCode;
use pinfold_model::trace::TraceParent;
use serde::de::DeserializeOwned;

use crate::core::Core;
use crate::query;
use crate::request_error::RequestError;

/// The state that every handler gets.
pub(crate) type Shared = State<Arc<Core>>;
/// What a handler returns.
pub(crate) type Answer<T> = Result<T, RequestError>;

/// Large enough for a command of megabytes and a large environment.
pub(crate) const MAX_BODY: usize = 8 << 20;
/// How long a body may take to arrive.
pub(crate) const BODY_TIME: Duration = Duration::from_secs(60);

/// A JSON body.
pub(crate) struct JsonBody<T>(pub(crate) T);

/// A JSON body that may be empty.
pub(crate) struct OptionalJsonBody<T>(pub(crate) T);

/// The process in the path: an id, a prefix of one, or a name.
pub(crate) struct Id(pub(crate) String);

/// A query string.
pub(crate) struct Params<T>(pub(crate) T);

async fn body(request: Request, core: &Core) -> Result<Bytes, RequestError> {
    core.metrics.requests.fetch_add(1, Ordering::Relaxed);
    read_body(request.into_body(), BODY_TIME).await.map_err(|error| match error {
        BodyError::TooLarge => RequestError::new(ErrorCode::BodyTooLarge, error.to_string()),
        BodyError::TimedOut | BodyError::Malformed(_) => RequestError::invalid(error.to_string()),
    })
}

/// Why a body could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyError {
    #[error("the body is larger than {MAX_BODY} bytes: put a long script into a file")]
    TooLarge,
    #[error("the body did not arrive in time: send as many bytes as Content-Length says, within {} s", BODY_TIME.as_secs())]
    TimedOut,
    /// Malformed chunks, or the client disconnected.
    #[error("the body cannot be read: {0}")]
    Malformed(String),
}

/// Reads a whole body.
pub(crate) async fn read_body(body: Body, time: Duration) -> Result<Bytes, BodyError> {
    match tokio::time::timeout(time, to_bytes(body, MAX_BODY)).await {
        Ok(read) => read.map_err(|error| body_error(&error)),
        Err(_) => Err(BodyError::TimedOut),
    }
}

fn body_error(error: &axum::Error) -> BodyError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    let mut innermost = error.to_string();
    while let Some(error) = cause {
        if error.is::<http_body_util::LengthLimitError>() {
            return BodyError::TooLarge;
        }
        innermost = error.to_string();
        cause = error.source();
    }
    BodyError::Malformed(innermost)
}

/// Parses the body of a request.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, RequestError> {
    let refuse = |error: &dyn std::fmt::Display| {
        let message = format!("the body does not match this route: {error}: see /openapi.json");
        RequestError::new(ErrorCode::InvalidJson, message)
    };
    // serde would accept an array as the fields in order.
    let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
    if first.is_some_and(|first| *first != b'{') {
        return Err(refuse(&"it is not a JSON object"));
    }
    serde_json::from_slice(bytes).map_err(|error| refuse(&error))
}

/// Parses the query of a request.
pub(crate) fn parse_query<T: DeserializeOwned>(uri: &Uri) -> Result<T, RequestError> {
    query::parse(uri.query().unwrap_or_default()).map_err(|reason| {
        RequestError::invalid(format!("the query does not match this route: {reason}: see /openapi.json"))
    })
}

impl<T: DeserializeOwned> FromRequest<Arc<Core>> for JsonBody<T> {
    type Rejection = RequestError;

    async fn from_request(request: Request, core: &Arc<Core>) -> Result<Self, RequestError> {
        parse(&body(request, core).await?).map(Self)
    }
}

impl<T: DeserializeOwned + Default> FromRequest<Arc<Core>> for OptionalJsonBody<T> {
    type Rejection = RequestError;

    async fn from_request(request: Request, core: &Arc<Core>) -> Result<Self, RequestError> {
        let bytes = body(request, core).await?;
        if bytes.iter().all(u8::is_ascii_whitespace) { Ok(Self(T::default())) } else { parse(&bytes).map(Self) }
    }
}

impl FromRequestParts<Arc<Core>> for Id {
    type Rejection = RequestError;

    async fn from_request_parts(parts: &mut Parts, core: &Arc<Core>) -> Result<Self, RequestError> {
        match Path::<String>::from_request_parts(parts, core).await {
            Ok(Path(id)) => Ok(Self(id)),
            Err(rejection) => {
                Err(RequestError::invalid(format!("the path has no valid process id: {}", rejection.body_text())))
            }
        }
    }
}

impl<T: DeserializeOwned> FromRequestParts<Arc<Core>> for Params<T> {
    type Rejection = RequestError;

    async fn from_request_parts(parts: &mut Parts, core: &Arc<Core>) -> Result<Self, RequestError> {
        core.metrics.requests.fetch_add(1, Ordering::Relaxed);
        parse_query(&parts.uri).map(Self)
    }
}

/// The trace context in the header `traceparent`. One that cannot be parsed is ignored, as its standard demands: proxies and
/// libraries add it, and the caller may not know about it.
pub(crate) fn traceparent(headers: &HeaderMap) -> Option<String> {
    let text = headers.get("traceparent")?.to_str().ok()?;
    TraceParent::parse(text).ok().map(|parent| parent.to_string())
}

/// The header of [`traceparent`].
pub(crate) struct TraceHeader(pub(crate) Option<String>);

impl<S: Sync> FromRequestParts<S> for TraceHeader {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        Ok(Self(traceparent(&parts.headers)))
    }
}

/// The number of the last event that a client of server-sent events has received, if it reconnects.
pub(crate) fn last_event_id(headers: &HeaderMap) -> Result<Option<u64>, RequestError> {
    let Some(value) = headers.get("last-event-id").filter(|value| !value.is_empty()) else { return Ok(None) };
    let number = value.to_str().ok().and_then(|text| text.trim().parse().ok());
    number
        .map(Some)
        .ok_or_else(|| RequestError::invalid("Last-Event-ID: send the number of the last event received, its `id`"))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use super::*;

    /// A body that never arrives.
    struct StalledBody;

    impl hyper::body::Body for StalledBody {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<hyper::body::Frame<Bytes>, Infallible>>> {
            Poll::Pending
        }
    }

    #[test]
    fn d4_a_body_that_never_arrives_is_given_up() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        let read = |body, time| runtime.block_on(read_body(body, Duration::from_millis(time)));
        let error = read(Body::new(StalledBody), 10).expect_err("nothing comes");
        assert!(matches!(error, BodyError::TimedOut) && error.to_string().contains("Content-Length"), "{error}");
        assert!(matches!(read(Body::from(vec![0; MAX_BODY + 1]), 60_000), Err(BodyError::TooLarge)));
        assert_eq!(read(Body::from("whole"), 60_000).expect("a body"), "whole");
    }
}
