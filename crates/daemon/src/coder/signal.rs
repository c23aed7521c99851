//! `POST /{id}/signal`: `terminate` or `kill`, to the whole tree.

use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use pinfold_api::error::ErrorCode;
use pinfold_api::input::Span;
use pinfold_api::types::{SignalRequest, StopRequest, Survivor};

use super::body::Fields;
use super::chat::Chat;
use super::wire::{self, Fault, Sent};
use super::{Lead, Uuid, follow};
use crate::find::Found;
use crate::refusal::Refusal;
use crate::service::Core;

pub(super) async fn signal(
    State(core): State<Arc<Core>>,
    chat: Chat,
    Path(id): Uuid,
    request: Request,
) -> Result<Response, Fault> {
    let lead = follow(&core, &chat, &id).await?;
    if matches!(lead, Lead::Hidden) {
        return Err(Fault::not_found(&id));
    }
    let signal = Fields::of(request).await?.text("signal")?;
    if signal.is_empty() {
        return Err(Fault::bad("Signal is required."));
    }
    if !matches!(signal.as_str(), "kill" | "terminate") {
        return Err(Fault::bad(format!("Unsupported signal {signal:?}. Use \"kill\" or \"terminate\".")));
    }
    let Lead::To(found) = lead else { return Err(Fault::not_found(&id)) };
    let ended = || Fault::new(StatusCode::CONFLICT, format!("Process {id:?} is not running."));
    if found.snapshot().history.status().is_over() {
        return Err(ended());
    }
    let by = Some(chat.name());
    let sent = match signal.as_str() {
        "kill" => kill(&core, *found, by).await,
        _ => terminate(&core, *found, by).await,
    };
    match sent {
        Ok(true) => Ok(wire::ok(&Sent { message: format!("Signal {signal:?} sent to process {id:?}.") })),
        Ok(false) => Err(ended()),
        Err(reason) => Err(Fault::internal("Failed to signal process.").detail(format!("{signal} process: {reason}"))),
    }
}

/// Kills until the tree is empty: a signal alone would miss whoever is forked meanwhile. False if it was over.
async fn kill(core: &Arc<Core>, found: Found, by: Option<String>) -> Result<bool, String> {
    let signal = Some("KILL".to_owned());
    let request = StopRequest { signal, grace: Some(Span::Text("0s".to_owned())), by };
    match core.stop(found, request).await {
        Ok(answer) if answer.already_over => Ok(false),
        Ok(answer) if answer.survivors.is_empty() => Ok(true),
        Ok(answer) => Err(reasons(&answer.survivors)),
        Err(refusal) => Err(refusal.0.message),
    }
}

/// Sends TERM to whoever is there; a handler may take its time. False if nobody was.
async fn terminate(core: &Arc<Core>, found: Found, by: Option<String>) -> Result<bool, String> {
    match core.signal(found, SignalRequest { signal: "TERM".to_owned(), by }).await {
        Ok(answer) if answer.reached > 0 => Ok(true),
        Ok(answer) => Err(reasons(&answer.refused)),
        Err(Refusal(error)) if error.code == ErrorCode::AlreadyOver => Ok(false),
        Err(Refusal(error)) => Err(error.message),
    }
}

fn reasons(survivors: &[Survivor]) -> String {
    let reasons: Vec<_> = survivors.iter().map(|one| format!("{} (pid {})", one.reason, one.pid)).collect();
    reasons.join(", ")
}
