//! Attach: the WebSocket of one observer. Sends output, and accepts input if that was requested.
//!
//! Every observer reads the output at its own cursor, so that it misses nothing and delays no other: one that does not
//! read blocks only its own task, and gets a gap for output that is dropped meanwhile. Input frames are numbered
//! and passed to the keeper under those numbers, so that a frame sent again after a crash is applied once. Bounds:
//! frames of [`MAX_INPUT_FRAME`] bytes, [`READ_SIZE`] bytes of output and one frame in progress, one input waiting for
//! room.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use pinfold_api::error::ErrorCode;
use pinfold_api::types::{AttachControl, AttachNotice, AttachQuery, ResizeRequest};
use pinfold_model::input::{Input, MAX_KEY, MAX_QUEUE};
use pinfold_model::spec::PtySize;
use pinfold_store::ids::random_mark;

use crate::access::caller::Caller;
use crate::core::{Core, blocking};
use crate::registry::records;
use crate::registry::{Entry, FoundProcess, State};
use crate::request_error::RequestError;
use crate::waits::{has_closed, has_exited, until_change, until_output};

/// Maximum size of a client's frame, and of ours: as much as a socket accepts at once, since the rest would be copied
/// for every further attempt.
const MAX_INPUT_FRAME: usize = MAX_QUEUE;
const MAX_OUTPUT_FRAME: usize = 64 * 1024;
/// Bytes of output read from the disk at a time.
const READ_SIZE: usize = 256 * 1024;
/// Size of the read buffer, which is zeroed before each read.
const READ_BUFFER: usize = 16 * 1024;
/// How soon to retry when the keeper has no room for input.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);
/// Timeout of one wait for output; then it waits again.
const OUTPUT_WAIT: Duration = Duration::from_secs(3600);

/// Answers an attach request, and serves it in a task of its own.
pub(crate) async fn begin(
    core: Arc<Core>,
    caller: Caller,
    found: FoundProcess,
    query: AttachQuery,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, RequestError> {
    let state = found.snapshot();
    let write = query.write.unwrap_or(false);
    if write && !state.history.intent.spec.takes_input() {
        return Err(crate::processes::input::no_stdin(found.id()));
    }
    let session = match query.session {
        Some(session) if session.is_empty() || session.len() > MAX_KEY - 24 => {
            return Err(RequestError::invalid(format!("`session` must have 1 to {} bytes", MAX_KEY - 24)));
        }
        Some(session) => session,
        None => random_mark().map_err(RequestError::internal)?,
    };
    let upgrade = upgrade.map_err(|rejection| {
        let message = format!("attach is a WebSocket: {}", rejection.body_text());
        RequestError::invalid(message)
    })?;
    let drawing = match (query.cursor, state.size) {
        (None, Some(_)) => Some(core.drawing(&found).await?),
        _ => None,
    };
    let cursor = drawing.as_ref().map_or(query.cursor.unwrap_or(0), |(_, cursor)| *cursor);
    let observer = Observer {
        core,
        caller,
        found,
        cursor,
        size: state.size,
        writer: write.then(|| InputSession { session, next: query.next.unwrap_or(0), waiting: None }),
        sent_exit: false,
        has_read: false,
        unsent: Bytes::new(),
    };
    let upgrade =
        upgrade.max_message_size(MAX_INPUT_FRAME).max_frame_size(MAX_INPUT_FRAME).read_buffer_size(READ_BUFFER);
    Ok(upgrade.on_upgrade(move |socket| observer.run(socket, drawing.map(|(drawing, _)| drawing))))
}

/// One attached client.
struct Observer {
    core: Arc<Core>,
    caller: Caller,
    found: FoundProcess,
    cursor: u64,
    size: Option<PtySize>,
    writer: Option<InputSession>,
    sent_exit: bool,
    /// Whether the output was read at all.
    has_read: bool,
    /// Output that was read and not sent yet; it ends at `cursor`.
    unsent: Bytes,
}

/// The input of an attached client.
struct InputSession {
    session: String,
    next: u64,
    /// Received from the client and not accepted by the keeper yet.
    waiting: Option<Input>,
}

/// What ends the wait of an observer.
enum NextStep {
    Received(Option<Result<Message, axum::Error>>),
    Changed,
    Shutdown,
}

/// The client disconnected, or the daemon is shutting down.
struct Detached;

impl Observer {
    async fn run(mut self, mut socket: WebSocket, drawing: Option<Vec<u8>>) {
        // An error means that the connection is gone: there is nothing to report.
        let _ = self.serve(&mut socket, drawing).await;
        let _ = socket.send(Message::Close(None)).await;
    }

    async fn serve(&mut self, socket: &mut WebSocket, drawing: Option<Vec<u8>>) -> Result<(), Detached> {
        let state = self.found.snapshot();
        let attached = AttachNotice::Attached {
            id: self.found.id().to_string(),
            cursor: self.cursor,
            pty: self.size,
            write: self.writer.is_some(),
            status: state.history.status(),
        };
        send_notice(socket, &attached).await?;
        if let Some(drawing) = drawing {
            let data = String::from_utf8_lossy(&drawing).into_owned();
            send_notice(socket, &AttachNotice::Screen { data }).await?;
        }
        loop {
            // Input first: a user waits for the effect of a key.
            self.offer_input(socket).await?;
            let drained = self.send_output(socket).await?;
            match self.next(socket, drained).await {
                NextStep::Changed => {}
                NextStep::Shutdown | NextStep::Received(None | Some(Err(_))) => return Err(Detached),
                NextStep::Received(Some(Ok(message))) => self.receive(socket, message).await?,
            }
        }
    }

    /// Sends new output and state; returns whether that was all.
    async fn send_output(&mut self, socket: &mut WebSocket) -> Result<bool, Detached> {
        let state = self.found.snapshot();
        if !self.core.sees(&self.caller.viewer, &state.history) {
            // It was handed over to an owner out of this caller's view (D5).
            send_error(socket, &RequestError::not_found(self.found.id().as_str())).await?;
            return Err(Detached);
        }
        if let Some(size) = state.size.filter(|size| self.size != Some(*size)) {
            self.size = Some(size);
            send_notice(socket, &AttachNotice::Size { rows: size.rows, cols: size.cols }).await?;
        }
        // Read before the output: output called closed is complete.
        let (exited, closed) = (has_exited(&state), has_closed(&state));
        if self.send_frame(socket).await? {
            return Ok(false);
        }
        // No new output was reported since the last read: no need to read the disk.
        if self.has_read && !exited && !closed && state.output_bytes <= self.cursor {
            return Ok(true);
        }
        self.has_read = true;
        let reader = records::reader(&state, &self.core.home.process(self.found.id()));
        let cursor = self.cursor;
        let piece = blocking(move || reader.read(cursor, READ_SIZE)).await;
        let Ok(Ok(piece)) = piece else {
            send_error(socket, &RequestError::new(ErrorCode::Internal, "cannot read its output")).await?;
            return Err(Detached);
        };
        if let Some(gap) = &piece.gap {
            send_notice(socket, &AttachNotice::Gap { from: gap.start, to: gap.end }).await?;
        }
        self.cursor = piece.next;
        self.unsent = piece.bytes.into();
        if self.send_frame(socket).await? || piece.next < piece.end {
            return Ok(false);
        }
        self.send_end(socket, &state, (exited, closed)).await?;
        Ok(true)
    }

    /// Sends one frame of unsent output; returns whether there was any.
    async fn send_frame(&mut self, socket: &mut WebSocket) -> Result<bool, Detached> {
        if self.unsent.is_empty() {
            return Ok(false);
        }
        let frame = self.unsent.split_to(self.unsent.len().min(MAX_OUTPUT_FRAME));
        socket.send(Message::Binary(frame)).await.map_err(|_| Detached)?;
        Ok(true)
    }

    async fn send_end(
        &mut self,
        socket: &mut WebSocket,
        state: &State,
        (exited, closed): (bool, bool),
    ) -> Result<(), Detached> {
        let history = &state.history;
        if exited && !self.sent_exit {
            self.sent_exit = true;
            let exit = AttachNotice::Exit {
                outcome: history.outcome().map(Into::into),
                cause: history.cause().map(|cause| cause.kind()),
                status: history.status(),
            };
            send_notice(socket, &exit).await?;
        }
        if exited && closed {
            send_notice(socket, &AttachNotice::Closed {}).await?;
            return Err(Detached);
        }
        Ok(())
    }

    async fn next(&mut self, socket: &mut WebSocket, drained: bool) -> NextStep {
        let waits = self.writer.as_ref().is_some_and(|input| input.waiting.is_some());
        let mut shutdown = self.core.shutdown.subscribe();
        let known = KnownState { cursor: self.cursor, exited: self.sent_exit, size: self.size };
        let entry = match &self.found {
            FoundProcess::Here(entry) if drained => Some(Arc::clone(entry)),
            _ => None,
        };
        tokio::select! {
            biased;
            received = socket.recv(), if !waits => NextStep::Received(received),
            _ = shutdown.wait_for(|shutdown| *shutdown) => NextStep::Shutdown,
            () = tokio::time::sleep(RETRY_INTERVAL), if waits => NextStep::Changed,
            () = until_news(entry, known) => NextStep::Changed,
        }
    }

    async fn receive(&mut self, socket: &mut WebSocket, message: Message) -> Result<(), Detached> {
        let (bytes, eof) = match message {
            Message::Binary(bytes) => (bytes.to_vec(), false),
            Message::Text(text) => match serde_json::from_str(&text) {
                Ok(AttachControl::Resize { rows, cols }) => {
                    let resized = self.core.resize_terminal(&self.found, ResizeRequest { rows, cols }).await;
                    return match resized {
                        Ok(()) => Ok(()),
                        Err(error) => send_error(socket, &error).await,
                    };
                }
                Ok(AttachControl::Eof {}) => (vec![], true),
                Err(error) => {
                    let error = RequestError::new(
                        ErrorCode::InvalidJson,
                        format!("`{text}` is not a control message: {error}"),
                    );
                    return send_error(socket, &error).await;
                }
            },
            Message::Close(_) => return Err(Detached),
            Message::Ping(_) | Message::Pong(_) => return Ok(()),
        };
        let Some(input) = &mut self.writer else {
            let message = "this attachment is read-only: attach with `write=true` to type";
            return send_error(socket, &RequestError::new(ErrorCode::Forbidden, message)).await;
        };
        let key = format!("{}-{}", input.session, input.next);
        input.waiting = Some(Input { key, bytes, eof });
        Ok(())
    }

    /// Offers the pending input to the keeper, and acknowledges it once all was accepted.
    async fn offer_input(&mut self, socket: &mut WebSocket) -> Result<(), Detached> {
        let (Some(input), FoundProcess::Here(entry)) = (&mut self.writer, &self.found) else { return Ok(()) };
        let Some(pending) = &input.waiting else { return Ok(()) };
        let refused = match self.core.offer(entry, pending, Duration::ZERO).await {
            Ok(taken) if !taken.complete => return Ok(()),
            Ok(_) => None,
            Err(error) => Some(error),
        };
        input.waiting = None;
        input.next += 1;
        let below = input.next;
        if let Some(error) = refused {
            send_error(socket, &error).await?;
        }
        send_notice(socket, &AttachNotice::Taken { below }).await
    }
}

/// Waits for output, an exit or another size; returns at once if there is more to read.
async fn until_news(entry: Option<Arc<Entry>>, known: KnownState) {
    let Some(entry) = entry else { return };
    // No more output comes once it is closed: wait only for the exit or a new size.
    let closed = has_closed(&entry.state.borrow());
    tokio::select! {
        _ = until_output(&entry, known.cursor, OUTPUT_WAIT), if !closed => {}
        () = until_change(&entry, |state| has_exited(state) != known.exited || state.size != known.size) => {}
    }
}

/// What an observer was already sent.
struct KnownState {
    cursor: u64,
    exited: bool,
    size: Option<PtySize>,
}

async fn send_notice(socket: &mut WebSocket, notice: &AttachNotice) -> Result<(), Detached> {
    let text = serde_json::to_string(notice).unwrap_or_default();
    socket.send(Message::Text(text.into())).await.map_err(|_| Detached)
}

async fn send_error(socket: &mut WebSocket, error: &RequestError) -> Result<(), Detached> {
    send_notice(socket, &AttachNotice::Refused { code: error.0.code, message: error.0.message.clone() }).await
}
