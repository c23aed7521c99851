//! The daemon's log: structured lines in `daemon.log`, bounded in size.
//!
//! Commands and environment values are never logged: a process is named by its id and owner.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

/// At this size the log is renamed to `daemon.log.1`, replacing the previous one.
const MAX_LOG: u64 = 8 << 20;

/// Set when the file was moved or removed.
static REOPEN: AtomicBool = AtomicBool::new(false);

/// Makes the next line reopen the file at its path.
pub(crate) fn reopen() {
    REOPEN.store(true, Ordering::Relaxed);
}

/// Starts logging to the file. Does nothing if logging was started before.
pub(crate) fn begin(path: &Path, filter: &str) -> io::Result<()> {
    let file = LogFile::open(path)?;
    let mut filter = EnvFilter::try_new(filter).unwrap_or_else(|_| EnvFilter::new("info"));
    // The SDK behind /mcp logs whole requests below `warn`, including commands and environments.
    if let Ok(quiet) = "rmcp=warn".parse() {
        filter = filter.add_directive(quiet);
    }
    let subscriber = tracing_subscriber::fmt().json().flatten_event(true).with_env_filter(filter).with_writer(file);
    // A line that cannot be written is dropped. Reporting it on standard error, a file on the same full disk, would
    // panic.
    let _ = subscriber.log_internal_errors(false).try_init();
    Ok(())
}

/// A log file that is rotated by size.
#[derive(Debug)]
struct LogFile {
    path: PathBuf,
    /// The open file and its size.
    current: Mutex<(File, u64)>,
}

impl LogFile {
    fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), current: Mutex::new(Self::open_file(path)?) })
    }

    fn open_file(path: &Path) -> io::Result<(File, u64)> {
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
        let size = file.metadata()?.len();
        Ok((file, size))
    }
}

impl Write for &LogFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut current = self.current.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if REOPEN.swap(false, Ordering::Relaxed) {
            *current = LogFile::open_file(&self.path)?;
        }
        if current.1 > MAX_LOG {
            std::fs::rename(&self.path, self.path.with_extension("log.1"))?;
            *current = LogFile::open_file(&self.path)?;
        }
        let written = current.0.write(line)?;
        current.1 += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LogFile {
    type Writer = &'a LogFile;

    fn make_writer(&'a self) -> Self::Writer {
        self
    }
}
