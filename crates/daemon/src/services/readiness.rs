//! Readiness checks: one task for each process with a readiness condition.
//!
//! The result is sent to the keeper, which records it (K1); waits end on that fact, not on the check itself (D3). After a
//! restart of the daemon the check continues: its timeout counts from the start of the process. A port counts only if a
//! process of the tree holds it; if another program does, the note of the process says so.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{CONNECTION, HOST, USER_AGENT};
use hyper::{Request, StatusCode};
use pinfold_model::facts::History;
use pinfold_model::link::ToKeeper;
use pinfold_model::output_view::parse_pattern;
use pinfold_model::ready::{LoopbackHost, Readiness, Ready, ReadyBy, ReadyVerdict};
use pinfold_os::{ports, tree};
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::ready_socket::{Peer, ReadySocket};
use crate::clock::now;
use crate::core::{Core, blocking};
use crate::http_client::exchange;
use crate::registry::service_records::render_by;
use crate::registry::{Entry, State};
use crate::request_error::RequestError;

/// The interval between two checks of a port, at first and at most.
const MIN_CHECK_INTERVAL: Duration = Duration::from_millis(25);
const MAX_CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// How long one GET may take.
const HTTP_TIMEOUT: Duration = Duration::from_secs(5);
/// How many ports of a tree are checked if any port will do.
const MAX_PORTS_CHECKED: usize = 8;
/// How soon the result is sent again to a keeper that did not record it.
const RESEND_DELAY: Duration = Duration::from_secs(1);
/// How much of a matching line is kept.
const MAX_LINE: usize = 500;

/// Evidence that a process is ready.
#[derive(Debug)]
struct Evidence {
    evidence: String,
    port: Option<u16>,
}

impl Core {
    /// Starts the readiness check of a process if it needs one and none runs. `socket` is the one that it may connect to,
    /// if that was bound before it started.
    pub(crate) fn look_for_readiness(self: &Arc<Self>, entry: &Arc<Entry>, socket: Option<ReadySocket>) {
        let ready = {
            let state = entry.state.borrow();
            let history = &state.history;
            let open = history.readiness.is_none() && !history.status().is_over();
            history.intent.spec.service.ready.clone().filter(|_| open)
        };
        let Some(ready) = ready.filter(|_| entry.claim_readiness_probe()) else { return };
        let (core, entry) = (Arc::clone(self), Arc::clone(entry));
        tokio::spawn(async move {
            if let Err(error) = decide(&core, &entry, &ready, socket).await {
                tracing::warn!(process = %entry.id, error = %error.0, "cannot check whether a process is ready");
            }
        });
    }
}

async fn decide(
    core: &Arc<Core>,
    entry: &Arc<Entry>,
    ready: &Ready,
    socket: Option<ReadySocket>,
) -> Result<(), RequestError> {
    let mut state = entry.state.subscribe();
    let started = state.wait_for(|state| state.history.start.is_some() || is_over(state)).await;
    let start = started.ok().and_then(|state| state.history.start.as_ref().map(|start| start.at));
    let Some(start) = start else { return Ok(()) };
    let deadline = Instant::now() + start.after(ready.timeout).since(now());
    let seen = tokio::select! {
        seen = tokio::time::timeout_at(deadline, look(core, entry, ready, socket)) => seen,
        _ = state.wait_for(is_over) => return Ok(()),
    };
    let readiness = match seen {
        Ok(Ok(Evidence { evidence, port })) => Readiness { verdict: ReadyVerdict::Ready, evidence, port, at: now() },
        Ok(Err(error)) => return Err(error),
        Err(_) => {
            Readiness { verdict: ReadyVerdict::TimedOut, evidence: late(entry, ready).await, port: None, at: now() }
        }
    };
    commit(entry, readiness).await;
    Ok(())
}

/// Sends the result to the keeper until it has recorded it, or the process has ended.
async fn commit(entry: &Entry, readiness: Readiness) {
    let mut state = entry.state.subscribe();
    loop {
        if let Some(link) = entry.link() {
            let message = ToKeeper::Readiness { id: entry.id.clone(), readiness: readiness.clone() };
            let _ = link.send(&message).await;
        }
        let written = state.wait_for(|state| state.history.readiness.is_some() || is_over(state));
        if tokio::time::timeout(RESEND_DELAY, written).await.is_ok() {
            return;
        }
    }
}

fn is_over(state: &State) -> bool {
    state.history.status().is_over() || state.refused.is_some()
}

/// Returns when it is ready.
async fn look(
    core: &Arc<Core>,
    entry: &Arc<Entry>,
    ready: &Ready,
    socket: Option<ReadySocket>,
) -> Result<Evidence, RequestError> {
    match &ready.by {
        ReadyBy::Port { .. } | ReadyBy::Http { .. } => look_at_ports(entry, &ready.by).await,
        ReadyBy::Output { pattern } => {
            let line = core.until_line(entry, parse_pattern(pattern)?).await?;
            let line: String = line.trim_end().chars().take(MAX_LINE).collect();
            Ok(Evidence { evidence: format!("it printed: {line}"), port: None })
        }
        ReadyBy::Peer => {
            let socket = match socket {
                Some(socket) => socket,
                None => ReadySocket::open(&core.home, &entry.id).map_err(RequestError::internal)?,
            };
            look_at_peers(entry, &socket).await
        }
    }
}

async fn look_at_peers(entry: &Entry, socket: &ReadySocket) -> Result<Evidence, RequestError> {
    let keeper = entry.state.borrow().history.intent.keeper.pid;
    loop {
        match socket.accept(keeper).await.map_err(RequestError::internal)? {
            Peer::Own(pid) => return Ok(Evidence { evidence: format!("pid {pid} connected"), port: None }),
            Peer::Stranger(pid) => note(entry, format!("pid {pid} connected, which is not of its tree")),
            Peer::Unknown => note(entry, "a process connected that cannot be seen from here".to_owned()),
        }
    }
}

/// Checks the ports of the tree until one of them meets the condition.
async fn look_at_ports(entry: &Arc<Entry>, by: &ReadyBy) -> Result<Evidence, RequestError> {
    let mut pause = MIN_CHECK_INTERVAL;
    loop {
        let history = entry.snapshot().history;
        let found = blocking(move || listening(&history)).await?;
        match &found {
            Found::Own(ports) => {
                for port in ports.iter().copied().take(MAX_PORTS_CHECKED) {
                    let evidence = match by {
                        ReadyBy::Http { host, path, status, .. } => get(entry, (*host, port), path, *status).await,
                        _ => Some(format!("it listens on port {port}")),
                    };
                    if let Some(evidence) = evidence {
                        return Ok(Evidence { evidence, port: Some(port) });
                    }
                }
            }
            Found::Elsewhere(who) => note(entry, who.clone()),
            Found::Nowhere => clear_note(entry),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 5 / 4).min(MAX_CHECK_INTERVAL);
    }
}

/// Which process listens on the port that should become ready.
#[derive(Debug)]
enum Found {
    Own(Vec<u16>),
    Elsewhere(String),
    Nowhere,
}

fn listening(history: &History) -> Found {
    let keeper = &history.intent.keeper;
    let members = tree::descendants(keeper.pid);
    let pids: Vec<u32> = members.iter().map(|member| member.pid).collect();
    let Some(port) = history.intent.spec.service.awaited_port() else {
        let mut ports: Vec<u16> = ports::listening_ports(&pids).into_values().flatten().collect();
        ports.sort_unstable();
        ports.dedup();
        return if ports.is_empty() { Found::Nowhere } else { Found::Own(ports) };
    };
    if ports::is_listening(&pids, port) {
        return Found::Own(vec![port]);
    }
    match held_by_another(port) {
        Some(who) => Found::Elsewhere(who),
        None => Found::Nowhere,
    }
}

/// A text that says which program holds a port, if one does.
pub(crate) fn held_by_another(port: u16) -> Option<String> {
    if !ports::is_held(port) {
        return None;
    }
    // Without its command line, which may belong to another owner or be written to mislead the reader.
    let holder = ports::holder(port).map(|pid| format!("pid {pid}"));
    let holder = holder.unwrap_or_else(|| "a process that cannot be seen".to_owned());
    Some(format!("port {port} is held by another program: {holder}"))
}

/// One GET to this machine; returns the evidence if the status is the expected one. The body is not read and redirects
/// are not followed.
async fn get(entry: &Entry, (host, port): (LoopbackHost, u16), path: &str, status: Option<u16>) -> Option<String> {
    let address = format!("http://{}:{port}{path}", host.text());
    match tokio::time::timeout(HTTP_TIMEOUT, try_get(host, port, path)).await {
        Ok(Ok(answered)) => {
            let fits = status.map_or(answered.as_u16() < 400, |status| answered.as_u16() == status);
            if fits {
                return Some(format!("GET {address} was answered with {}", answered.as_u16()));
            }
            note(entry, format!("GET {address} is answered with {}", answered.as_u16()));
        }
        Ok(Err(error)) => note(entry, format!("GET {address}: {error}")),
        Err(_) => note(entry, format!("GET {address} got no response within 5s")),
    }
    None
}

async fn try_get(host: LoopbackHost, port: u16, path: &str) -> Result<StatusCode, String> {
    let (v4, v6) = (IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST));
    let places: &[IpAddr] = match host {
        LoopbackHost::Localhost => &[v4, v6],
        LoopbackHost::V4 => &[v4],
        LoopbackHost::V6 => &[v6],
    };
    let places: Vec<_> = places.iter().map(|place| SocketAddr::new(*place, port)).collect();
    let stream = TcpStream::connect(&places[..]).await.map_err(|error| error.to_string())?;
    let request = Request::builder()
        .uri(path)
        .header(HOST, format!("{}:{port}", host.text()))
        .header(USER_AGENT, concat!("pinfold/", env!("CARGO_PKG_VERSION")))
        .header(CONNECTION, "close")
        .body(Full::<Bytes>::default())
        .map_err(|error| error.to_string())?;
    exchange(stream, request).await.map_err(|error| error.to_string())
}

/// The text for a process that was not ready in time.
async fn late(entry: &Entry, ready: &Ready) -> String {
    let state = entry.snapshot();
    let by = render_by(ready, &state.history.intent.spec.service);
    let missing = state.ready_note.map(|note| format!(": {note}")).unwrap_or_default();
    format!("not ready by {by} within {:?}{missing}", ready.timeout)
}

/// Sets the note that says why the process is not ready yet.
fn note(entry: &Entry, text: String) {
    entry.state.send_if_modified(|state| {
        let new = state.ready_note.as_ref() != Some(&text);
        state.ready_note = Some(text.clone());
        new
    });
}

fn clear_note(entry: &Entry) {
    entry.state.send_if_modified(|state| state.ready_note.take().is_some());
}
