//! For programs that may run inside what a keeper keeps: whether they do, and how they get a daemon then.
//!
//! A daemon that such a program starts as its own descendant would be stopped, paused and killed with the process that it
//! is part of. Its keeper stands outside of that, and starts one on request.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use pinfold_model::link::{ANSWERS_UNKNOWN, Decoder, FromKeeper, ToKeeper, encode};
use pinfold_os::held::Held;
use pinfold_os::socket;

/// How long a keeper may take to answer.
const ANSWER: Duration = Duration::from_secs(5);

/// The keeper below which this program runs, connected.
#[derive(Debug)]
pub struct KeeperAbove {
    pid: u32,
    stream: UnixStream,
}

/// Why a keeper starts no daemon.
#[derive(Debug, thiserror::Error)]
pub enum NoDaemon {
    #[error("it does not answer ({0})")]
    Silent(io::Error),
    #[error("it is of an older pinfold, which cannot")]
    Older,
    #[error("{0}")]
    Refused(String),
}

/// The nearest keeper of this home among the ancestors of this process. A pid alone proves nothing, since a keeper that
/// was killed leaves its socket: somebody with that very pid must listen there.
pub fn keeper_above(home: &Path) -> io::Result<Option<KeeperAbove>> {
    let keepers = home.join("keepers");
    let mut at = Held::open(std::process::id())?;
    while let Some(ancestor) = at.parent()? {
        let pid = ancestor.pid();
        if let Ok(stream) = socket::connect(&keepers.join(pid.to_string()))
            && socket::peer_pid(stream.as_fd()).is_ok_and(|peer| peer == Some(pid))
        {
            return Ok(Some(KeeperAbove { pid, stream }));
        }
        at = ancestor;
    }
    Ok(None)
}

impl KeeperAbove {
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Has the keeper start the daemon of its home. Whether that comes up, its log tells.
    pub fn start_daemon(mut self) -> Result<(), NoDaemon> {
        let silent = NoDaemon::Silent;
        self.stream.set_read_timeout(Some(ANSWER)).map_err(silent)?;
        self.stream.set_write_timeout(Some(ANSWER)).map_err(silent)?;
        let mut decoder = Decoder::default();
        match self.hear(&mut decoder).map_err(silent)? {
            FromKeeper::Hello { version, .. } if version >= ANSWERS_UNKNOWN => {}
            _ => return Err(NoDaemon::Older),
        }
        self.stream.write_all(&encode(&ToKeeper::StartDaemon { request: 1 })).map_err(silent)?;
        loop {
            match self.hear(&mut decoder).map_err(silent)? {
                FromKeeper::DaemonStarted { error: None, .. } => return Ok(()),
                FromKeeper::DaemonStarted { error: Some(error), .. } | FromKeeper::Unknown { error, .. } => {
                    return Err(NoDaemon::Refused(error));
                }
                _ => {}
            }
        }
    }

    fn hear(&mut self, decoder: &mut Decoder) -> io::Result<FromKeeper> {
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
