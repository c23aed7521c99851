//! The terminal that `top` runs in: raw mode and the alternate screen, restored on every way out. (A process's terminal: `attached_terminal.rs`.)

use std::io::{self, Write};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use crossterm::cursor::{Hide, Show};
use crossterm::event::{DisableBracketedPaste, DisableMouseCapture, EnableBracketedPaste, EnableMouseCapture};
use crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use crossterm::{execute, queue};

/// Whether the terminal is ours. It is restored once, by the first caller.
static IS_OURS: AtomicBool = AtomicBool::new(false);

/// The terminal as `pinfold top` uses it. Dropping it gives the terminal back; so does a panic on any thread, which also ends the
/// program.
#[derive(Debug)]
pub struct OwnTerminal(());

impl OwnTerminal {
    /// Takes over the terminal.
    pub fn enter() -> io::Result<Self> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let previous = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |info| {
                let was_ours = IS_OURS.load(Ordering::SeqCst);
                give_back();
                previous(info);
                if was_ours {
                    // A panic of a task would leave a screen that shows nothing new any more.
                    std::process::exit(101);
                }
            }));
        });
        enable_raw_mode()?;
        IS_OURS.store(true, Ordering::SeqCst);
        let entered = execute!(io::stdout(), EnterAlternateScreen, EnableMouseCapture, EnableBracketedPaste, Hide);
        entered.inspect_err(|_| give_back()).map(|()| OwnTerminal(()))
    }
}

impl Drop for OwnTerminal {
    fn drop(&mut self) {
        give_back();
    }
}

/// Gives the terminal back. Errors are ignored: a terminal that is gone needs nothing.
fn give_back() {
    if !IS_OURS.swap(false, Ordering::SeqCst) {
        return;
    }
    let mut stdout = io::stdout();
    let _ = queue!(stdout, DisableMouseCapture, DisableBracketedPaste, LeaveAlternateScreen, Show);
    let _ = stdout.flush();
    let _ = disable_raw_mode();
}

/// Gives back the settings of the terminal without writing to it: a write may block.
pub(super) fn give_back_settings() {
    let _ = disable_raw_mode();
}
