//! Unread announcements of an owner. Hooks read as the same consumer as the MCP server, so each event is reported once, by
//! whichever is first.

use std::time::Duration;

use jiff::Timestamp;
use pinfold_api::client::{Client, ClientError};
use pinfold_api::types::{Event, EventsQuery, ListQuery, OutputQuery};
use pinfold_daemon::config::Paths;

use super::notice::News;
use crate::session::reader;

/// Name of the MCP server's consumer.
const CONSUMER: &str = "agent";
/// Lease of the events that are read: if this hook is killed, others get them after this time.
const LEASE: &str = "10s";
/// Events in one notice.
const PAGE: u32 = 100;
/// How many events are shown with the last output.
const WITH_OUTPUT: usize = 5;
const LAST_LINES: &str = "3 lines";
const LAST_BYTES: &str = "400";
/// The MCP server acknowledges an end about a second after a tool result showed it: do not report younger events.
const SETTLED: Duration = Duration::from_millis(1500);

/// The unread events of one owner.
#[derive(Debug)]
pub(super) struct Inbox {
    client: Client,
    owner: String,
}

impl Inbox {
    pub(super) fn new(paths: &Paths, owner: &str) -> Self {
        Inbox { client: Client::new(paths.socket()).acting_as(owner, None), owner: owner.to_owned() }
    }

    pub(super) fn owner(&self) -> &str {
        &self.owner
    }

    /// Leases the unread events, after waiting until the newest is old enough (see [`SETTLED`]).
    pub(super) async fn take(&self) -> Result<Vec<News>, ClientError> {
        let waiting = self.client.events(&EventsQuery { after: Some(self.cursor().await?), ..self.query() }).await?;
        let Some(last) = waiting.events.last() else { return Ok(Vec::new()) };
        tokio::time::sleep(SETTLED.saturating_sub(age(last))).await;
        let (consumer, reader, lease) = (Some(CONSUMER.into()), Some(reader()), Some(LEASE.into()));
        let taken = self.client.events(&EventsQuery { consumer, reader, lease, ..self.query() }).await?;
        let mut news = Vec::new();
        for (place, event) in taken.events.into_iter().enumerate() {
            let last_output = if place < WITH_OUTPUT { self.last_output(&event).await } else { String::new() };
            news.push(News { event, last_output });
        }
        Ok(news)
    }

    /// Acknowledges these events.
    pub(super) async fn ack(&self, news: &[News]) -> Result<(), ClientError> {
        match news.last() {
            Some(last) => self.client.ack(CONSUMER, last.event.seq).await.map(drop),
            None => Ok(()),
        }
    }

    /// Whether the owner has live processes, so that more events may come.
    pub(super) async fn has_live(&self) -> Result<bool, ClientError> {
        let query = ListQuery {
            owner: Some(self.owner.clone()),
            status: Some("live".into()),
            limit: Some(1),
            ..ListQuery::default()
        };
        Ok(!self.client.list(&query).await?.processes.is_empty())
    }

    /// Number of the latest event.
    pub(super) async fn latest(&self) -> Result<u64, ClientError> {
        let query = EventsQuery { after: Some("latest".into()), ..self.query() };
        Ok(self.client.events(&query).await?.next)
    }

    /// Waits for an announcement after this number, at most for `max`. Leases nothing.
    pub(super) async fn wait(&self, after: u64, max: &str) -> Result<(), ClientError> {
        let query = EventsQuery { after: Some(after.to_string()), wait: Some(max.into()), ..self.query() };
        self.client.events(&query).await.map(drop)
    }

    fn query(&self) -> EventsQuery {
        EventsQuery {
            owner: Some(self.owner.clone()),
            kinds: Some("announce".into()),
            limit: Some(PAGE),
            ..EventsQuery::default()
        }
    }

    /// Number of the last acknowledged event.
    async fn cursor(&self) -> Result<String, ClientError> {
        let consumers = self.client.consumers().await?.consumers;
        let cursor = consumers.iter().find(|consumer| consumer.name == CONSUMER).map_or(0, |consumer| consumer.cursor);
        Ok(cursor.to_string())
    }

    async fn last_output(&self, event: &Event) -> String {
        if !event.completion {
            return String::new();
        }
        let query = OutputQuery {
            tail: Some(LAST_LINES.into()),
            budget: Some(LAST_BYTES.into()),
            strip_ansi: Some(true),
            collapse_cr: Some(true),
            ..OutputQuery::default()
        };
        self.client.output(&event.process, &query).await.map(|page| page.text).unwrap_or_default()
    }
}

/// Age of an event; old enough if its time cannot be parsed.
fn age(event: &Event) -> Duration {
    let at: Option<Timestamp> = event.at.parse().ok();
    at.map_or(SETTLED, |at| Timestamp::now().duration_since(at).unsigned_abs())
}
