//! pinfold's own tools under the names that the suite's scenarios of the Tasks extension want: a task is a process, and
//! what the suite wants computed slowly is a command that sleeps. Only names and arguments are exchanged on the way in.

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// The largest request of the suite.
const MAX_BODY: usize = 1 << 20;

/// Passes a request on, a call of a fixture as a call of `execute`.
pub(crate) async fn exchange(request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let Ok(bytes) = to_bytes(body, MAX_BODY).await else { return StatusCode::PAYLOAD_TOO_LARGE.into_response() };
    let Some((fixture, message)) = serde_json::from_slice(&bytes).ok().and_then(exchanged) else {
        return next.run(Request::from_parts(parts, Body::from(bytes))).await;
    };
    // A header that names another tool than the fixture is wrong, and stays so.
    if parts.headers.get("mcp-name").is_some_and(|name| name.as_bytes() == fixture.as_bytes()) {
        parts.headers.insert("mcp-name", HeaderValue::from_static("execute"));
    }
    parts.headers.remove(header::CONTENT_LENGTH);
    next.run(Request::from_parts(parts, Body::from(message.to_string()))).await
}

/// The name of the fixture, and the message with `execute` in its place.
fn exchanged(mut message: Value) -> Option<(String, Value)> {
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
