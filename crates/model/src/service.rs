//! A process as a service: when it is ready, which ports are leased to it, and when it is restarted. The request is in
//! [`crate::ready`] and [`crate::restart`]; here is how it goes together, and the ports.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ready::{BadReady, Ready, ReadyPort};
use crate::restart::{BadRestart, ChainPosition, Restart};
use crate::spec::RESERVED_ENV;

/// Maximum number of ports leased to one process.
pub const MAX_PORTS: usize = 16;
/// Ports below this need privileges, or belong to well-known services.
pub const MIN_PORT: u16 = 1024;
/// The variable with the socket that a process connects to when it is ready.
pub const READY_SOCKET: &str = "PINFOLD_READY_SOCKET";

/// What makes a process a service. The default is: nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Service {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<Ready>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart: Option<Restart>,
    /// Which life it is, from the second on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub life: Option<ChainPosition>,
    /// Leased loopback ports, by environment variable. `None` is any free port; a running process has numbers.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub ports: BTreeMap<String, Option<u16>>,
}

/// Why a service is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadService {
    #[error(transparent)]
    Ready(#[from] BadReady),
    #[error(transparent)]
    Restart(#[from] BadRestart),
    #[error("ports has {count} entries: give at most {MAX_PORTS}")]
    TooManyPorts { count: usize },
    #[error("ports: `{name}` is not a usable variable name: use letters, digits and `_`, such as PORT or API_PORT")]
    PortName { name: String },
    #[error("ports.{name}: port {port} cannot be leased: give {MIN_PORT} to 65535, or `lease` for any that is free")]
    PortNumber { name: String, port: u16 },
    #[error("ports: {first} and {second} are both port {port}: give each its own")]
    PortTwice { first: String, second: String, port: u16 },
    #[error("ready.port `{name}` is not a leased port: lease it in `ports`, or give a number or `any`")]
    NoSuchLease { name: String },
}

impl Service {
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Checks every part; the first one that is not usable is the error.
    pub fn check(&self) -> Result<(), BadService> {
        if self.ports.len() > MAX_PORTS {
            return Err(BadService::TooManyPorts { count: self.ports.len() });
        }
        let mut numbers: BTreeMap<u16, &String> = BTreeMap::new();
        for (name, port) in &self.ports {
            check_variable(name)?;
            let Some(port) = *port else { continue };
            if port < MIN_PORT {
                return Err(BadService::PortNumber { name: name.clone(), port });
            }
            if let Some(first) = numbers.insert(port, name) {
                return Err(BadService::PortTwice { first: first.clone(), second: name.clone(), port });
            }
        }
        if let Some(restart) = &self.restart {
            restart.check()?;
        }
        let Some(ready) = &self.ready else { return Ok(()) };
        ready.check()?;
        match ready.by.port() {
            Some(ReadyPort::Leased(name)) if !self.ports.contains_key(name) => {
                Err(BadService::NoSuchLease { name: name.clone() })
            }
            _ => Ok(()),
        }
    }

    /// The port that readiness looks for; `None` is any.
    pub fn awaited_port(&self) -> Option<u16> {
        match self.ready.as_ref()?.by.port()? {
            ReadyPort::Any => None,
            ReadyPort::Number(port) => Some(*port),
            ReadyPort::Leased(name) => self.ports.get(name).copied().flatten(),
        }
    }

    /// Whether it may be restarted when it ends.
    pub fn has_restart_policy(&self) -> bool {
        self.restart.is_some()
    }
}

fn check_variable(name: &str) -> Result<(), BadService> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let fits = name.len() <= 64
        && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(plain)
        && name != READY_SOCKET
        && !RESERVED_ENV.contains(&name);
    if fits { Ok(()) } else { Err(BadService::PortName { name: name.chars().take(40).collect() }) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::ready::ReadyBy;

    fn ports(ports: &[(&str, Option<u16>)]) -> Service {
        let ports = ports.iter().map(|(name, port)| ((*name).to_owned(), *port)).collect();
        Service { ports, ..Service::default() }
    }

    #[test]
    fn ports_that_cannot_be_leased_are_refused_by_name() {
        let refuse = |service: Service| service.check().expect_err("refused").to_string();
        assert_eq!(ports(&[("PORT", None), ("API_PORT", Some(3000))]).check(), Ok(()));
        for name in ["", "1PORT", "A B", "PINFOLD_ID", READY_SOCKET, "Ü"] {
            assert!(refuse(ports(&[(name, None)])).contains("variable name"), "{name}");
        }
        assert!(refuse(ports(&[("PORT", Some(80))])).contains("1024"));
        assert!(refuse(ports(&[("A", Some(3000)), ("B", Some(3000))])).contains("A and B"));
        let many: Vec<String> = (0..17).map(|number| format!("P{number}")).collect();
        let many: Vec<_> = many.iter().map(|name| (name.as_str(), None)).collect();
        assert!(refuse(ports(&many)).contains("at most 16"));
    }

    #[test]
    fn readiness_finds_the_port_that_was_lent() {
        let by = ReadyBy::Port { port: ReadyPort::Leased("PORT".into()) };
        let ready = Some(Ready { by, timeout: Duration::from_secs(1) });
        let service = Service { ready: ready.clone(), ..ports(&[("PORT", Some(3000))]) };
        assert_eq!((service.check(), service.awaited_port()), (Ok(()), Some(3000)));
        let lacking = Service { ready, ..Service::default() };
        assert!(lacking.check().expect_err("refused").to_string().contains("`ports`"));
    }
}
