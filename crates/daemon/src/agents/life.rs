//! The process an agent runs as: started, listened to, and taken leave of.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pinfold_agents::{Frame, Frames};
use pinfold_api::error::ErrorCode;
use pinfold_api::types::Transport;
use pinfold_model::input::Input;
use pinfold_model::outcome::{Cause, Outcome};
use pinfold_store::marks::{Run, Stream};
use pinfold_store::reader::OutputReader;

use super::seat::Seat;
use super::spec::{Env, LIFE};
use super::state::Message;
use super::stream;
use super::wire::{TOKEN_VARIABLE, Wire};
use crate::access::caller::Proof;
use crate::core::{Core, blocking};
use crate::lock::lock;
use crate::refusal::Refusal;
use crate::registry::{Entry, Found, Scope};
use crate::waits::{has_exited, until_output};
use tokio::sync::watch;

/// Bytes that are listened to at a time.
const EAR: usize = 1 << 20;
/// How long one look for output is.
const LOOK: Duration = Duration::from_secs(3600);
/// How often an observer looks at what came by a WebSocket.
const GLANCE: Duration = Duration::from_millis(100);
/// How long a message may take to be taken by the keeper.
const TAKE: Duration = Duration::from_secs(60);
/// The end of stderr that a reader is shown, in bytes.
const LAST_WORDS: u64 = 2000;

/// A process that an agent runs as.
#[derive(Debug)]
pub(crate) struct Life {
    pub(crate) entry: Arc<Entry>,
    frames: Frames,
    at: u64,
    /// What it sends by a WebSocket is kept here, and not in its stdout.
    stream: Option<PathBuf>,
    /// The WebSocket that it connects to.
    pub(crate) wire: Option<Wire>,
    /// The session it was to go on with, if that was our idea.
    pub(crate) resumed: bool,
    /// Whether its stdin was ended.
    pub(crate) dismissed: bool,
    /// Whether it is ended because it does not listen.
    pub(crate) deaf: bool,
}

/// Where an agent connects to, and what it must show there, while that is known.
#[derive(Debug)]
pub(crate) struct Door {
    pub(crate) port: u16,
    pub(crate) token: Option<String>,
}

/// What was heard.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    pub(crate) frames: Vec<Frame>,
    /// Some of it was lost.
    pub(crate) gap: bool,
    /// Nothing more is there now.
    pub(crate) silent: bool,
}

impl Life {
    /// Listens from this cursor on.
    pub(crate) fn new(entry: Arc<Entry>, cursor: u64) -> Self {
        Self {
            entry,
            frames: Frames::default(),
            at: cursor,
            stream: None,
            wire: None,
            resumed: false,
            dismissed: false,
            deaf: false,
        }
    }

    pub(crate) fn has_exited(&self) -> bool {
        has_exited(&self.entry.state.borrow())
    }

    /// Returns when there is something to listen to, or its leader has exited. May be dropped at any time.
    pub(crate) async fn news(entry: &Entry, at: u64, growing: Option<watch::Receiver<u64>>) {
        let mut state = entry.state.subscribe();
        let exited = state.wait_for(has_exited);
        let output = async {
            if let Some(mut growing) = growing {
                let _ = growing.wait_for(|length| *length > at).await;
                return;
            }
            // Without more output to come there is its exit to wait for.
            if !until_output(entry, at, LOOK).await {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            _ = exited => {}
            () = output => {}
        }
    }

    /// What `news` is to be asked with.
    pub(crate) fn place(&self) -> (Arc<Entry>, u64, Option<watch::Receiver<u64>>) {
        (Arc::clone(&self.entry), self.at, self.wire.as_ref().map(Wire::growing))
    }

    /// A life that somebody else began: from this cursor on, wherever it says what it says.
    pub(crate) fn taken_up(entry: Arc<Entry>, cursor: u64, seat: &Seat) -> Self {
        let mut life = Self::new(entry, cursor);
        if seat.spec.transport == Transport::Websocket {
            let number = life.entry.state.borrow().history.labels().get(LIFE).and_then(|number| number.parse().ok());
            life.stream = Some(seat.dir.stream(number.unwrap_or(1)));
        }
        life
    }

    /// Listens to a WebSocket instead of its stdout.
    pub(crate) fn listen_to(&mut self, wire: Wire, stream: PathBuf) {
        (self.wire, self.stream) = (Some(wire), Some(stream));
    }

    /// As `news`, for an observer.
    pub(crate) async fn next(&self) {
        match self.stream {
            Some(_) => tokio::time::sleep(GLANCE).await,
            None => Self::news(&self.entry, self.at, None).await,
        }
    }

    /// Listens to what is there.
    pub(crate) async fn listen(&mut self, core: &Core) -> Result<Heard, Refusal> {
        if let Some(stream) = self.stream.clone() {
            let at = self.at;
            let piece = blocking(move || stream::read(&stream, at, EAR)).await?.map_err(Refusal::internal)?;
            let gap = piece.at > at;
            if gap {
                self.frames.forget();
            }
            self.at = piece.at + piece.bytes.len() as u64;
            let frames = self.frames.feed(&piece.bytes, |place| piece.at + place as u64);
            return Ok(Heard { frames, gap, silent: piece.bytes.len() < EAR });
        }
        let (at, directory) = (self.at, core.home.process(&self.entry.id));
        let end = self.entry.state.borrow().history.finish.as_ref().map(|finish| finish.output_bytes);
        let read = move || OutputReader::open(&directory).with_known_end(end).read_runs(at, EAR);
        let (piece, mut runs) = blocking(read).await?.map_err(Refusal::internal)?;
        self.at = piece.next;
        runs.retain(|run| run.stream == Stream::Stdout);
        let gap = piece.gap.is_some();
        if gap {
            self.frames.forget();
        }
        let frames = self.frames.feed(&piece.bytes_of(&runs), |place| cursor_after(&runs, place, piece.at));
        Ok(Heard { frames, gap, silent: piece.next >= piece.end })
    }

    /// The end of what it said on stderr, or on stdout if it said nothing there.
    pub(crate) async fn last_words(&self, core: &Core) -> String {
        let directory = core.home.process(&self.entry.id);
        let read = move || {
            let reader = OutputReader::open(&directory);
            let start = reader.tail_start(LAST_WORDS)?;
            let (piece, runs) = reader.read_runs(start, LAST_WORDS as usize)?;
            let of = |stream| runs.iter().filter(|run| run.stream == stream).cloned().collect::<Vec<Run>>();
            let errors = piece.bytes_of(&of(Stream::Stderr));
            std::io::Result::Ok(if errors.is_empty() { piece.bytes_of(&of(Stream::Stdout)) } else { errors })
        };
        let bytes = blocking(read).await.ok().and_then(Result::ok).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let text = pinfold_model::output_view::strip_ansi(text.trim().as_bytes());
        String::from_utf8_lossy(&text).chars().rev().take(400).collect::<Vec<_>>().into_iter().rev().collect()
    }

    /// Why it ended, unless that was its own idea.
    pub(crate) fn requested_end(&self) -> Option<Cause> {
        let cause = self.entry.state.borrow().history.cause()?;
        (!matches!(cause, Cause::OnItsOwn | Cause::OutOfMemory)).then_some(cause)
    }

    /// How its leader ended, in words.
    pub(crate) fn ending(&self) -> String {
        let history = &self.entry.state.borrow().history;
        let how = match history.outcome() {
            Some(Outcome::Exited { code }) => format!("exited with code {code}"),
            Some(Outcome::Signaled { signal, .. }) => format!("was ended by {signal}"),
            Some(Outcome::FailedToStart { error, .. }) => format!("did not start: {error}"),
            Some(Outcome::Lost { evidence }) => format!("was lost: {evidence}"),
            None => "is gone".to_owned(),
        };
        match history.cause() {
            Some(Cause::OutOfMemory) => format!("{how}: its tree reached its memory limit"),
            _ => how,
        }
    }

    pub(crate) fn is_lost(&self) -> bool {
        matches!(self.entry.state.borrow().history.outcome(), Some(Outcome::Lost { .. }))
    }

    pub(crate) fn was_killed(&self) -> bool {
        let outcome = self.entry.state.borrow().history.outcome();
        matches!(outcome, Some(Outcome::Signaled { signal, .. }) if signal == pinfold_model::signal::Signal::KILL)
    }
}

/// The cursor after the byte at this place among those of the runs.
fn cursor_after(runs: &[Run], place: usize, begin: u64) -> u64 {
    let mut left = place as u64;
    for run in runs {
        let length = run.range.end - run.range.start;
        if left <= length {
            return run.range.start + left;
        }
        left -= length;
    }
    runs.last().map_or(begin, |run| run.range.end)
}

/// Starts the process of a life, or finds it if an earlier daemon did.
pub(crate) async fn start(
    core: &Arc<Core>,
    seat: &Seat,
    life: u64,
    (resume, door): (Option<String>, Option<Door>),
) -> Result<Life, Refusal> {
    let spec = &seat.spec;
    let cwd = spec.cwd.as_deref().unwrap_or("~");
    let cwd = match cwd.strip_prefix('~') {
        Some(rest) => format!("{}{rest}", core.user_home),
        None => cwd.to_owned(),
    };
    let settings = spec.settings_of(resume, &cwd, door.as_ref().map(|door| Wire::url(door.port)));
    let mut env = env_of(core, seat, life)?;
    if let Some(token) = door.and_then(|door| door.token) {
        env.insert(TOKEN_VARIABLE.to_owned(), Some(token));
    }
    let mut request = spec.start_request(life, &settings, env);
    if let Some(heir) = lock(&seat.heir).clone() {
        (request.owner, request.owner_grace) = (Some(heir), None);
    }
    // Not in the name of its owner: that an agent goes on is no sign of life of whoever began it.
    let caller = core.caller(Proof::operator(), None, None).await?;
    let started = core.start(&caller, request).await?;
    find(core, &started.record.id).await
}

/// The life of a process that there is.
pub(crate) async fn find(core: &Arc<Core>, id: &str) -> Result<Life, Refusal> {
    let entry = match core.find(&Scope::Operator, id).await? {
        Found::Here(entry) => entry,
        Found::Ended(history) => Entry::new(*history),
    };
    Ok(Life::new(entry, 0))
}

fn env_of(core: &Core, seat: &Seat, life: u64) -> Result<Env, Refusal> {
    let key = format!("agent-{}-{life}", seat.id);
    match &*lock(&seat.env) {
        Some(env) => Ok(env.clone()),
        None if seat.spec.env_names.is_empty() || core.registry.by_key(&seat.owner(), &key).is_some() => Ok(Env::new()),
        None => {
            let names = seat.spec.env_names.join(", ");
            let message = format!(
                "the daemon was restarted, and values of the environment ({names}) are not kept on disk: give them \
                 again as `env` of the next turn"
            );
            Err(Refusal::new(ErrorCode::InvalidRequest, message))
        }
    }
}

/// Writes a message to its stdin, once.
pub(crate) async fn send(core: &Core, entry: &Entry, message: &Message) -> Result<(), Refusal> {
    let bytes = format!("{}\n", message.line).into_bytes();
    offer(core, entry, Input { key: message.key(), bytes, eof: false }).await
}

/// Ends its stdin.
pub(crate) async fn dismiss(core: &Core, entry: &Entry) -> Result<(), Refusal> {
    offer(core, entry, Input { key: "agent-end".to_owned(), bytes: vec![], eof: true }).await
}

async fn offer(core: &Core, entry: &Entry, input: Input) -> Result<(), Refusal> {
    let taken = core.offer(entry, &input, TAKE).await?;
    if taken.complete {
        return Ok(());
    }
    let message = format!("it does not read its stdin: {} bytes wait there", taken.queued);
    Err(Refusal::new(ErrorCode::LimitReached, message))
}
