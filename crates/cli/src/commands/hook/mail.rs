//! What an owner has not been told: read under the name that the MCP server reads under, so that each thing is told
//! once, by whoever comes first.

use std::time::Duration;

use jiff::Timestamp;
use pinfold_api::client::{Client, ClientError};
use pinfold_api::types::{Event, EventsQuery, ListQuery, OutputQuery};
use pinfold_daemon::config::Paths;

use super::notice::News;
use crate::session::reader;

/// The MCP server's name for itself.
const CONSUMER: &str = "agent";
/// How long what is taken stays ours: should we be killed, others wait for so long.
const LEASE: &str = "10s";
/// Events in one notice.
const PAGE: u32 = 100;
/// How many are told with their last output.
const WITH_OUTPUT: usize = 5;
const LAST_LINES: &str = "3 lines";
const LAST_BYTES: &str = "400";
/// A tool's result that shows an end is acknowledged about a second later; a younger end may be told already.
const SETTLED: Duration = Duration::from_millis(1500);

/// One owner's mail.
#[derive(Debug)]
pub(super) struct Mail {
    client: Client,
    owner: String,
}

impl Mail {
    pub(super) fn new(paths: &Paths, owner: &str) -> Self {
        Mail { client: Client::new(paths.socket()).acting_as(owner, None), owner: owner.to_owned() }
    }

    pub(super) fn owner(&self) -> &str {
        &self.owner
    }

    /// Takes what nobody has told, once it is old enough that nobody is about to. Ours until the lease ends.
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

    /// It is told.
    pub(super) async fn ack(&self, news: &[News]) -> Result<(), ClientError> {
        match news.last() {
            Some(last) => self.client.ack(CONSUMER, last.event.seq).await.map(drop),
            None => Ok(()),
        }
    }

    /// Whether anything may yet happen.
    pub(super) async fn has_live(&self) -> Result<bool, ClientError> {
        let query = ListQuery {
            owner: Some(self.owner.clone()),
            status: Some("live".into()),
            limit: Some(1),
            ..ListQuery::default()
        };
        Ok(!self.client.list(&query).await?.processes.is_empty())
    }

    /// The number of the last event there is.
    pub(super) async fn latest(&self) -> Result<u64, ClientError> {
        let query = EventsQuery { after: Some("latest".into()), ..self.query() };
        Ok(self.client.events(&query).await?.next)
    }

    /// Waits until there is an announcement after this one, or for so long. Takes nothing.
    pub(super) async fn wait(&self, after: u64, most: &str) -> Result<(), ClientError> {
        let query = EventsQuery { after: Some(after.to_string()), wait: Some(most.into()), ..self.query() };
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

    /// Up to where everything was told.
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

/// How old an event is; old enough if that cannot be said.
fn age(event: &Event) -> Duration {
    let at: Option<Timestamp> = event.at.parse().ok();
    at.map_or(SETTLED, |at| Timestamp::now().duration_since(at).unsigned_abs())
}
