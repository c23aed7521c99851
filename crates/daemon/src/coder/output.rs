//! `GET /{id}/output`, with `wait=true` when the root has ended.

use std::sync::Arc;

use axum::extract::{Query, State};
use axum::http::Uri;
use axum::response::Response;

use super::buffer::{Ends, More};
use super::chat::Chat;
use super::list::command;
use super::path::Id;
use super::wire::{self, End, Fault, Output};
use super::{Lead, follow};
use crate::core::{Core, blocking};
use crate::registry::Found;
use crate::registry::records::reader;
use crate::waits::{has_exited, until_exit};

pub(super) async fn output(State(core): State<Arc<Core>>, chat: Chat, id: Id, uri: Uri) -> Result<Response, Fault> {
    let Lead::To(found) = follow(&core, &chat, &id).await? else { return Err(Fault::not_found(&id)) };
    if let (true, Found::Here(entry)) = (is_to_wait(&uri), &*found) {
        let mut gate = core.gate(&chat.caller.scope, &found);
        tokio::select! {
            _ = until_exit(entry, core.config.coder.wait_cap) => {}
            () = gate.released() => {}
        }
    }
    // What is known is asked before the output is read: if it has ended, all that it wrote is there.
    let state = found.snapshot();
    let (running, history) = (!has_exited(&state), state.history.clone());
    let closed = history.closed_at.is_some() || history.status().is_over();
    let directory = core.home.process(found.id());
    let more = if closed { More::Never } else { More::MayCome };
    let read =
        blocking(move || Ends::read(&reader(&state, &directory))).await.map_err(|refusal| Fault::of(&refusal))?;
    let (output, truncated) = match read {
        Ok(ends) => ends.render(more),
        Err(error) => return Err(Fault::internal("Failed to read output.").detail(error.to_string())),
    };
    Ok(wire::ok(&Output {
        output,
        truncated,
        running,
        end: End::of(&history).filter(|_| !running),
        command: command(&history.intent.spec),
        state: history.status().name(),
        closed,
    }))
}

/// Only the very text `true` waits.
fn is_to_wait(uri: &Uri) -> bool {
    let pairs = Query::<Vec<(String, String)>>::try_from_uri(uri).map(|Query(pairs)| pairs).unwrap_or_default();
    pairs.iter().find(|(name, _)| name == "wait").is_some_and(|(_, value)| value == "true")
}
