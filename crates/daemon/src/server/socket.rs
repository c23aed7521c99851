//! The Unix socket: listening, and serving each connection. Only the daemon's own user and root may speak.
//!
//! Bounds (D4): headers by hyper's defaults and [`HEADER_TIME`], connections by the descriptor limit.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::response::IntoResponse;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use pinfold_api::quiet::QuietStream;
use pinfold_os::socket;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{UnixListener, UnixStream};

use crate::access::caller::Unproven;
use crate::access::closable::{Cuttable, Line};
use crate::access::origin::Connection;
use crate::core::Core;
use crate::owners::sessions::PeerPid;
use crate::server::spare_descriptor::Spare;

/// A client that does not finish its headers within this time is cut off.
const HEADER_TIME: Duration = Duration::from_secs(30);

/// Takes the socket's place: we hold the home's lock, so whatever is there belongs to a dead daemon.
pub(crate) fn listen(path: &Path) -> io::Result<UnixListener> {
    let _ = std::fs::remove_file(path);
    let listener = socket::listen(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    UnixListener::from_std(listener)
}

/// By which way a connection came.
#[derive(Clone, Debug)]
pub(super) enum Entrance {
    /// The socket: whoever opens it from outside is the operator, and may ask to see less.
    Socket(Arc<Connection>),
    /// TCP: each request must show a token, and the connection can be cut.
    Tcp(Arc<Line>),
}

/// Accepts connections until shutdown.
pub(crate) async fn serve(core: Arc<Core>, router: Router, listener: UnixListener) {
    let mut shutdown = core.shutdown.subscribe();
    let mut spare = Spare::new();
    loop {
        tokio::select! {
            stream = spare.accept(&listener) => if let Some(stream) = stream {
                tokio::spawn(serve_connection(Arc::clone(&core), router.clone(), stream));
            },
            () = async { drop(shutdown.wait_for(|shutdown| *shutdown).await) } => return,
        }
    }
}

async fn serve_connection(core: Arc<Core>, router: Router, stream: UnixStream) {
    use std::os::fd::AsFd;
    let own = socket::own_uid();
    match socket::peer_uid(stream.as_fd()) {
        Ok(uid) if uid == own || uid == 0 => match open(stream) {
            Ok((stream, entrance)) => serve_stream(core, router, stream, entrance).await,
            Err(error) => tracing::error!(%error, "a connection cannot be served"),
        },
        Ok(uid) => tracing::warn!(uid, "another user's connection is refused"),
        Err(error) => tracing::warn!(%error, "a connection without credentials is refused"),
    }
}

fn open(stream: UnixStream) -> std::io::Result<(Cuttable<QuietStream>, Entrance)> {
    let connection = Arc::new(Connection::new(&stream)?);
    let stream = Cuttable { stream: QuietStream::new(stream.into_std()?)?, line: Arc::clone(&connection.line) };
    Ok((stream, Entrance::Socket(connection)))
}

/// Serves one connection until it or the daemon ends.
pub(super) async fn serve_stream<S>(core: Arc<Core>, router: Router, stream: S, entrance: Entrance)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let routes = TowerToHyperService::new(router);
    let asked = Arc::clone(&core);
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        let (routes, core, entrance) = (routes.clone(), Arc::clone(&asked), entrance.clone());
        async move {
            if core.recovery.is_reading()
                && let Err(refusal) = core.recovery.admit(request.method().as_str(), request.uri().path()).await
            {
                return Ok(refusal.into_response());
            }
            // Only now: where a connection comes from is known when the processes are.
            match &entrance {
                Entrance::Socket(connection) => {
                    match connection.proof(&core) {
                        Ok(proof) => drop(request.extensions_mut().insert(proof)),
                        Err(reason) => drop(request.extensions_mut().insert(Unproven(reason))),
                    }
                    if let Some(pid) = connection.pid.filter(|_| request.uri().path().starts_with("/v1/sessions")) {
                        request.extensions_mut().insert(PeerPid(pid));
                    }
                }
                Entrance::Tcp(line) => drop(request.extensions_mut().insert(Arc::clone(line))),
            }
            routes.call(request).await
        }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEADER_TIME);
    // Attached observers go on where the request for it ended.
    let connection = builder.serve_connection(TokioIo::new(stream), service).with_upgrades();
    let mut connection = std::pin::pin!(connection);
    let mut shutdown = core.shutdown.subscribe();
    // A client that breaks off is its own business.
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = shutdown.wait_for(|shutdown| *shutdown) => connection.as_mut().graceful_shutdown(),
    }
    let _ = tokio::time::timeout(Duration::from_secs(1), connection).await;
}
