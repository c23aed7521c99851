//! The Unix socket: listening, serving each connection, and ending open requests at shutdown. Only the daemon's own
//! user and root may connect.
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

use crate::access::caller::Unauthenticated;
use crate::access::closable::{ClosableStream, ConnectionHandle};
use crate::access::origin::Connection;
use crate::core::Core;
use crate::owners::sessions::PeerPid;
use crate::server::spare_descriptor::SpareDescriptor;

/// A client that does not finish its headers within this time is disconnected.
const HEADER_TIME: Duration = Duration::from_secs(30);

/// Replaces the socket: we hold the home's lock, so an existing one belongs to a dead daemon.
pub(crate) fn listen(path: &Path) -> io::Result<UnixListener> {
    let _ = std::fs::remove_file(path);
    let listener = socket::listen(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    UnixListener::from_std(listener)
}

/// The socket that a service manager listens on for us, if there is one.
pub(crate) fn inherited(path: &Path) -> Option<UnixListener> {
    let listener = socket::inherited_listener(path)?;
    listener.set_nonblocking(true).ok()?;
    UnixListener::from_std(listener).ok()
}

/// How a connection came in.
#[derive(Clone, Debug)]
pub(super) enum Transport {
    /// The Unix socket: a peer outside every managed process is the operator, and may narrow its view.
    Socket(Arc<Connection>),
    /// TCP: each request must carry a token, and the connection can be closed.
    Tcp(Arc<ConnectionHandle>),
}

/// Accepts connections until shutdown.
pub(crate) async fn serve(core: Arc<Core>, router: Router, listener: UnixListener) {
    let mut shutdown = core.shutdown.subscribe();
    let mut spare = SpareDescriptor::new();
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
            Ok((stream, transport)) => serve_stream(core, router, stream, transport).await,
            Err(error) => tracing::error!(%error, "cannot serve a connection"),
        },
        Ok(uid) => tracing::warn!(uid, "refused a connection of another user"),
        Err(error) => tracing::warn!(%error, "refused a connection without credentials"),
    }
}

fn open(stream: UnixStream) -> std::io::Result<(ClosableStream<QuietStream>, Transport)> {
    let connection = Arc::new(Connection::new(&stream)?);
    let stream =
        ClosableStream { stream: QuietStream::new(stream.into_std()?)?, handle: Arc::clone(&connection.handle) };
    Ok((stream, Transport::Socket(connection)))
}

/// Serves one connection until it or the daemon ends.
pub(super) async fn serve_stream<S>(core: Arc<Core>, router: Router, stream: S, transport: Transport)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let routes = TowerToHyperService::new(router);
    let asked = Arc::clone(&core);
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        let (routes, core, transport) = (routes.clone(), Arc::clone(&asked), transport.clone());
        async move {
            if core.recovery.is_reading()
                && let Err(error) = core.recovery.admit(request.method().as_str(), request.uri().path()).await
            {
                return Ok(error.into_response());
            }
            // Only after recovery: the origin of a connection is known when the processes are.
            match &transport {
                Transport::Socket(connection) => {
                    match connection.principal(&core) {
                        Ok(principal) => {
                            if let Some(sandbox) = principal.sandbox()
                                && let Err(error) =
                                    core.check_sandboxed(&sandbox, request.method(), request.uri().path())
                            {
                                return Ok(error.into_response());
                            }
                            request.extensions_mut().insert(principal);
                        }
                        Err(reason) => drop(request.extensions_mut().insert(Unauthenticated(reason))),
                    }
                    if let Some(pid) = connection.pid.filter(|_| request.uri().path().starts_with("/v1/sessions")) {
                        request.extensions_mut().insert(PeerPid(pid));
                    }
                }
                Transport::Tcp(handle) => drop(request.extensions_mut().insert(Arc::clone(handle))),
            }
            routes.call(request).await
        }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEADER_TIME);
    // With upgrades: attach continues on the connection of its request.
    let connection = builder.serve_connection(TokioIo::new(stream), service).with_upgrades();
    let mut connection = std::pin::pin!(connection);
    let mut shutdown = core.shutdown.subscribe();
    // An error means that the client disconnected.
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = shutdown.wait_for(|shutdown| *shutdown) => connection.as_mut().graceful_shutdown(),
    }
    let _ = tokio::time::timeout(Duration::from_secs(1), connection).await;
}
