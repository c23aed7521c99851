//! Removes the fields of a result that its reader already knows or cannot use: every byte costs tokens.
//!
//! List entries keep the fields that distinguish processes. Resources are not shortened: programs read them.

use std::time::Duration;

use pinfold_api::types::{ReadyState, Record, Status, WaitReason};

use crate::facts::{self, Facts, Line};

/// Maximum length of a command in a list.
pub(crate) const MAX_LISTED_COMMAND: usize = 160;
/// Runs shorter than this do not report `elapsed_ms`.
const LONG_RUN: Duration = Duration::from_secs(5);

/// Removes what the caller knows: the command, name and label, that the caller itself stopped the process, and
/// everything that the outcome implies.
pub(crate) fn for_caller(facts: Facts, record: &Record, owner: &str) -> Facts {
    let has_ended = facts::has_ended(record);
    // A lost process has no exit status, and a lingering one has strays: report those states.
    let outcome_implies_state = record.status == Status::Finished && record.outcome.is_some();
    let is_fully_read = has_ended && facts.cursor.is_some_and(|cursor| cursor >= record.output.bytes);
    let output = facts.output_view.as_ref().and_then(|view| view.output.as_deref()).unwrap_or_default();
    let matched = facts.matched.map(|line| match output.contains(&line.line) {
        true => Line { line: String::new(), ..line },
        false => line,
    });
    Facts {
        name: None,
        label: None,
        command: None,
        state: facts.state.filter(|_| !outcome_implies_state),
        stopped_by: facts.stopped_by.filter(|by| by != owner),
        elapsed_ms: facts.elapsed_ms.filter(|elapsed| Duration::from_millis(*elapsed) >= LONG_RUN),
        reason: facts.reason.filter(|reason| !has_ended || adds_information(*reason)),
        // A wait for readiness reports success in its reason. Report here only that it is not ready yet.
        ready: facts.ready.filter(|ready| !has_ended && ready.state != ReadyState::Ready),
        matched,
        cursor: facts.cursor.filter(|_| !is_fully_read),
        ..facts
    }
}

/// Returns the fields of a list entry.
pub(crate) fn list_entry(record: &Record, owner: &str) -> Facts {
    let facts = Facts::from_record(record);
    let has_ended = facts::has_ended(record);
    Facts {
        name: facts.name.clone(),
        label: facts.label.clone(),
        command: facts.command.as_deref().map(|command| facts::clip(command, MAX_LISTED_COMMAND)),
        elapsed_ms: facts.elapsed_ms.filter(|_| !has_ended),
        ready: facts.ready.clone().filter(|_| !has_ended),
        ..for_caller(facts, record, owner)
    }
}

/// Whether the reason why a wait ended adds something to the outcome.
fn adds_information(reason: WaitReason) -> bool {
    use WaitReason::{Cancelled, EndedBefore, Matched, NotReady, Port, Ready};
    matches!(reason, Matched | Port | Ready | NotReady | EndedBefore | Cancelled)
}
