//! The latest events of an agent, in memory, for clients that follow it.
//!
//! An event is published after what it reports is on disk. Numbers continue after a crash of the daemon: events since the
//! last save are published again under the same numbers.

use std::collections::VecDeque;
use std::sync::Mutex;

use pinfold_api::types::{AgentEvent, AgentEventKind, AgentEventPage};
use tokio::sync::watch;

use crate::mutex::lock;

/// Events that are kept, and their total bytes; of more, the oldest are dropped, and a reader that missed them gets a gap.
pub(super) const MAX_EVENTS: usize = 10_000;
const MAX_BYTES: usize = 8 << 20;

/// The latest events of one agent.
#[derive(Debug)]
pub(super) struct RecentEvents {
    inner: Mutex<Inner>,
    /// The number of the latest event.
    latest: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Inner {
    events: VecDeque<AgentEvent>,
    bytes: usize,
    /// Events up to this number were dropped, or published by an earlier daemon.
    dropped: u64,
}

impl RecentEvents {
    /// No events yet; the first will follow this number.
    pub(super) fn after(seq: u64) -> Self {
        let inner = Inner { dropped: seq, ..Inner::default() };
        Self { inner: Mutex::new(inner), latest: watch::Sender::new(seq) }
    }

    pub(super) fn push(&self, event: AgentEvent) {
        let seq = event.seq;
        {
            let mut inner = lock(&self.inner);
            if inner.events.back().is_some_and(|last| last.seq >= seq) {
                return;
            }
            inner.bytes += size(&event);
            inner.events.push_back(event);
            while inner.events.len() > MAX_EVENTS || inner.bytes > MAX_BYTES && inner.events.len() > 1 {
                if let Some(oldest) = inner.events.pop_front() {
                    inner.bytes -= size(&oldest);
                    inner.dropped = oldest.seq;
                }
            }
        }
        self.latest.send_replace(seq);
    }

    pub(super) fn latest(&self) -> u64 {
        *self.latest.borrow()
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.latest.subscribe()
    }

    /// When a permission was requested. `None` if its event was dropped, or published by an earlier daemon.
    pub(super) fn asked_at(&self, ask: &str) -> Option<String> {
        let inner = lock(&self.inner);
        let is_it = |event: &&AgentEvent| {
            event.kind == AgentEventKind::Asked && event.ask.as_ref().is_some_and(|asked| asked.id == ask)
        };
        inner.events.iter().rev().find(is_it).map(|event| event.at.clone())
    }

    /// The events after this number.
    pub(super) fn page(&self, after: u64, limit: usize) -> AgentEventPage {
        let inner = lock(&self.inner);
        let events: Vec<_> = inner.events.iter().filter(|event| event.seq > after).take(limit).cloned().collect();
        let next = events.last().map_or(after.max(inner.dropped), |event| event.seq);
        AgentEventPage { events, next, gap: after < inner.dropped }
    }
}

/// About how many bytes an event takes.
fn size(event: &AgentEvent) -> usize {
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
        let recent = RecentEvents::after(5);
        for seq in 6..=9 {
            recent.push(event(seq, 1));
        }
        // Published again after a crash.
        recent.push(event(8, 1));
        let page = recent.page(7, 10);
        assert_eq!(page.events.iter().map(|event| event.seq).collect::<Vec<_>>(), [8, 9]);
        assert!(!page.gap && page.next == 9);
        assert!(recent.page(0, 10).gap && !recent.page(5, 10).gap);
        assert_eq!(recent.page(9, 10).next, 9);
        recent.push(event(10, MAX_BYTES));
        let page = recent.page(7, 10);
        assert!(page.gap && page.events.len() == 1 && page.next == 10);
    }
}
