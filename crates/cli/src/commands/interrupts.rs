//! Receives INT (Ctrl-C), TERM, HUP and QUIT that are sent to `pinfold`, for commands that run in the foreground.

use std::fs::File;
use std::io::{self, Read};

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit;

/// A signal that asks the command to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interrupt {
    /// Ctrl-C.
    Int,
    /// SIGTERM.
    Term,
    /// SIGHUP: the terminal was closed.
    Hup,
    /// Ctrl-\: leave, and let the process run.
    Quit,
}

impl Interrupt {
    /// Exit code of a command that ends because of it.
    pub(super) fn code(self) -> u8 {
        match self {
            Interrupt::Int => exit::INTERRUPTED,
            Interrupt::Term => exit::TERMINATED,
            Interrupt::Hup => exit::HUNG_UP,
            Interrupt::Quit => exit::QUIT,
        }
    }
}

/// The stream of these signals. A signal that was ignored when we were started (`nohup`, `&` in a script) stays ignored.
#[derive(Debug)]
pub(super) struct Interrupts {
    int: Option<Signal>,
    term: Option<Signal>,
    hup: Option<Signal>,
    quit: Option<Signal>,
    /// A signal that arrived before there was a process to interrupt.
    kept: Option<Interrupt>,
}

impl Interrupts {
    pub(super) fn listen() -> io::Result<Self> {
        let ignored = ignored_signals();
        let take = |kind: SignalKind| match ignored & (1 << (kind.as_raw_value() - 1)) {
            0 => signal(kind).map(Some),
            _ => Ok(None),
        };
        Ok(Interrupts {
            int: take(SignalKind::interrupt())?,
            term: take(SignalKind::terminate())?,
            hup: take(SignalKind::hangup())?,
            quit: take(SignalKind::quit())?,
            kept: None,
        })
    }

    /// The next signal. Cancel-safe.
    pub(super) async fn next(&mut self) -> Interrupt {
        if let Some(kept) = self.kept.take() {
            return kept;
        }
        tokio::select! {
            () = arrival(&mut self.int) => Interrupt::Int,
            () = arrival(&mut self.term) => Interrupt::Term,
            () = arrival(&mut self.hup) => Interrupt::Hup,
            () = arrival(&mut self.quit) => Interrupt::Quit,
        }
    }

    /// Makes `next` return this signal first.
    pub(super) fn keep(&mut self, interrupt: Option<Interrupt>) {
        self.kept = interrupt;
    }
}

async fn arrival(signal: &mut Option<Signal>) {
    let arrived = match signal {
        Some(signal) => signal.recv().await,
        None => None,
    };
    if arrived.is_none() {
        std::future::pending().await
    }
}

/// Bit mask of the signals that were ignored when this process was started.
fn ignored_signals() -> u64 {
    // One read: std would read a file without a length in many small steps.
    let mut status = [0; 4096];
    let read = File::open("/proc/self/status").and_then(|mut file| file.read(&mut status)).unwrap_or(0);
    ignored_in(&String::from_utf8_lossy(&status[..read])).unwrap_or(0)
}

fn ignored_in(status: &str) -> Option<u64> {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(mask.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_of_ignored_signals_is_read() {
        assert_eq!(ignored_in("Name:\tx\nSigIgn:\t0000000000001001\n"), Some(0x1001));
        assert_eq!(ignored_in("Name:\tx\n"), None);
    }
}
