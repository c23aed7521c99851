//! `POST /{id}/signal` and `POST /signal-by-idempotency-key`: `terminate` or `kill`, to the whole tree.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use pinfold_api::error::ErrorCode;
use pinfold_api::input::Span;
use pinfold_api::types::{SignalRequest, StopRequest, Survivor};

use super::body::Fields;
use super::chat::Chat;
use super::idempotency::{Place, started_under};
use super::path::Id;
use super::quote::quote;
use super::wire::{self, Fault, Sent};
use super::{Lookup, follow};
use crate::core::Core;
use crate::registry::FoundProcess;
use crate::request_error::RequestError;

pub(super) async fn signal(
    State(core): State<Arc<Core>>,
    chat: Chat,
    id: Id,
    request: Request,
) -> Result<Response, Fault> {
    let lead = follow(&core, &chat, &id).await?;
    if matches!(lead, Lookup::Hidden) {
        return Err(Fault::not_found(&id));
    }
    let signal = Asked::parse(&Fields::of(request).await?)?;
    let Lookup::To(found) = lead else { return Err(Fault::not_found(&id)) };
    match send(&core, &chat, *found, signal).await? {
        true => Ok(wire::ok(&Sent { message: format!("Signal \"{}\" sent to process {id}.", signal.name()) })),
        false => Err(Fault::new(StatusCode::CONFLICT, format!("Process {id} is not running."))),
    }
}

/// `POST /signal-by-idempotency-key`: for a client that never got the answer to its start, and so has no id.
pub(super) async fn signal_by_key(
    State(core): State<Arc<Core>>,
    chat: Chat,
    request: Request,
) -> Result<Response, Fault> {
    let fields = Fields::of(request).await?;
    let key = fields.text("idempotency_key")?;
    if key.is_empty() {
        // The type of the other field is checked first, with the JSON.
        fields.text("signal")?;
        return Err(Fault::bad("Idempotency key is required."));
    }
    let signal = Asked::parse(&fields)?;
    let found = started_under(&core, &Place::new(chat.owner(), &key)).await?;
    // It may have been handed over since.
    if !core.sees(&chat.caller.viewer, &found.snapshot().history) {
        return Err(Fault::no_such_key());
    }
    match send(&core, &chat, found, signal).await? {
        true => Ok(wire::ok(&Sent { message: format!("Signal \"{}\" sent.", signal.name()) })),
        false => {
            let message = "The process started with this idempotency key is not running.";
            Err(Fault::conflict("not_running", message))
        }
    }
}

/// A signal as these routes name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Kill,
    Terminate,
}

impl Asked {
    fn parse(fields: &Fields) -> Result<Self, Fault> {
        match fields.text("signal")?.as_str() {
            "" => Err(Fault::bad("Signal is required.")),
            "kill" => Ok(Self::Kill),
            "terminate" => Ok(Self::Terminate),
            other => {
                let other = quote(other.as_bytes());
                Err(Fault::bad(format!("Unsupported signal {other}. Use \"kill\" or \"terminate\".")))
            }
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Terminate => "terminate",
        }
    }
}

/// Sends it to the whole tree. False if the tree has ended.
async fn send(core: &Arc<Core>, chat: &Chat, found: FoundProcess, signal: Asked) -> Result<bool, Fault> {
    if found.snapshot().history.status().is_over() {
        return Ok(false);
    }
    let by = Some(chat.name());
    let sent = match signal {
        Asked::Kill => kill(core, found, by).await,
        Asked::Terminate => terminate(core, found, by).await,
    };
    let failed = Fault::internal("Failed to signal process.");
    sent.map_err(|reason| failed.detail(format!("{} process: {reason}", signal.name())))
}

/// Kills until the tree is empty: one signal would miss processes that are forked meanwhile. False if it had ended.
async fn kill(core: &Arc<Core>, found: FoundProcess, by: Option<String>) -> Result<bool, String> {
    let signal = Some("KILL".to_owned());
    let request = StopRequest { signal, grace: Some(Span::Text("0s".to_owned())), by };
    match core.stop(found, request).await {
        Ok(answer) if answer.already_over => Ok(false),
        Ok(answer) if answer.survivors.is_empty() => Ok(true),
        Ok(answer) => Err(reasons(&answer.survivors)),
        Err(error) => Err(error.0.message),
    }
}

/// Sends TERM to all processes of the tree, without waiting for them to end. False if there were none.
async fn terminate(core: &Arc<Core>, found: FoundProcess, by: Option<String>) -> Result<bool, String> {
    match core.signal(found, SignalRequest { signal: "TERM".to_owned(), by }).await {
        Ok(answer) if answer.reached > 0 => Ok(true),
        Ok(answer) => Err(reasons(&answer.refused)),
        Err(RequestError(error)) if error.code == ErrorCode::AlreadyOver => Ok(false),
        Err(RequestError(error)) => Err(error.message),
    }
}

fn reasons(survivors: &[Survivor]) -> String {
    let reasons: Vec<_> = survivors.iter().map(|one| format!("{} (pid {})", one.reason, one.pid)).collect();
    reasons.join(", ")
}
