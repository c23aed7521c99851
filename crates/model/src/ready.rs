//! Readiness: what says that a process does what it was started for, and what came of looking for it.
//!
//! [`Ready`] is the condition, [`Readiness`] the one result. A process that ends without one ended before it was
//! ready: that is seen from its history and needs no verdict of its own.
//!
//! Invariant L8, *readiness is decided once*: the first verdict stands, and none comes after the end
//! ([`crate::facts::History::add`]).

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::output_view::{BadPattern, parse_pattern};
use crate::units::Moment;

/// How long is looked, unless asked otherwise, and at most.
pub const TIMEOUT: Duration = Duration::from_secs(60);
pub const MAX_TIMEOUT: Duration = Duration::from_secs(24 * 3600);
const MAX_PATH: usize = 2048;

/// What makes it ready, and how long that may take.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    pub by: ReadyBy,
    pub timeout: Duration,
}

/// What makes it ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ReadyBy {
    /// A process of its tree listens there.
    Port { port: ReadyPort },
    /// A process of its tree listens there, and a GET is answered with this status, or with any below 400.
    Http { host: LoopbackHost, port: ReadyPort, path: String, status: Option<u16> },
    /// A line of its output matches.
    Output { pattern: String },
    /// A process of its tree connects to a socket that it is given.
    Peer,
}

/// Which port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReadyPort {
    Any,
    Number(u16),
    /// The port that it leased under this name.
    Leased(String),
}

/// This machine, by the name that the request will carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoopbackHost {
    Localhost,
    V4,
    V6,
}

impl LoopbackHost {
    /// As it stands in an address.
    pub fn text(self) -> &'static str {
        match self {
            Self::Localhost => "localhost",
            Self::V4 => "127.0.0.1",
            Self::V6 => "[::1]",
        }
    }
}

impl ReadyBy {
    pub fn port(&self) -> Option<&ReadyPort> {
        match self {
            Self::Port { port } | Self::Http { port, .. } => Some(port),
            Self::Output { .. } | Self::Peer => None,
        }
    }
}

/// What came of looking.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Readiness {
    pub verdict: ReadyVerdict,
    /// What was seen, or what was missing, in words.
    pub evidence: String,
    /// The port it listens on, where that made it ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    pub at: Moment,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReadyVerdict {
    Ready,
    /// It was not ready in time. The process goes on.
    TimedOut,
}

/// Whether a process is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReadyState {
    /// Not ready yet.
    Waiting,
    Ready,
    /// Not ready in time; it runs on.
    TimedOut,
    /// It ended before it was ready.
    Exited,
}

/// Why a readiness is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadReady {
    #[error("ready: {0}")]
    Pattern(#[from] BadPattern),
    #[error("ready.timeout is zero or longer than a day: give a time such as 60s")]
    Timeout,
    #[error("ready.port 0 is not a port: give a number, the name of a leased port, or `any`")]
    PortZero,
    #[error("ready.status {0} is not an HTTP status: give 100 to 599, such as 200")]
    Status(u16),
    #[error(
        "ready.http `{start}`: give a path such as /health with `port`, or an address on this machine such as http://127.0.0.1:3000/health (no https, no other host)"
    )]
    Address { start: String },
}

impl Ready {
    pub fn check(&self) -> Result<(), BadReady> {
        if self.timeout.is_zero() || self.timeout > MAX_TIMEOUT {
            return Err(BadReady::Timeout);
        }
        if self.by.port() == Some(&ReadyPort::Number(0)) {
            return Err(BadReady::PortZero);
        }
        match &self.by {
            ReadyBy::Output { pattern } => drop(parse_pattern(pattern)?),
            ReadyBy::Http { status: Some(status), .. } if !(100..600).contains(status) => {
                return Err(BadReady::Status(*status));
            }
            ReadyBy::Http { path, .. } if !is_path(path) => return Err(bad_address(path)),
            _ => {}
        }
        Ok(())
    }
}

/// Reads an address on this machine: host, port and path.
pub fn parse_loopback(address: &str) -> Result<(LoopbackHost, u16, String), BadReady> {
    let bad = || bad_address(address);
    let rest = address.strip_prefix("http://").ok_or_else(bad)?;
    let slash = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(slash);
    let hosts = [LoopbackHost::Localhost, LoopbackHost::V4, LoopbackHost::V6];
    let named = |host: &LoopbackHost| Some((*host, authority.strip_prefix(host.text())?));
    let (host, port) = hosts.iter().find_map(named).ok_or_else(bad)?;
    let port = match port {
        "" => 80,
        port => port.strip_prefix(':').and_then(|port| port.parse().ok()).filter(|port| *port > 0).ok_or_else(bad)?,
    };
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    if is_path(&path) { Ok((host, port, path)) } else { Err(bad()) }
}

/// Whether it can stand in a request as it is.
fn is_path(path: &str) -> bool {
    let written = |c: char| c.is_ascii_graphic() && !"\"<>\\^`{|}#".contains(c);
    path.starts_with('/') && path.len() <= MAX_PATH && path.chars().all(written)
}

fn bad_address(address: &str) -> BadReady {
    BadReady::Address { start: address.chars().take(60).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{Fact, History, Intent};
    use crate::spec::{Defaults, Program, Spec};

    #[test]
    fn only_addresses_on_this_machine_are_read() {
        let read = |address| parse_loopback(address).ok();
        assert_eq!(read("http://127.0.0.1:3000/health"), Some((LoopbackHost::V4, 3000, "/health".into())));
        assert_eq!(read("http://localhost"), Some((LoopbackHost::Localhost, 80, "/".into())));
        assert_eq!(read("http://[::1]:8080?x=1"), Some((LoopbackHost::V6, 8080, "/?x=1".into())));
        for address in [
            "https://localhost/",
            "http://example.org/",
            "http://127.0.0.1.example.org/",
            "http://localhost@example.org/",
            "http://localhost:3000@example.org/",
            "http://127.0.0.1:0/",
            "http://127.0.0.1:99999/",
            "http://10.0.0.1:80/",
            "http://localhost:80/a b",
            "http://localhost:80/a\r\nX: y",
            "/health",
            "",
        ] {
            assert!(read(address).is_none(), "{address}");
        }
    }

    #[test]
    fn l8_readiness_is_decided_once() {
        let program = Program::Argv { argv: vec!["serve".into()] };
        let spec = Spec::new(program, "/".into(), &Defaults::default());
        let keeper = crate::link::KeeperIdentity { pid: 1, start_time: 1, cgroup: None };
        let (id, at) = (crate::id::ProcessId::from_number(1, 1), Moment(0));
        let intent = Intent { format: 1, id, spec, mark: "m".into(), at, boot_id: "b".into(), keeper };
        let verdict = |verdict, at| Readiness { verdict, evidence: "e".into(), port: None, at: Moment(at) };
        let late = verdict(ReadyVerdict::TimedOut, 1);
        let mut history = History::new(intent.clone());
        history.add(Fact::Readiness(late.clone()));
        history.add(Fact::Readiness(verdict(ReadyVerdict::Ready, 2)));
        assert_eq!(history.readiness, Some(late));
        let mut over = History::new(intent);
        over.add(Fact::Lost { evidence: "gone".into(), at: Moment(1) });
        over.add(Fact::Readiness(verdict(ReadyVerdict::Ready, 2)));
        assert_eq!(over.readiness, None);
    }

    #[test]
    fn what_cannot_be_looked_for_is_refused_by_name() {
        let refuse = |by, seconds| {
            let ready = Ready { by, timeout: Duration::from_secs(seconds) };
            ready.check().expect_err("refused").to_string()
        };
        let http = |path: &str, status| ReadyBy::Http {
            host: LoopbackHost::Localhost,
            port: ReadyPort::Any,
            path: path.into(),
            status,
        };
        assert!(refuse(ReadyBy::Output { pattern: "(".into() }, 1).contains("ready"));
        assert!(refuse(ReadyBy::Port { port: ReadyPort::Number(0) }, 1).contains("not a port"));
        assert!(refuse(ReadyBy::Peer, 0).contains("60s"));
        assert!(refuse(ReadyBy::Peer, 100_000).contains("a day"));
        assert!(refuse(http("/", Some(99)), 1).contains("status"));
        assert!(refuse(http("health", None), 1).contains("/health"));
    }
}
