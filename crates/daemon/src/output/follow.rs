//! Output as one stream of bytes, from a cursor on until it is complete.
//!
//! The bytes are those that were written, without marks in between: a reader adds what it received to the first cursor and
//! knows where it is. So a stream that cannot go on (bytes were dropped before they were sent, or the daemon stops) breaks
//! off instead of ending, and the reader reconnects at its cursor. A slow reader slows only its own stream.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use pinfold_api::types::OutputQuery;
use pinfold_store::marks::Stream;
use pinfold_store::reader::Piece;
use tokio::sync::mpsc;

use crate::core::{Core, blocking};
use crate::output::read::{check, read_piece, start, streams_of};
use crate::registry::FoundProcess;
use crate::registry::records::reader;
use crate::request_error::RequestError;
use crate::waits::{has_closed, until_output};

/// Bytes that are read at a time.
const PIECE: usize = 256 * 1024;
/// Pieces that are read before the reader takes them.
const QUEUE: usize = 2;
/// How long a connection has to send what it was given, before it is broken off.
const FLUSH_TIME: Duration = Duration::from_millis(100);
/// Output is waited for this long before it is waited for again.
const WAIT: Duration = Duration::from_secs(3600);

/// A started stream.
#[derive(Debug)]
pub(crate) struct Followed {
    /// Cursor of the first byte.
    pub(crate) cursor: u64,
    /// What is missing before it.
    pub(crate) gap: Option<std::ops::Range<u64>>,
    pub(crate) body: Body,
}

type Sender = mpsc::Sender<io::Result<Bytes>>;

impl Core {
    /// Streams output. `held` is dropped when the stream is over.
    pub(crate) async fn follow_output(
        self: &Arc<Self>,
        found: FoundProcess,
        query: &OutputQuery,
        held: impl Send + 'static,
    ) -> Result<Followed, RequestError> {
        refuse_others(query)?;
        let wanted = check(query, streams_of(&found))?;
        let (state, directory) = (found.snapshot(), self.home.process(found.id()));
        let stream = wanted.stream;
        let first = blocking(move || start(&reader(&state, &directory), &wanted.start));
        let cursor = first.await?.map_err(RequestError::internal)?;
        let (closed, piece) = self.next_piece(&found, stream, cursor).await?;
        let (queue, pieces) = mpsc::channel(QUEUE);
        let followed = Followed { cursor: piece.at, gap: piece.gap.clone(), body: Body::from_stream(Pieces(pieces)) };
        let core = Arc::clone(self);
        tokio::spawn(async move {
            let mut shutdown = core.shutdown.subscribe();
            let sent = tokio::select! {
                sent = core.send_pieces(&found, stream, (closed, piece), &queue) => sent,
                _ = shutdown.wait_for(|shutdown| *shutdown) => Err(io::Error::other("the daemon stops")),
            };
            if let Err(error) = sent {
                // A connection whose body fails is closed with what it has not sent yet. Without this pause a reader that
                // reconnects right before a gap would receive nothing, again and again.
                let _taken = queue.reserve_many(QUEUE).await.map(drop);
                tokio::time::sleep(FLUSH_TIME).await;
                let _ = queue.send(Err(error)).await;
            }
            drop(held);
        });
        Ok(followed)
    }

    /// Sends pieces until the output is complete or the reader leaves.
    async fn send_pieces(
        self: &Arc<Self>,
        found: &FoundProcess,
        stream: Option<Stream>,
        (mut closed, mut piece): (bool, Piece),
        queue: &Sender,
    ) -> io::Result<()> {
        loop {
            let cursor = piece.next;
            if !piece.bytes.is_empty() && queue.send(Ok(Bytes::from(piece.bytes))).await.is_err() {
                return Ok(());
            }
            if cursor >= piece.end {
                match found {
                    FoundProcess::Here(entry) if !closed => tokio::select! {
                        _ = until_output(entry, cursor, WAIT) => {}
                        () = queue.closed() => return Ok(()),
                    },
                    _ => return Ok(()),
                }
            }
            let next = self.next_piece(found, stream, cursor).await;
            (closed, piece) = next.map_err(|error| io::Error::other(error.0.message))?;
            if piece.gap.is_some() {
                return Err(io::Error::other("output was dropped before it was sent"));
            }
        }
    }

    /// Whether the output was complete before this piece was read, and the piece.
    async fn next_piece(
        self: &Arc<Self>,
        found: &FoundProcess,
        stream: Option<Stream>,
        cursor: u64,
    ) -> Result<(bool, Piece), RequestError> {
        let (state, directory) = (found.snapshot(), self.home.process(found.id()));
        let closed = has_closed(&state);
        let piece = blocking(move || read_piece(&reader(&state, &directory), stream, cursor, PIECE)).await?;
        Ok((closed, piece.map_err(RequestError::internal)?))
    }
}

/// Refuses the options that shorten or render output, which a stream of raw bytes does not support.
fn refuse_others(query: &OutputQuery) -> Result<(), RequestError> {
    let others = [
        ("max_bytes", query.max_bytes.is_some()),
        ("budget", query.budget.is_some()),
        ("budget_tokens", query.budget_tokens.is_some()),
        ("grep", query.grep.is_some()),
        ("context", query.context.is_some()),
        ("strip_ansi", query.strip_ansi.is_some()),
        ("collapse_cr", query.collapse_cr.is_some()),
        ("times", query.times.is_some()),
        ("wait", query.wait.is_some()),
        ("until", query.until.is_some()),
    ];
    match others.into_iter().find(|(_, is_given)| *is_given) {
        Some((name, _)) => {
            let message =
                format!("`follow` can only be combined with cursor, tail, stream and format: leave out `{name}`");
            Err(RequestError::invalid(message))
        }
        None => Ok(()),
    }
}

/// Pieces as the stream that a response body wants.
struct Pieces(mpsc::Receiver<io::Result<Bytes>>);

impl futures_core::Stream for Pieces {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context)
    }
}
