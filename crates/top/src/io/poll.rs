//! Reads from the daemon what the screen shows, once a second and after each event; reports when it does not answer.
//!
//! It asks less often where an answer takes long, so that looking costs the daemon at most a part of one core.

use std::time::Duration;

use jiff::Timestamp;
use pinfold_api::client::{Client, ClientError};
use pinfold_api::types::{Agent, AgentListQuery, InboxQuery, ListQuery, Record, TurnsQuery};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::worker::{REQUEST_TIMEOUT, Shared, reason};
use crate::message::{EndedPage, Interest, Message, Snapshot};

/// The time between two rounds.
const INTERVAL: Duration = Duration::from_secs(1);
/// After something happened: what happens next is in the same answer.
const DEBOUNCE: Duration = Duration::from_millis(100);
/// A round may take this part of the time between two.
const PAUSE_FACTOR: u32 = 8;
/// After a failure.
const RETRY: Duration = Duration::from_millis(300);
/// Processes in one page, and pages: more live processes are not shown.
const PAGE: u32 = 2000;
const MAX_PAGES: usize = 8;
/// Ended processes are read again at least this often.
const ENDED_INTERVAL: Duration = Duration::from_secs(30);
const MAX_ITEMS: u32 = 200;
const MAX_TURNS: u64 = 100;

pub(super) async fn run(shared: Shared, mut interest: watch::Receiver<Interest>) {
    let mut ended = EndedMemory::default();
    loop {
        let wanted = interest.borrow_and_update().clone();
        let began = Instant::now();
        let reads_ended = wanted.processes && ended.is_stale(&wanted);
        let answer = timeout(REQUEST_TIMEOUT, snapshot(&shared.client, &wanted, reads_ended)).await;
        let took = began.elapsed();
        let message = match answer {
            Ok(Ok(snapshot)) => {
                if reads_ended {
                    ended = EndedMemory { read: Some((Instant::now(), wanted.ended)) };
                }
                Message::Answered(Box::new(snapshot))
            }
            Ok(Err(error)) => Message::Unreachable { reason: reason(&error) },
            Err(_) => Message::Silent,
        };
        let failed = !matches!(message, Message::Answered(_));
        if failed {
            ended = EndedMemory::default();
        }
        if !shared.send(message).await {
            return;
        }
        let pause = if failed { RETRY } else { INTERVAL.max(took * PAUSE_FACTOR) };
        tokio::select! {
            () = sleep(pause) => {}
            changed = interest.changed() => if changed.is_err() { return },
            () = shared.refresh.notified() => sleep(DEBOUNCE.max(took * PAUSE_FACTOR / 2)).await,
            () = shared.ended_changed.notified() => {
                ended = EndedMemory::default();
                sleep(DEBOUNCE.max(took * PAUSE_FACTOR / 2)).await;
            }
        }
    }
}

/// When ended processes were read, and how many were wanted.
#[derive(Default)]
struct EndedMemory {
    read: Option<(Instant, u32)>,
}

impl EndedMemory {
    fn is_stale(&self, wanted: &Interest) -> bool {
        self.read.is_none_or(|(at, count)| at.elapsed() > ENDED_INTERVAL || count != wanted.ended)
    }
}

async fn snapshot(client: &Client, wanted: &Interest, reads_ended: bool) -> Result<Snapshot, ClientError> {
    let lists = async {
        if !wanted.processes {
            return Ok((None, None, None, Vec::new()));
        }
        let (live, notes) = live(client).await?;
        let owners = client.owners().await?.owners;
        let ended = if reads_ended { Some(ended(client, wanted.ended).await?) } else { None };
        Ok::<_, ClientError>((Some(live), Some(owners), ended, notes))
    };
    let rest = async {
        let agents = client.agents(&AgentListQuery::default()).await?.agents;
        let inbox = match client.inbox(&InboxQuery { limit: Some(MAX_ITEMS), ..InboxQuery::default() }).await {
            Ok(inbox) => Some(inbox),
            // A daemon that was started before the last update has no inbox.
            Err(ClientError::Api { .. }) => None,
            Err(error) => return Err(error),
        };
        let record = match &wanted.record {
            Some(id) => Some(record(client, id).await?),
            None => None,
        };
        let turns = match &wanted.turns {
            Some(id) => turns(client, id, &agents).await?,
            None => None,
        };
        Ok::<_, ClientError>((agents, inbox, record, turns))
    };
    let ((live, owners, ended, notes), (agents, inbox, record, turns)) = tokio::try_join!(lists, rest)?;
    Ok(Snapshot { at: Timestamp::now(), live, ended, owners, agents: Some(agents), inbox, record, turns, notes })
}

async fn live(client: &Client) -> Result<(Vec<Record>, Vec<String>), ClientError> {
    let mut query = ListQuery {
        status: Some("live".to_owned()),
        tree: Some(false),
        usage: Some(true),
        limit: Some(PAGE),
        ..ListQuery::default()
    };
    let mut records = Vec::new();
    for _ in 0..MAX_PAGES {
        let page = client.list(&query).await?;
        records.extend(page.processes);
        query.page = page.next;
        if query.page.is_none() {
            return Ok((records, page.notes));
        }
    }
    Ok((records, Vec::new()))
}

async fn ended(client: &Client, count: u32) -> Result<EndedPage, ClientError> {
    let query =
        ListQuery { status: Some("ended".to_owned()), limit: Some(count.clamp(1, PAGE)), ..ListQuery::default() };
    let page = client.list(&query).await?;
    Ok(EndedPage { records: page.processes, total: page.total })
}

/// One process; that it is unknown is an answer, too.
async fn record(client: &Client, id: &str) -> Result<Result<Box<Record>, String>, ClientError> {
    match client.show(id).await {
        Ok(record) => Ok(Ok(Box::new(record))),
        Err(ClientError::Api { error, .. }) => Ok(Err(error.message)),
        Err(error) => Err(error),
    }
}

/// The latest turns of an agent.
async fn turns(
    client: &Client,
    id: &str,
    agents: &[Agent],
) -> Result<Option<(String, Vec<pinfold_api::types::Turn>)>, ClientError> {
    let count = agents.iter().find(|agent| agent.id == id).map_or(0, |agent| agent.turns);
    let query = TurnsQuery { after: Some(count.saturating_sub(MAX_TURNS)), limit: None };
    match client.turns(id, &query).await {
        Ok(list) => Ok(Some((id.to_owned(), list.turns))),
        Err(ClientError::Api { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
