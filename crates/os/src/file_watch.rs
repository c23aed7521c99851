//! A notification when files are moved or removed (inotify), without polling.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

/// A descriptor that becomes readable when the directory or one of the files is moved or removed. A file that is still
/// open somewhere counts as removed when its name is gone: the kernel reports the change of its link count (ATTRIB). The
/// content read from the descriptor is irrelevant.
pub fn watch(directory: &Path, files: &[&Path]) -> io::Result<OwnedFd> {
    let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
    let moved_or_removed = WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF;
    inotify::add_watch(&watch, directory, moved_or_removed)?;
    for file in files {
        inotify::add_watch(&watch, *file, moved_or_removed | WatchFlags::ATTRIB)?;
    }
    Ok(watch)
}
