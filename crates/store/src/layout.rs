//! Paths, permissions and locks: the home directory, its lock ([`HomeLock`]: one daemon for each home), the directory of one
//! process.
//!
//! Owns file names and permissions: directories are 0700 and files 0600, so only the user who runs pinfold can read the
//! output of processes. Knows nothing about the content of the files, except the home's `format`.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::Durability;
use pinfold_model::id::ProcessId;
use pinfold_os::fsio::LockHolder;
use pinfold_os::{crash_point, fsio, socket};

/// The version of the home's layout.
pub const HOME_FORMAT: u32 = 1;
pub(crate) const DIRECTORY_MODE: u32 = 0o700;
pub(crate) const FILE_MODE: u32 = 0o600;
/// Extension of a new file that will replace another, followed by the pid of its writer.
const NEW_FILE: &str = "new-";
/// How long to wait for the lock on `holder`: an exiting daemon may still hold it after it has released `lock`, because
/// the kernel closes its files one by one.
const HOLDER_TIMEOUT: Duration = Duration::from_secs(1);
/// The file whose lock shows which process is the daemon.
const HOLDER: &str = "holder";
/// The record of a process, in its directory.
pub const RECORD: &str = "record";

/// The directory that contains all data of one pinfold daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home {
    root: PathBuf,
    /// How its small files are written to disk.
    durability: Durability,
}

/// Why a directory cannot be a home.
#[derive(Debug, thiserror::Error)]
pub enum HomeError {
    #[error("{path} is not a directory: move it away, or set PINFOLD_HOME to another directory")]
    NotADirectory { path: PathBuf },
    #[error("{path} belongs to user {owner}, not to you (user {us}): set PINFOLD_HOME to a directory of your own")]
    NotOurs { path: PathBuf, owner: u32, us: u32 },
    #[error("{path} is writable by others (mode {mode:o}): run `chmod 700 {path}`")]
    Loose { path: PathBuf, mode: u32 },
    #[error("{path} is not writable ({source}): set PINFOLD_HOME to a writable directory")]
    Unwritable { path: PathBuf, source: io::Error },
    #[error("{path} was written by a newer pinfold (format {found}, this one supports up to {ours}): upgrade pinfold")]
    Newer { path: PathBuf, found: u32, ours: u32 },
    #[error("{path} does not contain a format number: restore it (`echo {ours} > {path}`)")]
    BadFormat { path: PathBuf, ours: u32 },
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
}

/// Why the home could not be locked.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    #[error("{path} is held by another pinfold daemon{}", .pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default())]
    Held { path: PathBuf, pid: Option<u32> },
    #[error("{path} cannot be locked: {source}")]
    Io { path: PathBuf, source: io::Error },
}

/// The home's lock, released when dropped. It belongs to the open file: a forked child that does not exec must close it,
/// or the child holds the lock too.
#[derive(Debug)]
pub struct HomeLock {
    /// `holder`, whose lock shows our pid to keepers. Opened only once, because closing any descriptor of it releases the
    /// lock. Dropped first, because the next daemon takes the other lock first and then needs this one.
    _holder: File,
    file: File,
}

impl HomeLock {
    /// Whether we hold the lock file at this home's path: false if the home was moved, removed or replaced.
    pub fn is_in_place(&self, home: &Home) -> bool {
        FileId::of(&self.file).is_some_and(|held| FileId::at(&home.lock_path()) == Some(held))
    }

    /// Whether the lock file still has a name, even on a file system that is no longer mounted.
    pub fn has_a_name(&self) -> bool {
        self.file.metadata().is_ok_and(|file| file.nlink() > 0)
    }

    /// The directory that the lock file is in now, if it still has a name.
    pub fn found_in(&self) -> Option<PathBuf> {
        let path = std::fs::read_link(format!("/proc/self/fd/{}", self.file.as_raw_fd())).ok()?;
        let is_it = FileId::of(&self.file).is_some_and(|held| FileId::at(&path) == Some(held));
        if is_it { path.parent().map(Path::to_owned) } else { None }
    }
}

/// Identifies a file, whatever its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    /// The file at this path; follows symbolic links.
    pub fn at(path: &Path) -> Option<Self> {
        std::fs::metadata(path).ok().map(|metadata| Self { device: metadata.dev(), inode: metadata.ino() })
    }

    fn of(file: &File) -> Option<Self> {
        file.metadata().ok().map(|metadata| Self { device: metadata.dev(), inode: metadata.ino() })
    }
}

/// Whether the peer of a connection is the daemon of this home: the process that holds the lock on `holder`. A peer
/// outside of our pid namespace has no pid here (`None`), and neither has a holder outside of it.
pub fn is_daemon(home: &Path, peer: Option<u32>) -> bool {
    let holder = File::open(home.join(HOLDER)).and_then(|file| fsio::holder(file.as_fd()));
    match holder {
        Ok(LockHolder::Pid(pid)) => peer == Some(pid),
        Ok(LockHolder::Unseen) => peer.is_none(),
        Ok(LockHolder::Unlocked) | Err(_) => false,
    }
}

impl Home {
    /// Creates or checks the home. Does not change a home of a newer pinfold.
    pub fn open(root: &Path) -> Result<Home, HomeError> {
        let io = |source| HomeError::Io { path: root.to_owned(), source };
        let root = std::path::absolute(root).map_err(io)?;
        make_directory(&root)?;
        check_directory(&root)?;
        let home = Home { root, durability: Durability::Programs };
        home.check_format()?;
        for path in [home.processes(), home.keepers()] {
            make_directory(&path)?;
            check_directory(&path)?;
        }
        Ok(home)
    }

    /// The same home, with this durability for its small files.
    pub fn with_durability(self, durability: Durability) -> Home {
        Home { durability, ..self }
    }

    pub(crate) fn durability(&self) -> Durability {
        self.durability
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The daemon's socket.
    pub fn socket(&self) -> PathBuf {
        self.root.join("socket")
    }

    pub fn lock_path(&self) -> PathBuf {
        self.root.join("lock")
    }

    /// The daemon's log file.
    pub fn log(&self) -> PathBuf {
        self.root.join("daemon.log")
    }

    pub fn index(&self) -> PathBuf {
        self.root.join("index.db")
    }

    /// The counter that process ids are made from.
    pub fn ids(&self) -> PathBuf {
        self.root.join("ids")
    }

    /// The secret that the ids for coder's clients are derived from.
    pub fn coder_key(&self) -> PathBuf {
        self.root.join("coder-key")
    }

    /// The secret that webhooks are signed with.
    pub fn webhook_key(&self) -> PathBuf {
        self.root.join("webhook.key")
    }

    /// The directory of the keepers' sockets.
    pub fn keepers(&self) -> PathBuf {
        self.root.join("keepers")
    }

    /// The sessions of the agents that use pinfold.
    pub fn sessions(&self) -> PathBuf {
        self.root.join("sessions.json")
    }

    /// The directory of the files of restart chains.
    pub fn chains(&self) -> PathBuf {
        self.root.join("chains")
    }

    /// The directory of the sockets that processes connect to in order to report that they are ready.
    pub fn ready(&self) -> PathBuf {
        self.root.join("ready")
    }

    /// The socket that this process connects to in order to report that it is ready.
    pub fn ready_socket(&self, id: &ProcessId) -> PathBuf {
        self.ready().join(id.as_str())
    }

    /// Creates the directory of these sockets, with mode 0700.
    pub fn make_ready_directory(&self) -> io::Result<()> {
        match DirBuilder::new().mode(DIRECTORY_MODE).create(self.ready()) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(()),
        }
    }

    /// The directory of the processes' directories.
    pub fn processes(&self) -> PathBuf {
        self.root.join("processes")
    }

    /// The directory of the hosted agents' directories; created with the first agent.
    pub fn agents(&self) -> PathBuf {
        self.root.join("agents")
    }

    /// The directory of one process.
    pub fn process(&self, id: &ProcessId) -> PathBuf {
        self.processes().join(id.as_str())
    }

    /// Takes the lock that allows only one daemon per home, and writes our pid into the file.
    pub fn try_lock(&self) -> Result<HomeLock, LockError> {
        let path = self.lock_path();
        let io = |source| LockError::Io { path: path.clone(), source };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(FILE_MODE);
        let mut file = options.open(&path).map_err(io)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::Error(source)) => return Err(io(source)),
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                let _ = (&mut file).take(32).read_to_string(&mut text);
                return Err(LockError::Held { path, pid: text.trim().parse().ok() });
            }
        }
        let pid = format!("{}\n", std::process::id());
        file.set_len(0).and_then(|()| file.write_all_at(pid.as_bytes(), 0)).map_err(io)?;
        let path = self.root.join(HOLDER);
        let io = |source| LockError::Io { path: path.clone(), source };
        let holder = options.open(&path).map_err(io)?;
        let deadline = Instant::now() + HOLDER_TIMEOUT;
        while !fsio::try_hold(holder.as_fd()).map_err(io)? {
            if Instant::now() > deadline {
                return Err(LockError::Held { path, pid: None });
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(HomeLock { file, _holder: holder })
    }

    fn check_format(&self) -> Result<(), HomeError> {
        let path = self.root.join("format");
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let text = format!("{HOME_FORMAT}\n");
                return replace_file(&path, text.as_bytes(), Durability::Power)
                    .map_err(|source| HomeError::Io { path, source });
            }
            Err(source) => return Err(HomeError::Io { path, source }),
        };
        match text.trim().parse::<u32>() {
            Ok(HOME_FORMAT) => Ok(()),
            Ok(found) if found > HOME_FORMAT => Err(HomeError::Newer { path, found, ours: HOME_FORMAT }),
            _ => Err(HomeError::BadFormat { path, ours: HOME_FORMAT }),
        }
    }
}

/// The directory of one process, as its keeper uses it: created, with an empty record, before it is needed. An empty
/// record means that nothing was started yet: readers skip it, and recovery removes the directory.
#[derive(Debug)]
pub struct ProcessDir {
    id: ProcessId,
    path: PathBuf,
    record: Arc<File>,
}

impl ProcessDir {
    /// Creates the directory and its empty record, and locks the record: one `mkdir`, one `openat`, one `flock`.
    /// `processes` must be an absolute path, so that the path stays valid if the working directory changes.
    pub fn prepare(processes: &Path, id: &ProcessId) -> io::Result<ProcessDir> {
        DirBuilder::new().mode(DIRECTORY_MODE).create(processes.join(id.as_str()))?;
        crash_point!("store.directory_made");
        Self::with_record(processes, id)
    }

    /// Like [`Self::prepare`], but the directory may exist, without a record.
    pub fn restore(processes: &Path, id: &ProcessId) -> io::Result<ProcessDir> {
        match DirBuilder::new().mode(DIRECTORY_MODE).create(processes.join(id.as_str())) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Self::with_record(processes, id),
        }
    }

    fn with_record(processes: &Path, id: &ProcessId) -> io::Result<ProcessDir> {
        let path = processes.join(id.as_str());
        let record = OpenOptions::new().read(true).write(true).create_new(true).mode(FILE_MODE).open(path.join(RECORD));
        // The lock shows that the keeper is alive: it lasts as long as the keeper has the file open.
        let locked = record.and_then(|record| record.try_lock().map(|()| record).map_err(io::Error::from));
        match locked {
            Ok(record) => {
                crash_point!("store.record_made");
                Ok(ProcessDir { id: id.clone(), path, record: Arc::new(record) })
            }
            Err(error) => {
                let _ = std::fs::remove_file(path.join(RECORD));
                let _ = std::fs::remove_dir(&path);
                Err(error)
            }
        }
    }

    /// Removes a prepared directory that was not used.
    pub fn discard(self) -> io::Result<()> {
        std::fs::remove_file(self.path.join(RECORD))?;
        crash_point!("store.record_discarded");
        std::fs::remove_dir(&self.path)
    }

    /// Removes the directory with everything in it, after a start that is not to be recorded.
    pub fn remove(self) -> io::Result<()> {
        // The record first: readers ignore a directory without a record.
        std::fs::remove_file(self.path.join(RECORD))?;
        std::fs::remove_dir_all(&self.path)
    }

    pub fn id(&self) -> &ProcessId {
        &self.id
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn record(&self) -> Arc<File> {
        Arc::clone(&self.record)
    }
}

/// Replaces a file atomically: readers see either the old or the new content. Daemons that race for a new home may do
/// this at the same time, so each writes a temporary file of its own.
///
/// With [`Durability::Power`] the content is synced before the rename, and the rename before this returns. Otherwise both
/// only survive the crash of programs.
pub(crate) fn replace_file(path: &Path, content: &[u8], durability: Durability) -> io::Result<()> {
    let new = path.with_extension(format!("{NEW_FILE}{}", std::process::id()));
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(FILE_MODE).open(&new)?;
    crash_point!("store.file_made");
    file.write_all_at(content, 0)?;
    crash_point!("store.file_written");
    if durability == Durability::Power {
        file.sync_all()?;
    }
    std::fs::rename(&new, path)?;
    crash_point!("store.file_replaced");
    match path.parent() {
        Some(parent) if durability == Durability::Power => File::open(parent)?.sync_all(),
        _ => Ok(()),
    }
}

/// The pid of the writer, if this is a temporary file of [`replace_file`].
pub(crate) fn writer_of_new_file(path: &Path) -> Option<u32> {
    path.extension()?.to_str()?.strip_prefix(NEW_FILE)?.parse().ok()
}

fn make_directory(path: &Path) -> Result<(), HomeError> {
    match DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path) {
        Ok(()) => Ok(()),
        Err(_) if path.exists() && !path.is_dir() => Err(HomeError::NotADirectory { path: path.to_owned() }),
        Err(source) => Err(HomeError::Unwritable { path: path.to_owned(), source }),
    }
}

fn check_directory(path: &Path) -> Result<(), HomeError> {
    let path = path.to_owned();
    let metadata = match std::fs::metadata(&path) {
        Ok(metadata) => metadata,
        Err(source) => return Err(HomeError::Io { path, source }),
    };
    let us = socket::own_uid();
    if metadata.uid() != us {
        return Err(HomeError::NotOurs { path, owner: metadata.uid(), us });
    }
    if metadata.mode() & 0o022 != 0 {
        return Err(HomeError::Loose { path, mode: metadata.mode() & 0o7777 });
    }
    fsio::check_writable(&path).map_err(|source| HomeError::Unwritable { path, source })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::testing::{Scratch, mode_of};

    #[test]
    fn a_new_home_is_private_and_opens_again() {
        let scratch = Scratch::new();
        let root = scratch.path().join("deep/home");
        let home = Home::open(&root).expect("made");
        for path in [home.root().to_owned(), home.processes(), home.keepers()] {
            assert_eq!(mode_of(&path), 0o700, "{path:?}");
        }
        assert_eq!(mode_of(&root.join("format")), 0o600);
        assert_eq!(std::fs::read_to_string(root.join("format")).expect("format"), "1\n");
        assert_eq!(Home::open(&root).expect("again"), home);
    }

    #[test]
    fn a_home_that_others_may_write_to_is_refused_with_a_command_that_fixes_it() {
        let scratch = Scratch::new();
        std::fs::set_permissions(scratch.path(), PermissionsExt::from_mode(0o770)).expect("chmod");
        let refusal = Home::open(scratch.path()).expect_err("refused").to_string();
        assert!(refusal.contains(&format!("chmod 700 {}", scratch.path().display())), "{refusal}");
        assert_eq!(std::fs::read_dir(scratch.path()).expect("dir").count(), 0, "untouched");
    }

    #[test]
    fn a_home_of_another_user_is_refused() {
        let scratch = Scratch::new();
        if std::os::unix::fs::chown(scratch.path(), Some(54_321), None).is_err() {
            return println!("skipped: only root can give a directory away");
        }
        let refusal = Home::open(scratch.path()).expect_err("refused");
        assert!(matches!(refusal, HomeError::NotOurs { owner: 54_321, .. }), "{refusal}");
        assert_eq!(std::fs::read_dir(scratch.path()).expect("dir").count(), 0, "untouched");
    }

    #[test]
    fn a_file_in_the_place_of_the_home_is_refused() {
        let scratch = Scratch::new();
        let path = scratch.path().join("file");
        std::fs::write(&path, "mine").expect("write");
        assert!(matches!(Home::open(&path), Err(HomeError::NotADirectory { .. })));
        assert!(Home::open(&path.join("below")).is_err());
        assert_eq!(std::fs::read_to_string(&path).expect("read"), "mine");
    }

    #[test]
    fn a_home_of_a_newer_pinfold_is_refused_and_untouched() {
        let scratch = Scratch::new();
        std::fs::write(scratch.path().join("format"), "2\n").expect("write");
        let refusal = Home::open(scratch.path()).expect_err("refused");
        assert!(matches!(refusal, HomeError::Newer { found: 2, ours: 1, .. }), "{refusal}");
        assert_eq!(std::fs::read_dir(scratch.path()).expect("dir").count(), 1, "untouched");
        std::fs::write(scratch.path().join("format"), "one").expect("write");
        assert!(matches!(Home::open(scratch.path()), Err(HomeError::BadFormat { .. })));
    }

    #[test]
    fn of_two_lockers_one_wins_and_the_other_learns_its_pid() {
        let home = Scratch::home();
        let lock = home.try_lock().expect("first");
        match home.try_lock() {
            Err(LockError::Held { pid, .. }) => assert_eq!(pid, Some(std::process::id())),
            other => panic!("{other:?}"),
        }
        assert_eq!(mode_of(&home.lock_path()), 0o600);
        drop(lock);
        home.try_lock().expect("free again");
    }

    #[test]
    fn a_lock_knows_whether_its_home_is_in_place() {
        let scratch = Scratch::new();
        let (root, other) = (scratch.path().join("home"), scratch.path().join("other"));
        let home = Home::open(&root).expect("made");
        let lock = home.try_lock().expect("locked");
        assert!(lock.is_in_place(&home));
        std::fs::rename(&root, &other).expect("moved");
        assert!(!lock.is_in_place(&home));
        assert_eq!(lock.found_in(), Some(other.clone()));
        std::os::unix::fs::symlink(&other, &root).expect("a link");
        assert!(lock.is_in_place(&home), "found through a link");
        std::fs::remove_dir_all(&other).expect("removed");
        assert_eq!((lock.is_in_place(&home), lock.found_in()), (false, None));
        std::fs::remove_file(&root).expect("no link");
        let home = Home::open(&root).expect("made anew");
        let second = home.try_lock().expect("another file");
        assert_eq!((lock.is_in_place(&home), second.is_in_place(&home)), (false, true));
    }

    #[test]
    fn a_prepared_directory_is_private_exclusive_and_can_be_discarded() {
        let home = Scratch::home();
        let id = ProcessId::from_number(1, 1);
        let dir = ProcessDir::prepare(&home.processes(), &id).expect("prepared");
        assert_eq!((mode_of(dir.path()), mode_of(&dir.path().join(RECORD))), (0o700, 0o600));
        let again = ProcessDir::prepare(&home.processes(), &id).expect_err("exists");
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
        dir.discard().expect("discarded");
        assert!(!home.process(&id).exists());
    }
}
