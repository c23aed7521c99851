//! The WebSocket that an agent connects to: pinfold is the server, on a loopback port for one agent.
//!
//! What the agent sends is appended to a file before it is processed, and read from there like the stdout of another
//! agent. After a crash of the daemon the next one opens the same port and the agent connects again. It does not repeat
//! what it sent in between, so a turn that was running then is started again. A connection must send the token that the
//! agent has in its environment; only the hash of the token is on disk.
//!
//! Bounds: one connection, [`MAX_FRAME`] bytes a message, [`MAX_QUEUE`] messages and [`MAX_QUEUE_BYTES`] bytes that wait
//! for the agent; one more is an error.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use pinfold_agents::bounds::MAX_FRAME;
use sha2::{Digest, Sha256};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::received;
use crate::mutex::lock;

/// Messages that may wait for the agent to connect or to read, and their bytes.
const MAX_QUEUE: usize = 256;
const MAX_QUEUE_BYTES: usize = 32 << 20;
/// How often, and at what interval, to try to open the port of an earlier daemon.
const PORT_TRIES: u32 = 50;
const PORT_PAUSE: Duration = Duration::from_millis(100);

/// The environment variable with the token that the agent must send.
pub(super) const TOKEN_VARIABLE: &str = "CLAUDE_CODE_SESSION_ACCESS_TOKEN";

/// The server for one process of an agent.
#[derive(Debug)]
pub(super) struct AgentSocket {
    port: u16,
    outgoing: mpsc::Sender<String>,
    /// Bytes of the messages that wait.
    queued_bytes: Arc<AtomicUsize>,
    /// The length of the file.
    received_bytes: watch::Receiver<u64>,
    serving: JoinHandle<()>,
}

/// What the connections share.
struct Inner {
    token_hash: String,
    path: PathBuf,
    received_bytes: watch::Sender<u64>,
    queued_bytes: Arc<AtomicUsize>,
    /// Locked by the connection that is open.
    outgoing: tokio::sync::Mutex<mpsc::Receiver<String>>,
    /// The number of the newest connection; an older one then closes.
    newest: watch::Sender<u64>,
    file: Mutex<()>,
}

impl AgentSocket {
    /// Listens on a free port, or on this one if an earlier daemon used it.
    pub(super) async fn listen(port: Option<u16>, token_hash: String, path: PathBuf) -> io::Result<Self> {
        let listener = bind(port).await?;
        let port = listener.local_addr()?.port();
        let length = std::fs::metadata(&path).map(|metadata| metadata.len()).unwrap_or(0);
        let (received, received_bytes) = watch::channel(length);
        let queued_bytes = Arc::<AtomicUsize>::default();
        let (outgoing, incoming) = mpsc::channel(MAX_QUEUE);
        let inner = Arc::new(Inner {
            token_hash,
            path,
            received_bytes: received,
            queued_bytes: Arc::clone(&queued_bytes),
            outgoing: tokio::sync::Mutex::new(incoming),
            newest: watch::Sender::new(0),
            file: Mutex::new(()),
        });
        let router = Router::new().route("/agent", get(connect)).with_state(inner);
        let serving = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, router).await {
                tracing::error!(%error, "cannot serve the socket of an agent");
            }
        });
        Ok(Self { port, outgoing, queued_bytes, received_bytes, serving })
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// The URL that the agent connects to.
    pub(super) fn url(port: u16) -> String {
        format!("ws://127.0.0.1:{port}/agent")
    }

    /// Queues a message, to be sent when the agent is connected.
    pub(super) fn send(&self, line: String) -> Result<(), &'static str> {
        const FULL: &str = "too many messages wait for it to connect or to read";
        let length = line.len();
        // Counted first: the connection may send the message, and subtract it, before `try_send` returns.
        let before = self.queued_bytes.fetch_add(length, Ordering::Relaxed);
        let fits = before + length <= MAX_QUEUE_BYTES;
        if fits && self.outgoing.try_send(line).is_ok() {
            return Ok(());
        }
        self.queued_bytes.fetch_sub(length, Ordering::Relaxed);
        Err(FULL)
    }

    pub(super) fn received_bytes(&self) -> watch::Receiver<u64> {
        self.received_bytes.clone()
    }
}

impl Drop for AgentSocket {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// The hash of a token, as it is stored.
pub(super) fn hash(token: &str) -> String {
    Sha256::digest(token.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

async fn bind(port: Option<u16>) -> io::Result<TcpListener> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port.unwrap_or(0)));
    for _ in 1..PORT_TRIES {
        match TcpListener::bind(address).await {
            // Connections of a daemon that was killed may still hold the port for a moment.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => tokio::time::sleep(PORT_PAUSE).await,
            bound => return bound,
        }
    }
    TcpListener::bind(address).await
}

async fn connect(State(inner): State<Arc<Inner>>, headers: HeaderMap, upgrade: WebSocketUpgrade) -> Response {
    let sent = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = sent.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
    use subtle::ConstantTimeEq;
    if !bool::from(hash(token).as_bytes().ct_eq(inner.token_hash.as_bytes())) {
        return (StatusCode::UNAUTHORIZED, "only the agent that this socket was opened for may connect")
            .into_response();
    }
    // Browsers send this header, agents do not.
    if headers.contains_key(header::ORIGIN) {
        return (StatusCode::FORBIDDEN, "only the agent that this socket was opened for may connect").into_response();
    }
    let upgrade = upgrade.max_message_size(MAX_FRAME).max_frame_size(MAX_FRAME);
    upgrade.on_upgrade(move |socket| talk(inner, socket))
}

/// Passes messages in both directions until one side closes the connection, or a newer one replaces it.
async fn talk(inner: Arc<Inner>, mut socket: WebSocket) {
    let mut newest = inner.newest.subscribe();
    inner.newest.send_modify(|number| *number += 1);
    let own = *newest.borrow_and_update();
    let mut outgoing = inner.outgoing.lock().await;
    if *inner.newest.borrow() != own {
        return;
    }
    loop {
        let step = tokio::select! {
            message = socket.recv() => Step::Received(message),
            line = outgoing.recv() => Step::ToSend(line),
            () = replaced(&mut newest, own) => Step::Replaced,
        };
        match step {
            Step::Received(Some(Ok(Message::Text(text)))) => inner.append(text.as_str()),
            Step::Received(Some(Ok(Message::Close(_)) | Err(_)) | None) | Step::Replaced | Step::ToSend(None) => return,
            Step::Received(Some(Ok(_))) => {}
            Step::ToSend(Some(line)) => {
                inner.queued_bytes.fetch_sub(line.len(), Ordering::Relaxed);
                if socket.send(Message::Text(format!("{line}\n").into())).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// Why a connection woke up.
enum Step {
    Received(Option<Result<Message, axum::Error>>),
    ToSend(Option<String>),
    /// A newer connection was opened.
    Replaced,
}

async fn replaced(newest: &mut watch::Receiver<u64>, own: u64) {
    let _ = newest.wait_for(|number| *number != own).await.is_ok();
}

impl Inner {
    /// Appends a message to the file, then wakes the reader.
    fn append(&self, text: &str) {
        let _guard = lock(&self.file);
        match received::append(&self.path, text) {
            Ok(length) => drop(self.received_bytes.send_replace(length)),
            Err(error) => tracing::error!(%error, "cannot store a message of an agent"),
        }
    }
}
