//! A mounted file system that never responds, like a network mount whose server is gone.

use std::ffi::CString;
use std::fs::OpenOptions;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

/// A FUSE file system whose requests are never read: a process that accesses a path below it blocks and can only be
/// killed. Unmounted when dropped, which makes all blocked accesses fail.
#[derive(Debug)]
pub struct HungMount {
    path: PathBuf,
    // Closing it aborts the file system.
    device: Option<OwnedFd>,
}

impl HungMount {
    /// `None` if it cannot be mounted (without root, or without `/dev/fuse`); prints the reason.
    pub fn try_new() -> Option<Self> {
        Self::mount().inspect_err(|error| println!("skipped: a FUSE file system cannot be mounted: {error}")).ok()
    }

    fn mount() -> std::io::Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("pinfold-hung-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        let device: OwnedFd = OpenOptions::new().read(true).write(true).open("/dev/fuse")?.into();
        std::fs::create_dir(&path)?;
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other", device.as_raw_fd());
        let options = CString::new(options).expect("no NUL");
        match mount("pinfold-hung", &path, "fuse", MountFlags::NOSUID | MountFlags::NODEV, Some(options.as_c_str())) {
            Ok(()) => Ok(Self { path, device: Some(device) }),
            Err(errno) => {
                let _ = std::fs::remove_dir(&path);
                Err(errno.into())
            }
        }
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for HungMount {
    fn drop(&mut self) {
        // The device first: an unmount would send a request to the file system, and block.
        drop(self.device.take());
        let _ = unmount(&self.path, UnmountFlags::DETACH);
        let _ = std::fs::remove_dir(&self.path);
    }
}
