//! Observers of an agent: every message that the agent sends, unchanged, over a WebSocket.
//!
//! Each observer reads the stored output with its own cursor, so that a slow one delays nothing and gets everything that
//! is still stored; a `gap` message says that something was dropped. Observers cannot send messages to the agent.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::http::{HeaderMap, header};
use axum::response::Response;
use pinfold_agents::Frame;
use pinfold_api::error::ErrorCode;
use pinfold_api::types::AgentAttachQuery;
use serde_json::json;

use super::agent_process::AgentProcess;
use super::handle::AgentHandle;
use super::host::{Caller, Hosting};
use crate::extract::{Answer, Id, Params};
use crate::request_error::RequestError;

/// How often to check whether an agent without a process has a new one.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// `GET /v1/agents/{id}/attach`.
pub(super) async fn attach(
    hosting: Hosting,
    caller: Caller,
    Id(id): Id,
    Params(query): Params<AgentAttachQuery>,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Answer<Response> {
    if headers.contains_key(header::ORIGIN) {
        let message = "web pages may not observe agents: open the WebSocket from a program";
        return Err(RequestError::new(ErrorCode::Forbidden, message));
    }
    let handle = hosting.find_agent(&caller.viewer, &id)?;
    let refuse = |refused: WebSocketUpgradeRejection| {
        RequestError::invalid(format!("this route needs a WebSocket: {}", refused.body_text()))
    };
    Ok(upgrade.map_err(refuse)?.on_upgrade(move |mut socket| async move {
        show_all(&hosting, &handle, query.cursor, &mut socket).await;
        let _ = socket.send(Message::Close(None)).await;
        // Until here the owner counts as in contact.
        drop(caller);
    }))
}

/// Sends the messages of one process after the other, until the observer disconnects or the agent has ended.
async fn show_all(
    hosting: &Hosting,
    handle: &Arc<AgentHandle>,
    cursor: Option<u64>,
    socket: &mut WebSocket,
) -> Option<()> {
    let mut shown = handle.view.borrow().agent.lives.len().saturating_sub(1);
    let mut cursor = cursor.unwrap_or(0);
    loop {
        let (process, over) = {
            let view = handle.view.borrow();
            (view.agent.lives.get(shown).cloned(), view.agent.ended_at.is_some())
        };
        match process {
            Some(process) => {
                send_notice(socket, json!({ "pinfold": "process", "process": process })).await?;
                show_process(hosting, handle, &process, cursor, socket).await?;
                (shown, cursor) = (shown + 1, 0);
            }
            None if over => return send_notice(socket, json!({ "pinfold": "over" })).await,
            None => {
                tokio::select! {
                    () = tokio::time::sleep(POLL_INTERVAL) => {}
                    left = received(socket) => left?,
                }
            }
        }
    }
}

async fn show_process(
    hosting: &Hosting,
    handle: &AgentHandle,
    id: &str,
    cursor: u64,
    socket: &mut WebSocket,
) -> Option<()> {
    let found = hosting.host.find(id).await.ok()?;
    let mut process = AgentProcess::reattached(found, cursor, handle);
    loop {
        let exited = process.process.has_exited();
        let new = process.read(&*hosting.host).await.ok()?;
        if new.gap {
            send_notice(socket, json!({ "pinfold": "gap" })).await?;
        }
        for frame in new.frames {
            match frame {
                Frame::Line { bytes, .. } => {
                    let text = String::from_utf8_lossy(&bytes).into_owned();
                    socket.send(Message::Text(text.into())).await.ok()?;
                }
                Frame::TooLarge { .. } => send_notice(socket, json!({ "pinfold": "too_large" })).await?,
            }
        }
        if exited && new.at_end {
            return send_notice(socket, json!({ "pinfold": "exited", "process": id })).await;
        }
        if new.at_end {
            tokio::select! {
                () = process.observe_news(&*hosting.host) => {}
                left = received(socket) => left?,
            }
        }
    }
}

/// Messages of pinfold itself have the key `pinfold`.
async fn send_notice(socket: &mut WebSocket, notice: serde_json::Value) -> Option<()> {
    socket.send(Message::Text(notice.to_string().into())).await.ok()
}

/// Returns when the observer sent something, which is ignored, or `None` when it disconnected.
async fn received(socket: &mut WebSocket) -> Option<()> {
    match socket.recv().await {
        Some(Ok(Message::Close(_)) | Err(_)) | None => None,
        Some(Ok(_)) => Some(()),
    }
}
