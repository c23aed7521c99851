//! The screen of a process with a terminal: kept up to date while it runs, rebuilt from its output afterwards.
//!
//! One task per such process feeds its emulator, which answers the process's terminal queries. It reads at most
//! [`MAX_CATCH_UP`] bytes at a time and pauses as long as it worked, so that an endless writer costs at most half a
//! core; a request for the screen brings it up to date.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pinfold_api::error::ErrorCode;
use pinfold_api::types::{Position, ResizeRequest, Screen};
use pinfold_model::id::ProcessId;
use pinfold_model::keyboard::Keyboard;
use pinfold_model::link::{FromKeeper, ToKeeper};
use pinfold_model::spec::PtySize;

use crate::core::{Core, blocking};
use crate::emulator::{CatchUp, Terminal};
use crate::registry::keeper_answers::{over, unanswered};
use crate::registry::keeper_link::ANSWER_TIMEOUT;
use crate::registry::records;
use crate::registry::{Entry, FoundProcess, State};
use crate::request_error::RequestError;
use crate::waits::{has_closed, until_change, until_output};

/// Maximum bytes of one step.
const MAX_CATCH_UP: u64 = 4 << 20;
/// Timeout of one wait for output; then it waits again.
const OUTPUT_WAIT: Duration = Duration::from_secs(3600);

/// Starts the task that feeds the emulator of a process with a terminal, once.
pub(crate) fn follow(core: &Arc<Core>, entry: &Arc<Entry>) {
    if entry.has_terminal() && entry.claim_screen_task() {
        tokio::spawn(run(Arc::clone(core), Arc::clone(entry)));
    }
}

async fn run(core: Arc<Core>, entry: Arc<Entry>) {
    loop {
        // Read before the step: if the output was closed by then, the step sees all of it.
        let closed = has_closed(&entry.state.borrow());
        let started = Instant::now();
        let (more, cursor) = match core.catch_up(&entry, MAX_CATCH_UP).await {
            Ok(reached) => reached,
            Err(error) => {
                return tracing::warn!(process = %entry.id, error = %error.0, "cannot keep its screen up to date");
            }
        };
        if more {
            tokio::time::sleep(started.elapsed()).await;
        } else if closed {
            until_change(&entry, |state| state.history.status().is_over()).await;
            drop(blocking(move || entry.drop_terminal()).await);
            return;
        } else {
            until_output(&entry, cursor, OUTPUT_WAIT).await;
        }
    }
}

impl Core {
    /// Feeds at most this much output to the emulator of a live process and sends its replies; returns whether there is
    /// more, and the cursor.
    async fn catch_up(self: &Arc<Self>, entry: &Arc<Entry>, max_bytes: u64) -> Result<(bool, u64), RequestError> {
        let (state, directory, here) = (entry.snapshot(), self.home.process(&entry.id), Arc::clone(entry));
        let step = blocking(move || {
            let reader = records::reader(&state, &directory);
            here.with_terminal(|terminal| terminal.catch_up(&reader, max_bytes))
                .unwrap_or_else(|| Ok(CatchUp::default()))
        });
        let step = step.await?.map_err(RequestError::internal)?;
        if let Some(replies) = step.replies
            && let Some(link) = entry.link()
        {
            let (id, through, bytes) = (entry.id.clone(), replies.through, replies.bytes);
            let _ = link.send(&ToKeeper::Reply { id, through, bytes }).await;
        }
        Ok((step.more, step.cursor))
    }

    /// The current screen.
    pub(crate) async fn screen(self: &Arc<Self>, found: &FoundProcess) -> Result<Screen, RequestError> {
        self.with_terminal(found, show).await
    }

    /// How keys are encoded for it.
    pub(crate) async fn keyboard(self: &Arc<Self>, found: &FoundProcess) -> Result<Keyboard, RequestError> {
        self.with_terminal(found, |terminal, _| terminal.keyboard()).await
    }

    /// The bytes that draw its screen on another terminal, and the cursor of the output they include.
    pub(crate) async fn drawing(self: &Arc<Self>, found: &FoundProcess) -> Result<(Vec<u8>, u64), RequestError> {
        let draw = |terminal: &Terminal, _: &State| {
            let enter = if terminal.screen().alternate_screen() { "\x1b[?1049h" } else { "" };
            let text = format!("{enter}{}", terminal.screen().state_formatted());
            (text.into_bytes(), terminal.cursor())
        };
        self.with_terminal(found, draw).await
    }

    /// Reads from the emulator of a process, brought up to date.
    async fn with_terminal<T: Send + 'static>(
        self: &Arc<Self>,
        found: &FoundProcess,
        read: impl FnOnce(&Terminal, &State) -> T + Send + 'static,
    ) -> Result<T, RequestError> {
        let state = found.snapshot();
        let Some(size) = state.size else { return Err(no_terminal(found.id())) };
        // An ended process has dropped its emulator.
        if let FoundProcess::Here(entry) = found
            && !state.history.status().is_over()
        {
            while self.catch_up(entry, MAX_CATCH_UP).await?.0 {}
            let here = Arc::clone(entry);
            let seen = blocking(move || here.with_terminal(|terminal| read(terminal, &state))).await?;
            return seen.ok_or_else(|| no_terminal(found.id()));
        }
        let directory = self.home.process(found.id());
        let seen = blocking(move || {
            let mut terminal = Terminal::new(size);
            terminal.catch_up(&records::reader(&state, &directory), u64::MAX)?;
            Ok::<_, std::io::Error>(read(&terminal, &state))
        });
        seen.await?.map_err(RequestError::internal)
    }

    /// Resizes a terminal.
    pub(crate) async fn resize(
        self: &Arc<Self>,
        found: &FoundProcess,
        request: ResizeRequest,
    ) -> Result<Screen, RequestError> {
        self.resize_terminal(found, request).await?;
        self.screen(found).await
    }

    pub(crate) async fn resize_terminal(
        self: &Arc<Self>,
        found: &FoundProcess,
        request: ResizeRequest,
    ) -> Result<(), RequestError> {
        let size = PtySize { rows: request.rows, cols: request.cols }.check()?;
        if found.snapshot().size.is_none() {
            return Err(no_terminal(found.id()));
        }
        let FoundProcess::Here(entry) = found else { return Err(over(found.id())) };
        // Output written for the old size is drawn before the size changes.
        while self.catch_up(entry, MAX_CATCH_UP).await?.0 {}
        self.start_decided(entry).await;
        let link = entry.link().ok_or_else(|| over(&entry.id))?;
        let id = entry.id.clone();
        match link.request(ANSWER_TIMEOUT, |request| ToKeeper::Resize { request, id, size }).await {
            Ok(FromKeeper::Resized { done: true, .. }) => {
                let here = Arc::clone(entry);
                blocking(move || here.note_size(size)).await?;
            }
            Ok(FromKeeper::Resized { .. }) => return Err(over(&entry.id)),
            Ok(_) => return Err(RequestError::internal("a keeper sent an answer of the wrong kind")),
            Err(error) => return Err(unanswered(entry, error)),
        }
        Ok(())
    }
}

fn show(terminal: &Terminal, state: &State) -> Screen {
    let screen = terminal.screen();
    let (rows, cols) = screen.size();
    let (row, col) = screen.cursor_position();
    let mut lines: Vec<String> = screen.rows(0, cols.get()).map(|line| line.trim_end().to_owned()).collect();
    let used = lines.iter().rposition(|line| !line.is_empty()).map_or(0, |last| last + 1);
    lines.truncate(used);
    Screen {
        id: state.history.intent.id.to_string(),
        size: PtySize { rows: rows.get(), cols: cols.get() },
        lines,
        cursor: Position { row: row + 1, col: col + 1 },
        cursor_visible: !screen.hide_cursor(),
        title: terminal.title().to_owned(),
        alternate: screen.alternate_screen(),
        output_cursor: terminal.cursor(),
        waiting_for_input: records::waiting(state),
        status: state.history.status(),
    }
}

fn no_terminal(id: &ProcessId) -> RequestError {
    let message = format!("process {id} has no terminal: start it with `pty` (`pinfold run --pty`)");
    RequestError::new(ErrorCode::NoTerminal, message).about(id)
}
