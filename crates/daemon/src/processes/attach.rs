//! Attaching: one observer's WebSocket. Output out, and input in where that was asked for.
//!
//! Every observer reads the output by a cursor of its own, so that each misses nothing and slows nobody: one that
//! does not read keeps only its own task waiting, and what is dropped meanwhile is told as a gap. What several read at about the same time comes
//! from the disk once, by the [`shared_reads`](crate::registry::shared_reads) of the process. Its input frames
//! are numbered and go to the keeper under those numbers, so that a frame sent again after a crash is applied once.
//! Bounds: frames of [`FRAME_MOST`], one stretch of output and one frame of it under way, one input waiting for room.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use pinfold_api::error::ErrorCode;
use pinfold_api::types::{AttachControl, AttachNotice, AttachQuery, PtySize as ApiPtySize, ResizeRequest};
use pinfold_model::input::{Input, KEY_MOST, QUEUE_MOST};
use pinfold_model::spec::PtySize;
use pinfold_store::ids::random_mark;
use pinfold_store::reader::OutputReader;

use crate::access::caller::Caller;
use crate::core::{Core, blocking};
use crate::refusal::Refusal;
use crate::registry::records::{self, api_cause, api_outcome, api_status};
use crate::registry::shared_reads::{STRETCH, Shelf};
use crate::registry::{Entry, Found, State};
use crate::waits::{has_closed, has_exited, until_change, until_output};

/// The longest frame of a client, and the most bytes of one of ours: what a socket takes at once, since what it does not take is
/// moved for every further try.
const FRAME_MOST: usize = QUEUE_MOST;
const FRAME: usize = 64 * 1024;
/// Bytes of a client's that are read at a time; they are made ready before each try.
const EAR: usize = 16 * 1024;
/// How soon room is asked for again.
const AGAIN: Duration = Duration::from_millis(20);
/// Output is waited for this long before it is waited for again.
const LONG: Duration = Duration::from_secs(3600);

/// Answers the request to attach, and goes on with it as a task of its own.
pub(crate) async fn begin(
    core: Arc<Core>,
    caller: Caller,
    found: Found,
    query: AttachQuery,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Refusal> {
    let state = found.snapshot();
    let write = query.write.unwrap_or(false);
    if write && !state.history.intent.spec.takes_input() {
        return Err(crate::processes::input::no_stdin(found.id()));
    }
    let session = match query.session {
        Some(session) if session.is_empty() || session.len() > KEY_MOST - 24 => {
            return Err(Refusal::invalid(format!("`session` must have 1 to {} bytes", KEY_MOST - 24)));
        }
        Some(session) => session,
        None => random_mark().map_err(Refusal::internal)?,
    };
    let upgrade = upgrade.map_err(|rejection| {
        let message = format!("attach is a WebSocket: {}", rejection.body_text());
        Refusal::invalid(message)
    })?;
    let drawing = match (query.cursor, state.size) {
        (None, Some(_)) => Some(core.drawing(&found).await?),
        _ => None,
    };
    let cursor = drawing.as_ref().map_or(query.cursor.unwrap_or(0), |(_, cursor)| *cursor);
    let shelf = match &found {
        Found::Here(entry) => entry.shelf(),
        Found::Ended(_) => Arc::default(),
    };
    let observer = Observer {
        core,
        caller,
        found,
        cursor,
        size: state.size,
        writer: write.then(|| Typist { session, next: query.next.unwrap_or(0), waiting: None }),
        told_exit: false,
        has_read: false,
        shelf,
        unsent: Bytes::new(),
    };
    let upgrade = upgrade.max_message_size(FRAME_MOST).max_frame_size(FRAME_MOST).read_buffer_size(EAR);
    Ok(upgrade.on_upgrade(move |socket| observer.run(socket, drawing.map(|(drawing, _)| drawing))))
}

/// One who is attached.
struct Observer {
    core: Arc<Core>,
    caller: Caller,
    found: Found,
    cursor: u64,
    size: Option<PtySize>,
    writer: Option<Typist>,
    told_exit: bool,
    /// Whether the output was read at all.
    has_read: bool,
    /// What it shares with others.
    shelf: Arc<Shelf>,
    /// What was read and comes next; it ends at `cursor`.
    unsent: Bytes,
}

/// One who may type.
struct Typist {
    session: String,
    next: u64,
    /// Taken from the socket and not yet by the keeper.
    waiting: Option<Input>,
}

/// What happens next.
enum Happened {
    Came(Option<Result<Message, axum::Error>>),
    Changed,
    Shutdown,
}

/// Nobody is there any more, or the daemon ends.
struct Over;

impl Observer {
    async fn run(mut self, mut socket: WebSocket, drawing: Option<Vec<u8>>) {
        // Either end may have gone: there is nobody to tell.
        let _ = self.serve(&mut socket, drawing).await;
        let _ = socket.send(Message::Close(None)).await;
    }

    async fn serve(&mut self, socket: &mut WebSocket, drawing: Option<Vec<u8>>) -> Result<(), Over> {
        let state = self.found.snapshot();
        let attached = AttachNotice::Attached {
            id: self.found.id().to_string(),
            cursor: self.cursor,
            pty: self.size.map(api_size),
            write: self.writer.is_some(),
            status: api_status(state.history.status()),
        };
        tell(socket, &attached).await?;
        if let Some(drawing) = drawing {
            let data = String::from_utf8_lossy(&drawing).into_owned();
            tell(socket, &AttachNotice::Screen { data }).await?;
        }
        loop {
            // Input first: what was typed is waited for, what is shown is not.
            self.offer(socket).await?;
            let drained = self.show(socket).await?;
            match self.next(socket, drained).await {
                Happened::Changed => {}
                Happened::Shutdown | Happened::Came(None | Some(Err(_))) => return Err(Over),
                Happened::Came(Some(Ok(message))) => self.take(socket, message).await?,
            }
        }
    }

    /// Sends what is new; whether that was all.
    async fn show(&mut self, socket: &mut WebSocket) -> Result<bool, Over> {
        let state = self.found.snapshot();
        if !self.core.sees(&self.caller.scope, &state.history) {
            // It was handed over to somebody whose it is now: a view never widens.
            refuse(socket, &Refusal::not_found(self.found.id().as_str())).await?;
            return Err(Over);
        }
        if let Some(size) = state.size.filter(|size| self.size != Some(*size)) {
            self.size = Some(size);
            tell(socket, &AttachNotice::Size { rows: size.rows, cols: size.cols }).await?;
        }
        // Whether more may come is asked before the read: what is called closed is complete.
        let (exited, closed) = (has_exited(&state), has_closed(&state));
        if self.send_frame(socket).await? {
            return Ok(false);
        }
        // Nothing was told of since the last read: the keeper is asked, and the disk is not.
        if self.has_read && !exited && !closed && state.output_bytes <= self.cursor {
            return Ok(true);
        }
        self.has_read = true;
        let reader = records::reader(&state, &self.core.home.process(self.found.id()));
        if state.output_bytes > self.cursor && self.take_shared(&reader).await {
            return self.send_frame(socket).await.map(|_| false);
        }
        let cursor = self.cursor;
        let piece = blocking(move || reader.read(cursor, STRETCH)).await;
        let Ok(Ok(piece)) = piece else {
            refuse(socket, &Refusal::new(ErrorCode::Internal, "its output cannot be read")).await?;
            return Err(Over);
        };
        if let Some(gap) = &piece.gap {
            tell(socket, &AttachNotice::Gap { from: gap.start, to: gap.end }).await?;
        }
        self.cursor = piece.next;
        self.unsent = piece.bytes.into();
        if self.send_frame(socket).await? || piece.next < piece.end {
            return Ok(false);
        }
        self.tell_end(socket, &state, (exited, closed)).await?;
        Ok(true)
    }

    /// Takes what follows from what is shared with others; whether there was something.
    async fn take_shared(&mut self, reader: &OutputReader) -> bool {
        let (cursor, reader) = (self.cursor, reader.clone());
        let read = async || {
            let piece = blocking(move || reader.read(cursor, STRETCH)).await.ok()?.ok()?;
            // Of a gap each is told by itself.
            piece.gap.is_none().then_some(piece.bytes)
        };
        let Some(bytes) = self.shelf.bytes(cursor, read).await else { return false };
        self.cursor += bytes.len() as u64;
        self.unsent = bytes;
        true
    }

    /// Sends one frame of what was read; whether there was something.
    async fn send_frame(&mut self, socket: &mut WebSocket) -> Result<bool, Over> {
        if self.unsent.is_empty() {
            return Ok(false);
        }
        let frame = self.unsent.split_to(self.unsent.len().min(FRAME));
        socket.send(Message::Binary(frame)).await.map_err(|_| Over)?;
        Ok(true)
    }

    async fn tell_end(
        &mut self,
        socket: &mut WebSocket,
        state: &State,
        (exited, closed): (bool, bool),
    ) -> Result<(), Over> {
        let history = &state.history;
        if exited && !self.told_exit {
            self.told_exit = true;
            let exit = AttachNotice::Exit {
                outcome: history.outcome().map(api_outcome),
                cause: history.cause().as_ref().map(api_cause),
                status: api_status(history.status()),
            };
            tell(socket, &exit).await?;
        }
        if exited && closed {
            tell(socket, &AttachNotice::Closed {}).await?;
            return Err(Over);
        }
        Ok(())
    }

    async fn next(&mut self, socket: &mut WebSocket, drained: bool) -> Happened {
        let waits = self.writer.as_ref().is_some_and(|typist| typist.waiting.is_some());
        let mut shutdown = self.core.shutdown.subscribe();
        let seen = Seen { cursor: self.cursor, exited: self.told_exit, size: self.size };
        let entry = match &self.found {
            Found::Here(entry) if drained => Some(Arc::clone(entry)),
            _ => None,
        };
        tokio::select! {
            biased;
            came = socket.recv(), if !waits => Happened::Came(came),
            _ = shutdown.wait_for(|shutdown| *shutdown) => Happened::Shutdown,
            () = tokio::time::sleep(AGAIN), if waits => Happened::Changed,
            () = news(entry, seen) => Happened::Changed,
        }
    }

    async fn take(&mut self, socket: &mut WebSocket, message: Message) -> Result<(), Over> {
        let (bytes, eof) = match message {
            Message::Binary(bytes) => (bytes.to_vec(), false),
            Message::Text(text) => match serde_json::from_str(&text) {
                Ok(AttachControl::Resize { rows, cols }) => {
                    let resized = self.core.resize_terminal(&self.found, ResizeRequest { rows, cols }).await;
                    return match resized {
                        Ok(()) => Ok(()),
                        Err(refusal) => refuse(socket, &refusal).await,
                    };
                }
                Ok(AttachControl::Eof {}) => (vec![], true),
                Err(error) => {
                    let refusal = Refusal::new(ErrorCode::InvalidJson, format!("no control is `{text}`: {error}"));
                    return refuse(socket, &refusal).await;
                }
            },
            Message::Close(_) => return Err(Over),
            Message::Ping(_) | Message::Pong(_) => return Ok(()),
        };
        let Some(typist) = &mut self.writer else {
            let message = "this attachment is read-only: attach with `write=true` to type";
            return refuse(socket, &Refusal::new(ErrorCode::Forbidden, message)).await;
        };
        let key = format!("{}-{}", typist.session, typist.next);
        typist.waiting = Some(Input { key, bytes, eof });
        Ok(())
    }

    /// Gives the keeper what waits, and says when all of it was taken.
    async fn offer(&mut self, socket: &mut WebSocket) -> Result<(), Over> {
        let (Some(typist), Found::Here(entry)) = (&mut self.writer, &self.found) else { return Ok(()) };
        let Some(input) = &typist.waiting else { return Ok(()) };
        let refused = match self.core.offer(entry, input, Duration::ZERO).await {
            Ok(taken) if !taken.complete => return Ok(()),
            Ok(_) => None,
            Err(refusal) => Some(refusal),
        };
        typist.waiting = None;
        typist.next += 1;
        let below = typist.next;
        if let Some(refusal) = refused {
            refuse(socket, &refusal).await?;
        }
        tell(socket, &AttachNotice::Taken { below }).await
    }
}

/// Waits for output, an end or another size; at once where there is more to read.
async fn news(entry: Option<Arc<Entry>>, seen: Seen) {
    let Some(entry) = entry else { return };
    // Output that is closed is no news; the end of whoever closed it will be.
    let closed = has_closed(&entry.state.borrow());
    tokio::select! {
        _ = until_output(&entry, seen.cursor, LONG), if !closed => {}
        () = until_change(&entry, |state| has_exited(state) != seen.exited || state.size != seen.size) => {}
    }
}

/// What an observer knows already.
struct Seen {
    cursor: u64,
    exited: bool,
    size: Option<PtySize>,
}

fn api_size(size: PtySize) -> ApiPtySize {
    ApiPtySize { rows: size.rows, cols: size.cols }
}

async fn tell(socket: &mut WebSocket, notice: &AttachNotice) -> Result<(), Over> {
    let text = serde_json::to_string(notice).unwrap_or_default();
    socket.send(Message::Text(text.into())).await.map_err(|_| Over)
}

async fn refuse(socket: &mut WebSocket, refusal: &Refusal) -> Result<(), Over> {
    tell(socket, &AttachNotice::Refused { code: refusal.0.code, message: refusal.0.message.clone() }).await
}
