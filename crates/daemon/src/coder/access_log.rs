//! The access log: one line for each request, with its chat.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;

use super::MOUNT;
use super::chat::ChatHeaders;
use crate::core::Core;

/// Handles a request and logs it.
pub(super) async fn log(State(core): State<Arc<Core>>, request: Request, next: Next) -> Response {
    core.metrics.requests.fetch_add(1, Ordering::Relaxed);
    let headers = ChatHeaders::parse(request.headers()).unwrap_or_default();
    let (method, path) = (request.method().clone(), format!("{MOUNT}{}", request.uri().path()));
    let started = Instant::now();
    let response = next.run(request).await;
    let ancestors = (!headers.ancestors.is_empty()).then(|| headers.ancestors.join(","));
    tracing::info!(
        %method,
        path,
        status = response.status().as_u16(),
        took_ms = started.elapsed().as_millis() as u64,
        chat_id = headers.chat,
        ancestor_chat_ids = ancestors,
        "coder request"
    );
    response
}
