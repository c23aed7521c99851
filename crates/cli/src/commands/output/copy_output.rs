//! Copies the output of a process to our stdout and stderr, byte for byte, as it arrives.
//!
//! Reads continue at a cursor, so nothing is lost or repeated if the daemon is replaced in between.

use pinfold_api::client::RawOutput;
use pinfold_api::types::{OutputQuery, Status};
use tokio::sync::watch;

use crate::console::Console;
use crate::failure::Failure;
use crate::output_threads::{self, Sink};
use crate::render::quantity::render_size;
use crate::session::Session;

/// Maximum size of one read.
const CHUNK: u64 = 1 << 20;
/// How long one read waits for output; it is then repeated.
const DEADLINE: &str = "5m";

/// Which stream is read, and where it is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    /// Both in their order, to stdout.
    Merged,
    /// Only stdout, to stdout.
    Stdout,
    /// Only stderr, to stderr.
    Stderr,
    /// Only stderr, to stdout.
    StderrToStdout,
}

/// What is read next.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReadPosition {
    /// The full id of the process: a name may refer to another process later.
    pub(crate) id: String,
    /// Offset of the next byte.
    pub(crate) cursor: u64,
    /// Where [`until_caught_up`] stops, if before the end of what exists.
    pub(crate) end: Option<u64>,
    /// Start with the last bytes or lines instead.
    pub(crate) tail: Option<String>,
}

/// Copies until the leader has exited and its output is copied. `exit` is set to the length of that output.
pub(crate) async fn until_exit(
    session: &Session,
    mut position: ReadPosition,
    stream: Stream,
    mut exit: watch::Receiver<Option<u64>>,
) -> Result<(), Failure> {
    loop {
        let end = *exit.borrow_and_update();
        if end.is_some_and(|end| stream == Stream::Merged && position.cursor >= end) {
            return Ok(());
        }
        // A read that is dropped because of the exit loses nothing: the cursor has not moved.
        let page = tokio::select! {
            page = read(session, &position, stream, end.is_none()) => page?,
            changed = exit.changed(), if end.is_none() => match changed {
                Ok(()) => continue,
                Err(_) => return Ok(()),
            },
        };
        let drained = page.bytes.is_empty() || end.is_some_and(|end| page.next_cursor >= end);
        copy(page, &mut position, stream).await?;
        if end.is_some() && drained {
            return Ok(());
        }
    }
}

/// Copies until the output is closed.
pub(crate) async fn until_closed(session: &Session, mut position: ReadPosition, stream: Stream) -> Result<(), Failure> {
    loop {
        let page = read(session, &position, stream, true).await?;
        let over = page.closed || matches!(page.status, Status::Finished | Status::Lost);
        let drained = page.bytes.is_empty() || page.next_cursor >= page.end;
        copy(page, &mut position, stream).await?;
        if over && drained {
            return Ok(());
        }
    }
}

/// Copies what exists now; does not follow a process that keeps writing.
pub(crate) async fn until_caught_up(
    session: &Session,
    mut position: ReadPosition,
    stream: Stream,
) -> Result<(), Failure> {
    let mut end = position.end;
    loop {
        if end.is_some_and(|end| position.cursor >= end) {
            return Ok(());
        }
        let page = read(session, &position, stream, false).await?;
        let end = *end.get_or_insert(page.end);
        let drained = page.bytes.is_empty() || page.next_cursor >= end;
        copy(page, &mut position, stream).await?;
        if drained {
            return Ok(());
        }
    }
}

async fn read(session: &Session, position: &ReadPosition, stream: Stream, wait: bool) -> Result<RawOutput, Failure> {
    let stream = match stream {
        Stream::Merged => None,
        Stream::Stdout => Some("stdout"),
        Stream::Stderr | Stream::StderrToStdout => Some("stderr"),
    };
    let size = position.end.map_or(CHUNK, |end| end.saturating_sub(position.cursor).clamp(1, CHUNK));
    let query = OutputQuery {
        cursor: position.tail.is_none().then_some(position.cursor),
        tail: position.tail.clone(),
        max_bytes: position.tail.is_none().then(|| size.to_string()),
        stream: stream.map(str::to_owned),
        wait: wait.then(|| DEADLINE.to_owned()),
        ..Default::default()
    };
    session.ask(async |client| client.output_raw(&position.id, &query).await).await
}

async fn copy(page: RawOutput, position: &mut ReadPosition, stream: Stream) -> Result<(), Failure> {
    if let Some(gap) = page.gap {
        let size = render_size(gap.to.saturating_sub(gap.from));
        Console::new(false).note(&format!("{size} of output was dropped (bytes {}..{})", gap.from, gap.to));
    }
    position.cursor = page.next_cursor;
    position.tail = None;
    if page.bytes.is_empty() {
        return Ok(());
    }
    let sink = if stream == Stream::Stderr { Sink::Stderr } else { Sink::Stdout };
    Ok(output_threads::write(sink, page.bytes.into()).await?)
}
