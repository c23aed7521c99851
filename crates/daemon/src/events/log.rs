//! Reading the event log, as pages or as a stream. Events are shown only once committed (D3).

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
use crate::events::consumers::{ConsumerRead, consumer_key};
use crate::registry::Viewer;
use crate::request_error::RequestError;

const DEFAULT_LIMIT: u32 = 100;
const MAX_LIMIT: u32 = 1000;
const MAX_WAIT: Duration = Duration::from_secs(300);
/// Events buffered for a slow reader; beyond, its task waits and continues from the log.
const STREAM_QUEUE: usize = 64;

/// A reader and the events it selected. What its owner sees may grow while it reads, so the filter is computed again
/// for each read of the log.
#[derive(Clone, Debug)]
pub(super) struct EventView {
    viewer: Viewer,
    /// Only events of this owner.
    owner: Option<String>,
    process: Option<ProcessId>,
    kinds: Vec<EventKind>,
    announced: bool,
}

impl Core {
    /// The number of the last committed event. To miss no event of an owner that is new in view: take this number
    /// first, then compute the filter ([`Core::event_filter`]), then read no further than this number. An owner gets
    /// its parent before its first event as a child is committed, so the filter then covers all of them.
    pub(super) async fn last_event(&self, committed: &mut watch::Receiver<u64>) -> u64 {
        self.index_writer.flush().await;
        *committed.borrow_and_update()
    }

    /// The filter of what a reader sees now, up to this event.
    pub(super) fn event_filter(&self, view: &EventView, through: u64) -> Result<EventFilter, RequestError> {
        let owners = self.owners_in_view(&view.viewer, view.owner.as_deref())?;
        let EventView { process, kinds, announced, .. } = view.clone();
        Ok(EventFilter { owners, process, kinds, announced, through: Some(through) })
    }

    /// A page of the log; waits for the first event if `wait` is set.
    pub(crate) async fn events(
        self: &Arc<Self>,
        viewer: &Viewer,
        query: EventsQuery,
    ) -> Result<EventPage, RequestError> {
        let view = self.event_view(viewer, &query).await?;
        let limit = query.limit.unwrap_or(DEFAULT_LIMIT).clamp(1, MAX_LIMIT) as usize;
        let wait = query.wait.as_deref().map(parse_duration).transpose()?.unwrap_or_default().min(MAX_WAIT);
        let after = self.parse_after(query.after.as_deref()).await?;
        if let Some(name) = &query.consumer {
            let lease = query.lease.as_deref().map(parse_duration).transpose()?;
            let key = consumer_key(viewer, name)?;
            let reader = query.reader.clone();
            reader.as_deref().map_or(Ok(()), |reader| check_name("reader", reader))?;
            return self.consume(ConsumerRead { key, reader, begin: after, view, limit, lease, wait }).await;
        }
        if query.lease.is_some() || query.reader.is_some() {
            return Err(RequestError::invalid("`lease` and `reader` need a `consumer`: name one"));
        }
        let deadline = tokio::time::Instant::now() + wait;
        let mut committed = self.index_writer.last_event.clone();
        let mut scanned = after;
        loop {
            let latest = self.last_event(&mut committed).await;
            let page = self.read_events(scanned, &view, latest, limit).await?;
            if !page.events.is_empty() || tokio::time::Instant::now() >= deadline {
                return Ok(EventPage { truncated: self.is_truncated(after).await?, ..page });
            }
            // Nothing selected up to here: the next read starts there.
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
    ) -> Result<EventPage, RequestError> {
        let filter = self.event_filter(view, through)?;
        let rows = self.query(move |queries| queries.events_after(after, &filter, limit)).await?;
        let events: Vec<Event> = rows.into_iter().filter_map(parse_event).collect();
        let next = events.last().map_or(after, |event| event.seq);
        Ok(EventPage { events, next, truncated: false, leased_until: None, held_by_another: false })
    }

    /// Whether events after this number were already pruned.
    pub(super) async fn is_truncated(self: &Arc<Self>, after: u64) -> Result<bool, RequestError> {
        let first = self.query(|queries| queries.first_seq()).await?;
        Ok(after > 0 && after.saturating_add(1) < first)
    }

    async fn parse_after(self: &Arc<Self>, after: Option<&str>) -> Result<u64, RequestError> {
        match after {
            None => Ok(0),
            Some("latest") => {
                self.index_writer.flush().await;
                Ok(*self.index_writer.last_event.borrow())
            }
            Some(text) => {
                let bad =
                    |_| RequestError::invalid(format!("after `{text}`: give the number of an event, or `latest`"));
                text.parse().map_err(bad)
            }
        }
    }

    async fn event_view(self: &Arc<Self>, viewer: &Viewer, query: &EventsQuery) -> Result<EventView, RequestError> {
        let process = match &query.process {
            Some(process) => Some(self.find(viewer, process).await?.id().clone()),
            None => None,
        };
        // Refuses a malformed owner before any waiting.
        self.owners_in_view(viewer, query.owner.as_deref())?;
        let (kinds, announced) = parse_kinds(query.kinds.as_deref())?;
        Ok(EventView { viewer: viewer.clone(), owner: query.owner.clone(), process, kinds, announced })
    }

    /// Streams events as they are committed, until the reader disconnects. A slow reader delays only its own stream. A reader that
    /// reconnects (`resumed`) gets the events after the last one it received.
    pub(crate) async fn event_stream(
        self: &Arc<Self>,
        caller: Caller,
        query: EventsQuery,
        resumed: Option<u64>,
    ) -> Result<Sse<impl futures_core::Stream<Item = Result<SseEvent, Infallible>> + use<>>, RequestError> {
        let view = self.event_view(&caller.viewer, &query).await?;
        let after = match &query.consumer {
            Some(name) => self.consumer_cursor(consumer_key(&caller.viewer, name)?).await?,
            None => match resumed {
                Some(received) => received,
                None => self.parse_after(query.after.as_deref()).await?,
            },
        };
        // A consumer that reconnects has received more than it has acknowledged.
        let after = after.max(resumed.unwrap_or(0));
        let (queue, events) = mpsc::channel(STREAM_QUEUE);
        let core = Arc::clone(self);
        tokio::spawn(async move {
            follow(core, view, after, queue).await;
            // While the stream is open, its owner is in contact.
            drop(caller);
        });
        let keep_alive = KeepAlive::new().interval(Duration::from_secs(15));
        Ok(Sse::new(SseStream(events)).keep_alive(keep_alive))
    }
}

/// A stored event as clients see it.
pub(super) fn parse_event(row: pinfold_store::queries::Event) -> Option<Event> {
    let event: Event = serde_json::from_str(&row.payload).ok()?;
    Some(Event { seq: row.seq, ..event })
}

/// The selected kinds, and whether `announce` was among them.
pub(crate) fn parse_kinds(text: Option<&str>) -> Result<(Vec<EventKind>, bool), RequestError> {
    let (mut kinds, mut announced) = (Vec::new(), false);
    for word in text.iter().flat_map(|text| text.split(',')).map(str::trim) {
        match EventKind::ALL.into_iter().find(|kind| kind.name() == word) {
            Some(kind) => kinds.push(kind),
            None if word == "announce" => announced = true,
            None => {
                let known: Vec<_> = EventKind::ALL.iter().map(|kind| kind.name()).collect();
                let message = format!("kinds `{word}`: use `announce`, or any of {}", known.join(", "));
                return Err(RequestError::invalid(message));
            }
        }
    }
    Ok((kinds, announced))
}

/// Sends each new event of the log, in order.
async fn follow(core: Arc<Core>, view: EventView, mut after: u64, queue: mpsc::Sender<SseEvent>) {
    let mut committed = core.index_writer.last_event.clone();
    let mut shutdown = core.shutdown.subscribe();
    loop {
        let latest = core.last_event(&mut committed).await;
        let Ok(page) = core.read_events(after, &view, latest, MAX_LIMIT as usize).await else { return };
        let full = page.events.len() == MAX_LIMIT as usize;
        for event in page.events {
            after = event.seq;
            let Ok(data) = serde_json::to_string(&event) else { continue };
            let message = SseEvent::default().id(event.seq.to_string()).event(event.kind.name()).data(data);
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

/// A channel as the stream of a response body.
pub(crate) struct SseStream(pub(crate) mpsc::Receiver<SseEvent>);

impl futures_core::Stream for SseStream {
    type Item = Result<SseEvent, Infallible>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        self.0.poll_recv(context).map(|event| event.map(Ok))
    }
}
