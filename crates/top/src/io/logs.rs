//! Reads parts of logs, by cursor.

use std::time::Duration;

use pinfold_api::client::{Client, ClientError, RawOutput};
use pinfold_api::types::OutputQuery;
use tokio::time::{sleep, timeout};

use super::worker::{REQUEST_TIMEOUT, Shared, ask, reason};
use crate::log::window::Piece;
use crate::log::{STEP, TIMES_STEP};
use crate::message::{LogRead, LogToken, Message, RawPiece};

/// How long the daemon waits for output before it answers without.
const FOLLOW_WAIT: Duration = Duration::from_secs(25);
/// Between two reads of a process that writes faster than a screen shows.
const FLOOD_PAUSE: Duration = Duration::from_millis(40);

pub(super) async fn read(shared: Shared, id: String, token: LogToken, read: LogRead, pause: bool) {
    if pause {
        sleep(FLOOD_PAUSE).await;
    }
    let result = read_raw(&shared.client, &id, read).await.map(raw_piece);
    shared.send(Message::LogWasRead { token, read, result }).await;
}

async fn read_raw(client: &Client, id: &str, read: LogRead) -> Result<RawOutput, String> {
    let from_to = |from: u64, to: u64| OutputQuery {
        cursor: Some(from),
        max_bytes: Some((to - from).max(1).to_string()),
        ..OutputQuery::default()
    };
    let query = match read {
        LogRead::Tail => OutputQuery { tail: Some(STEP.to_string()), ..OutputQuery::default() },
        LogRead::Around { cursor } => {
            let from = cursor.saturating_sub(STEP / 2);
            from_to(from, from + STEP)
        }
        LogRead::Before { end } => from_to(end.saturating_sub(STEP), end),
        LogRead::After { from } => from_to(from, from + STEP),
        LogRead::Follow { from } => {
            let wait = Some(format!("{}s", FOLLOW_WAIT.as_secs()));
            let query = OutputQuery { wait, ..from_to(from, from + STEP) };
            let request = client.output_raw(id, &query);
            return match timeout(FOLLOW_WAIT + REQUEST_TIMEOUT, request).await {
                Ok(result) => result.map_err(|error| reason(&error)),
                Err(_) => Err("the daemon does not answer".to_owned()),
            };
        }
    };
    ask(client.output_raw(id, &query)).await
}

/// A stretch of a log from a cursor on.
pub(super) async fn read_from(client: &Client, id: &str, from: u64, max_bytes: u64) -> Result<RawOutput, ClientError> {
    let query =
        OutputQuery { cursor: Some(from), max_bytes: Some(max_bytes.max(1).to_string()), ..OutputQuery::default() };
    client.output_raw(id, &query).await
}

fn raw_piece(raw: RawOutput) -> RawPiece {
    let piece = Piece { at: raw.cursor, bytes: raw.bytes.to_vec(), after_gap: raw.gap.is_some() };
    RawPiece { piece, next: raw.next_cursor, end: raw.end, closed: raw.closed }
}

pub(super) async fn read_times(shared: Shared, id: String, token: LogToken, from: u64) {
    let query = OutputQuery {
        cursor: Some(from),
        max_bytes: Some(TIMES_STEP.to_string()),
        times: Some(true),
        ..OutputQuery::default()
    };
    let result = ask(shared.client.output(&id, &query)).await.map(|page| page.text);
    shared.send(Message::TimesWereRead { token, from, result }).await;
}
