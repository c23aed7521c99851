//! Leased ports: loopback ports that are reserved for one process, from before its start until its tree has ended and it
//! will not be restarted.
//!
//! Invariant D6, *a port is leased to one process at a time*: a port is reserved here before its process is registered,
//! and after a restart of the daemon all leases are known before it answers requests.
//!
//! Other programs do not know of leases. A port is checked by binding it right before the start; another program may bind
//! it before the process does. Ports are chosen below the kernel's range for outgoing connections, so that only a program
//! that asks for exactly this port can do so.

use std::collections::{BTreeMap, HashMap};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::ops::Range;
use std::sync::Mutex;

use pinfold_api::error::ErrorCode;
use pinfold_model::id::ProcessId;
use pinfold_model::restart::first_run;
use pinfold_model::{facts::History, service::Service};
use pinfold_os::fsio::random;

use super::readiness::held_by_another;
use crate::mutex::lock;
use crate::request_error::RequestError;

/// The range that ports are chosen from.
const CHOICE: Range<u16> = 20_000..30_000;

/// Which process has which port. A restarted process keeps the ports of its chain, named by its first process.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    held: Mutex<HashMap<u16, LeaseHolder>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum LeaseHolder {
    /// A start that is under way.
    Starting,
    /// A service: its first process, and the latest.
    Chain { first: ProcessId, latest: ProcessId },
}

/// Ports reserved for a start. They are free again if this is dropped before a process got them.
#[derive(Debug)]
pub(crate) struct ReservedPorts<'a> {
    leases: &'a Leases,
    ports: Vec<u16>,
}

impl Leases {
    /// Reserves the ports of a service and sets their numbers. `chain` is given for a restart, which has its ports
    /// already. Blocks for a moment.
    pub(crate) fn take(
        &self,
        service: &mut Service,
        chain: Option<&ProcessId>,
    ) -> Result<ReservedPorts<'_>, RequestError> {
        let mut reserved = ReservedPorts { leases: self, ports: vec![] };
        for (name, port) in &mut service.ports {
            let number = match *port {
                Some(port) => self.take_this(name, port, chain)?,
                None => self.take_any(name)?,
            };
            *port = Some(number);
            reserved.ports.push(number);
        }
        Ok(reserved)
    }

    fn take_this(&self, name: &str, port: u16, chain: Option<&ProcessId>) -> Result<u16, RequestError> {
        {
            let mut held = lock(&self.held);
            match held.get(&port) {
                Some(LeaseHolder::Chain { first, .. }) if Some(first) == chain => {}
                Some(LeaseHolder::Chain { latest, .. }) => {
                    let message = format!(
                        "port {port} ({name}) is leased to {latest}: stop that process, or lease another port (`lease` finds a free one)"
                    );
                    return Err(RequestError::new(ErrorCode::LimitReached, message));
                }
                Some(LeaseHolder::Starting) => {
                    let message =
                        format!("port {port} ({name}) is being leased to another process: lease another port");
                    return Err(RequestError::new(ErrorCode::LimitReached, message));
                }
                None => drop(held.insert(port, LeaseHolder::Starting)),
            }
        }
        if is_free(port) {
            return Ok(port);
        }
        if chain.is_none() {
            lock(&self.held).remove(&port);
        }
        let who = held_by_another(port).unwrap_or_else(|| format!("port {port} is in use by another program"));
        let message = format!("{who}: stop it, or lease another port for {name} (`lease` finds a free one)");
        Err(RequestError::new(ErrorCode::LimitReached, message))
    }

    fn take_any(&self, name: &str) -> Result<u16, RequestError> {
        let count = CHOICE.end - CHOICE.start;
        let begin = u16::from_le_bytes(random().map_err(RequestError::internal)?) % count;
        for step in 0..count {
            let port = CHOICE.start + (begin + step) % count;
            let is_new = {
                let mut held = lock(&self.held);
                let is_new = !held.contains_key(&port);
                if is_new {
                    held.insert(port, LeaseHolder::Starting);
                }
                is_new
            };
            if is_new && is_free(port) {
                return Ok(port);
            }
            if is_new {
                lock(&self.held).remove(&port);
            }
        }
        let message = format!(
            "no port from {} to {} is free for {name}: stop a process that has one",
            CHOICE.start,
            CHOICE.end - 1
        );
        Err(RequestError::new(ErrorCode::LimitReached, message))
    }

    /// Records the leases of a process that runs or will be restarted.
    pub(crate) fn keep(&self, history: &History) {
        let chain = first_run(history);
        let mut held = lock(&self.held);
        for port in ports_of(history) {
            let holder = LeaseHolder::Chain { first: chain.clone(), latest: history.intent.id.clone() };
            match held.insert(port, holder) {
                Some(LeaseHolder::Chain { first: other, .. }) if other != *chain => {
                    tracing::error!(port, process = %chain, %other, "a port is leased twice");
                }
                _ => {}
            }
        }
    }

    /// The process has ended and will not be restarted.
    pub(super) fn free(&self, history: &History) {
        let mut held = lock(&self.held);
        for port in ports_of(history) {
            if matches!(held.get(&port), Some(LeaseHolder::Chain { first, .. }) if first == first_run(history)) {
                held.remove(&port);
            }
        }
    }
}

impl Drop for ReservedPorts<'_> {
    fn drop(&mut self) {
        let mut held = lock(&self.leases.held);
        for port in &self.ports {
            if held.get(port) == Some(&LeaseHolder::Starting) {
                held.remove(port);
            }
        }
    }
}

/// The environment variables with the ports of a process.
pub(crate) fn variables(service: &Service) -> BTreeMap<String, Option<String>> {
    let ports = service.ports.iter();
    ports.filter_map(|(name, port)| Some((name.clone(), Some((*port)?.to_string())))).collect()
}

fn ports_of(history: &History) -> impl Iterator<Item = u16> {
    history.intent.spec.service.ports.values().copied().flatten()
}

/// Whether the port can be bound now, on the IPv4 and the IPv6 loopback address if there are both.
fn is_free(port: u16) -> bool {
    let v4 = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    let v6 = TcpListener::bind(SocketAddr::from((Ipv6Addr::LOCALHOST, port)));
    let in_use = |result: &std::io::Result<TcpListener>| {
        result.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::AddrInUse)
    };
    v4.is_ok() && !in_use(&v6)
}
