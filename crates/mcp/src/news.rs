//! News: what happened to an owner's processes since its last call, added to the next result. No other way to notify a
//! model works in every client.
//!
//! M4 lives here. Events are leased from the daemon under the consumer [`CONSUMER`], and each server is a separate
//! reader: when a server dies, its leases expire and the next server gets the events. Events that the result shows
//! anyway are dropped. Reported events are acknowledged [`ACK_DELAY`] after the result was sent, at the next call, or
//! at a clean exit, so neither a crash nor a cancelled call loses one. Limits: [`MAX_PAGES`] pages per result,
//! [`MAX_REPORTED`] remembered ends (an older one could be reported twice), [`MAX_OWNERS`] owners (beyond that, one
//! without pending events is removed).

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use pinfold_api::types::{Cause, Event, EventKind, EventsQuery, NewsState, Outcome, OutputQuery};
use serde::Serialize;
use serde_json::{Map, Value};
use tokio::sync::Mutex as AsyncMutex;

use crate::daemon_access::DaemonAccess;
use crate::facts::{self, clip, printable};
use crate::identity::Caller;
use crate::random;
use crate::read_positions::ReadPositions;
use crate::tool_error::ToolError;
use crate::tools::{CallContext, Shown};

/// The consumer name under which events are read and acknowledged.
const CONSUMER: &str = "agent";
/// Lease of events that are about to be reported, and of those fetched after a result. The second is shorter, because a
/// hook of the client may report them sooner.
const LEASE: Duration = Duration::from_secs(5);
const SHORT_LEASE: Duration = Duration::from_secs(2);
/// Events per page, and pages per fetch.
const PAGE_SIZE: u32 = 100;
const MAX_PAGES: usize = 5;
/// Maximum number of items with their last output, and of further items without it; the rest is only counted.
const MAX_WITH_OUTPUT: usize = 5;
const MAX_WITHOUT_OUTPUT: usize = 20;
/// How much of the output of an ended process is shown.
const MAX_LAST_LINES: &str = "5 lines";
const MAX_LAST_BYTES: &str = "400";
const MAX_LINE: usize = 300;
/// Maximum length of a command in news.
const MAX_COMMAND: usize = 80;
/// How long after it was sent a result counts as received by the client.
const ACK_DELAY: Duration = Duration::from_secs(1);
const MAX_REPORTED: usize = 10_000;
const MAX_OWNERS: usize = 1_000;

/// The pending events of all owners.
#[derive(Clone, Debug)]
pub(crate) struct News {
    /// Distinguishes this server from others that read for the same owner.
    reader: Arc<str>,
    mailboxes: Arc<Mutex<HashMap<String, Arc<AsyncMutex<Mailbox>>>>>,
}

/// The pending events of one owner.
#[derive(Debug, Default)]
struct Mailbox {
    /// Events that were fetched but neither reported nor dropped, in log order.
    pending: VecDeque<Event>,
    /// When the lease of `pending` ends. After that, another server may report the events.
    lease_ends: Option<Instant>,
    /// Sequence numbers of the last event fetched and the last one acknowledged.
    fetched: u64,
    acked: u64,
    /// Processes whose end was reported, oldest first, and the same as a set.
    reported: VecDeque<String>,
    reported_set: HashSet<String>,
    /// The first event of each delivery that was not sent yet.
    in_flight: Vec<u64>,
    /// Whether events were reported since the last acknowledgement.
    has_unacked: bool,
    /// Whether a task that acknowledges is scheduled.
    ack_scheduled: bool,
    /// The daemon's number of the last change whose news were fetched. None if others may be waiting.
    up_to_date: Option<u64>,
}

/// The news of one result.
#[derive(Debug, Default)]
pub(crate) struct Delivery {
    events: Vec<Event>,
    items: Vec<Value>,
    more: usize,
}

/// One item of news.
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
    /// The line of output that caused the event.
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
        News { reader: random::hex(8).into(), mailboxes: Arc::default() }
    }
}

impl News {
    /// Collects the news for a result that shows these processes. If the daemon does not answer, the news are added to
    /// a later result.
    ///
    /// `state` is what the daemon said about news when it reported those processes. If there are none, it is not asked
    /// again.
    pub(crate) async fn collect(&self, ctx: &CallContext<'_>, shown: &[Shown], state: Option<NewsState>) -> Delivery {
        let CallContext { daemon, caller, read_positions, claim, .. } = ctx;
        let mailbox = self.mailbox(&caller.owner);
        let mut mailbox = mailbox.lock().await;
        mailbox.note_shown(shown);
        let may_have_news = !mailbox.pending.is_empty() || state.is_none_or(|state| state.pending);
        let complete = match may_have_news {
            true => mailbox.fetch(&self.reader, daemon, caller, LEASE).await,
            false => Ok(true),
        };
        let Ok(complete) = complete else { return Delivery::default() };
        mailbox.drop_seen(&caller.owner, read_positions);
        let pending = std::mem::take(&mut mailbox.pending);
        let (reported_by_others, events): (Vec<_>, Vec<_>) =
            pending.into_iter().partition(|event| claim.is_reported_by_another(&caller.owner, event));
        mailbox.pending.extend(reported_by_others);
        mailbox.up_to_date = state.map(|state| state.last).filter(|_| complete && mailbox.pending.is_empty());
        mailbox.in_flight.extend(events.first().map(|event| event.seq));
        for event in events.iter().filter(|event| event.completion) {
            mailbox.note_reported(&event.process);
        }
        drop(mailbox);
        let mut items = Vec::new();
        for (place, event) in events.iter().enumerate().take(MAX_WITH_OUTPUT + MAX_WITHOUT_OUTPUT) {
            // If several chats share this owner, show output only of processes that this call named: the others may
            // belong to another chat.
            let may_show_output = caller.is_one_chat || shown.iter().any(|one| one.id == event.process);
            let last_output =
                if place < MAX_WITH_OUTPUT && may_show_output { last_output(daemon, event).await } else { None };
            let item = if may_show_output { item(event, last_output) } else { item(event, None).without_output() };
            items.push(serde_json::to_value(item).unwrap_or_default());
        }
        let more = events.len().saturating_sub(items.len());
        Delivery { events, items, more }
    }

    /// The number of the last change whose news this owner has; 0 if there may be others.
    pub(crate) async fn up_to_date(&self, owner: &str) -> u64 {
        self.mailbox(owner).lock().await.up_to_date.unwrap_or(0)
    }

    /// Puts the news of a cancelled call back.
    pub(crate) async fn put_back(&self, owner: &str, delivery: Delivery) {
        let mailbox = self.mailbox(owner);
        let mut mailbox = mailbox.lock().await;
        mailbox.delivery_done(&delivery);
        for event in delivery.events.into_iter().rev() {
            mailbox.reported_set.remove(&event.process);
            mailbox.pending.push_front(event);
        }
    }

    /// Records that the result was sent. Acknowledges its news after [`ACK_DELAY`], together with those of other
    /// results sent until then.
    pub(crate) async fn mark_sent(
        &self,
        delivery: Delivery,
        daemon: &DaemonAccess,
        caller: &Caller,
        read_positions: &Arc<ReadPositions>,
    ) {
        let mailbox = self.mailbox(&caller.owner);
        let already_scheduled = {
            let mut mailbox = mailbox.lock().await;
            mailbox.delivery_done(&delivery);
            mailbox.has_unacked |= !delivery.events.is_empty();
            std::mem::replace(&mut mailbox.ack_scheduled, true)
        };
        if already_scheduled {
            return;
        }
        let (reader, daemon, caller, read_positions) =
            (Arc::clone(&self.reader), daemon.clone(), caller.clone(), Arc::clone(read_positions));
        tokio::spawn(async move {
            tokio::time::sleep(ACK_DELAY).await;
            let mut mailbox = mailbox.lock().await;
            mailbox.ack_scheduled = false;
            // The event for an end that the result showed may be written only after the result was sent.
            if mailbox.fetch(&reader, &daemon, &caller, SHORT_LEASE).await.is_ok() {
                mailbox.drop_seen(&caller.owner, &read_positions);
                mailbox.ack(&daemon).await;
            }
        });
    }

    /// Acknowledges the news of earlier results: a client that calls again has received them.
    pub(crate) async fn acknowledge_sent(&self, daemon: &DaemonAccess, owner: &str) {
        let mailbox = self.mailbox(owner);
        let mut mailbox = mailbox.lock().await;
        if mailbox.has_unacked {
            mailbox.ack(daemon).await;
        }
    }

    /// Records processes that were shown outside of a tool result.
    pub(crate) async fn note_shown(&self, owner: &str, shown: &[Shown]) {
        let mailbox = self.mailbox(owner);
        let mut mailbox = mailbox.lock().await;
        mailbox.note_shown(shown);
    }

    /// Records that this owner adopted these processes itself, so that the adoption is not reported to it.
    pub(crate) async fn note_adopted(&self, owner: &str, processes: &[String]) {
        let mailbox = self.mailbox(owner);
        let mut mailbox = mailbox.lock().await;
        processes.iter().for_each(|process| mailbox.note_reported(&adoption_key(process)));
    }

    /// The owners that received news from this server.
    pub(crate) fn owners(&self) -> Vec<String> {
        self.mailboxes.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
    }

    fn mailbox(&self, owner: &str) -> Arc<AsyncMutex<Mailbox>> {
        let mut mailboxes = self.mailboxes.lock().unwrap_or_else(PoisonError::into_inner);
        if mailboxes.len() >= MAX_OWNERS && !mailboxes.contains_key(owner) {
            let idle = mailboxes.iter().find(|(_, one)| one.try_lock().is_ok_and(|one| one.is_idle()));
            let idle = idle.map(|(owner, _)| owner.clone());
            if let Some(idle) = idle {
                mailboxes.remove(&idle);
            }
        }
        Arc::clone(mailboxes.entry(owner.to_owned()).or_default())
    }
}

impl Mailbox {
    fn is_idle(&self) -> bool {
        self.pending.is_empty() && self.acked == self.fetched && !self.ack_scheduled
    }

    fn note_shown(&mut self, shown: &[Shown]) {
        for one in shown {
            if one.ended {
                self.note_reported(&one.id);
            }
            if one.ready {
                self.note_reported(&readiness_key(&one.id));
            }
        }
    }

    fn note_reported(&mut self, process: &str) {
        if self.reported_set.insert(process.to_owned()) {
            self.reported.push_back(process.to_owned());
        }
        if self.reported.len() > MAX_REPORTED
            && let Some(oldest) = self.reported.pop_front()
        {
            self.reported_set.remove(&oldest);
        }
    }

    /// Ends a delivery: it was sent or put back.
    fn delivery_done(&mut self, delivery: &Delivery) {
        if let Some(first) = delivery.events.first() {
            self.in_flight.retain(|seq| *seq != first.seq);
        }
    }

    /// Drops pending events whose lease has expired. The next fetch returns them again, unless another reader reported
    /// them.
    fn drop_expired(&mut self) {
        let over = self.lease_ends.is_none_or(|until| Instant::now() >= until);
        if let Some(first) = self.pending.front().filter(|_| over) {
            self.fetched = first.seq.saturating_sub(1);
            self.pending.clear();
        }
    }

    /// Fetches new events. False if there may be more: a page was full to the end, or another reader holds a lease.
    async fn fetch(
        &mut self,
        reader: &str,
        daemon: &DaemonAccess,
        caller: &Caller,
        lease: Duration,
    ) -> Result<bool, ToolError> {
        self.up_to_date = None;
        self.drop_expired();
        // Measured before the request, so that it ends no later than the daemon's lease.
        let lease_ends = Instant::now().checked_add(lease);
        for _ in 0..MAX_PAGES {
            let query = &EventsQuery {
                owner: Some(caller.owner.clone()),
                limit: Some(PAGE_SIZE),
                kinds: Some("announce".into()),
                consumer: Some(CONSUMER.into()),
                reader: Some(reader.to_owned()),
                lease: Some(format!("{}s", lease.as_secs())),
                ..EventsQuery::default()
            };
            let page = daemon.retry(|client| async move { client.events(query).await }).await?;
            let (full, held_by_another) = (page.events.len() == PAGE_SIZE as usize, page.held_by_another);
            if !page.events.is_empty() {
                self.lease_ends = lease_ends;
            }
            // When the lease is extended, the daemon returns events that we already hold.
            let fetched = self.fetched;
            self.pending.extend(page.events.into_iter().filter(|event| event.seq > fetched));
            self.fetched = self.fetched.max(self.pending.back().map_or(0, |event| event.seq));
            if !full {
                return Ok(!held_by_another);
            }
        }
        Ok(false)
    }

    /// Drops events that the owner has already seen.
    fn drop_seen(&mut self, owner: &str, read_positions: &ReadPositions) {
        let reported = &self.reported_set;
        self.pending.retain(|event| {
            let seen = || event.cursor.is_some_and(|cursor| read_positions.has_seen(owner, &event.process, cursor));
            match event.kind {
                EventKind::Matched => !seen(),
                EventKind::Heartbeat | EventKind::WaitingForInput => !seen() && !reported.contains(&event.process),
                EventKind::HandedOver => !reported.contains(&adoption_key(&event.process)),
                EventKind::Ready | EventKind::NotReady => {
                    !reported.contains(&readiness_key(&event.process)) && !reported.contains(&event.process)
                }
                _ => !reported.contains(&event.process),
            }
        });
    }

    /// The last event that can be acknowledged: the one before all events that are pending or in flight.
    fn ackable_through(&self) -> u64 {
        let open = self.pending.iter().map(|event| event.seq).chain(self.in_flight.iter().copied()).min();
        open.map_or(self.fetched, |seq| seq.saturating_sub(1))
    }

    async fn ack(&mut self, daemon: &DaemonAccess) {
        let through = self.ackable_through();
        if through > self.acked && daemon.client().ack(CONSUMER, through).await.is_ok() {
            self.acked = through;
            self.has_unacked = false;
        }
    }
}

impl Delivery {
    /// Adds the news to a result.
    pub(crate) fn add_to(&self, facts: &mut Map<String, Value>) {
        if !self.items.is_empty() {
            facts.insert("news".into(), self.items.clone().into());
        }
        if self.more > 0 {
            facts.insert("more_news".into(), self.more.into());
        }
    }
}

/// The key of a process's readiness in `reported_set`. Ids contain no spaces, so keys do not collide.
fn readiness_key(process: &str) -> String {
    format!("{process} ready")
}

/// The key of an adoption in `reported_set`.
fn adoption_key(process: &str) -> String {
    format!("{process} taken")
}

/// Reads the last lines of an ended process.
async fn last_output(daemon: &DaemonAccess, event: &Event) -> Option<String> {
    if !event.completion {
        return None;
    }
    let query = &OutputQuery {
        tail: Some(MAX_LAST_LINES.into()),
        budget: Some(MAX_LAST_BYTES.into()),
        strip_ansi: Some(true),
        collapse_cr: Some(true),
        ..OutputQuery::default()
    };
    let id = event.process.as_str();
    let page = daemon.retry(|client| async move { client.output(id, query).await }).await.ok()?;
    Some(printable(&page.text)).filter(|text| !text.is_empty())
}

fn item(event: &Event, last_output: Option<String>) -> Item {
    let text = event.text.as_deref().map(|text| clip(&printable(text), MAX_LINE));
    let mut item = Item {
        id: event.process.clone(),
        event: event_name(event),
        command: clip(&printable(&event.command), MAX_COMMAND),
        exit_code: None,
        signal: None,
        cause: event.cause.filter(|cause| *cause != Cause::OnItsOwn),
        failure: None,
        // The position of a line. The end of a process has none.
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
    /// Removes the output of the process; the cursor stays.
    fn without_output(self) -> Self {
        Item { line: None, last_output: None, ..self }
    }
}

fn event_name(event: &Event) -> &'static str {
    match event.kind {
        EventKind::Started if event.announce => "restarted",
        EventKind::Exited | EventKind::Finished => "ended",
        kind => kind.name(),
    }
}

#[cfg(test)]
#[path = "news_tests.rs"]
mod tests;
