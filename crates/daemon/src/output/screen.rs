//! The screen of a process with a terminal: kept up while it lives, made anew from its output where it is not.
//!
//! One task follows each such process, none any other: it feeds the emulator, which answers what the process asks of its
//! terminal. It takes at most [`TURN`] bytes at a time and rests as long as it worked, so that a writer without end
//! costs half a core at most; whoever asks for the screen brings it up to date.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pinfold_api::error::ErrorCode;
use pinfold_api::types::{Position, PtySize as ApiPtySize, ResizeRequest, Screen};
use pinfold_model::id::ProcessId;
use pinfold_model::keyboard::Keyboard;
use pinfold_model::link::{FromKeeper, ToKeeper};
use pinfold_model::spec::PtySize;

use crate::core::{Core, blocking};
use crate::emulator::{Terminal, Turn};
use crate::refusal::Refusal;
use crate::registry::keeper_answers::{over, unanswered};
use crate::registry::keeper_link::ANSWER;
use crate::registry::records;
use crate::registry::{Entry, Found, State};
use crate::waits::{has_closed, until_change, until_output};

/// Bytes in one turn.
const TURN: u64 = 4 << 20;
/// Output is waited for this long before it is waited for again.
const LONG: Duration = Duration::from_secs(3600);

/// Begins to follow a process with a terminal, once.
pub(crate) fn follow(core: &Arc<Core>, entry: &Arc<Entry>) {
    if entry.has_terminal() && entry.follow_first() {
        tokio::spawn(run(Arc::clone(core), Arc::clone(entry)));
    }
}

async fn run(core: Arc<Core>, entry: Arc<Entry>) {
    loop {
        // Whether this is all there will be is asked before the read, so that nothing is missed after it.
        let closed = has_closed(&entry.state.borrow());
        let begun = Instant::now();
        let (more, cursor) = match core.catch_up(&entry, TURN).await {
            Ok(reached) => reached,
            Err(refusal) => return tracing::warn!(process = %entry.id, error = %refusal.0, "its screen is not kept"),
        };
        if more {
            tokio::time::sleep(begun.elapsed()).await;
        } else if closed {
            until_change(&entry, |state| state.history.status().is_over()).await;
            drop(blocking(move || entry.drop_terminal()).await);
            return;
        } else {
            until_output(&entry, cursor, LONG).await;
        }
    }
}

impl Core {
    /// Brings the emulator of a live process up to date, at most so far, and answers what was asked meanwhile; whether
    /// there is more, and from where.
    async fn catch_up(self: &Arc<Self>, entry: &Arc<Entry>, most: u64) -> Result<(bool, u64), Refusal> {
        let (state, directory, here) = (entry.snapshot(), self.home.process(&entry.id), Arc::clone(entry));
        let turn = blocking(move || {
            let reader = records::reader(&state, &directory);
            here.with_terminal(|terminal| terminal.catch_up(&reader, most)).unwrap_or_else(|| Ok(Turn::default()))
        });
        let turn = turn.await?.map_err(Refusal::internal)?;
        if let Some(replies) = turn.replies
            && let Some(link) = entry.link()
        {
            let (id, through, bytes) = (entry.id.clone(), replies.through, replies.bytes);
            let _ = link.tell(&ToKeeper::Reply { id, through, bytes }).await;
        }
        Ok((turn.more, turn.cursor))
    }

    /// The screen as it is now.
    pub(crate) async fn screen(self: &Arc<Self>, found: &Found) -> Result<Screen, Refusal> {
        self.with_terminal(found, show).await
    }

    /// How keys are sent to it.
    pub(crate) async fn keyboard(self: &Arc<Self>, found: &Found) -> Result<Keyboard, Refusal> {
        self.with_terminal(found, |terminal, _| terminal.keyboard()).await
    }

    /// The bytes that draw its screen on another terminal, and how far in the output that is.
    pub(crate) async fn drawing(self: &Arc<Self>, found: &Found) -> Result<(Vec<u8>, u64), Refusal> {
        let draw = |terminal: &Terminal, _: &State| {
            let enter = if terminal.screen().alternate_screen() { "\x1b[?1049h" } else { "" };
            let text = format!("{enter}{}", terminal.screen().state_formatted());
            (text.into_bytes(), terminal.cursor())
        };
        self.with_terminal(found, draw).await
    }

    /// Looks at the emulator of a process, brought up to date.
    async fn with_terminal<T: Send + 'static>(
        self: &Arc<Self>,
        found: &Found,
        look: impl FnOnce(&Terminal, &State) -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        let state = found.snapshot();
        let Some(size) = state.size else { return Err(no_terminal(found.id())) };
        // One that is over has let go of its emulator.
        if let Found::Here(entry) = found
            && !state.history.status().is_over()
        {
            while self.catch_up(entry, TURN).await?.0 {}
            let here = Arc::clone(entry);
            let seen = blocking(move || here.with_terminal(|terminal| look(terminal, &state))).await?;
            return seen.ok_or_else(|| no_terminal(found.id()));
        }
        let directory = self.home.process(found.id());
        let seen = blocking(move || {
            let mut terminal = Terminal::new(size);
            terminal.catch_up(&records::reader(&state, &directory), u64::MAX)?;
            Ok::<_, std::io::Error>(look(&terminal, &state))
        });
        seen.await?.map_err(Refusal::internal)
    }

    /// Gives a terminal another size.
    pub(crate) async fn resize(self: &Arc<Self>, found: &Found, request: ResizeRequest) -> Result<Screen, Refusal> {
        self.resize_terminal(found, request).await?;
        self.screen(found).await
    }

    pub(crate) async fn resize_terminal(
        self: &Arc<Self>,
        found: &Found,
        request: ResizeRequest,
    ) -> Result<(), Refusal> {
        let size = PtySize { rows: request.rows, cols: request.cols }.check()?;
        if found.snapshot().size.is_none() {
            return Err(no_terminal(found.id()));
        }
        let Found::Here(entry) = found else { return Err(over(found.id())) };
        // What was drawn for the old size is drawn before it changes.
        while self.catch_up(entry, TURN).await?.0 {}
        self.settled_start(entry).await;
        let link = entry.link().ok_or_else(|| over(&entry.id))?;
        let id = entry.id.clone();
        match link.ask(ANSWER, |request| ToKeeper::Resize { request, id, size }).await {
            Ok(FromKeeper::Resized { done: true, .. }) => {
                let here = Arc::clone(entry);
                blocking(move || here.note_size(size)).await?;
            }
            Ok(FromKeeper::Resized { .. }) => return Err(over(&entry.id)),
            Ok(_) => return Err(Refusal::internal("a keeper gave the wrong answer")),
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
        size: ApiPtySize { rows: rows.get(), cols: cols.get() },
        lines,
        cursor: Position { row: row + 1, col: col + 1 },
        cursor_visible: !screen.hide_cursor(),
        title: terminal.title().to_owned(),
        alternate: screen.alternate_screen(),
        output_cursor: terminal.cursor(),
        waiting_for_input: records::waiting(state),
        status: records::api_status(state.history.status()),
    }
}

fn no_terminal(id: &ProcessId) -> Refusal {
    let message = format!("process {id} has no terminal: start it with `pty` (`pinfold run --pty`)");
    Refusal::new(ErrorCode::NoTerminal, message).about(id)
}
