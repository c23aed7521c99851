//! Raw mode of our own terminal, restored on drop.

use std::io::{self, Write};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};

/// Resets what a program may have switched on: alternate screen, hidden cursor, mouse, paste and key modes, colours.
const RESET: &[u8] =
    b"\x1b[?1049l\x1b[?25h\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[?1l\x1b>\x1b[0m\r\n";

/// A terminal in raw mode; restored on drop, also after a panic.
#[derive(Debug)]
pub(super) struct RawTerminal {
    before: Termios,
}

impl RawTerminal {
    pub(super) fn enter() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        Ok(Self { before })
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        let mut stdout = io::stdout().lock();
        let _ = stdout.write_all(RESET).and_then(|()| stdout.flush());
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}
