//! Mount, IPC and network namespaces of a sandboxed program, in a user namespace where the caller is not root.
//!
//! The program sees every file system read-only, except the directories that it may write. Inside these, Git's hooks and
//! configuration can be read-only; keys and passwords appear empty. Landlock and the filter are applied on top.
//!
//! There is no pid namespace. Its first program is the init of the namespace: the kernel kills everything else in it when
//! that program exits, so that no descendant could outlive the leader, and it ignores TERM unless it has a handler.

use std::ffi::{CStr, CString, c_int, c_long};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// What namespaces add to a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespacePolicy {
    /// Whether it gets a network namespace without any interface that is up.
    pub no_network: bool,
    pub git: Git,
    /// Directories in which a `.git` is protected, if it is there.
    pub repositories: Vec<PathBuf>,
    /// Directories and files that appear empty, if they exist.
    pub hidden: Vec<PathBuf>,
}

/// What a program may not write of its Git repositories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Git {
    Writable,
    /// Hooks and configuration are read-only.
    Protected,
    /// `.git` is read-only.
    ReadOnly,
}

const CAP_SYS_ADMIN: u32 = 21;
const OPEN_TREE_CLONE: u32 = 1;
const AT_RECURSIVE: u32 = 0x8000;
const MOVE_MOUNT_FROM_DESCRIPTOR: u32 = 0x04;
const MOVE_MOUNT_TO_DESCRIPTOR: u32 = 0x40;
const FSCONFIG_SET_STRING: u32 = 1;
const FSCONFIG_CREATE: u32 = 6;
const FSOPEN_CLOEXEC: u32 = 1;
const FSMOUNT_CLOEXEC: u32 = 1;
const MOUNT_ATTR_RDONLY: u64 = 1;
const MOUNT_ATTR_NOSUID: u64 = 2;
const MOUNT_ATTR_NODEV: u64 = 4;
const RESOLVE_NO_SYMLINKS: u64 = 4;

/// `struct mount_attr`.
#[repr(C)]
#[derive(Default)]
struct MountAttr {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

/// `struct open_how`.
#[repr(C)]
struct OpenHow {
    flags: u64,
    mode: u64,
    resolve: u64,
}

/// A path that is mounted on itself: then it can be neither renamed nor removed, and can be read-only.
#[derive(Debug)]
struct Pinned {
    path: CString,
    read_only: bool,
}

/// A path that appears empty.
#[derive(Debug)]
struct Hidden {
    path: CString,
    is_directory: bool,
}

/// The namespaces of a program, in the form in which the child enters them.
#[derive(Debug)]
pub(super) struct Namespaces {
    flags: c_int,
    /// What to write to `uid_map` and `gid_map`; `None` without a user namespace.
    maps: Option<[CString; 2]>,
    /// The roots that it may write; none of them contains another.
    roots: Vec<CString>,
    /// In this order: a directory before what is in it.
    pinned: Vec<Pinned>,
    hidden: Vec<Hidden>,
}

impl Namespaces {
    /// Looks at the roots and at what is hidden. In a repository without hooks or configuration, creates them empty: what
    /// does not exist could not be protected.
    pub(super) fn prepare(policy: &NamespacePolicy, roots: &[PathBuf]) -> io::Result<Self> {
        let is_nested = |path: &PathBuf| roots.iter().any(|root| path != root && path.starts_with(root));
        let mut outer: Vec<&PathBuf> = roots.iter().filter(|root| !is_nested(root)).collect();
        outer.sort_unstable();
        outer.dedup();
        let mut pinned = Vec::new();
        if policy.git != Git::Writable {
            for directory in &policy.repositories {
                pin_repository(directory, is_nested(directory), policy.git, &mut pinned)?;
            }
        }
        let mut hidden = Vec::new();
        for path in &policy.hidden {
            // Where a link points to is what can be read.
            let Ok(path) = path.canonicalize() else { continue };
            hidden.push(Hidden { is_directory: path.is_dir(), path: c_path(&path)? });
        }
        let user = !has_capability(CAP_SYS_ADMIN)?;
        let mut flags = libc::CLONE_NEWNS | libc::CLONE_NEWIPC;
        flags |= if policy.no_network { libc::CLONE_NEWNET } else { 0 };
        flags |= if user { libc::CLONE_NEWUSER } else { 0 };
        Ok(Self {
            flags,
            maps: user.then(own_maps),
            roots: outer.into_iter().map(|root| c_path(root)).collect::<io::Result<_>>()?,
            pinned,
            hidden,
        })
    }

    /// Moves the calling thread into its namespaces: system calls only, no allocation, no locks. False if one failed, with
    /// its errno. The working directory must be entered again afterwards: the old one is on a read-only mount.
    pub(super) fn apply(&self) -> bool {
        // SAFETY: plain system call. The child has a table of file system attributes of its own, as this requires.
        if unsafe { libc::unshare(self.flags) } < 0 {
            return false;
        }
        self.map_users() && make_mounts_private() && self.restrict_mounts()
    }

    /// The user and group are the same inside. All others appear as nobody.
    fn map_users(&self) -> bool {
        let Some([users, groups]) = &self.maps else { return true };
        write_file(c"/proc/self/setgroups", c"deny")
            && write_file(c"/proc/self/uid_map", users)
            && write_file(c"/proc/self/gid_map", groups)
    }

    fn restrict_mounts(&self) -> bool {
        // The copies are made before everything becomes read-only, and so stay writable. There is no allocation here: each
        // copy waits in the descriptor that the kernel returned for it.
        let mut copies: [RawFd; MAX_ROOTS] = [-1; MAX_ROOTS];
        let Some(copies) = copies.get_mut(..self.roots.len()) else { return false };
        for (copy, root) in copies.iter_mut().zip(&self.roots) {
            let Some(place) = open_place(root) else { return false };
            let Some(fd) = copy_mount(&place) else { return false };
            *copy = fd.as_raw_fd();
            // Closed below, or at exec.
            std::mem::forget(fd);
        }
        if !set_read_only(libc::AT_FDCWD, c"/".as_ptr(), AT_RECURSIVE) {
            return false;
        }
        for (copy, root) in copies.iter().zip(&self.roots) {
            // SAFETY: the descriptor was made above, and nothing else owns it.
            let copy = unsafe { OwnedFd::from_raw_fd(*copy) };
            let Some(place) = open_place(root) else { return false };
            if !move_mount(&copy, &place) {
                return false;
            }
        }
        self.pinned.iter().all(Pinned::apply) && self.hidden.iter().all(Hidden::apply)
    }
}

/// The most roots that a program can have: those of a sandbox, its temporary directory, and the shared ones.
pub(super) const MAX_ROOTS: usize = 40;

impl Pinned {
    fn apply(&self) -> bool {
        let Some(place) = open_place(&self.path) else { return false };
        let Some(copy) = copy_mount(&place) else { return false };
        let protects =
            !self.read_only || set_read_only(copy.as_raw_fd(), c"".as_ptr(), libc::AT_EMPTY_PATH as u32 | AT_RECURSIVE);
        protects && move_mount(&copy, &place)
    }
}

impl Hidden {
    fn apply(&self) -> bool {
        let Some(place) = open_place(&self.path) else {
            // Removed meanwhile: nothing is left to hide.
            return io::Error::last_os_error().raw_os_error() == Some(libc::ENOENT);
        };
        let cover = if self.is_directory {
            empty_directory()
        } else {
            open_place(c"/dev/null").and_then(|null| copy_mount(&null))
        };
        cover.is_some_and(|cover| move_mount(&cover, &place))
    }
}

/// Pins what Git executes in the repository in this directory. A directory inside a root is pinned itself: renamed, it could
/// be replaced with another repository.
fn pin_repository(directory: &Path, is_nested: bool, git: Git, pinned: &mut Vec<Pinned>) -> io::Result<()> {
    let repository = directory.join(".git");
    let Ok(found) = repository.symlink_metadata() else { return Ok(()) };
    if found.is_symlink() {
        return Err(unprotectable(&repository));
    }
    if is_nested {
        pinned.push(Pinned { path: c_path(directory)?, read_only: false });
    }
    // In a worktree `.git` is a file that names the repository, which is elsewhere.
    let whole = git == Git::ReadOnly || !found.is_dir();
    pinned.push(Pinned { path: c_path(&repository)?, read_only: whole });
    if whole {
        return Ok(());
    }
    for (name, kind) in [("hooks", Kind::Directory), ("config", Kind::File), ("config.worktree", Kind::Optional)] {
        let path = repository.join(name);
        match path.symlink_metadata() {
            Ok(found) if found.is_symlink() => return Err(unprotectable(&path)),
            Ok(_) => {}
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Err(_) => match kind {
                Kind::Directory => std::fs::DirBuilder::new().mode(0o755).create(&path)?,
                Kind::File => drop(std::fs::File::create_new(&path)?),
                Kind::Optional => continue,
            },
        }
        pinned.push(Pinned { path: c_path(&path)?, read_only: true });
    }
    Ok(())
}

#[derive(Clone, Copy)]
enum Kind {
    Directory,
    File,
    /// A file that is protected if it exists.
    Optional,
}

fn unprotectable(path: &Path) -> io::Error {
    io::Error::other(format!(
        "`{}` is a symbolic link, which cannot be protected: start it with git=read-only, or with git=writable",
        path.display()
    ))
}

/// Maps the user and the group to themselves.
fn own_maps() -> [CString; 2] {
    let own = |id: u32| CString::new(format!("{id} {id} 1")).unwrap_or_default();
    [own(rustix::process::geteuid().as_raw()), own(rustix::process::getegid().as_raw())]
}

fn c_path(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

/// Whether the calling thread has this capability in effect.
fn has_capability(capability: u32) -> io::Result<bool> {
    Ok(super::capabilities::effective()? & (1 << capability) != 0)
}

/// Whether this user can create these namespaces and change mounts in them: tries it in a child.
pub fn try_namespaces() -> io::Result<()> {
    let policy = NamespacePolicy { no_network: true, git: Git::Writable, repositories: vec![], hidden: vec![] };
    let mut namespaces = Namespaces::prepare(&policy, &[])?;
    // Covering a directory takes another right than changing mounts. Every machine has this one.
    namespaces.hidden.push(Hidden { path: c"/proc".into(), is_directory: true });
    // SAFETY: the child has its own copy of memory, and only makes system calls until it exits.
    let child = match unsafe { libc::fork() } {
        -1 => return Err(io::Error::last_os_error()),
        0 => {
            let code =
                if namespaces.apply() { 0 } else { io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO) };
            // SAFETY: ends the child without running the parent's exit handlers.
            unsafe { libc::_exit(code) }
        }
        child => child,
    };
    let mut status = 0;
    // SAFETY: waits for our own child; the status is a local.
    while unsafe { libc::waitpid(child, &raw mut status, 0) } < 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    match libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status)) {
        Some(0) => Ok(()),
        Some(errno) => Err(io::Error::from_raw_os_error(errno)),
        None => Err(io::Error::other("the attempt was killed")),
    }
}

/// Mounts that change outside change inside too, but not the other way round.
fn make_mounts_private() -> bool {
    let flags = libc::MS_REC | libc::MS_SLAVE;
    // SAFETY: the kernel reads only the target.
    unsafe { libc::mount(std::ptr::null(), c"/".as_ptr(), std::ptr::null(), flags, std::ptr::null()) == 0 }
}

fn write_file(path: &CStr, text: &CStr) -> bool {
    // SAFETY: the path is a C string.
    let fd = unsafe { libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC) };
    // SAFETY: a new descriptor that nothing else owns, or an error.
    let Some(file) = (unsafe { owned(fd.into()) }) else { return false };
    let length = text.count_bytes();
    // SAFETY: the text has this many bytes.
    unsafe { libc::write(file.as_raw_fd(), text.as_ptr().cast(), length) == length as isize }
}

/// Opens a path that has no symbolic link by now. One that was put there meanwhile is an error.
fn open_place(path: &CStr) -> Option<OwnedFd> {
    let how = OpenHow { flags: (libc::O_PATH | libc::O_CLOEXEC) as u64, mode: 0, resolve: RESOLVE_NO_SYMLINKS };
    // SAFETY: the path is a C string, and the structure a local of the given size.
    let fd = unsafe {
        libc::syscall(libc::SYS_openat2, libc::AT_FDCWD, path.as_ptr(), &raw const how, size_of::<OpenHow>())
    };
    // SAFETY: a new descriptor that nothing else owns, or an error.
    unsafe { owned(fd) }
}

/// A copy of the mounts from this place on, attached nowhere yet.
fn copy_mount(place: &OwnedFd) -> Option<OwnedFd> {
    let flags = OPEN_TREE_CLONE | libc::O_CLOEXEC as u32 | libc::AT_EMPTY_PATH as u32 | AT_RECURSIVE;
    // SAFETY: plain system call on an open descriptor, with an empty C string.
    let fd = unsafe { libc::syscall(libc::SYS_open_tree, place.as_raw_fd(), c"".as_ptr(), flags) };
    // SAFETY: a new descriptor that nothing else owns, or an error.
    unsafe { owned(fd) }
}

/// A read-only file system with nothing in it, attached nowhere yet.
fn empty_directory() -> Option<OwnedFd> {
    // SAFETY: the name is a C string.
    let fd = unsafe { libc::syscall(libc::SYS_fsopen, c"tmpfs".as_ptr(), FSOPEN_CLOEXEC) };
    // SAFETY: a new descriptor that nothing else owns, or an error.
    let context = unsafe { owned(fd) }?;
    let raw = context.as_raw_fd();
    let (mode, value) = (c"mode".as_ptr(), c"0555".as_ptr());
    // SAFETY: both are C strings.
    if unsafe { libc::syscall(libc::SYS_fsconfig, raw, FSCONFIG_SET_STRING, mode, value, 0) } < 0 {
        return None;
    }
    let none = std::ptr::null::<libc::c_char>();
    // SAFETY: this command takes no key and no value.
    if unsafe { libc::syscall(libc::SYS_fsconfig, raw, FSCONFIG_CREATE, none, none, 0) } < 0 {
        return None;
    }
    let attributes = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
    // SAFETY: plain system call on an open descriptor.
    let fd = unsafe { libc::syscall(libc::SYS_fsmount, raw, FSMOUNT_CLOEXEC, attributes) };
    // SAFETY: a new descriptor that nothing else owns, or an error.
    unsafe { owned(fd) }
}

fn set_read_only(directory: RawFd, path: *const libc::c_char, flags: u32) -> bool {
    let attr = MountAttr { set: MOUNT_ATTR_RDONLY, ..MountAttr::default() };
    let (attr, size) = (&raw const attr, size_of::<MountAttr>());
    // SAFETY: the callers pass a C string, and the attributes are a local of the given size.
    unsafe { libc::syscall(libc::SYS_mount_setattr, directory, path, flags, attr, size) == 0 }
}

fn move_mount(mount: &OwnedFd, place: &OwnedFd) -> bool {
    let (from, to, empty) = (mount.as_raw_fd(), place.as_raw_fd(), c"".as_ptr());
    let flags = MOVE_MOUNT_FROM_DESCRIPTOR | MOVE_MOUNT_TO_DESCRIPTOR;
    // SAFETY: plain system call on two open descriptors, with empty C strings.
    unsafe { libc::syscall(libc::SYS_move_mount, from, empty, to, empty, flags) == 0 }
}

/// The descriptor that a system call returned; `None` if it failed.
///
/// # Safety
/// Nothing else may own the descriptor.
unsafe fn owned(fd: c_long) -> Option<OwnedFd> {
    // SAFETY: as the caller promises.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}
