//! Crash points: named places at which a test kills the very program that passes them, as `kill -9` would.
//!
//! Only the feature `crash-points` has them, only tests switch it on, and an optimised build has none even then: without
//! them [`crash_point!`](crate::crash_point) is nothing, and not even the names are in the program. With them,
//! `PINFOLD_CRASH=NAME:NTH:FUSE` in the environment arms one point: the NTH pass of a program writes its pid into the
//! new file FUSE and kills it. Where there is a FUSE already nobody is killed, so that one arming kills one program, and
//! the test sees which. A program that is not armed passes its points and does nothing.

/// A place at which a test may kill this program. Names are `room.what_was_just_done`.
#[cfg(all(feature = "crash-points", debug_assertions))]
#[macro_export]
macro_rules! crash_point {
    ($name:literal) => {
        $crate::crash::pass($name)
    };
}

/// A place at which a test may kill this program; this one is built without any.
#[cfg(not(all(feature = "crash-points", debug_assertions)))]
#[macro_export]
macro_rules! crash_point {
    ($name:literal) => {};
}

/// Passes a point.
#[cfg(all(feature = "crash-points", debug_assertions))]
pub fn pass(name: &str) {
    use std::io::Write;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};
    /// The armed point, the pass that counts, and the fuse.
    static ARMED: OnceLock<Option<(String, u64, String)>> = OnceLock::new();
    static PASSES: AtomicU64 = AtomicU64::new(0);
    let armed = ARMED.get_or_init(|| {
        let text = std::env::var("PINFOLD_CRASH").ok()?;
        let mut parts = text.splitn(3, ':');
        Some((parts.next()?.to_owned(), parts.next()?.parse().ok()?, parts.next()?.to_owned()))
    });
    let Some((armed, nth, fuse)) = armed else { return };
    if name != armed || PASSES.fetch_add(1, Ordering::Relaxed) + 1 != *nth {
        return;
    }
    if let Ok(mut fuse) = std::fs::OpenOptions::new().write(true).create_new(true).open(fuse) {
        let own = rustix::process::getpid();
        let _ = write!(fuse, "{}", own.as_raw_nonzero());
        let _ = rustix::process::kill_process(own, rustix::process::Signal::KILL);
    }
}
