//! What happened to an owner's processes since it last looked, told with the next result: the one channel that works
//! in every client.
//!
//! M4 lives here. Events are leased from the daemon as the consumer [`CONSUMER`] of their owner, each server a reader of
//! its own: what one that died was given is given to the next, when its lease is over, and never acked by it before. What a result has shown
//! anyway is dropped; what is told is acknowledged a moment after it was handed over, at the next call or at a clean
//! exit, so that neither a crash nor a cancelled call loses one. Bounds: [`PAGES`] pages a result, [`TOLD_MOST`]
//! remembered ends (beyond, the oldest could be told a second time), [`OWNERS_MOST`] owners (beyond, one that owes
//! nothing is forgotten).

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use pinfold_api::types::{Cause, Event, EventKind, EventsQuery, Outcome, OutputQuery};
use serde::Serialize;
use serde_json::{Map, Value};
use tokio::sync::Mutex as AsyncMutex;

use crate::facts::{self, clip, printable};
use crate::identity::Caller;
use crate::memory::Memory;
use crate::random;
use crate::reach::Reach;
use crate::refusal::Refusal;
use crate::tools::{Desk, Shown};

/// The name under which events are read and acknowledged.
const CONSUMER: &str = "agent";
/// How long they stay ours unacknowledged; and those that nobody is told yet, which a hook may tell sooner.
const LEASE: Duration = Duration::from_secs(5);
const BRIEFLY: Duration = Duration::from_secs(2);
/// Events in one page, and pages in one go.
const PAGE: u32 = 100;
const PAGES: usize = 5;
/// How many are told with their last output, how many more by name; the rest are counted.
const IN_FULL: usize = 5;
const BY_NAME: usize = 20;
/// What is shown of the output of one that ended.
const LAST_LINES: &str = "5 lines";
const LAST_BYTES: &str = "400";
const LINE_MOST: usize = 300;
/// The most of a command in news.
const COMMAND_MOST: usize = 80;
/// How long after a result it counts as handed over.
const HANDED_OVER: Duration = Duration::from_secs(1);
const TOLD_MOST: usize = 10_000;
const OWNERS_MOST: usize = 1_000;

/// The mail of every owner.
#[derive(Clone, Debug)]
pub(crate) struct News {
    /// This server among those that read for the same owner.
    reader: Arc<str>,
    boxes: Arc<Mutex<HashMap<String, Arc<AsyncMutex<Mailbox>>>>>,
}

/// The mail of one owner.
#[derive(Debug, Default)]
struct Mailbox {
    /// Fetched and neither told nor dropped, in their order.
    owed: VecDeque<Event>,
    /// Until when what is owed is ours: then somebody else may have told it.
    ours_until: Option<Instant>,
    /// Up to here everything was fetched, and acknowledged.
    fetched: u64,
    acked: u64,
    /// Processes whose end was shown, oldest first.
    told: VecDeque<String>,
    told_set: HashSet<String>,
    /// The first of each delivery that is being made and not handed over.
    under_way: Vec<u64>,
    /// Whether something was told since the last acknowledgement.
    handed_over: bool,
    /// Whether somebody already waits to settle it.
    settling: bool,
}

/// What one result tells.
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
    /// What is to be told beside a result that shows these processes. Trouble in fetching tells nothing now: it is
    /// told later.
    pub(crate) async fn collect(&self, desk: &Desk<'_>, shown: &[Shown]) -> Delivery {
        let Desk { reach, caller, memory, claim, .. } = desk;
        let mailbox = self.mailbox(&caller.owner);
        let mut mailbox = mailbox.lock().await;
        mailbox.note_shown(shown);
        if mailbox.fetch(&self.reader, reach, caller, LEASE).await.is_err() {
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
            // Another chat may be reading: it gets no output but of a process that it named.
            let is_its_own = caller.is_one_chat || shown.iter().any(|one| one.id == event.process);
            let last_output = if place < IN_FULL && is_its_own { last_output(reach, event).await } else { None };
            let item = if is_its_own { item(event, last_output) } else { item(event, None).without_output() };
            items.push(serde_json::to_value(item).unwrap_or_default());
        }
        let more = events.len().saturating_sub(items.len());
        Delivery { events, items, more }
    }

    /// Takes back what a cancelled call would have told.
    pub(crate) async fn take_back(&self, owner: &str, delivery: Delivery) {
        let mailbox = self.mailbox(owner);
        let mut mailbox = mailbox.lock().await;
        mailbox.arrived(&delivery);
        for event in delivery.events.into_iter().rev() {
            mailbox.told_set.remove(&event.process);
            mailbox.owed.push_front(event);
        }
    }

    /// The result goes out. A moment from now it is acknowledged; once, however many results come meanwhile.
    pub(crate) async fn hand_over(&self, delivery: Delivery, reach: &Reach, caller: &Caller, memory: &Arc<Memory>) {
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
        let (reader, reach, caller, memory) =
            (Arc::clone(&self.reader), reach.clone(), caller.clone(), Arc::clone(memory));
        tokio::spawn(async move {
            tokio::time::sleep(HANDED_OVER).await;
            let mut mailbox = mailbox.lock().await;
            mailbox.settling = false;
            // The end of what a result showed may have been written down only after it.
            if mailbox.fetch(&reader, &reach, &caller, BRIEFLY).await.is_ok() {
                mailbox.drop_known(&caller.owner, &memory);
                mailbox.ack(&reach).await;
            }
        });
    }

    /// Acknowledges at once what earlier results told: whoever calls again has read them.
    pub(crate) async fn settle(&self, reach: &Reach, owner: &str) {
        let mailbox = self.mailbox(owner);
        let mut mailbox = mailbox.lock().await;
        if mailbox.handed_over {
            mailbox.ack(reach).await;
        }
    }

    /// Notes that these were shown outside of a result.
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

    /// The owners who were told anything here.
    pub(crate) fn owners(&self) -> Vec<String> {
        self.boxes.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
    }

    fn mailbox(&self, owner: &str) -> Arc<AsyncMutex<Mailbox>> {
        let mut boxes = self.boxes.lock().unwrap_or_else(PoisonError::into_inner);
        if boxes.len() >= OWNERS_MOST && !boxes.contains_key(owner) {
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
        if self.told.len() > TOLD_MOST
            && let Some(oldest) = self.told.pop_front()
        {
            self.told_set.remove(&oldest);
        }
    }

    /// The delivery is no longer under way.
    fn arrived(&mut self, delivery: &Delivery) {
        if let Some(first) = delivery.events.first() {
            self.under_way.retain(|seq| *seq != first.seq);
        }
    }

    /// Lets go of what was fetched, not told, and is no longer leased: whoever asks next gets it.
    fn let_go(&mut self) {
        let over = self.ours_until.is_none_or(|until| Instant::now() >= until);
        if let Some(first) = self.owed.front().filter(|_| over) {
            self.fetched = first.seq.saturating_sub(1);
            self.owed.clear();
        }
    }

    async fn fetch(&mut self, reader: &str, reach: &Reach, caller: &Caller, lease: Duration) -> Result<(), Refusal> {
        self.let_go();
        // Reckoned from before the request: never longer than the daemon's own.
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
            let page = reach.ask(|client| async move { client.events(query).await }).await?;
            let full = page.events.len() == PAGE as usize;
            if !page.events.is_empty() {
                self.ours_until = ours_until;
            }
            // What a lease gave back is here already.
            let fetched = self.fetched;
            self.owed.extend(page.events.into_iter().filter(|event| event.seq > fetched));
            self.fetched = self.fetched.max(self.owed.back().map_or(0, |event| event.seq));
            if !full {
                break;
            }
        }
        Ok(())
    }

    /// Drops what the owner has seen.
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

    /// The last event below everything that is still owed or under way.
    fn settled_through(&self) -> u64 {
        let open = self.owed.iter().map(|event| event.seq).chain(self.under_way.iter().copied()).min();
        open.map_or(self.fetched, |seq| seq.saturating_sub(1))
    }

    async fn ack(&mut self, reach: &Reach) {
        let through = self.settled_through();
        if through > self.acked && reach.client().ack(CONSUMER, through).await.is_ok() {
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

/// What stands for the verdict on a process's readiness among what was told; no id has a space.
fn readiness_of(process: &str) -> String {
    format!("{process} ready")
}

/// What stands for the taking over of a process among what was told.
fn taking_of(process: &str) -> String {
    format!("{process} taken")
}

/// The last of what a process said before it ended.
async fn last_output(reach: &Reach, event: &Event) -> Option<String> {
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
    let page = reach.ask(|client| async move { client.output(id, query).await }).await.ok()?;
    Some(printable(&page.text)).filter(|text| !text.is_empty())
}

fn item(event: &Event, last_output: Option<String>) -> Item {
    let text = event.text.as_deref().map(|text| clip(&printable(text), LINE_MOST));
    let mut item = Item {
        id: event.process.clone(),
        event: name(event),
        command: clip(&printable(&event.command), COMMAND_MOST),
        exit_code: None,
        signal: None,
        cause: event.cause.filter(|cause| *cause != Cause::OnItsOwn),
        failure: None,
        // Where a line stands; an end has nothing to read on from.
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
    /// Without what the process wrote; its cursor still says where.
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
