//! Pseudoterminals: a pair of ends, their size, and the key that means the end of input.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::OFlags;
use rustix::pty::OpenptFlags;
use rustix::termios::{SpecialCodeIndex, Winsize};

use crate::fsio;

/// Ctrl+D, where a terminal does not say otherwise.
const DEFAULT_EOF: u8 = 4;

/// Rows and columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    pub rows: u16,
    pub cols: u16,
}

/// The two ends of a pseudoterminal, both above 2. Ours does not block.
#[derive(Debug)]
pub struct Pty {
    /// Ours: what is typed goes in, what is shown comes out.
    pub master: OwnedFd,
    /// The process's.
    pub slave: OwnedFd,
}

/// Makes a pseudoterminal of this size.
pub fn open(size: Size) -> io::Result<Pty> {
    let master = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    rustix::pty::unlockpt(&master)?;
    // Not by its path, which may mean another terminal in the process's own mount namespace.
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let slave = rustix::pty::ioctl_tiocgptpeer(&master, flags)?;
    let (master, slave) = (fsio::above_stdio(master)?, fsio::above_stdio(slave)?);
    resize(master.as_fd(), size)?;
    let status = rustix::fs::fcntl_getfl(&master)?;
    rustix::fs::fcntl_setfl(&master, status | OFlags::NONBLOCK)?;
    Ok(Pty { master, slave })
}

/// Gives it another size; the kernel tells the processes in its foreground with SIGWINCH.
pub fn resize(terminal: BorrowedFd<'_>, size: Size) -> io::Result<()> {
    let size = Winsize { ws_row: size.rows, ws_col: size.cols, ws_xpixel: 0, ws_ypixel: 0 };
    Ok(rustix::termios::tcsetwinsize(terminal, size)?)
}

/// The key that ends the input of whoever reads lines from it.
pub fn eof_key(terminal: BorrowedFd<'_>) -> u8 {
    let settings = rustix::termios::tcgetattr(terminal);
    settings.map_or(DEFAULT_EOF, |settings| settings.special_codes[SpecialCodeIndex::VEOF])
}

/// Whether it echoes what is typed.
pub fn echoes(terminal: BorrowedFd<'_>) -> bool {
    use rustix::termios::{LocalModes, tcgetattr};
    tcgetattr(terminal).is_ok_and(|settings| settings.local_modes.contains(LocalModes::ECHO))
}
