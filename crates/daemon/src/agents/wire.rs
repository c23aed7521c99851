//! The WebSocket that an agent connects to: pinfold is the server, on loopback, for one agent at a time.
//!
//! What the agent sends is appended to a file before anything is made of it, and read from there like the stdout of
//! another agent. The port stays the same over a crash of the daemon, and the agent connects again; what it sent while none
//! ran it does not send again, so a turn that was running then is begun again. Nobody else is let in: a connection must show the token that the agent has in its
//! environment, which is on no disk but as its hash. Bounds: one connection, [`MAX_FRAME`] a message, [`WAITING`]
//! messages that wait for the agent.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
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

use super::stream;
use crate::lock::lock;

/// Messages that wait for the agent to connect or to read.
const WAITING: usize = 256;
/// How long the port of a former daemon is tried for.
const PORT_TRIES: u32 = 50;
const PORT_PAUSE: Duration = Duration::from_millis(100);

/// The variable in which an agent finds the token that it must show.
pub(crate) const TOKEN_VARIABLE: &str = "CLAUDE_CODE_SESSION_ACCESS_TOKEN";

/// The server of one life.
#[derive(Debug)]
pub(crate) struct Wire {
    port: u16,
    outgoing: mpsc::Sender<String>,
    /// Bytes in the file.
    grown: watch::Receiver<u64>,
    serving: JoinHandle<()>,
}

/// What its connections share.
struct Inner {
    token_hash: String,
    path: PathBuf,
    grown: watch::Sender<u64>,
    /// Taken by the connection that is open.
    outgoing: tokio::sync::Mutex<mpsc::Receiver<String>>,
    /// Tells an older connection that a newer one is there.
    newest: watch::Sender<u64>,
    file: Mutex<()>,
}

impl Wire {
    /// Listens, on this port if an earlier daemon did.
    pub(crate) async fn listen(port: Option<u16>, token_hash: String, path: PathBuf) -> io::Result<Self> {
        let listener = bind(port).await?;
        let port = listener.local_addr()?.port();
        let length = std::fs::metadata(&path).map(|metadata| metadata.len()).unwrap_or(0);
        let (grown, growing) = watch::channel(length);
        let (outgoing, incoming) = mpsc::channel(WAITING);
        let inner = Arc::new(Inner {
            token_hash,
            path,
            grown,
            outgoing: tokio::sync::Mutex::new(incoming),
            newest: watch::Sender::new(0),
            file: Mutex::new(()),
        });
        let router = Router::new().route("/agent", get(connect)).with_state(inner);
        let serving = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, router).await {
                tracing::error!(%error, "an agent's socket cannot be served");
            }
        });
        Ok(Self { port, outgoing, grown: growing, serving })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Where the agent is to connect to.
    pub(crate) fn url(port: u16) -> String {
        format!("ws://127.0.0.1:{port}/agent")
    }

    /// Sends a message, once the agent is there.
    pub(crate) fn send(&self, line: String) -> Result<(), &'static str> {
        self.outgoing.try_send(line).map_err(|_| "too many messages wait for it to connect")
    }

    pub(crate) fn growing(&self) -> watch::Receiver<u64> {
        self.grown.clone()
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// The hash of a token, as it is kept.
pub(crate) fn hash(token: &str) -> String {
    Sha256::digest(token.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

async fn bind(port: Option<u16>) -> io::Result<TcpListener> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port.unwrap_or(0)));
    for _ in 1..PORT_TRIES {
        match TcpListener::bind(address).await {
            // Connections of the daemon that died may hold it for a moment.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => tokio::time::sleep(PORT_PAUSE).await,
            bound => return bound,
        }
    }
    TcpListener::bind(address).await
}

async fn connect(State(inner): State<Arc<Inner>>, headers: HeaderMap, upgrade: WebSocketUpgrade) -> Response {
    let shown = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = shown.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
    use subtle::ConstantTimeEq;
    if !bool::from(hash(token).as_bytes().ct_eq(inner.token_hash.as_bytes())) {
        return (StatusCode::UNAUTHORIZED, "this socket is an agent's own").into_response();
    }
    // A page in a browser says where it comes from; an agent does not.
    if headers.contains_key(header::ORIGIN) {
        return (StatusCode::FORBIDDEN, "this socket is an agent's own").into_response();
    }
    let upgrade = upgrade.max_message_size(MAX_FRAME).max_frame_size(MAX_FRAME);
    upgrade.on_upgrade(move |socket| talk(inner, socket))
}

/// Carries messages both ways until one side or a newer connection ends it.
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
            Step::Received(Some(Ok(Message::Text(text)))) => inner.keep(text.as_str()),
            Step::Received(Some(Ok(Message::Close(_)) | Err(_)) | None) | Step::Replaced | Step::ToSend(None) => return,
            Step::Received(Some(Ok(_))) => {}
            Step::ToSend(Some(line)) => {
                if socket.send(Message::Text(format!("{line}\n").into())).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// What a connection wakes for.
enum Step {
    Received(Option<Result<Message, axum::Error>>),
    ToSend(Option<String>),
    /// A newer connection is there.
    Replaced,
}

async fn replaced(newest: &mut watch::Receiver<u64>, own: u64) {
    let _ = newest.wait_for(|number| *number != own).await.is_ok();
}

impl Inner {
    /// Appends what was received, and then tells of it.
    fn keep(&self, text: &str) {
        let _guard = lock(&self.file);
        match stream::append(&self.path, text) {
            Ok(length) => drop(self.grown.send_replace(length)),
            Err(error) => tracing::error!(%error, "what an agent sent cannot be kept"),
        }
    }
}
