//! News: what happened to an owner's processes since its last call, reported with the next result. No other channel works in
//! every client.
//!
//! M4 lives here. Events are leased from the daemon as the consumer [`CONSUMER`] of their owner, and each server is a reader of its
//! own: events leased to a server that died go to the next one when the lease ends. Events that the result shows anyway are
//! dropped. Reported events are acknowledged [`HANDED_OVER`] after the result was sent, at the next call, or at a clean exit,
//! so neither a crash nor a cancelled call loses one. Limits: [`PAGES`] pages per result, [`MAX_TOLD`] remembered ends (the
//! oldest beyond that could be reported twice), [`MAX_OWNERS`] owners (beyond that, one without pending events is
//! forgotten).

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use pinfold_api::types::{Cause, Event, EventKind, EventsQuery, Outcome, OutputQuery};
use serde::Serialize;
use serde_json::{Map, Value};
use tokio::sync::Mutex as AsyncMutex;

use crate::daemon_access::DaemonAccess;
use crate::facts::{self, clip, printable};
use crate::identity::Caller;
use crate::memory::Memory;
use crate::random;
use crate::tool_error::ToolError;
use crate::tools::{CallContext, Shown};

/// The name under which events are read and acknowledged.
const CONSUMER: &str = "agent";
/// Lease of events that are about to be reported, and of those fetched after a result, which a hook may report sooner.
const LEASE: Duration = Duration::from_secs(5);
const BRIEFLY: Duration = Duration::from_secs(2);
/// Events per page, and pages per fetch.
const PAGE: u32 = 100;
const PAGES: usize = 5;
/// How many items carry their last output, and how many follow without it; the rest are counted.
const IN_FULL: usize = 5;
const BY_NAME: usize = 20;
/// How much of the output of an ended process is shown.
const LAST_LINES: &str = "5 lines";
const LAST_BYTES: &str = "400";
const MAX_LINE: usize = 300;
/// Maximum length of a command in news.
const MAX_COMMAND: usize = 80;
/// How long after it was sent a result counts as delivered.
const HANDED_OVER: Duration = Duration::from_secs(1);
const MAX_TOLD: usize = 10_000;
const MAX_OWNERS: usize = 1_000;

/// The pending events of every owner.
#[derive(Clone, Debug)]
pub(crate) struct News {
    /// Distinguishes this server from others that read for the same owner.
    reader: Arc<str>,
    boxes: Arc<Mutex<HashMap<String, Arc<AsyncMutex<Mailbox>>>>>,
}

/// The pending events of one owner.
#[derive(Debug, Default)]
struct Mailbox {
    /// Fetched, neither reported nor dropped, in log order.
    owed: VecDeque<Event>,
    /// When the lease of `owed` ends: after that another reader may have reported it.
    ours_until: Option<Instant>,
    /// The last event that was fetched, and the last that was acknowledged.
    fetched: u64,
    acked: u64,
    /// Processes whose end was reported, oldest first.
    told: VecDeque<String>,
    told_set: HashSet<String>,
    /// The first event of each delivery that is not sent yet.
    under_way: Vec<u64>,
    /// Whether anything was reported since the last acknowledgement.
    handed_over: bool,
    /// Whether a task is already waiting to acknowledge.
    settling: bool,
}

/// The news of one result.
#[derive(Debug, Default)]
pub(crate) struct Delivery {
    events: Vec<Event>,
    items: Vec<Value>,
    more: usize,
}

/// One piece of news.
#[derive(Debug, Serialize)]
struct Item {
    id: String,
    event: &'static str,
    command: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<Cause>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cursor: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    suppressed: Option<u64>,
    /// The line that matched.
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_output: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    purpose: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

impl Default for News {
    fn default() -> Self {
        News { reader: random::hex(8).into(), boxes: Arc::default() }
    }
}

impl News {
    /// Collects the news for a result that shows these processes. If the daemon cannot be asked, the news come with a later
    /// result.
    pub(crate) async fn collect(&self, ctx: &CallContext<'_>, shown: &[Shown]) -> Delivery {
        let CallContext { daemon, caller, memory, claim, .. } = ctx;
        let mailbox = self.mailbox(&caller.owner);
        let mut mailbox = mailbox.lock().await;
        mailbox.note_shown(shown);
        if mailbox.fetch(&self.reader, daemon, caller, LEASE).await.is_err() {
            return Delivery::default();
        }
        mailbox.drop_known(&caller.owner, memory);
        let owed = std::mem::take(&mut mailbox.owed);
        let (theirs, events): (Vec<_>, Vec<_>) =
            owed.into_iter().partition(|event| claim.is_reported_by_another(&caller.owner, event));
        mailbox.owed.extend(theirs);
        mailbox.under_way.extend(events.first().map(|event| event.seq));
        for event in events.iter().filter(|event| event.completion) {
            mailbox.note_told(&event.process);
        }
        drop(mailbox);
        let mut items = Vec::new();
        for (place, event) in events.iter().enumerate().take(IN_FULL + BY_NAME) {
            // The reader may be another chat: it gets output only of processes that its call named.
            let is_its_own = caller.is_one_chat || shown.iter().any(|one| one.id == event.process);
            let last_output = if place < IN_FULL && is_its_own { last_output(daemon, event).await } else { None };
            let item = if is_its_own { item(event, last_output) } else { item(event, None).without_output() };
            items.push(serde_json::to_value(item).unwrap_or_default());
        }
        let more = events.len().saturating_sub(items.len());
        Delivery { events, items, more }
    }

    /// Returns the news of a cancelled call.
    pub(crate) async fn take_back(&self, owner: &str, delivery: Delivery) {
        let mailbox = self.mailbox(owner);
        let mut mailbox = mailbox.lock().await;
        mailbox.arrived(&delivery);
        for event in delivery.events.into_iter().rev() {
            mailbox.told_set.remove(&event.process);
            mailbox.owed.push_front(event);
        }
    }

    /// The result is sent. Acknowledges it after [`HANDED_OVER`], once for all results sent until then.
    pub(crate) async fn hand_over(
        &self,
        delivery: Delivery,
        daemon: &DaemonAccess,
        caller: &Caller,
        memory: &Arc<Memory>,
    ) {
        let mailbox = self.mailbox(&caller.owner);
        let waited_for = {
            let mut mailbox = mailbox.lock().await;
            mailbox.arrived(&delivery);
            mailbox.handed_over |= !delivery.events.is_empty();
            std::mem::replace(&mut mailbox.settling, true)
        };
        if waited_for {
            return;
        }
        let (reader, daemon, caller, memory) =
            (Arc::clone(&self.reader), daemon.clone(), caller.clone(), Arc::clone(memory));
        tokio::spawn(async move {
            tokio::time::sleep(HANDED_OVER).await;
            let mut mailbox = mailbox.lock().await;
            mailbox.settling = false;
            // The end that a result showed may reach the event log only after the result.
            if mailbox.fetch(&reader, &daemon, &caller, BRIEFLY).await.is_ok() {
                mailbox.drop_known(&caller.owner, &memory);
                mailbox.ack(&daemon).await;
            }
        });
    }

    /// Acknowledges the news of earlier results: a client that calls again has received them.
    pub(crate) async fn settle(&self, daemon: &DaemonAccess, owner: &str) {
        let mailbox = self.mailbox(owner);
        let mut mailbox = mailbox.lock().await;
        if mailbox.handed_over {
            mailbox.ack(daemon).await;
        }
    }

    /// Notes processes that were shown outside of a result.
    pub(crate) async fn showed(&self, owner: &str, shown: &[Shown]) {
        let mailbox = self.mailbox(owner);
        let mut mailbox = mailbox.lock().await;
        mailbox.note_shown(shown);
    }

    /// This owner took these over itself: that they are its own now is no news.
    pub(crate) async fn took_over(&self, owner: &str, processes: &[String]) {
        let mailbox = self.mailbox(owner);
        let mut mailbox = mailbox.lock().await;
        processes.iter().for_each(|process| mailbox.note_told(&taking_of(process)));
    }

    /// The owners that received news from this server.
    pub(crate) fn owners(&self) -> Vec<String> {
        self.boxes.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
    }

    fn mailbox(&self, owner: &str) -> Arc<AsyncMutex<Mailbox>> {
        let mut boxes = self.boxes.lock().unwrap_or_else(PoisonError::into_inner);
        if boxes.len() >= MAX_OWNERS && !boxes.contains_key(owner) {
            let idle = boxes.iter().find(|(_, one)| one.try_lock().is_ok_and(|one| one.is_settled()));
            let idle = idle.map(|(owner, _)| owner.clone());
            if let Some(idle) = idle {
                boxes.remove(&idle);
            }
        }
        Arc::clone(boxes.entry(owner.to_owned()).or_default())
    }
}

impl Mailbox {
    fn is_settled(&self) -> bool {
        self.owed.is_empty() && self.acked == self.fetched && !self.settling
    }

    fn note_shown(&mut self, shown: &[Shown]) {
        for one in shown {
            if one.ended {
                self.note_told(&one.id);
            }
            if one.ready {
                self.note_told(&readiness_of(&one.id));
            }
        }
    }

    fn note_told(&mut self, process: &str) {
        if self.told_set.insert(process.to_owned()) {
            self.told.push_back(process.to_owned());
        }
        if self.told.len() > MAX_TOLD
            && let Some(oldest) = self.told.pop_front()
        {
            self.told_set.remove(&oldest);
        }
    }

    /// The delivery was sent or returned.
    fn arrived(&mut self, delivery: &Delivery) {
        if let Some(first) = delivery.events.first() {
            self.under_way.retain(|seq| *seq != first.seq);
        }
    }

    /// Drops events whose lease has ended without being reported: the next fetch returns them again.
    fn let_go(&mut self) {
        let over = self.ours_until.is_none_or(|until| Instant::now() >= until);
        if let Some(first) = self.owed.front().filter(|_| over) {
            self.fetched = first.seq.saturating_sub(1);
            self.owed.clear();
        }
    }

    async fn fetch(
        &mut self,
        reader: &str,
        daemon: &DaemonAccess,
        caller: &Caller,
        lease: Duration,
    ) -> Result<(), ToolError> {
        self.let_go();
        // Measured from before the request, so it ends no later than the daemon's lease.
        let ours_until = Instant::now().checked_add(lease);
        for _ in 0..PAGES {
            let query = &EventsQuery {
                owner: Some(caller.owner.clone()),
                limit: Some(PAGE),
                kinds: Some("announce".into()),
                consumer: Some(CONSUMER.into()),
                reader: Some(reader.to_owned()),
                lease: Some(format!("{}s", lease.as_secs())),
                ..EventsQuery::default()
            };
            let page = daemon.ask(|client| async move { client.events(query).await }).await?;
            let full = page.events.len() == PAGE as usize;
            if !page.events.is_empty() {
                self.ours_until = ours_until;
            }
            // An extended lease returns events that are here already.
            let fetched = self.fetched;
            self.owed.extend(page.events.into_iter().filter(|event| event.seq > fetched));
            self.fetched = self.fetched.max(self.owed.back().map_or(0, |event| event.seq));
            if !full {
                break;
            }
        }
        Ok(())
    }

    /// Drops events that the owner has seen.
    fn drop_known(&mut self, owner: &str, memory: &Memory) {
        let told = &self.told_set;
        self.owed.retain(|event| {
            let seen = || event.cursor.is_some_and(|cursor| memory.has_seen(owner, &event.process, cursor));
            match event.kind {
                EventKind::Matched => !seen(),
                EventKind::Heartbeat | EventKind::WaitingForInput => !seen() && !told.contains(&event.process),
                EventKind::HandedOver => !told.contains(&taking_of(&event.process)),
                EventKind::Ready | EventKind::NotReady => {
                    !told.contains(&readiness_of(&event.process)) && !told.contains(&event.process)
                }
                _ => !told.contains(&event.process),
            }
        });
    }

    /// The last event before everything that is still pending.
    fn settled_through(&self) -> u64 {
        let open = self.owed.iter().map(|event| event.seq).chain(self.under_way.iter().copied()).min();
        open.map_or(self.fetched, |seq| seq.saturating_sub(1))
    }

    async fn ack(&mut self, daemon: &DaemonAccess) {
        let through = self.settled_through();
        if through > self.acked && daemon.client().ack(CONSUMER, through).await.is_ok() {
            self.acked = through;
            self.handed_over = false;
        }
    }
}

impl Delivery {
    /// Puts the news into a result.
    pub(crate) fn tell(&self, facts: &mut Map<String, Value>) {
        if !self.items.is_empty() {
            facts.insert("news".into(), self.items.clone().into());
        }
        if self.more > 0 {
            facts.insert("more_news".into(), self.more.into());
        }
    }
}

/// The key of a process's readiness in `told_set`; no id contains a space.
fn readiness_of(process: &str) -> String {
    format!("{process} ready")
}

/// The key of an adopted process in `told_set`.
fn taking_of(process: &str) -> String {
    format!("{process} taken")
}

/// The last lines of an ended process.
async fn last_output(daemon: &DaemonAccess, event: &Event) -> Option<String> {
    if !event.completion {
        return None;
    }
    let query = &OutputQuery {
        tail: Some(LAST_LINES.into()),
        budget: Some(LAST_BYTES.into()),
        strip_ansi: Some(true),
        collapse_cr: Some(true),
        ..OutputQuery::default()
    };
    let id = event.process.as_str();
    let page = daemon.ask(|client| async move { client.output(id, query).await }).await.ok()?;
    Some(printable(&page.text)).filter(|text| !text.is_empty())
}

fn item(event: &Event, last_output: Option<String>) -> Item {
    let text = event.text.as_deref().map(|text| clip(&printable(text), MAX_LINE));
    let mut item = Item {
        id: event.process.clone(),
        event: name(event),
        command: clip(&printable(&event.command), MAX_COMMAND),
        exit_code: None,
        signal: None,
        cause: event.cause.filter(|cause| *cause != Cause::OnItsOwn),
        failure: None,
        // The position of a line; an end has none.
        cursor: event.cursor.filter(|_| !event.completion),
        suppressed: event.suppressed.filter(|count| *count > 0),
        line: None,
        last_output,
        purpose: None,
        why: None,
    };
    match &event.outcome {
        Some(Outcome::Exited { code }) => item.exit_code = Some(*code),
        Some(Outcome::Signaled { name, .. }) => item.signal = Some(name.clone()),
        Some(Outcome::FailedToStart { step, error }) => item.failure = Some(printable(&format!("{step}: {error}"))),
        Some(Outcome::Lost { evidence }) => item.failure = Some(evidence.clone()),
        None => {}
    }
    match event.kind {
        EventKind::Matched | EventKind::WaitingForInput | EventKind::Ready | EventKind::NotReady => item.line = text,
        EventKind::Heartbeat => item.last_output = text.map(|text| facts::printable(&text)),
        EventKind::HandedOver => item.purpose = text,
        _ => item.why = text,
    }
    item
}

impl Item {
    /// Without the output of the process; the cursor stays.
    fn without_output(self) -> Self {
        Item { line: None, last_output: None, ..self }
    }
}

fn name(event: &Event) -> &'static str {
    match event.kind {
        EventKind::Started if event.announce => "restarted",
        EventKind::Started => "started",
        EventKind::Exited | EventKind::Finished => "ended",
        EventKind::Closed => "closed",
        EventKind::Lost => "lost",
        EventKind::Matched => "matched",
        EventKind::WaitingForInput => "waiting_for_input",
        EventKind::WatchEnded => "watch_ended",
        EventKind::Heartbeat => "heartbeat",
        EventKind::HandedOver => "handed_over",
        EventKind::Ready => "ready",
        EventKind::NotReady => "not_ready",
        EventKind::GaveUp => "gave_up",
    }
}

#[cfg(test)]
#[path = "news_tests.rs"]
mod tests;
