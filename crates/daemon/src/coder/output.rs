//! `GET /{id}/output`; with `wait=true` it waits until the leader has exited.

use std::sync::Arc;

use axum::extract::{Query, State};
use axum::http::Uri;
use axum::response::Response;

use super::buffer::{More, OutputEnds};
use super::chat::Chat;
use super::list::command;
use super::path::Id;
use super::wire::{self, End, Fault, Output};
use super::{Lookup, follow};
use crate::core::{Core, blocking};
use crate::registry::FoundProcess;
use crate::registry::records::reader;
use crate::waits::{has_exited, until_exit};

pub(super) async fn output(State(core): State<Arc<Core>>, chat: Chat, id: Id, uri: Uri) -> Result<Response, Fault> {
    let Lookup::To(found) = follow(&core, &chat, &id).await? else { return Err(Fault::not_found(&id)) };
    if let (true, FoundProcess::Here(entry)) = (is_to_wait(&uri), &*found) {
        let mut gate = core.releasable_wait(&chat.caller.viewer, &found);
        tokio::select! {
            _ = until_exit(entry, core.config.coder.wait_cap) => {}
            () = gate.released() => {}
        }
    }
    // The state is read before the output: if the process has ended, all its output is there.
    let state = found.snapshot();
    let (running, history) = (!has_exited(&state), state.history.clone());
    let closed = history.closed_at.is_some() || history.status().is_over();
    let directory = core.home.process(found.id());
    let more = if closed { More::Never } else { More::MayCome };
    let read =
        blocking(move || OutputEnds::read(&reader(&state, &directory))).await.map_err(|error| Fault::of(&error))?;
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

/// Whether to wait: only if the first `wait` parameter is exactly `true`.
fn is_to_wait(uri: &Uri) -> bool {
    let pairs = Query::<Vec<(String, String)>>::try_from_uri(uri).map(|Query(pairs)| pairs).unwrap_or_default();
    pairs.iter().find(|(name, _)| name == "wait").is_some_and(|(_, value)| value == "true")
}
