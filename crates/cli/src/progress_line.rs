//! The line on a terminal that says what `run` is waiting for, until there is output or another message.
//!
//! At most one line exists. It is drawn by a thread of its own: a terminal that is stopped (Ctrl-S) must not delay the handling
//! of Ctrl-C. Everything else that this program prints calls [`end`] or [`erase`] first, so the line is never mixed with it.
//!
//! The line is erased by restoring the cursor position that was saved before drawing it. This is also right after a resize, with
//! which some terminals wrap the line again and some cut it.

use std::io::{self, IsTerminal, Write};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::output_threads::start_thread;
use crate::render::quantity::render_duration;
use crate::render::table::cut;

/// The line appears after this time without output, and is redrawn at this interval.
const INTERVAL: Duration = Duration::from_secs(1);
/// Columns of a terminal that does not say how many it has.
const DEFAULT_COLUMNS: usize = 80;
const SAVE_CURSOR: &str = "\x1b7";
/// Back to the saved position, and erase everything from there on.
const RESTORE_AND_ERASE: &str = "\x1b8\x1b[J";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No line, and none will appear.
    Off,
    /// No line now; the next one appears within [`INTERVAL`].
    Hidden,
    Shown,
}

static PHASE: Mutex<Phase> = Mutex::new(Phase::Off);
static ENDED: Condvar = Condvar::new();

/// Removes the line when it is dropped.
#[derive(Debug)]
pub(crate) struct ProgressLine(());

impl ProgressLine {
    /// Shows that this process has written nothing yet. Does nothing if stderr is not a terminal that can erase a line.
    pub(crate) fn start(id: &str) -> Option<Self> {
        let can_erase = std::env::var_os("TERM").is_some_and(|terminal| !terminal.is_empty() && terminal != "dumb");
        if !io::stderr().is_terminal() || !can_erase {
            return None;
        }
        *lock() = Phase::Hidden;
        let id = id.to_owned();
        let started = Instant::now();
        // Without a thread there is no line, and nothing else is missing.
        start_thread(move || redraw(&id, started)).ok().map(|()| ProgressLine(()))
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        end();
    }
}

/// Erases the line and stops redrawing it. Called before output is printed.
pub(crate) fn end() {
    change(Phase::Off);
    ENDED.notify_all();
}

/// Erases the line; it is drawn again later. Called before a message is printed.
pub(crate) fn erase() {
    let shown = *lock() == Phase::Shown;
    if shown {
        change(Phase::Hidden);
    }
}

fn change(to: Phase) {
    let mut phase = lock();
    if *phase == Phase::Shown {
        let _ = io::stderr().write_all(RESTORE_AND_ERASE.as_bytes());
    }
    *phase = to;
}

fn redraw(id: &str, started: Instant) {
    let mut phase = lock();
    loop {
        let waited = ENDED.wait_timeout_while(phase, INTERVAL, |phase| *phase != Phase::Off);
        phase = waited.unwrap_or_else(PoisonError::into_inner).0;
        if *phase == Phase::Off {
            return;
        }
        let back = if *phase == Phase::Shown { RESTORE_AND_ERASE } else { "" };
        let line = render(id, started.elapsed(), columns());
        let _ = io::stderr().write_all(format!("{back}{SAVE_CURSOR}{line}").as_bytes());
        *phase = Phase::Shown;
    }
}

/// The line, shorter than the terminal is wide, so that it never wraps.
fn render(id: &str, elapsed: Duration, columns: usize) -> String {
    let elapsed = render_duration(Duration::from_secs(elapsed.as_secs()));
    let text = format!("pinfold: {id}: no output for {elapsed} (Ctrl-C interrupts it, Ctrl-\\ detaches)");
    cut(&text, columns.saturating_sub(1))
}

fn columns() -> usize {
    let size = terminal_size::terminal_size_of(io::stderr());
    size.map_or(DEFAULT_COLUMNS, |(columns, _)| usize::from(columns.0))
}

fn lock() -> MutexGuard<'static, Phase> {
    PHASE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_cut_to_the_terminal() {
        let line = |columns| render("k3v9x2", Duration::from_millis(2900), columns);
        assert!(line(120).starts_with("pinfold: k3v9x2: no output for 2s (Ctrl-C"), "{}", line(120));
        for columns in [2, 20, 40] {
            assert_eq!(line(columns).chars().count(), columns - 1);
        }
    }
}
