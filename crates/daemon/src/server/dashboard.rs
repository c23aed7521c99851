//! The port of the dashboard: opened when an operator asks for it, closed when no browser is left.
//!
//! It listens on both loopback addresses: browsers try `::1` first for `pinfold.localhost`, so a program that took the same port there
//! would be served in our permit.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use pinfold_api::error::ErrorCode;
use pinfold_api::types::{DashboardAnswer, DashboardClosed, DashboardRequest};
use tokio::net::TcpListener;

use crate::access::caller::{AuthMethod, Caller};
use crate::core::Core;
use crate::dashboard::sessions::{Grant, KEY_LIFE};
use crate::dashboard::{HOST, gate};
use crate::request_error::RequestError;
use crate::server::{routes, tcp};

/// How many free ports are tried before giving up: each may be taken on `::1`.
const TRIES: usize = 32;
/// How often the listener checks whether it is still needed.
const CHECK_INTERVAL: Duration = Duration::from_secs(30);

/// Opens the port unless it is open, and gives an address that signs one browser in.
pub(super) async fn open(
    core: &Arc<Core>,
    caller: &Caller,
    request: DashboardRequest,
) -> Result<DashboardAnswer, RequestError> {
    if let AuthMethod::Process { entry, .. } = &caller.principal.method {
        let message = format!("this request comes from inside process {}: open the dashboard from outside", entry.id);
        return Err(RequestError::new(ErrorCode::Forbidden, message));
    }
    let mut open = core.dashboard.port.lock().await;
    let port = match (*open, request.port) {
        (Some(port), Some(wanted)) if port != wanted => {
            let message =
                format!("the dashboard is open on port {port}: close it first, with `pinfold dashboard --close`");
            return Err(RequestError::invalid(message));
        }
        (Some(port), _) => port,
        (None, wanted) => {
            let (port, listeners) = listen(wanted).await?;
            tracing::info!(port, "the dashboard is open");
            tokio::spawn(serve(Arc::clone(core), port, listeners));
            *open = Some(port);
            port
        }
    };
    let grant = Grant { viewer: caller.viewer.clone(), read_only: request.read_only };
    let key = core.dashboard.add_key(grant).map_err(RequestError::internal)?;
    Ok(DashboardAnswer {
        url: format!("http://{HOST}:{port}/#k={key}"),
        expires_in_ms: KEY_LIFE.as_millis() as u64,
        port,
        read_only: request.read_only,
    })
}

/// Signs every browser out and closes the port.
pub(super) async fn close(core: &Arc<Core>) -> DashboardClosed {
    let signed_out = core.dashboard.sign_out_all() as u64;
    // The listener clears the port when it is closed.
    while core.dashboard.port.lock().await.is_some() {
        core.dashboard.emptied.notify_one();
        tokio::task::yield_now().await;
    }
    DashboardClosed { signed_out }
}

/// Serves until shutdown, or until there is no browser to serve.
async fn serve(core: Arc<Core>, port: u16, listeners: Vec<TcpListener>) {
    let router = gate::guard(&core, port, routes::routes(Arc::clone(&core)));
    let accepting = listeners
        .into_iter()
        .map(|listener| tokio::spawn(tcp::accept(Arc::clone(&core), router.clone(), listener, tcp::Users::Own)))
        .collect::<Vec<_>>();
    let mut shutdown = core.shutdown.subscribe();
    loop {
        let stopped = tokio::select! {
            () = core.dashboard.emptied.notified() => false,
            () = tokio::time::sleep(CHECK_INTERVAL) => false,
            _ = shutdown.wait_for(|shutdown| *shutdown) => true,
        };
        // Held while it closes: who opens it next waits, and opens it anew.
        let mut open = core.dashboard.port.lock().await;
        if stopped || core.dashboard.is_unused() {
            for task in accepting {
                task.abort();
                let _ = task.await;
            }
            *open = None;
            tracing::info!(port, "the dashboard is closed");
            return;
        }
    }
}

/// Listens on both loopback addresses, on this port or on one that is free.
async fn listen(wanted: Option<u16>) -> Result<(u16, Vec<TcpListener>), RequestError> {
    if wanted == Some(0) {
        return Err(RequestError::invalid("`port` must be between 1 and 65535: leave it out for any free one"));
    }
    let mut last = None;
    for _ in 0..TRIES {
        match listen_on(wanted.unwrap_or(0)).await {
            Ok(listeners) => return Ok(listeners),
            Err(error) if wanted.is_none() && error.kind() == io::ErrorKind::AddrInUse => last = Some(error),
            Err(error) => return Err(cannot_listen(wanted, &error)),
        }
    }
    Err(cannot_listen(wanted, &last.unwrap_or_else(|| io::ErrorKind::AddrInUse.into())))
}

async fn listen_on(port: u16) -> io::Result<(u16, Vec<TcpListener>)> {
    let first = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await?;
    let port = first.local_addr()?.port();
    match TcpListener::bind(SocketAddr::from((Ipv6Addr::LOCALHOST, port))).await {
        Ok(second) => Ok((port, vec![first, second])),
        // A machine without IPv6: nothing can listen on `::1`, neither can we.
        Err(error) if is_without_ipv6(&error) => Ok((port, vec![first])),
        Err(error) => Err(error),
    }
}

fn is_without_ipv6(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AddrNotAvailable || error.kind() == io::ErrorKind::Unsupported
}

fn cannot_listen(port: Option<u16>, error: &io::Error) -> RequestError {
    match port {
        Some(port) if error.kind() == io::ErrorKind::AddrInUse => RequestError::invalid(format!(
            "port {port} is taken on 127.0.0.1 or ::1: name another one, or none for any free port"
        )),
        Some(port) => RequestError::invalid(format!("cannot listen on port {port}: {error}: name another one")),
        None => RequestError::shortage("cannot listen on a loopback port", error),
    }
}
