//! What is heard of an agent while it works: the latest events, in memory, for whoever follows.
//!
//! They are shown after what they tell is on disk. Numbers go on over a crash of the daemon; what was heard since the
//! last save is heard again, under the same numbers.

use std::collections::VecDeque;
use std::sync::Mutex;

use pinfold_api::types::{AgentEvent, AgentEventPage};
use tokio::sync::watch;

use crate::lock::lock;

/// Events that are kept, and their texts in bytes; beyond, the oldest go and a late reader is told of the gap.
pub(crate) const KEPT: usize = 10_000;
const KEPT_BYTES: usize = 8 << 20;

/// The latest events of one agent.
#[derive(Debug)]
pub(crate) struct Ring {
    inner: Mutex<Inner>,
    /// The number of the latest.
    latest: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Inner {
    events: VecDeque<AgentEvent>,
    bytes: usize,
    /// Events up to this number are gone, or were never here.
    gone: u64,
}

impl Ring {
    /// A ring whose events follow this number.
    pub(crate) fn after(seq: u64) -> Self {
        let inner = Inner { gone: seq, ..Inner::default() };
        Self { inner: Mutex::new(inner), latest: watch::Sender::new(seq) }
    }

    pub(crate) fn push(&self, event: AgentEvent) {
        let seq = event.seq;
        {
            let mut inner = lock(&self.inner);
            if inner.events.back().is_some_and(|last| last.seq >= seq) {
                return;
            }
            inner.bytes += weight(&event);
            inner.events.push_back(event);
            while inner.events.len() > KEPT || inner.bytes > KEPT_BYTES && inner.events.len() > 1 {
                if let Some(oldest) = inner.events.pop_front() {
                    inner.bytes -= weight(&oldest);
                    inner.gone = oldest.seq;
                }
            }
        }
        self.latest.send_replace(seq);
    }

    pub(crate) fn latest(&self) -> u64 {
        *self.latest.borrow()
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.latest.subscribe()
    }

    /// What followed this number.
    pub(crate) fn page(&self, after: u64, limit: usize) -> AgentEventPage {
        let inner = lock(&self.inner);
        let events: Vec<_> = inner.events.iter().filter(|event| event.seq > after).take(limit).cloned().collect();
        let next = events.last().map_or(after.max(inner.gone), |event| event.seq);
        AgentEventPage { events, next, gap: after < inner.gone }
    }
}

/// About what an event takes.
fn weight(event: &AgentEvent) -> usize {
    let text = event.text.as_ref().map_or(0, String::len);
    let tool = event.tool.as_ref().map_or(0, |tool| tool.input.len() + tool.output.as_ref().map_or(0, String::len));
    let ask = event.ask.as_ref().map_or(0, |ask| ask.detail.to_string().len());
    text + tool + ask + 200
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(seq: u64, length: usize) -> AgentEvent {
        AgentEvent { seq, text: Some("x".repeat(length)), ..AgentEvent::default() }
    }

    #[test]
    fn a_reader_gets_what_follows_and_is_told_of_a_gap() {
        let ring = Ring::after(5);
        for seq in 6..=9 {
            ring.push(event(seq, 1));
        }
        // Heard again after a crash.
        ring.push(event(8, 1));
        let page = ring.page(7, 10);
        assert_eq!(page.events.iter().map(|event| event.seq).collect::<Vec<_>>(), [8, 9]);
        assert!(!page.gap && page.next == 9);
        assert!(ring.page(0, 10).gap && !ring.page(5, 10).gap);
        assert_eq!(ring.page(9, 10).next, 9);
        ring.push(event(10, KEPT_BYTES));
        let page = ring.page(7, 10);
        assert!(page.gap && page.events.len() == 1 && page.next == 10);
    }
}
