//! Landlock: which files a program may write, which TCP ports it may use, whom it may signal.
//!
//! Reading and executing are not restricted. Landlock does not see changes of mode, owner, times and extended attributes.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat2};

use super::Ports;

const CREATE_RULESET_VERSION: u32 = 1;
const RULE_PATH_BENEATH: u32 = 1;
const RULE_NET_PORT: u32 = 2;

// Access rights, by bit.
const WRITE_FILE: u64 = 1 << 1;
const REMOVE_DIR: u64 = 1 << 4;
const REMOVE_FILE: u64 = 1 << 5;
const MAKE_CHAR: u64 = 1 << 6;
const MAKE_DIR: u64 = 1 << 7;
const MAKE_REG: u64 = 1 << 8;
const MAKE_SOCK: u64 = 1 << 9;
const MAKE_FIFO: u64 = 1 << 10;
const MAKE_BLOCK: u64 = 1 << 11;
const MAKE_SYM: u64 = 1 << 12;
/// Moving and linking files between directories. A ruleset that does not handle it denies all of it.
const REFER: u64 = 1 << 13;
const TRUNCATE: u64 = 1 << 14;
const IOCTL_DEV: u64 = 1 << 15;
const BIND_TCP: u64 = 1;
const CONNECT_TCP: u64 = 1 << 1;
const SCOPE_ABSTRACT_UNIX_SOCKET: u64 = 1;
const SCOPE_SIGNAL: u64 = 1 << 1;

/// What a program may do in a directory that it may write: everything but making device files.
const IN_DIRECTORY: u64 = WRITE_FILE
    | REMOVE_DIR
    | REMOVE_FILE
    | MAKE_DIR
    | MAKE_REG
    | MAKE_SOCK
    | MAKE_FIFO
    | MAKE_SYM
    | REFER
    | TRUNCATE
    | IOCTL_DEV;
/// The rights that a rule for a file may have.
const ON_FILE: u64 = WRITE_FILE | TRUNCATE | IOCTL_DEV;

#[repr(C)]
struct RulesetAttr {
    handled_access_fs: u64,
    handled_access_net: u64,
    scoped: u64,
}

#[repr(C, packed)]
struct PathBeneathAttr {
    allowed_access: u64,
    parent_fd: RawFd,
}

#[repr(C)]
struct NetPortAttr {
    allowed_access: u64,
    port: u64,
}

/// The version of Landlock in this kernel; 0 if it has none, or it is disabled.
pub fn abi() -> u32 {
    // SAFETY: without attributes and with this flag, the call only returns the version.
    let version =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0, CREATE_RULESET_VERSION) };
    u32::try_from(version).unwrap_or(0)
}

/// A ruleset that is not in force yet.
#[derive(Debug)]
pub(super) struct Ruleset {
    fd: OwnedFd,
    handled: u64,
}

impl Ruleset {
    /// A ruleset that denies all writing, signals and abstract sockets of programs outside; with `ports`, also all TCP ports.
    /// It handles what this version of Landlock knows.
    pub(super) fn new(abi: u32, ports: bool) -> io::Result<Self> {
        let mut handled = IN_DIRECTORY | MAKE_CHAR | MAKE_BLOCK;
        for (right, since) in [(REFER, 2), (TRUNCATE, 3), (IOCTL_DEV, 5)] {
            if abi < since {
                handled &= !right;
            }
        }
        let attr = RulesetAttr {
            handled_access_fs: handled,
            handled_access_net: if ports && abi >= 4 { BIND_TCP | CONNECT_TCP } else { 0 },
            scoped: if abi >= 6 { SCOPE_ABSTRACT_UNIX_SOCKET | SCOPE_SIGNAL } else { 0 },
        };
        // SAFETY: the attributes are a local of the given size; an older kernel requires the unknown rest to be zero.
        let fd = unsafe {
            libc::syscall(libc::SYS_landlock_create_ruleset, &raw const attr, size_of::<RulesetAttr>(), 0u32)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel returned a new descriptor that nothing else owns. It closes at exec.
        let fd = unsafe { OwnedFd::from_raw_fd(fd as RawFd) };
        Ok(Self { fd, handled })
    }

    /// Allows writing a file, or everything below a directory. The path was resolved before: if it has a symbolic link by
    /// now, that is an error, since a sandboxed program may have put it there.
    pub(super) fn allow_writing(&mut self, path: &Path) -> io::Result<()> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let place = openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?;
        let is_directory = FileType::from_raw_mode(fstat(&place)?.st_mode) == FileType::Directory;
        self.allow(&place, if is_directory { IN_DIRECTORY } else { ON_FILE })
    }

    /// Allows writing a device file.
    pub(super) fn allow_device(&mut self, path: &Path) -> io::Result<()> {
        let device = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        self.allow(&device, ON_FILE)
    }

    fn allow(&mut self, place: &OwnedFd, access: u64) -> io::Result<()> {
        let attr = PathBeneathAttr { allowed_access: access & self.handled, parent_fd: place.as_raw_fd() };
        self.add_rule(RULE_PATH_BENEATH, (&raw const attr).cast())
    }

    /// Allows these TCP ports, if the ruleset handles ports.
    pub(super) fn allow_ports(&mut self, ports: &Ports) -> io::Result<()> {
        if abi() < 4 {
            return Ok(());
        }
        let rules = [(BIND_TCP, &ports.bind), (CONNECT_TCP, &ports.connect), (CONNECT_TCP, &ports.bind)];
        for (access, ports) in rules {
            for &port in ports {
                let attr = NetPortAttr { allowed_access: access, port: u64::from(port) };
                self.add_rule(RULE_NET_PORT, (&raw const attr).cast())?;
            }
        }
        Ok(())
    }

    fn add_rule(&mut self, kind: u32, attr: *const u8) -> io::Result<()> {
        // SAFETY: the callers pass a local of the type that this kind of rule has.
        let result = unsafe { libc::syscall(libc::SYS_landlock_add_rule, self.fd.as_raw_fd(), kind, attr, 0u32) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Puts it in force for the calling thread, which must have `no_new_privs`.
    pub(super) fn apply(&self) -> bool {
        // SAFETY: plain system call on an open descriptor.
        unsafe { libc::syscall(libc::SYS_landlock_restrict_self, self.fd.as_raw_fd(), 0u32) == 0 }
    }
}
