//! Who goes first when the machine has no memory left: children before this process.
//!
//! A child is born with its parent's `oom_score_adj`. So it is raised around the birth and put back after it: two
//! writes to a file held open. Raising needs no privilege, nor does going back to where one was.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// How much sooner a child goes than its parent: as if it held this many thousandths of the memory more.
const SOONER: i32 = 200;
/// The kernel's greatest value.
const MOST: i32 = 1000;

/// This process's own standing, and that of its children.
#[derive(Debug)]
pub(crate) struct OomStanding {
    file: File,
    own: String,
    raised: String,
}

impl OomStanding {
    /// Of the calling process; `None` where the kernel shows no such file.
    pub(crate) fn open() -> Option<Self> {
        let path = format!("/proc/{}/oom_score_adj", std::process::id());
        let own: i32 = std::fs::read_to_string(&path).ok()?.trim().parse().ok()?;
        let file = File::options().write(true).open(&path).ok()?;
        Some(Self { file, own: own.to_string(), raised: (own + SOONER).min(MOST).to_string() })
    }

    pub(crate) fn raise(&self) {
        let _ = self.file.write_at(self.raised.as_bytes(), 0);
    }

    pub(crate) fn restore(&self) {
        let _ = self.file.write_at(self.own.as_bytes(), 0);
    }
}
