//! Crash points: named places in the code where a test can make the program kill itself, as `kill -9` would.
//!
//! They exist only with the feature `crash-points`, which only tests enable, and only in builds with debug assertions.
//! Otherwise [`crash_point!`](crate::crash_point) expands to nothing, and not even the names are in the binary. With it,
//! `PINFOLD_CRASH=NAME:NTH:FUSE` in the environment arms one point: when a program passes it for the NTH time, it writes
//! its pid into the new file FUSE and kills itself. If FUSE already exists it does nothing, so that only one program is
//! killed and the test knows which.

/// A place where a test may kill this program. Names are `crate.what_was_just_done`.
#[cfg(all(feature = "crash-points", debug_assertions))]
#[macro_export]
macro_rules! crash_point {
    ($name:literal) => {
        $crate::crash::pass($name)
    };
}

/// A place where a test may kill this program; expands to nothing in this build.
#[cfg(not(all(feature = "crash-points", debug_assertions)))]
#[macro_export]
macro_rules! crash_point {
    ($name:literal) => {};
}

/// Kills this program if this point is armed and this is the chosen pass.
#[cfg(all(feature = "crash-points", debug_assertions))]
pub fn pass(name: &str) {
    use std::io::Write;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};
    /// The name of the armed point, the number of the pass that crashes, and the path of the fuse file.
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
