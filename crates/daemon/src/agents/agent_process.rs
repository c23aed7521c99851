//! The process that an agent runs as: starting it, reading its messages, writing to it, and how it ended.

use std::path::PathBuf;
use std::time::Duration;

use pinfold_agents::{Frame, Frames};
use pinfold_api::error::ErrorCode;
use pinfold_api::types::Transport;
use pinfold_model::input::Input;
use pinfold_model::outcome::{Cause, Outcome};
use pinfold_model::signal::Signal;
use pinfold_store::marks::{Run, Stream};
use tokio::sync::watch;

use super::agent_socket::{AgentSocket, TOKEN_VARIABLE};
use super::handle::AgentHandle;
use super::host::{Host, Pending, Process};
use super::received;
use super::spec::{Env, RUN_LABEL};
use super::state::Message;
use crate::mutex::lock;
use crate::request_error::RequestError;
use crate::threads::blocking;

/// Bytes read at a time.
const READ_SIZE: usize = 1 << 20;
/// How often an observer checks for messages that came over a WebSocket.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// How much of the end of the output an error message is made from, in bytes, and its length in characters.
const OUTPUT_TAIL: usize = 2000;
const MAX_QUOTED: usize = 400;

/// A process that an agent runs as, and how far its messages were read.
#[derive(Debug)]
pub(super) struct AgentProcess {
    pub(super) process: Process,
    frames: Frames,
    cursor: u64,
    /// The file with the messages that it sends over a WebSocket; `None` if it writes them to stdout.
    received: Option<PathBuf>,
    /// The WebSocket that it connects to.
    pub(super) socket: Option<AgentSocket>,
    /// Whether it was started with a session that pinfold, not the user, chose to resume.
    pub(super) resumed: bool,
    /// Whether pinfold closed its stdin.
    pub(super) stdin_closed: bool,
    /// Whether it is being stopped because a message could not be delivered to it.
    pub(super) unreachable: bool,
}

/// Where an agent connects to, and the token that it needs there. The token is unknown for a process that an earlier
/// daemon started.
#[derive(Debug)]
pub(super) struct Endpoint {
    pub(super) port: u16,
    pub(super) token: Option<String>,
}

/// What was read since the last time.
#[derive(Debug, Default)]
pub(super) struct NewFrames {
    pub(super) frames: Vec<Frame>,
    /// Whether part of the output was dropped before it was read.
    pub(super) gap: bool,
    /// Whether everything was read.
    pub(super) at_end: bool,
}

/// A wait for new messages that does not borrow the process.
#[derive(Debug)]
pub(super) struct NewsWait {
    process: Process,
    cursor: u64,
    received_bytes: Option<watch::Receiver<u64>>,
}

impl NewsWait {
    /// Returns when there is something to read, or the leader has exited. Cancel-safe.
    pub(super) async fn wait(&mut self, host: &dyn Host) {
        match &mut self.received_bytes {
            None => host.until_news(&self.process, self.cursor).await,
            Some(bytes) => {
                let cursor = self.cursor;
                tokio::select! {
                    () = host.until_exit(&self.process) => {}
                    _ = bytes.wait_for(|bytes| *bytes > cursor) => {}
                }
            }
        }
    }
}

impl AgentProcess {
    /// Reads from this cursor on.
    pub(super) fn new(process: Process, cursor: u64) -> Self {
        Self {
            process,
            frames: Frames::default(),
            cursor,
            received: None,
            socket: None,
            resumed: false,
            stdin_closed: false,
            unreachable: false,
        }
    }

    /// A process that somebody else started, read from this cursor on.
    pub(super) fn reattached(process: Process, cursor: u64, handle: &AgentHandle) -> Self {
        let mut this = Self::new(process, cursor);
        if handle.spec.transport == Transport::Websocket {
            let run = this.process.labels().get(RUN_LABEL).and_then(|run| run.parse().ok());
            this.received = Some(handle.dir.stream(run.unwrap_or(1)));
        }
        this
    }

    /// Reads messages from a WebSocket, whose content is kept in a file, instead of stdout.
    pub(super) fn read_from(&mut self, socket: AgentSocket, received: PathBuf) {
        (self.socket, self.received) = (Some(socket), Some(received));
    }

    pub(super) fn news(&self) -> NewsWait {
        let received_bytes = self.socket.as_ref().map(AgentSocket::received_bytes);
        NewsWait { process: self.process.clone(), cursor: self.cursor, received_bytes }
    }

    /// As [`Self::news`], for an observer, which has no socket to watch.
    pub(super) async fn observe_news(&self, host: &dyn Host) {
        match self.received {
            Some(_) => tokio::time::sleep(POLL_INTERVAL).await,
            None => host.until_news(&self.process, self.cursor).await,
        }
    }

    /// Reads what is there now.
    pub(super) async fn read(&mut self, host: &dyn Host) -> Result<NewFrames, RequestError> {
        let cursor = self.cursor;
        if let Some(path) = self.received.clone() {
            let read = blocking(move || received::read(&path, cursor, READ_SIZE)).await?;
            let piece = read.map_err(RequestError::internal)?;
            let gap = piece.at > cursor;
            if gap {
                self.frames.forget();
            }
            self.cursor = piece.at + piece.bytes.len() as u64;
            let frames = self.frames.feed(&piece.bytes, |place| piece.at + place as u64);
            return Ok(NewFrames { frames, gap, at_end: piece.bytes.len() < READ_SIZE });
        }
        let output = host.read(&self.process, cursor, READ_SIZE).await?;
        let (piece, mut runs) = (output.piece, output.runs);
        self.cursor = piece.next;
        runs.retain(|run| run.stream == Stream::Stdout);
        let gap = piece.gap.is_some();
        if gap {
            self.frames.forget();
        }
        let frames = self.frames.feed(&piece.bytes_of(&runs), |place| cursor_after(&runs, place, piece.at));
        Ok(NewFrames { frames, gap, at_end: piece.next >= piece.end })
    }

    /// The end of its stderr, or of its stdout if it wrote nothing to stderr, as one text without terminal codes.
    pub(super) async fn output_tail(&self, host: &dyn Host) -> String {
        let Ok(output) = host.read_end(&self.process, OUTPUT_TAIL).await else { return String::new() };
        let of = |stream| output.runs.iter().filter(|run| run.stream == stream).cloned().collect::<Vec<Run>>();
        let errors = output.piece.bytes_of(&of(Stream::Stderr));
        let bytes = if errors.is_empty() { output.piece.bytes_of(&of(Stream::Stdout)) } else { errors };
        let text = String::from_utf8_lossy(&bytes);
        let text = pinfold_model::output_view::strip_ansi(text.trim().as_bytes());
        let text = String::from_utf8_lossy(&text);
        text.chars().skip(text.chars().count().saturating_sub(MAX_QUOTED)).collect()
    }

    /// Why pinfold ended it; `None` if it ended by itself.
    pub(super) fn requested_end(&self) -> Option<Cause> {
        self.process.cause().filter(|cause| !matches!(cause, Cause::OnItsOwn | Cause::OutOfMemory))
    }

    /// How its leader ended, as the rest of a sentence.
    pub(super) fn ending(&self) -> String {
        let how = match self.process.outcome() {
            Some(Outcome::Exited { code }) => format!("exited with code {code}"),
            Some(Outcome::Signaled { signal, .. }) => format!("was ended by {signal}"),
            Some(Outcome::FailedToStart { error, .. }) => format!("did not start: {error}"),
            Some(Outcome::Lost { evidence }) => format!("was lost: {evidence}"),
            None => "is gone".to_owned(),
        };
        match self.process.cause() {
            Some(Cause::OutOfMemory) => format!("{how}: its tree reached its memory limit"),
            _ => how,
        }
    }

    pub(super) fn is_lost(&self) -> bool {
        matches!(self.process.outcome(), Some(Outcome::Lost { .. }))
    }

    pub(super) fn was_killed(&self) -> bool {
        matches!(self.process.outcome(), Some(Outcome::Signaled { signal: Signal::KILL, .. }))
    }
}

/// The cursor after the first `place` bytes of these runs.
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

/// Starts the process with this run number, or finds it if an earlier daemon started it.
pub(super) async fn start(
    host: &dyn Host,
    handle: &AgentHandle,
    run: u64,
    (resume, endpoint): (Option<String>, Option<Endpoint>),
) -> Result<AgentProcess, RequestError> {
    let spec = &handle.spec;
    let cwd = spec.cwd.as_deref().unwrap_or("~");
    let cwd = match cwd.strip_prefix('~') {
        Some(rest) => format!("{}{rest}", host.user_home()),
        None => cwd.to_owned(),
    };
    let settings = spec.adapter_settings(resume, &cwd, endpoint.as_ref().map(|one| AgentSocket::url(one.port)));
    let mut env = env_of(host, handle, run)?;
    if let Some(token) = endpoint.and_then(|endpoint| endpoint.token) {
        env.insert(TOKEN_VARIABLE.to_owned(), Some(token));
    }
    let mut request = spec.start_request(run, &settings, env);
    if let Some(new_owner) = lock(&handle.new_owner).clone() {
        (request.owner, request.owner_grace) = (Some(new_owner), None);
    }
    Ok(AgentProcess::new(host.start(request).await?, 0))
}

fn env_of(host: &dyn Host, handle: &AgentHandle, run: u64) -> Result<Env, RequestError> {
    let known = lock(&handle.env).clone();
    match known {
        Some(env) => Ok(env),
        None if handle.spec.env_names.is_empty() => Ok(Env::new()),
        // The start then finds that process, and its environment does not matter.
        None if host.has_started(&handle.owner(), &handle.spec.start_key(run)) => Ok(Env::new()),
        None => {
            let names = handle.spec.env_names.join(", ");
            let message = format!(
                "the daemon was restarted, and values of the environment ({names}) are not kept on disk: give them \
                 again as `env` of the next turn"
            );
            Err(RequestError::new(ErrorCode::InvalidRequest, message))
        }
    }
}

/// Writes a message to its stdin, once.
pub(super) fn send<'a>(
    host: &'a dyn Host,
    process: &Process,
    message: &Message,
) -> Pending<'a, Result<(), RequestError>> {
    let bytes = format!("{}\n", message.line).into_bytes();
    host.input(process, Input { key: message.key(), bytes, eof: false })
}

/// Closes its stdin.
pub(super) fn close_stdin<'a>(host: &'a dyn Host, process: &Process) -> Pending<'a, Result<(), RequestError>> {
    host.input(process, Input { key: "agent-end".to_owned(), bytes: vec![], eof: true })
}
