//! Leased ports: loopback ports that are lent to one process at a time, from before its start until its tree is empty
//! and no other life of it is to come.
//!
//! Invariant D6, *a port is lent to one process at a time*: every port is taken here before the process that gets it is
//! registered, and what lives or will live again takes its ports here before the daemon answers.
//!
//! Other programs know nothing of leases. A port is found free by binding it right before the start; between that and the
//! moment when the process binds it, somebody else may. Ports are chosen below the range that the kernel gives to
//! outgoing connections, so that only programs that want that very port can be in the way.

use std::collections::{BTreeMap, HashMap};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::ops::Range;
use std::sync::Mutex;

use pinfold_api::error::ErrorCode;
use pinfold_model::id::ProcessId;
use pinfold_model::restart::first_of;
use pinfold_model::{facts::History, service::Service};
use pinfold_os::fsio::random;

use super::readiness::held_by_another;
use crate::lock::lock;
use crate::refusal::Refusal;

/// Where ports are chosen from.
const CHOICE: Range<u16> = 20_000..30_000;

/// Who has which port: the first of a chain stands for all its lives.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    held: Mutex<HashMap<u16, Holder>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Holder {
    /// A start that is under way.
    Starting,
    Chain(ProcessId),
}

/// Ports taken for a start. Dropped before they are given to a process, they are free again.
#[derive(Debug)]
pub(crate) struct Taken<'a> {
    leases: &'a Leases,
    ports: Vec<u16>,
}

impl Leases {
    /// Takes the ports that a service asks for, and gives each its number. `chain` is that of a later life, which has its
    /// ports already. Blocks for a moment.
    pub(crate) fn take(&self, service: &mut Service, chain: Option<&ProcessId>) -> Result<Taken<'_>, Refusal> {
        let mut taken = Taken { leases: self, ports: vec![] };
        for (name, port) in &mut service.ports {
            let number = match *port {
                Some(port) => self.take_this(name, port, chain)?,
                None => self.take_any(name)?,
            };
            *port = Some(number);
            taken.ports.push(number);
        }
        Ok(taken)
    }

    fn take_this(&self, name: &str, port: u16, chain: Option<&ProcessId>) -> Result<u16, Refusal> {
        {
            let mut held = lock(&self.held);
            match held.get(&port) {
                Some(Holder::Chain(holder)) if Some(holder) == chain => {}
                Some(Holder::Chain(holder)) => {
                    let message = format!(
                        "port {port} ({name}) is lent to {holder}: stop that one, or lease another (`lease` finds a free one)"
                    );
                    return Err(Refusal::new(ErrorCode::LimitReached, message));
                }
                Some(Holder::Starting) => {
                    let message = format!("port {port} ({name}) is being lent to another start: lease another");
                    return Err(Refusal::new(ErrorCode::LimitReached, message));
                }
                None => drop(held.insert(port, Holder::Starting)),
            }
        }
        if is_free(port) {
            return Ok(port);
        }
        if chain.is_none() {
            lock(&self.held).remove(&port);
        }
        let who = held_by_another(port).unwrap_or_else(|| format!("port {port} is in use by another program"));
        let message = format!("{who}: end that one, or lease another for {name} (`lease` finds a free one)");
        Err(Refusal::new(ErrorCode::LimitReached, message))
    }

    fn take_any(&self, name: &str) -> Result<u16, Refusal> {
        let count = CHOICE.end - CHOICE.start;
        let begin = u16::from_le_bytes(random().map_err(Refusal::internal)?) % count;
        for step in 0..count {
            let port = CHOICE.start + (begin + step) % count;
            let is_new = {
                let mut held = lock(&self.held);
                let is_new = !held.contains_key(&port);
                if is_new {
                    held.insert(port, Holder::Starting);
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
        let message = format!("no port from {} to {} is free for {name}: stop something", CHOICE.start, CHOICE.end - 1);
        Err(Refusal::new(ErrorCode::LimitReached, message))
    }

    /// What lives, or will again, has its ports.
    pub(crate) fn keep(&self, history: &History) {
        let chain = first_of(history);
        let mut held = lock(&self.held);
        for port in ports_of(history) {
            match held.insert(port, Holder::Chain(chain.clone())) {
                Some(Holder::Chain(other)) if other != *chain => {
                    tracing::error!(port, process = %chain, %other, "one port is lent twice");
                }
                _ => {}
            }
        }
    }

    /// It is over, and does not live again.
    pub(super) fn free(&self, history: &History) {
        let chain = Holder::Chain(first_of(history).clone());
        let mut held = lock(&self.held);
        for port in ports_of(history) {
            if held.get(&port) == Some(&chain) {
                held.remove(&port);
            }
        }
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut held = lock(&self.leases.held);
        for port in &self.ports {
            if held.get(port) == Some(&Holder::Starting) {
                held.remove(port);
            }
        }
    }
}

/// The variables that tell a process its ports.
pub(crate) fn variables(service: &Service) -> BTreeMap<String, Option<String>> {
    let ports = service.ports.iter();
    ports.filter_map(|(name, port)| Some((name.clone(), Some((*port)?.to_string())))).collect()
}

fn ports_of(history: &History) -> impl Iterator<Item = u16> {
    history.intent.spec.service.ports.values().copied().flatten()
}

/// Whether it could be bound a moment ago, on both kinds of loopback addresses where there are both.
fn is_free(port: u16) -> bool {
    let v4 = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    let v6 = TcpListener::bind(SocketAddr::from((Ipv6Addr::LOCALHOST, port)));
    let in_use = |result: &std::io::Result<TcpListener>| {
        result.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::AddrInUse)
    };
    v4.is_ok() && !in_use(&v6)
}
