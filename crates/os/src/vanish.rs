//! Learning that files were moved or removed, without looking again and again.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

/// A descriptor that becomes readable when the directory or one of the files was moved or removed. A file that somebody
/// still has open counts as removed when its name is gone: the kernel reports the change of its link count. What is read
/// from it does not matter.
pub fn watch(directory: &Path, files: &[&Path]) -> io::Result<OwnedFd> {
    let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
    let gone = WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF;
    inotify::add_watch(&watch, directory, gone)?;
    for file in files {
        inotify::add_watch(&watch, *file, gone | WatchFlags::ATTRIB)?;
    }
    Ok(watch)
}
