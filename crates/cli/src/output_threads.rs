//! Writes to stdout and stderr on threads of their own: a blocked write must not delay the handling of Ctrl-C.
//!
//! Each stream has one thread, started by the first write. If no thread can be started (process limit), the write happens on
//! the caller's thread: output matters more than a quick reaction to Ctrl-C.

use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};

use tokio::sync::oneshot;

use crate::failure::Failure;
use crate::progress_line;

/// Starts a detached thread.
pub(crate) fn start_thread(work: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    match std::thread::Builder::new().spawn(work) {
        Ok(_) => Ok(()),
        Err(error) => {
            let why = "the process limit of this user may be reached: see `ulimit -u` and pids.max of the cgroup";
            Err(Failure::internal(format!("cannot start a thread: {error}: {why}")))
        }
    }
}

/// The stream that is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sink {
    Stdout,
    Stderr,
}

/// Bytes to write, and where to send the result.
type WriteJob = (Vec<u8>, oneshot::Sender<io::Result<()>>);

/// Writes all bytes and returns when that is done.
pub(crate) async fn write(sink: Sink, bytes: Vec<u8>) -> io::Result<()> {
    static THREADS: [OnceLock<Option<Sender<WriteJob>>>; 2] = [OnceLock::new(), OnceLock::new()];
    let Some(thread) = THREADS[sink as usize].get_or_init(|| start(sink)) else { return sink.write(&bytes) };
    let (done, wait) = oneshot::channel();
    thread.send((bytes, done)).map_err(io::Error::other)?;
    wait.await.map_err(io::Error::other)?
}

fn start(sink: Sink) -> Option<Sender<WriteJob>> {
    let (sender, jobs) = channel::<WriteJob>();
    let work = move || {
        for (bytes, done) in jobs {
            let _ = done.send(sink.write(&bytes));
        }
    };
    std::thread::Builder::new().name("write".into()).spawn(work).ok().map(|_| sender)
}

impl Sink {
    fn write(self, bytes: &[u8]) -> io::Result<()> {
        progress_line::end();
        let write = |mut to: Box<dyn Write>| to.write_all(bytes).and_then(|()| to.flush());
        match self {
            Sink::Stdout => write(Box::new(io::stdout().lock())),
            Sink::Stderr => write(Box::new(io::stderr().lock())),
        }
    }
}
