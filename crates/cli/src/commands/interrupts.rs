//! The signals that a person or a system sends to a command in the foreground.

use std::fs::File;
use std::io::{self, Read};

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit;

/// What was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interrupt {
    /// Ctrl-C.
    Int,
    /// A request to end.
    Term,
    /// The end of the terminal.
    Hup,
}

impl Interrupt {
    /// What a command exits with that leaves because of it.
    pub(super) fn code(self) -> u8 {
        match self {
            Interrupt::Int => exit::INTERRUPTED,
            Interrupt::Term => exit::TERMINATED,
            Interrupt::Hup => exit::HUNG_UP,
        }
    }
}

/// The signals as they come. One that was ignored when we were started (`nohup`, `&` in a script) stays ignored.
#[derive(Debug)]
pub(super) struct Interrupts {
    int: Option<Signal>,
    term: Option<Signal>,
    hup: Option<Signal>,
    /// One that came before there was anything to interrupt.
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
            kept: None,
        })
    }

    /// The next one. Nothing is lost if this is dropped before it is done.
    pub(super) async fn next(&mut self) -> Interrupt {
        if let Some(kept) = self.kept.take() {
            return kept;
        }
        tokio::select! {
            () = arrival(&mut self.int) => Interrupt::Int,
            () = arrival(&mut self.term) => Interrupt::Term,
            () = arrival(&mut self.hup) => Interrupt::Hup,
        }
    }

    /// Takes one for later.
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

/// The mask of signals that this process was started with as ignored.
fn ignored_signals() -> u64 {
    // Read at once: what std makes of a file without a length is a read for each doubling.
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
