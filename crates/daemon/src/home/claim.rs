//! Ensures that one daemon owns a home, even if its files are removed.
//!
//! The lock in the home excludes a second daemon only while the file exists. So the daemon also listens on a name in
//! the abstract socket namespace, made of its user, the parent directory, and the home's name: these stay when the home
//! is deleted. A starting daemon connects to it first; the running one restores its home and answers. Any user can take
//! a name: a peer that is neither this user nor root is ignored.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Duration;

use pinfold_os::socket;

/// How long a running daemon may take to restore its home.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// The answer when the home is in place.
pub(super) const IN_PLACE: u8 = b'1';

/// Listens for daemons that want the same home. `None` if another user has taken the name: then only the lock protects
/// the home.
pub(crate) fn claim(home: &Path) -> Option<UnixListener> {
    name_of(home).and_then(|name| socket::listen_by_name(&name)).ok()
}

/// The pid of a running daemon of this home, after it has restored the home.
pub(crate) fn living_daemon(home: &Path) -> Option<u32> {
    let mut stream = name_of(home).and_then(|name| socket::connect_by_name(&name)).ok()?;
    let uid = socket::peer_uid(stream.as_fd()).ok()?;
    if uid != socket::own_uid() && uid != 0 {
        return None;
    }
    let pid = socket::peer_pid(stream.as_fd()).ok().flatten().unwrap_or_default();
    stream.set_read_timeout(Some(ANSWER_TIMEOUT)).ok()?;
    let mut answer = [0];
    match stream.read(&mut answer) {
        // It is shutting down.
        Ok(0) => None,
        // It is running, even if it is too busy, or stopped, to answer.
        _ => Some(pid),
    }
}

fn name_of(home: &Path) -> io::Result<String> {
    let home = std::path::absolute(home)?;
    let (Some(above), Some(name)) = (home.parent(), home.file_name()) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the home must be below a directory"));
    };
    let above = std::fs::metadata(above)?;
    // FNV-1a, as for the cgroup's name.
    let hash = name
        .as_bytes()
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    Ok(format!("pinfold-{}-{:x}-{:x}-{hash:016x}", socket::own_uid(), above.dev(), above.ino()))
}
