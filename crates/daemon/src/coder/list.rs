//! `GET /list`: all live processes, and the latest that ended.

use std::collections::HashSet;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use pinfold_model::facts::History;
use pinfold_model::spec::{Program, Spec};
use pinfold_model::units::Moment;
use pinfold_store::queries::Queries;

use super::BACKGROUND;
use super::chat::Chat;
use super::wire::{self, End, Fault, Info, List};
use crate::clock::now;
use crate::core::Core;
use crate::registry::Entry;
use crate::request_error::RequestError;
use crate::waits::has_exited;

/// Ended processes in the list; live ones are all listed.
const MAX_ENDED: usize = 10;

pub(super) async fn list(State(core): State<Arc<Core>>, chat: Chat) -> Result<Response, Fault> {
    let mut live = core.registry.live();
    live.retain(|entry| {
        let state = entry.state.borrow();
        state.refused.is_none() && core.sees(&chat.caller.viewer, &state.history)
    });
    let (ended_total, ended) = ended(&core, &chat, live.clone()).await.map_err(|error| Fault::of(&error))?;
    let total = live.len() as u64 + ended_total;
    let mut states: Vec<_> = live.iter().map(|entry| entry.snapshot()).collect();
    states.extend(ended.into_iter().map(|history| Entry::new(history).snapshot()));
    states.sort_by_key(|state| (has_exited(state), std::cmp::Reverse(started_at(&state.history))));
    let mut over = 0;
    states.retain(|state| {
        over += usize::from(state.history.status().is_over());
        !state.history.status().is_over() || over <= MAX_ENDED
    });
    let processes = states.iter().map(|state| info(&core, &state.history, !has_exited(state))).collect();
    Ok(wire::ok(&List { processes, total }))
}

/// How many processes have ended, and the latest of them; without those that the list of live ones already has.
async fn ended(core: &Arc<Core>, chat: &Chat, live: Vec<Arc<Entry>>) -> Result<(u64, Vec<History>), RequestError> {
    let owners = core.owners_in_view(&chat.caller.viewer, None)?;
    let listed_for = u64::try_from(core.config.coder.list_for.as_micros()).unwrap_or(u64::MAX);
    let since = Moment(now().0.saturating_sub(listed_for));
    let is_listed = |entry: &Arc<Entry>| {
        let state = entry.state.borrow();
        state.history.ended_at() >= Some(since) && core.sees(&chat.caller.viewer, &state.history)
    };
    let mut unindexed = core.registry.unindexed();
    unindexed.retain(is_listed);
    let ask = move |queries: &Queries| {
        let (count, _) = queries.ended_since(owners.as_deref(), since, 0)?;
        let mut twice = HashSet::new();
        for entry in live.iter().filter(|entry| entry.status().is_over()) {
            let known = queries.get(&entry.id)?.is_some_and(|(history, _)| history.ended_at() >= Some(since));
            twice.extend(known.then(|| entry.id.clone()));
        }
        let (_, mut newest) = queries.ended_since(owners.as_deref(), since, MAX_ENDED + twice.len())?;
        newest.retain(|history| !twice.contains(&history.intent.id));
        let mut count = count - twice.len() as u64;
        for entry in &unindexed {
            if queries.get(&entry.id)?.is_none() {
                count += 1;
                newest.push(entry.snapshot().history);
            }
        }
        Ok((count, newest))
    };
    core.query(move |queries| queries.at_one_moment(|| ask(queries))).await
}

fn info(core: &Core, history: &History, running: bool) -> Info {
    let over = history.status().is_over();
    let exited_at = history.exit.as_ref().map(|exit| exit.at).or(history.ended_at());
    Info {
        id: core.coder.ids.render(&history.intent.id),
        command: command(&history.intent.spec),
        workdir: history.intent.spec.cwd.to_string_lossy().into_owned(),
        background: history.labels().get(BACKGROUND).is_some_and(|background| background == "true"),
        running,
        end: End::of(history).filter(|_| !running),
        started_at_unix: started_at(history).0 / 1_000_000,
        exited_at_unix: exited_at.filter(|_| !running).map(|at| at.0 / 1_000_000),
        pid: history.start.as_ref().map(|start| start.pid).filter(|_| !over),
        state: history.status().name(),
        closed: history.closed_at.is_some() || over,
    }
}

pub(super) fn started_at(history: &History) -> Moment {
    history.start.as_ref().map_or(history.intent.at, |start| start.at)
}

/// The command as the client sent it.
pub(super) fn command(spec: &Spec) -> String {
    match &spec.program {
        Program::Argv { argv } if spec.labels.contains_key(BACKGROUND) => argv.last().cloned().unwrap_or_default(),
        _ => spec.command_text(),
    }
}
