//! Writes to stdout and stderr beside the event loop: a reader that does not read must not keep us from hearing Ctrl-C.
//!
//! Each stream has one thread, made when it is first written to. At the user's process limit there is none to be had, and
//! we write here and now: the output matters more than a quick answer to Ctrl-C.

use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};

use tokio::sync::oneshot;

use crate::failure::Failure;

/// Starts a thread that nobody waits for.
pub(crate) fn start_thread(work: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    match std::thread::Builder::new().spawn(work) {
        Ok(_) => Ok(()),
        Err(error) => {
            let why = "is the process limit of this user reached (`ulimit -u`, or pids.max of its cgroup)?";
            Err(Failure::trouble(format!("cannot make a thread: {error}: {why}")))
        }
    }
}

/// Where bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sink {
    Stdout,
    Stderr,
}

/// Bytes to write, and who waits for that.
type Order = (Vec<u8>, oneshot::Sender<io::Result<()>>);

/// Writes all of it and returns when that is done.
pub(crate) async fn write(sink: Sink, bytes: Vec<u8>) -> io::Result<()> {
    static THREADS: [OnceLock<Option<Sender<Order>>>; 2] = [OnceLock::new(), OnceLock::new()];
    let Some(thread) = THREADS[sink as usize].get_or_init(|| start(sink)) else { return sink.write(&bytes) };
    let (done, wait) = oneshot::channel();
    thread.send((bytes, done)).map_err(io::Error::other)?;
    wait.await.map_err(io::Error::other)?
}

fn start(sink: Sink) -> Option<Sender<Order>> {
    let (sender, orders) = channel::<Order>();
    let work = move || {
        for (bytes, done) in orders {
            let _ = done.send(sink.write(&bytes));
        }
    };
    std::thread::Builder::new().name("write".into()).spawn(work).ok().map(|_| sender)
}

impl Sink {
    fn write(self, bytes: &[u8]) -> io::Result<()> {
        let write = |mut to: Box<dyn Write>| to.write_all(bytes).and_then(|()| to.flush());
        match self {
            Sink::Stdout => write(Box::new(io::stdout().lock())),
            Sink::Stderr => write(Box::new(io::stderr().lock())),
        }
    }
}
