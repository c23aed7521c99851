//! Observers of an agent: every message of its own, verbatim, one a frame, over a WebSocket.
//!
//! Each reads with a cursor of its own from what is kept, so that a slow one slows nobody and misses nothing that is kept;
//! what is gone is told as a gap. They only listen: what an agent is told goes through its turns.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::http::{HeaderMap, header};
use axum::response::Response;
use pinfold_agents::Frame;
use pinfold_api::error::ErrorCode;
use pinfold_api::types::AgentAttachQuery;
use serde_json::json;

use super::life::{self, Life};
use super::seat::Seat;
use crate::access::caller::Caller;
use crate::core::Core;
use crate::extract::{Answer, Id, Params, Shared};
use crate::refusal::Refusal;

/// How often an agent without a process is looked at for its next.
const LOOK: Duration = Duration::from_millis(200);

/// `GET /v1/agents/{id}/attach`.
pub(super) async fn attach(
    State(core): Shared,
    caller: Caller,
    Id(id): Id,
    Params(query): Params<AgentAttachQuery>,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Answer<Response> {
    if headers.contains_key(header::ORIGIN) {
        let message = "pages in a browser may not observe agents: open the WebSocket from a program";
        return Err(Refusal::new(ErrorCode::Forbidden, message));
    }
    let seat = core.find_agent(&caller.scope, &id)?;
    let refused = |refused: WebSocketUpgradeRejection| {
        Refusal::invalid(format!("observing needs a WebSocket: {}", refused.body_text()))
    };
    Ok(upgrade.map_err(refused)?.on_upgrade(move |mut socket| async move {
        show_all(&core, &seat, query.cursor, &mut socket).await;
        let _ = socket.send(Message::Close(None)).await;
        // As long as somebody observes, the owner is in contact.
        drop(caller);
    }))
}

/// Shows life after life, until the observer leaves or the agent is over.
async fn show_all(core: &Arc<Core>, seat: &Arc<Seat>, cursor: Option<u64>, socket: &mut WebSocket) -> Option<()> {
    let mut shown = seat.view.borrow().agent.lives.len().saturating_sub(1);
    let mut cursor = cursor.unwrap_or(0);
    loop {
        let (process, over) = {
            let view = seat.view.borrow();
            (view.agent.lives.get(shown).cloned(), view.agent.ended_at.is_some())
        };
        match process {
            Some(process) => {
                tell(socket, json!({ "pinfold": "process", "process": process })).await?;
                show_life(core, seat, &process, cursor, socket).await?;
                (shown, cursor) = (shown + 1, 0);
            }
            None if over => return tell(socket, json!({ "pinfold": "over" })).await,
            None => {
                tokio::select! {
                    () = tokio::time::sleep(LOOK) => {}
                    left = listened(socket) => left?,
                }
            }
        }
    }
}

async fn show_life(core: &Arc<Core>, seat: &Seat, process: &str, cursor: u64, socket: &mut WebSocket) -> Option<()> {
    let entry = life::find(core, process).await.ok()?.entry;
    let mut life = Life::taken_up(entry, cursor, seat);
    loop {
        let exited = life.has_exited();
        let heard = life.listen(core).await.ok()?;
        if heard.gap {
            tell(socket, json!({ "pinfold": "gap" })).await?;
        }
        for frame in heard.frames {
            match frame {
                Frame::Line { bytes, .. } => {
                    let text = String::from_utf8_lossy(&bytes).into_owned();
                    socket.send(Message::Text(text.into())).await.ok()?;
                }
                Frame::TooLarge { .. } => tell(socket, json!({ "pinfold": "too_large" })).await?,
            }
        }
        if exited && heard.silent {
            return tell(socket, json!({ "pinfold": "exited", "process": process })).await;
        }
        if heard.silent {
            tokio::select! {
                () = life.next() => {}
                left = listened(socket) => left?,
            }
        }
    }
}

/// What pinfold itself says to an observer has the key `pinfold`.
async fn tell(socket: &mut WebSocket, notice: serde_json::Value) -> Option<()> {
    socket.send(Message::Text(notice.to_string().into())).await.ok()
}

/// Whether the observer is still there; what it says is not heard.
async fn listened(socket: &mut WebSocket) -> Option<()> {
    match socket.recv().await {
        Some(Ok(Message::Close(_)) | Err(_)) | None => None,
        Some(Ok(_)) => Some(()),
    }
}
