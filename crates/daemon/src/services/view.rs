//! What the index and the restart chains add to the record of a service: its next run, when that starts, or why none follows.

use std::collections::HashMap;
use std::sync::Arc;

use pinfold_api::types::{Event, Record};
use pinfold_model::event::EventKind;
use pinfold_model::facts::History;
use pinfold_model::id::ProcessId;
use pinfold_store::queries::Queries;

use crate::clock::rfc3339;
use crate::core::Core;

impl Core {
    /// The record with the time of its next restart, if one will follow.
    pub(crate) fn with_due(&self, mut record: Record, history: &History) -> Record {
        if let (Some(life), Some(due)) = (&mut record.life, self.chains.due(&history.intent.id)) {
            life.restarting_at = due.map(rfc3339);
            life.awaits_turn = due.is_none();
        }
        if let Some(life) = &mut record.life {
            life.over = history.status().is_over() && !self.chains.is_open(history);
        }
        record
    }

    /// The record of an ended process with what followed it.
    pub(crate) async fn with_life(self: &Arc<Self>, record: Record, history: &History) -> Record {
        let mut record = self.with_due(record, history);
        let Some(life) = &mut record.life else { return record };
        life.next = self.successor(history).await.map(|next| next.to_string());
        life.gave_up = self.given_up([history].into_iter()).await.remove(&history.intent.id);
        record
    }

    /// Why a process that was expected to be restarted is not.
    pub(crate) async fn given_up(
        self: &Arc<Self>,
        histories: impl Iterator<Item = &History>,
    ) -> HashMap<ProcessId, String> {
        let restarted = |history: &&History| history.intent.spec.service.restart.is_some();
        let ended = histories.filter(|history| history.status().is_over()).filter(restarted);
        let ids: Vec<ProcessId> = ended.map(|history| history.intent.id.clone()).collect();
        if ids.is_empty() {
            return HashMap::new();
        }
        let ask = move |queries: &Queries| {
            let mut given_up = HashMap::new();
            for id in ids {
                let event = queries.latest_of(&id, EventKind::GaveUp)?;
                let event = event.and_then(|event| serde_json::from_str::<Event>(&event.payload).ok());
                given_up.extend(event.and_then(|event| event.text).map(|text| (id, text)));
            }
            Ok(given_up)
        };
        self.query(ask).await.unwrap_or_default()
    }
}
