//! What a handler takes from a request: bodies, queries and ids, with errors that say what is wrong with them.
//!
//! Bounds (D4): a body has at most [`BODY_MOST`] bytes, and arrives within [`BODY_TIME`].

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{FromRequest, FromRequestParts, Path, Request, State};
use axum::http::Uri;
use axum::http::request::Parts;
use pinfold_api::error::ErrorCode;
use serde::de::DeserializeOwned;

use crate::core::Core;
use crate::refusal::Refusal;

/// The state that every handler gets.
pub(crate) type Shared = State<Arc<Core>>;
/// What a handler returns.
pub(crate) type Answer<T> = Result<T, Refusal>;

/// A command of megabytes and a large environment fit.
pub(crate) const BODY_MOST: usize = 8 << 20;
/// How long a body may take to arrive. One that never does would keep its connection for ever.
pub(crate) const BODY_TIME: Duration = Duration::from_secs(60);

/// A JSON body, with errors that say what is wrong with it.
pub(crate) struct Input<T>(pub(crate) T);

/// A JSON body that may be left out.
pub(crate) struct MaybeInput<T>(pub(crate) T);

/// The word for a process in the path: an id, the beginning of one, or a name.
pub(crate) struct Id(pub(crate) String);

/// A query string, with errors that say what is wrong with it.
pub(crate) struct Params<T>(pub(crate) T);

async fn body(request: Request, core: &Core) -> Result<Bytes, Refusal> {
    core.metrics.requests.fetch_add(1, Ordering::Relaxed);
    read_body(request.into_body(), BODY_TIME).await.map_err(|unread| match unread {
        Unread::TooLarge => Refusal::new(ErrorCode::BodyTooLarge, unread.to_string()),
        Unread::Late | Unread::Broken(_) => Refusal::invalid(unread.to_string()),
    })
}

/// Why a body was not read to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unread {
    #[error("the body is larger than {BODY_MOST} bytes: put a long script into a file")]
    TooLarge,
    #[error("the body did not arrive in time: send all that Content-Length announces, within {} s", BODY_TIME.as_secs())]
    Late,
    /// Its chunks are malformed, or the client left in the middle of it.
    #[error("the body cannot be read: {0}")]
    Broken(String),
}

/// Reads a body to its end.
pub(crate) async fn read_body(body: Body, time: Duration) -> Result<Bytes, Unread> {
    match tokio::time::timeout(time, to_bytes(body, BODY_MOST)).await {
        Ok(read) => read.map_err(|error| unread(&error)),
        Err(_) => Err(Unread::Late),
    }
}

fn unread(error: &axum::Error) -> Unread {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    let mut innermost = error.to_string();
    while let Some(error) = cause {
        if error.is::<http_body_util::LengthLimitError>() {
            return Unread::TooLarge;
        }
        innermost = error.to_string();
        cause = error.source();
    }
    Unread::Broken(innermost)
}

/// The body of a route that takes one.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refusal> {
    let refuse = |error: &dyn std::fmt::Display| {
        let message = format!("the body is not what this route takes: {error}: see /openapi.json");
        Refusal::new(ErrorCode::InvalidJson, message)
    };
    // Without this an array would be taken for an object whose fields come in their order.
    let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
    if first.is_some_and(|first| *first != b'{') {
        return Err(refuse(&"it is no JSON object"));
    }
    serde_json::from_slice(bytes).map_err(|error| refuse(&error))
}

/// The query of a route that takes one.
pub(crate) fn parse_query<T: DeserializeOwned>(uri: &Uri) -> Result<T, Refusal> {
    axum::extract::Query::<T>::try_from_uri(uri).map(|query| query.0).map_err(|rejection| {
        let reason = std::error::Error::source(&rejection).map_or(rejection.to_string(), |e| e.to_string());
        Refusal::invalid(format!("the query is not what this route takes: {reason}: see /openapi.json"))
    })
}

impl<T: DeserializeOwned> FromRequest<Arc<Core>> for Input<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, core: &Arc<Core>) -> Result<Self, Refusal> {
        parse(&body(request, core).await?).map(Self)
    }
}

impl<T: DeserializeOwned + Default> FromRequest<Arc<Core>> for MaybeInput<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, core: &Arc<Core>) -> Result<Self, Refusal> {
        let bytes = body(request, core).await?;
        if bytes.iter().all(u8::is_ascii_whitespace) { Ok(Self(T::default())) } else { parse(&bytes).map(Self) }
    }
}

impl FromRequestParts<Arc<Core>> for Id {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, core: &Arc<Core>) -> Result<Self, Refusal> {
        match Path::<String>::from_request_parts(parts, core).await {
            Ok(Path(id)) => Ok(Self(id)),
            Err(rejection) => Err(Refusal::invalid(format!("the path names no process: {}", rejection.body_text()))),
        }
    }
}

impl<T: DeserializeOwned> FromRequestParts<Arc<Core>> for Params<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, core: &Arc<Core>) -> Result<Self, Refusal> {
        core.metrics.requests.fetch_add(1, Ordering::Relaxed);
        parse_query(&parts.uri).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use super::*;

    /// A body of which nothing comes.
    struct Silent;

    impl hyper::body::Body for Silent {
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
        let unread = read(Body::new(Silent), 10).expect_err("nothing comes");
        assert!(matches!(unread, Unread::Late) && unread.to_string().contains("Content-Length"), "{unread}");
        assert!(matches!(read(Body::from(vec![0; BODY_MOST + 1]), 60_000), Err(Unread::TooLarge)));
        assert_eq!(read(Body::from("whole"), 60_000).expect("a body"), "whole");
    }
}
