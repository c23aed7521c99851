//! An attachment to a process's terminal, made again when the daemon comes back.
//!
//! Output is counted by cursor and input by number: a daemon that dies in between costs neither.

use std::collections::VecDeque;
use std::time::Duration;

use pinfold_api::client::{AttachReader, AttachWriter, ClientError, Received};
use pinfold_api::types::{AttachControl, AttachNotice, AttachQuery};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::acts::fresh_id;
use super::worker::{REQUEST_TIMEOUT, Shared, reason};
use crate::describe::outcome_words;
use crate::message::{AttachNews, LogToken, Message};

/// The pause before a broken connection is made again.
const RETRY: Duration = Duration::from_millis(300);
/// Keys that wait to be sent; more are dropped, since the process reads none of them.
const MAX_TYPED: usize = 1024;
/// Bytes typed and not acknowledged, beyond which no more are sent.
const MAX_UNACKNOWLEDGED: usize = 64 << 10;

/// What is typed, or the new size of the screen.
pub(super) enum Typed {
    Bytes(Vec<u8>),
    Resize { rows: u16, columns: u16 },
}

/// A running attachment; dropping it leaves the process.
pub(super) struct Attachment {
    typed: mpsc::Sender<Typed>,
    task: AbortHandle,
}

impl Attachment {
    pub(super) fn start(shared: Shared, id: String, token: LogToken, size: (u16, u16)) -> Self {
        let (typed, receiver) = mpsc::channel(MAX_TYPED);
        let connection = Connection {
            shared,
            id,
            token,
            size,
            typed: receiver,
            session: fresh_id(),
            cursor: None,
            first: 0,
            unacknowledged: VecDeque::new(),
        };
        Attachment { typed, task: tokio::spawn(connection.run()).abort_handle() }
    }

    pub(super) fn send(&self, typed: Typed) {
        let _ = self.typed.try_send(typed);
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Connection {
    shared: Shared,
    id: String,
    token: LogToken,
    size: (u16, u16),
    typed: mpsc::Receiver<Typed>,
    /// Under which our frames are known.
    session: Option<String>,
    cursor: Option<u64>,
    /// The number of the first frame that is not acknowledged.
    first: u64,
    unacknowledged: VecDeque<Vec<u8>>,
}

/// What happens next.
enum Happened {
    Received(Option<Result<Received, ClientError>>),
    Typed(Option<Typed>),
}

/// The process has ended, or the view was closed.
struct Over;

impl Connection {
    async fn run(mut self) {
        loop {
            let query = AttachQuery {
                cursor: self.cursor,
                write: Some(true),
                session: self.session.clone(),
                next: Some(self.first),
            };
            let lost = match timeout(REQUEST_TIMEOUT, self.shared.client.attach(&self.id, &query)).await {
                Ok(Ok((reader, writer))) => match self.serve(reader, writer).await {
                    Err(Over) => return,
                    Ok(()) => "the connection broke: waiting for the daemon".to_owned(),
                },
                Ok(Err(error @ ClientError::Api { .. })) => {
                    self.report(AttachNews::Ended(reason(&error))).await;
                    return;
                }
                Ok(Err(_)) => "the daemon is away: waiting for it".to_owned(),
                Err(_) => "the daemon does not answer".to_owned(),
            };
            if !self.report(AttachNews::Lost(lost)).await {
                return;
            }
            sleep(RETRY).await;
        }
    }

    async fn report(&self, news: AttachNews) -> bool {
        self.shared.send(Message::Attachment { token: self.token, news }).await
    }

    /// Goes on until the end; returns if the connection broke.
    async fn serve(&mut self, mut reader: AttachReader, mut writer: AttachWriter) -> Result<(), Over> {
        let (rows, cols) = self.size;
        writer.control(&AttachControl::Resize { rows, cols }).await;
        for frame in &self.unacknowledged {
            writer.send(frame.clone().into()).await;
        }
        loop {
            let room = self.unacknowledged.iter().map(Vec::len).sum::<usize>() < MAX_UNACKNOWLEDGED;
            let happened = tokio::select! {
                received = reader.next() => Happened::Received(received),
                typed = self.typed.recv(), if room => Happened::Typed(typed),
            };
            match happened {
                Happened::Received(None | Some(Err(_))) => return Ok(()),
                Happened::Received(Some(Ok(received))) => self.take(received).await?,
                Happened::Typed(None) => return Err(Over),
                Happened::Typed(Some(Typed::Bytes(bytes))) => {
                    // A connection that broke is seen by the reader; the frame is kept until it is acknowledged.
                    writer.send(bytes.clone().into()).await;
                    self.unacknowledged.push_back(bytes);
                }
                Happened::Typed(Some(Typed::Resize { rows, columns })) => {
                    self.size = (rows, columns);
                    writer.control(&AttachControl::Resize { rows, cols: columns }).await;
                }
            }
        }
    }

    async fn take(&mut self, received: Received) -> Result<(), Over> {
        let news = match received {
            Received::Bytes(bytes) => {
                self.cursor = self.cursor.map(|cursor| cursor + bytes.len() as u64);
                AttachNews::Bytes(bytes.to_vec())
            }
            Received::Notice(notice) => match *notice {
                AttachNotice::Attached { cursor, .. } => {
                    self.cursor = Some(cursor);
                    AttachNews::Opened
                }
                AttachNotice::Screen { data } => AttachNews::Bytes(data.into_bytes()),
                AttachNotice::Gap { to, .. } => {
                    self.cursor = Some(to);
                    return Ok(());
                }
                AttachNotice::Size { rows, cols } => AttachNews::Sized { rows, columns: cols },
                AttachNotice::Taken { below } => {
                    let known = below.saturating_sub(self.first) as usize;
                    self.unacknowledged.drain(..known.min(self.unacknowledged.len()));
                    self.first = self.first.max(below);
                    return Ok(());
                }
                AttachNotice::Refused { message, .. } => AttachNews::Refused(message),
                AttachNotice::Exit { outcome, cause, .. } => {
                    let how = outcome.map(|outcome| outcome_words(&outcome, cause)).unwrap_or_default();
                    self.report(AttachNews::Ended(format!("it ended: {how}"))).await;
                    return Err(Over);
                }
                AttachNotice::Closed {} => {
                    self.report(AttachNews::Ended("its output is complete".to_owned())).await;
                    return Err(Over);
                }
            },
        };
        if self.report(news).await { Ok(()) } else { Err(Over) }
    }
}
