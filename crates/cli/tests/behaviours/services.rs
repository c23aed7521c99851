//! Processes as services: readiness, leased ports and restarts.

mod agent;
mod leases;
mod readiness;
mod restarts;

use pinfold_api::types::{EventKind, Ready, ReadyShown, StartRequest, WaitQuery};
use pinfold_testkit::Pinfold;

use crate::requests::request;

/// A server on the port in $PORT; the shell execs it.
const SERVER: &str = "exec perl -MIO::Socket::INET -e '\
    my $socket = IO::Socket::INET->new(Listen => 5, ReuseAddr => 1, LocalAddr => \"127.0.0.1\", \
    LocalPort => $ENV{PORT}) or die \"no port: $!\"; sleep 300'";

/// A request for a process with this readiness.
fn ready(command: &str, ready: Ready) -> StartRequest {
    StartRequest { ready: Some(ready), ..request(command) }
}

/// A request for a server on a leased port, ready when it listens.
fn leased(command: &str) -> StartRequest {
    let ready = Some(Ready { port: Some("PORT".into()), ..Ready::default() });
    StartRequest { ports: [("PORT".to_owned(), "lease".into())].into(), ready, ..request(command) }
}

/// A wait for readiness, up to a minute.
fn until_ready() -> WaitQuery {
    WaitQuery { until: Some("ready".into()), timeout: Some("60s".into()), ..WaitQuery::default() }
}

/// The readiness in a record.
fn shown(pinfold: &Pinfold, id: &str) -> ReadyShown {
    pinfold.show(id).ready.expect("a process that was asked to be ready")
}

/// The texts of all events of this kind for a process.
fn event_texts(pinfold: &Pinfold, id: &str, kind: EventKind) -> Vec<String> {
    let events = pinfold.events(0).events.into_iter();
    events.filter(|event| event.process == id && event.kind == kind).filter_map(|event| event.text).collect()
}
