//! Output from the daemon to our own stdout and stderr, byte for byte, as it comes.
//!
//! The cursor makes it exact: a daemon that dies in between costs nothing, the next one is asked from there on.

use pinfold_api::client::RawOutput;
use pinfold_api::types::{OutputQuery, Status};
use tokio::sync::watch;

use crate::console::Screen;
use crate::failure::Failure;
use crate::offload::{self, Sink};
use crate::render::quantity::render_size;
use crate::session::Session;

/// The most bytes of one read.
const CHUNK: &str = "1M";
/// How long one read waits for output before it is repeated.
const PATIENCE: &str = "5m";

/// Which stream is read, and where it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tap {
    /// Everything in its order, to stdout.
    Merged,
    /// Only stdout, to stdout.
    Stdout,
    /// Only stderr, to stderr.
    Stderr,
    /// Only stderr, to stdout.
    StderrToStdout,
}

/// Where and how far to read.
#[derive(Clone, Debug, Default)]
pub(super) struct Reading {
    /// The process, by its full id: a name may mean another one later.
    pub(super) id: String,
    /// The first byte.
    pub(super) cursor: u64,
    /// Only the last bytes or lines; then on from there.
    pub(super) tail: Option<String>,
}

/// Copies until the leader has exited and all that it wrote is copied. `exit` becomes the end of that output.
pub(super) async fn until_exit(
    session: &Session,
    mut reading: Reading,
    tap: Tap,
    mut exit: watch::Receiver<Option<u64>>,
) -> Result<(), Failure> {
    loop {
        let end = *exit.borrow_and_update();
        if end.is_some_and(|end| tap == Tap::Merged && reading.cursor >= end) {
            return Ok(());
        }
        // The read is dropped when the exit comes first: its bytes are not copied yet, so the next read has them.
        let page = tokio::select! {
            page = read(session, &reading, tap, end.is_none()) => page?,
            told = exit.changed(), if end.is_none() => match told {
                Ok(()) => continue,
                Err(_) => return Ok(()),
            },
        };
        let drained = page.bytes.is_empty() || end.is_some_and(|end| page.next_cursor >= end);
        copy(page, &mut reading, tap).await?;
        if end.is_some() && drained {
            return Ok(());
        }
    }
}

/// Copies until nothing more can come.
pub(super) async fn until_closed(session: &Session, mut reading: Reading, tap: Tap) -> Result<(), Failure> {
    loop {
        let page = read(session, &reading, tap, true).await?;
        let over = page.closed || matches!(page.status, Status::Finished | Status::Lost);
        let drained = page.bytes.is_empty() || page.next_cursor >= page.end;
        copy(page, &mut reading, tap).await?;
        if over && drained {
            return Ok(());
        }
    }
}

/// Copies what is there now, and does not run after a process that keeps writing.
pub(super) async fn what_is_there(session: &Session, mut reading: Reading, tap: Tap) -> Result<(), Failure> {
    let mut end = None;
    loop {
        let page = read(session, &reading, tap, false).await?;
        let end = *end.get_or_insert(page.end);
        let drained = page.bytes.is_empty() || page.next_cursor >= end;
        copy(page, &mut reading, tap).await?;
        if drained {
            return Ok(());
        }
    }
}

async fn read(session: &Session, reading: &Reading, tap: Tap, wait: bool) -> Result<RawOutput, Failure> {
    let stream = match tap {
        Tap::Merged => None,
        Tap::Stdout => Some("stdout"),
        Tap::Stderr | Tap::StderrToStdout => Some("stderr"),
    };
    let query = OutputQuery {
        cursor: reading.tail.is_none().then_some(reading.cursor),
        tail: reading.tail.clone(),
        max_bytes: reading.tail.is_none().then(|| CHUNK.to_owned()),
        stream: stream.map(str::to_owned),
        wait: wait.then(|| PATIENCE.to_owned()),
        ..Default::default()
    };
    session.ask(async |client| client.output_raw(&reading.id, &query).await).await
}

async fn copy(page: RawOutput, reading: &mut Reading, tap: Tap) -> Result<(), Failure> {
    if let Some(gap) = page.gap {
        let size = render_size(gap.to.saturating_sub(gap.from));
        Screen::new(false).note(&format!("{size} of output is no longer kept (cursor {}..{})", gap.from, gap.to));
    }
    reading.cursor = page.next_cursor;
    reading.tail = None;
    if page.bytes.is_empty() {
        return Ok(());
    }
    let sink = if tap == Tap::Stderr { Sink::Stderr } else { Sink::Stdout };
    Ok(offload::write(sink, page.bytes.into()).await?)
}
