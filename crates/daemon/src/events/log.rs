//! Events: read from the log by number, as a page or as a stream; shown only once committed (D3).

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use pinfold_api::types::{Event, EventPage, EventsQuery};
use pinfold_model::event::EventKind;
use pinfold_model::id::ProcessId;
use pinfold_model::spec::check_name;
use pinfold_model::units::parse_duration;
use pinfold_store::queries::EventFilter;
use tokio::sync::{mpsc, watch};

use crate::access::caller::Caller;
use crate::core::Core;
use crate::events::consumers::{Reading, consumer_key};
use crate::refusal::Refusal;
use crate::registry::Scope;

const LIMIT: u32 = 100;
const LIMIT_MOST: u32 = 1000;
const WAIT_MOST: Duration = Duration::from_secs(300);
/// Events that may wait for a slow reader; beyond, its stream reads from the log when it is ready.
const STREAM_QUEUE: usize = 64;

/// Which events a reader wants, and who reads. What its owner sees may grow while it reads, so the view is computed anew
/// for each look at the log.
#[derive(Clone, Debug)]
pub(super) struct EventView {
    scope: Scope,
    /// Of this owner only.
    owner: Option<String>,
    process: Option<ProcessId>,
    kinds: Vec<EventKind>,
    announced: bool,
}

impl Core {
    /// The number of the last event, for a look at the log that must not miss one of an owner that is new in view:
    /// take it first, then compute the view ([`Core::event_filter`]), then read no further than this number. An owner has
    /// its parent before its first event as a child is committed, so the view then covers all of them.
    pub(super) async fn last_event(&self, committed: &mut watch::Receiver<u64>) -> u64 {
        self.ledger.flush().await;
        *committed.borrow_and_update()
    }

    /// What a reader sees now, up to this event.
    pub(super) fn event_filter(&self, view: &EventView, through: u64) -> Result<EventFilter, Refusal> {
        let owners = self.owners_in_view(&view.scope, view.owner.as_deref())?;
        let EventView { process, kinds, announced, .. } = view.clone();
        Ok(EventFilter { owners, process, kinds, announced, through: Some(through) })
    }

    /// A page of the log, waiting for the first event if that is asked for.
    pub(crate) async fn events(self: &Arc<Self>, scope: &Scope, query: EventsQuery) -> Result<EventPage, Refusal> {
        let view = self.event_view(scope, &query).await?;
        let limit = query.limit.unwrap_or(LIMIT).clamp(1, LIMIT_MOST) as usize;
        let wait = query.wait.as_deref().map(parse_duration).transpose()?.unwrap_or_default().min(WAIT_MOST);
        let after = self.parse_after(query.after.as_deref()).await?;
        if let Some(name) = &query.consumer {
            let lease = query.lease.as_deref().map(parse_duration).transpose()?;
            let key = consumer_key(scope, name)?;
            let reader = query.reader.clone();
            reader.as_deref().map_or(Ok(()), |reader| check_name("reader", reader))?;
            return self.consume(Reading { key, reader, begin: after, view, limit, lease, wait }).await;
        }
        if query.lease.is_some() || query.reader.is_some() {
            return Err(Refusal::invalid("`lease` and `reader` go with `consumer`: name one"));
        }
        let deadline = tokio::time::Instant::now() + wait;
        let mut committed = self.ledger.last_event.clone();
        let mut scanned = after;
        loop {
            let latest = self.last_event(&mut committed).await;
            let page = self.read_events(scanned, &view, latest, limit).await?;
            if !page.events.is_empty() || tokio::time::Instant::now() >= deadline {
                return Ok(EventPage { truncated: self.is_truncated(after).await?, ..page });
            }
            // Nothing of interest up to here: the next look begins there.
            scanned = scanned.max(latest);
            let _ = tokio::time::timeout_at(deadline, committed.wait_for(|seq| *seq > latest)).await;
        }
    }

    async fn read_events(
        self: &Arc<Self>,
        after: u64,
        view: &EventView,
        through: u64,
        limit: usize,
    ) -> Result<EventPage, Refusal> {
        let filter = self.event_filter(view, through)?;
        let rows = self.query(move |queries| queries.events_after(after, &filter, limit)).await?;
        let events: Vec<Event> = rows.into_iter().filter_map(read_event).collect();
        let next = events.last().map_or(after, |event| event.seq);
        Ok(EventPage { events, next, truncated: false, leased_until: None })
    }

    /// Whether the log no longer reaches back to what follows this number.
    pub(super) async fn is_truncated(self: &Arc<Self>, after: u64) -> Result<bool, Refusal> {
        let first = self.query(|queries| queries.first_seq()).await?;
        Ok(after > 0 && after.saturating_add(1) < first)
    }

    async fn parse_after(self: &Arc<Self>, after: Option<&str>) -> Result<u64, Refusal> {
        match after {
            None => Ok(0),
            Some("latest") => {
                self.ledger.flush().await;
                Ok(*self.ledger.last_event.borrow())
            }
            Some(text) => {
                let bad = |_| Refusal::invalid(format!("after `{text}`: give the number of an event, or `latest`"));
                text.parse().map_err(bad)
            }
        }
    }

    async fn event_view(self: &Arc<Self>, scope: &Scope, query: &EventsQuery) -> Result<EventView, Refusal> {
        let process = match &query.process {
            Some(process) => Some(self.find(scope, process).await?.id().clone()),
            None => None,
        };
        // Refuses a malformed owner before anything is waited for.
        self.owners_in_view(scope, query.owner.as_deref())?;
        let (kinds, announced) = parse_kinds(query.kinds.as_deref())?;
        Ok(EventView { scope: scope.clone(), owner: query.owner.clone(), process, kinds, announced })
    }

    /// Events as they are committed, until the reader goes away. A slow reader slows only its own stream.
    pub(crate) async fn event_stream(
        self: &Arc<Self>,
        caller: Caller,
        query: EventsQuery,
    ) -> Result<Sse<impl futures_core::Stream<Item = Result<SseEvent, Infallible>> + use<>>, Refusal> {
        let view = self.event_view(&caller.scope, &query).await?;
        let after = match &query.consumer {
            Some(name) => self.consumer_cursor(consumer_key(&caller.scope, name)?).await?,
            None => self.parse_after(query.after.as_deref()).await?,
        };
        let (queue, events) = mpsc::channel(STREAM_QUEUE);
        let core = Arc::clone(self);
        tokio::spawn(async move {
            follow(core, view, after, queue).await;
            // As long as somebody reads, the owner is in contact.
            drop(caller);
        });
        let keep_alive = KeepAlive::new().interval(Duration::from_secs(15));
        Ok(Sse::new(Queue(events)).keep_alive(keep_alive))
    }
}

/// An event as its readers see it.
pub(super) fn read_event(row: pinfold_store::queries::Event) -> Option<Event> {
    let event: Event = serde_json::from_str(&row.payload).ok()?;
    Some(Event { seq: row.seq, ..event })
}

/// The kinds that are asked for, and whether only those that owners are told of.
pub(crate) fn parse_kinds(text: Option<&str>) -> Result<(Vec<EventKind>, bool), Refusal> {
    let (mut kinds, mut announced) = (Vec::new(), false);
    for word in text.iter().flat_map(|text| text.split(',')).map(str::trim) {
        match EventKind::ALL.into_iter().find(|kind| kind.name() == word) {
            Some(kind) => kinds.push(kind),
            None if word == "announce" => announced = true,
            None => {
                let known: Vec<_> = EventKind::ALL.iter().map(|kind| kind.name()).collect();
                let message = format!("kinds `{word}`: use `announce`, or any of {}", known.join(", "));
                return Err(Refusal::invalid(message));
            }
        }
    }
    Ok((kinds, announced))
}

/// Reads the log as it grows and hands each event over, in order.
async fn follow(core: Arc<Core>, view: EventView, mut after: u64, queue: mpsc::Sender<SseEvent>) {
    let mut committed = core.ledger.last_event.clone();
    let mut shutdown = core.shutdown.subscribe();
    loop {
        let latest = core.last_event(&mut committed).await;
        let Ok(page) = core.read_events(after, &view, latest, LIMIT_MOST as usize).await else { return };
        let full = page.events.len() == LIMIT_MOST as usize;
        for event in page.events {
            after = event.seq;
            let Ok(data) = serde_json::to_string(&event) else { continue };
            let kind = serde_json::to_value(event.kind).ok();
            let name = kind.as_ref().and_then(|kind| kind.as_str()).unwrap_or("event");
            let message = SseEvent::default().id(event.seq.to_string()).event(name).data(data);
            if queue.send(message).await.is_err() {
                return;
            }
        }
        if full {
            continue;
        }
        after = after.max(latest);
        tokio::select! {
            more = committed.wait_for(|seq| *seq > latest) => if more.is_err() { return },
            () = queue.closed() => return,
            _ = shutdown.wait_for(|shutdown| *shutdown) => return,
        }
    }
}

/// A queue as the stream that a response body wants.
pub(crate) struct Queue(pub(crate) mpsc::Receiver<SseEvent>);

impl futures_core::Stream for Queue {
    type Item = Result<SseEvent, Infallible>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        self.0.poll_recv(context).map(|event| event.map(Ok))
    }
}
