//! Which living daemon owns a home, whatever became of its files.
//!
//! The lock in the home excludes a second daemon only while the file is there. So the daemon also listens under a name in
//! the abstract namespace, made of its user, the directory above the home, and the home's own name: all that stays when the
//! home is deleted. A daemon that is about to start connects to it first; the living one looks after its home and answers.
//! Names can be taken by anybody: a peer that is neither this user nor root is ignored.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Duration;

use pinfold_os::socket;

/// How long a living daemon may take to see to its home.
const ANSWER: Duration = Duration::from_secs(5);
/// What it answers when its home is in place.
pub(super) const IN_PLACE: u8 = b'1';

/// Listens for daemons that want the same home. `None` if another user has taken the name: the lock must do then.
pub(crate) fn claim(home: &Path) -> Option<UnixListener> {
    name_of(home).and_then(|name| socket::listen_by_name(&name)).ok()
}

/// The pid of a living daemon of this home, after it has put the home in place again.
pub(crate) fn living_daemon(home: &Path) -> Option<u32> {
    let mut stream = name_of(home).and_then(|name| socket::connect_by_name(&name)).ok()?;
    let uid = socket::peer_uid(stream.as_fd()).ok()?;
    if uid != socket::own_uid() && uid != 0 {
        return None;
    }
    let pid = socket::peer_pid(stream.as_fd()).ok().flatten().unwrap_or_default();
    stream.set_read_timeout(Some(ANSWER)).ok()?;
    let mut answer = [0];
    match stream.read(&mut answer) {
        // It ends.
        Ok(0) => None,
        // It lives, even if it is too busy, or stopped, to answer.
        _ => Some(pid),
    }
}

fn name_of(home: &Path) -> io::Result<String> {
    let home = std::path::absolute(home)?;
    let (Some(above), Some(name)) = (home.parent(), home.file_name()) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a home below a directory"));
    };
    let above = std::fs::metadata(above)?;
    // FNV-1a, as for the cgroup's name.
    let hash = name
        .as_bytes()
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    Ok(format!("pinfold-{}-{:x}-{:x}-{hash:016x}", socket::own_uid(), above.dev(), above.ino()))
}
