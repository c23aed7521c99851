//! What a result about one process leaves out, because its reader knows it or cannot use it: every chat pays for each byte.
//!
//! Lists keep what tells processes apart. Resources are not cut: their readers are programs.

use std::time::Duration;

use pinfold_api::types::{ReadyState, Record, Status, WaitReason};

use crate::facts::{self, Facts, Line};

/// The most of a command in a list.
const LISTED_COMMAND: usize = 160;
/// A run of this length is worth mentioning.
const LONG_RUN: Duration = Duration::from_secs(5);

/// The facts without what the caller knows: the command, name and label that it gave or asked by, that it stopped the process
/// itself, and everything that the outcome already implies.
pub(crate) fn brief(facts: Facts, record: &Record, owner: &str) -> Facts {
    let is_over = facts::is_over(record);
    // A lost process has no outcome of the kernel's, and strays may outlive an exit: those states are news.
    let outcome_says_it = record.status == Status::Finished && record.outcome.is_some();
    let is_read = is_over && facts.cursor.is_some_and(|cursor| cursor >= record.output.bytes);
    let output = facts.sight.as_ref().and_then(|sight| sight.output.as_deref()).unwrap_or_default();
    let matched = facts.matched.map(|line| match output.contains(&line.line) {
        true => Line { line: String::new(), ..line },
        false => line,
    });
    Facts {
        name: None,
        label: None,
        command: None,
        state: facts.state.filter(|_| !outcome_says_it),
        stopped_by: facts.stopped_by.filter(|by| by != owner),
        elapsed_ms: facts.elapsed_ms.filter(|elapsed| Duration::from_millis(*elapsed) >= LONG_RUN),
        reason: facts.reason.filter(|reason| !is_over || tells_more(*reason)),
        // That it is ready is what a wait for it ends with, once; that it is not is a fact of each look.
        ready: facts.ready.filter(|ready| !is_over && ready.state != ReadyState::Ready),
        matched,
        cursor: facts.cursor.filter(|_| !is_read),
        ..facts
    }
}

/// The facts of one entry of a list: what tells a process from the others, and how it stands.
pub(crate) fn listed(record: &Record, owner: &str) -> Facts {
    let facts = Facts::of(record);
    let is_over = facts::is_over(record);
    Facts {
        name: facts.name.clone(),
        label: facts.label.clone(),
        command: facts.command.as_deref().map(|command| facts::clip(command, LISTED_COMMAND)),
        elapsed_ms: facts.elapsed_ms.filter(|_| !is_over),
        ready: facts.ready.clone().filter(|_| !is_over),
        ..brief(facts, record, owner)
    }
}

/// Whether the reason of a wait says more than the outcome beside it.
fn tells_more(reason: WaitReason) -> bool {
    use WaitReason::{Cancelled, EndedBefore, Matched, NotReady, Port, Ready};
    matches!(reason, Matched | Port | Ready | NotReady | EndedBefore | Cancelled)
}
