//! Offers pinfold's `execute` under the tool names that the suite's Tasks scenarios call: a slow computation becomes a
//! command that sleeps. Only the names and arguments of requests are translated.

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// Maximum size of a request of the suite.
const MAX_BODY: usize = 1 << 20;

/// Forwards a request; a call of a fixture tool becomes a call of `execute`.
pub(crate) async fn translate(request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let Ok(bytes) = to_bytes(body, MAX_BODY).await else { return StatusCode::PAYLOAD_TOO_LARGE.into_response() };
    let Some((fixture, message)) = serde_json::from_slice(&bytes).ok().and_then(translated) else {
        return next.run(Request::from_parts(parts, Body::from(bytes))).await;
    };
    // If the header names another tool than the body, leave it wrong: the suite tests that.
    if parts.headers.get("mcp-name").is_some_and(|name| name.as_bytes() == fixture.as_bytes()) {
        parts.headers.insert("mcp-name", HeaderValue::from_static("execute"));
    }
    parts.headers.remove(header::CONTENT_LENGTH);
    next.run(Request::from_parts(parts, Body::from(message.to_string()))).await
}

/// Returns the name of the fixture tool, and the message rewritten for `execute`.
fn translated(mut message: Value) -> Option<(String, Value)> {
    let params = message.get_mut("params").and_then(Value::as_object_mut)?;
    let fixture = params.get("name")?.as_str()?.to_owned();
    let arguments = params.get("arguments").cloned().unwrap_or_default();
    let command = match fixture.as_str() {
        "greet" => format!("printf 'Hello, %s!' {}", arguments["name"].as_str().unwrap_or("you")),
        "slow_compute" => format!("sleep {}; echo computed", arguments["seconds"].as_f64().unwrap_or(1.0)),
        "failing_job" => "sleep 1; exit 1".to_owned(),
        _ => return None,
    };
    params.insert("name".to_owned(), "execute".into());
    params.insert("arguments".to_owned(), json!({ "command": command }));
    Some((fixture, message))
}
