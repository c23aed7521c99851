//! For programs that may themselves run inside a process of pinfold: finds the keeper above them and asks it to start
//! a daemon.
//!
//! A daemon started as a descendant of a managed process would be stopped, paused and killed with it. The keeper is
//! outside of that tree, so it starts the daemon on request.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use pinfold_model::link::{ANSWERS_UNKNOWN, Decoder, FromKeeper, ToKeeper, encode};
use pinfold_os::process_handle::ProcessHandle;
use pinfold_os::socket;

/// How long a keeper may take to reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(5);

/// A connection to the keeper that is an ancestor of this program.
#[derive(Debug)]
pub struct AncestorKeeper {
    pid: u32,
    stream: UnixStream,
}

/// Why the keeper could not start a daemon.
#[derive(Debug, thiserror::Error)]
pub enum StartDaemonError {
    #[error("it does not answer ({0})")]
    NoReply(io::Error),
    #[error("it belongs to an older pinfold that cannot start one")]
    TooOld,
    #[error("{0}")]
    Refused(String),
}

/// Finds the nearest keeper of this home among the ancestors of this process. A killed keeper leaves its socket
/// behind, so a file named after an ancestor's pid is not enough: the process listening there must have that pid.
pub fn find_ancestor_keeper(home: &Path) -> io::Result<Option<AncestorKeeper>> {
    let keepers = home.join("keepers");
    let mut at = ProcessHandle::open(std::process::id())?;
    while let Some(ancestor) = at.parent()? {
        let pid = ancestor.pid();
        if let Ok(stream) = socket::connect(&keepers.join(pid.to_string()))
            && socket::peer_pid(stream.as_fd()).is_ok_and(|peer| peer == Some(pid))
        {
            return Ok(Some(AncestorKeeper { pid, stream }));
        }
        at = ancestor;
    }
    Ok(None)
}

impl AncestorKeeper {
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Asks the keeper to start the daemon of its home. Success means that it was started, not that it is ready: see
    /// its log.
    pub fn start_daemon(mut self) -> Result<(), StartDaemonError> {
        let no_reply = StartDaemonError::NoReply;
        self.stream.set_read_timeout(Some(REPLY_TIMEOUT)).map_err(no_reply)?;
        self.stream.set_write_timeout(Some(REPLY_TIMEOUT)).map_err(no_reply)?;
        let mut decoder = Decoder::default();
        match self.receive(&mut decoder).map_err(no_reply)? {
            FromKeeper::Hello { version, .. } if version >= ANSWERS_UNKNOWN => {}
            _ => return Err(StartDaemonError::TooOld),
        }
        self.stream.write_all(&encode(&ToKeeper::StartDaemon { request: 1 })).map_err(no_reply)?;
        loop {
            match self.receive(&mut decoder).map_err(no_reply)? {
                FromKeeper::DaemonStarted { error: None, .. } => return Ok(()),
                FromKeeper::DaemonStarted { error: Some(error), .. } | FromKeeper::Unknown { error, .. } => {
                    return Err(StartDaemonError::Refused(error));
                }
                _ => {}
            }
        }
    }

    fn receive(&mut self, decoder: &mut Decoder) -> io::Result<FromKeeper> {
        loop {
            if let Some(message) = decoder.try_next().map_err(io::Error::other)? {
                return Ok(message);
            }
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => decoder.extend(&bytes[..count]),
            }
        }
    }
}
