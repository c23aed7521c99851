//! Pseudoterminals: opening a pair, window size, the end-of-input key, echo.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::OFlags;
use rustix::pty::OpenptFlags;
use rustix::termios::{SpecialCodeIndex, Winsize};

use crate::fsio;

/// Ctrl+D, used if the terminal's settings cannot be read.
const DEFAULT_EOF: u8 = 4;

/// The two ends of a pseudoterminal. Both descriptors are above 2.
#[derive(Debug)]
pub struct Pty {
    /// Our end, non-blocking: write input to it, read output from it.
    pub master: OwnedFd,
    /// The process's end.
    pub slave: OwnedFd,
}

/// Opens a pseudoterminal of this size.
pub fn open(rows: u16, cols: u16) -> io::Result<Pty> {
    let master = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    rustix::pty::unlockpt(&master)?;
    // Not by its path, which may name a different terminal in another mount namespace.
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let slave = rustix::pty::ioctl_tiocgptpeer(&master, flags)?;
    let (master, slave) = (fsio::above_stdio(master)?, fsio::above_stdio(slave)?);
    resize(master.as_fd(), rows, cols)?;
    let status = rustix::fs::fcntl_getfl(&master)?;
    rustix::fs::fcntl_setfl(&master, status | OFlags::NONBLOCK)?;
    Ok(Pty { master, slave })
}

/// Changes the window size. The kernel sends SIGWINCH to the foreground process group.
pub fn resize(terminal: BorrowedFd<'_>, rows: u16, cols: u16) -> io::Result<()> {
    let size = Winsize { ws_row: rows, ws_col: cols, ws_xpixel: 0, ws_ypixel: 0 };
    Ok(rustix::termios::tcsetwinsize(terminal, size)?)
}

/// The key that means end of input when a program reads lines (VEOF).
pub fn eof_key(terminal: BorrowedFd<'_>) -> u8 {
    let settings = rustix::termios::tcgetattr(terminal);
    settings.map_or(DEFAULT_EOF, |settings| settings.special_codes[SpecialCodeIndex::VEOF])
}

/// Whether the terminal echoes its input.
pub fn echoes(terminal: BorrowedFd<'_>) -> bool {
    use rustix::termios::{LocalModes, tcgetattr};
    tcgetattr(terminal).is_ok_and(|settings| settings.local_modes.contains(LocalModes::ECHO))
}
