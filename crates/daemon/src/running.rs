//! Which program runs as the daemon of a home: a small file that clients read before they connect, so that a newer program
//! replaces an older daemon without an additional request.

use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

const NAME: &str = "daemon.json";

/// The daemon of a home, as it said when it started. It may have ended since.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningDaemon {
    pub version: String,
    pub program: PathBuf,
    /// Whether a service manager started it, and starts it again.
    pub is_unit: bool,
}

/// Writes the file.
pub(crate) fn write(home: &Path, daemon: &RunningDaemon) -> io::Result<()> {
    let (path, new) = (home.join(NAME), home.join("daemon.json.new"));
    // A file that a crash left there may have another mode.
    let _ = std::fs::remove_file(&new);
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(&serde_json::to_vec(daemon)?)?;
    std::fs::rename(new, path)
}

/// Reads the file; `None` if there is none or it has another form.
pub fn read(home: &Path) -> Option<RunningDaemon> {
    serde_json::from_slice(&std::fs::read(home.join(NAME)).ok()?).ok()
}
