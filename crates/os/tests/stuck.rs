//! Children that hang before exec: the parent carries on and reports the step at which the child hung.

use std::ffi::{CStr, CString};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use pinfold_os::cgroup::open_base;
use pinfold_os::spawn::{Child, Launch, SpawnError, Spawner, Step};
use pinfold_os::wait::{ExitStatus, reap};
use pinfold_os::{fsio, proc, tree};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

const SHORT: Duration = Duration::from_millis(200);
const DEADLINE: Duration = Duration::from_secs(60);

fn start(spawner: &mut Spawner, cwd: &CStr, cgroup: Option<BorrowedFd<'_>>) -> Result<Child, SpawnError> {
    let null = fsio::dev_null().expect("/dev/null");
    let argv = [c"sh".to_owned(), c"-c".to_owned(), c"exit 5".to_owned()];
    spawner.spawn(&Launch {
        programs: &[c"/bin/sh".to_owned()],
        argv: &argv,
        env: &[],
        cwd,
        stdin: null.as_fd(),
        stdout: null.as_fd(),
        stderr: null.as_fd(),
        terminal: false,
        cgroup,
        entries: &[],
        lock: None,
        sandbox: None,
    })
}

fn assert_starts(spawner: &mut Spawner, cgroup: Option<BorrowedFd<'_>>) {
    let child = start(spawner, c"/", cgroup).expect("it starts");
    assert_eq!(reap(&child.pidfd).expect("waitid").expect("it ended").status, ExitStatus::Exited { code: 5 });
}

fn own_children() -> Vec<u32> {
    tree::OwnChildren::open().and_then(|children| children.pids()).expect("the children of this thread")
}

#[test]
fn a_child_in_a_frozen_cgroup_is_killed_and_reaped() {
    let base = match open_base(&format!("pinfold-test-{}-stuck", std::process::id())) {
        Ok(base) => base,
        Err(reason) => return println!("skipped: {reason}"),
    };
    let leaf = base.make("leaf").expect("a leaf");
    leaf.freeze(true).expect("frozen");
    let mut spawner = Spawner::with_timeout(SHORT);
    let failure = start(&mut spawner, c"/", Some(leaf.fd())).expect_err("it never runs");
    assert_eq!((failure.step, failure.stuck), (Step::Clone, true), "{failure}");
    assert_eq!(own_children(), [], "no child is left");
    assert!(leaf.is_vacant().expect("its state"), "it was thawed");
    assert_starts(&mut spawner, Some(leaf.fd()));
    leaf.remove().expect("removed");
    base.remove_if_empty();
}

#[test]
fn a_cgroup_below_a_frozen_one_is_not_vacant() {
    let base = match open_base(&format!("pinfold-test-{}-below", std::process::id())) {
        Ok(base) => base,
        Err(reason) => return println!("skipped: {reason}"),
    };
    let above = base.make("above").expect("a cgroup");
    std::fs::create_dir(above.path().join("leaf")).expect("a leaf");
    let leaf = pinfold_os::cgroup::Cgroup::open(&above.path().join("leaf")).expect("a leaf");
    assert!(leaf.is_vacant().expect("its state"));
    above.freeze(true).expect("frozen");
    assert!(!leaf.is_vacant().expect("its state"));
    above.freeze(false).expect("thawed");
    above.remove().expect("removed");
    base.remove_if_empty();
}

/// A FUSE file system whose server reads every request and answers only the first: a process that waits for an answer
/// cannot be killed.
struct SilentMount {
    path: PathBuf,
    server: Option<File>,
}

impl SilentMount {
    fn new(name: &str) -> Result<Self, String> {
        let mut server =
            OpenOptions::new().read(true).write(true).open("/dev/fuse").map_err(|error| error.to_string())?;
        let path = std::env::temp_dir().join(format!("pinfold-os-{}-{name}", std::process::id()));
        std::fs::create_dir(&path).expect("a directory");
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", server.as_raw_fd());
        let options = CString::new(options).expect("text");
        if let Err(error) = mount("silent", &path, "fuse", MountFlags::empty(), Some(options.as_c_str())) {
            std::fs::remove_dir(&path).expect("removed");
            return Err(format!("cannot mount FUSE here: {error}"));
        }
        let mut request = [0; 1 << 16];
        let length = server.read(&mut request).expect("the first request");
        assert!(length >= 40);
        let mut answer = Vec::new();
        answer.extend(80_u32.to_le_bytes());
        answer.extend(0_i32.to_le_bytes());
        answer.extend(&request[8..16]);
        for number in [7_u32, 31, 4096, 0, 0, 4096] {
            answer.extend(number.to_le_bytes());
        }
        answer.resize(80, 0);
        server.write_all(&answer).expect("answered");
        Ok(Self { path, server: Some(server) })
    }

    /// Reads requests: from then on the kernel waits for an answer, and the waiting process cannot be killed.
    fn serve(&self) {
        let server = self.server.as_ref().expect("it serves").try_clone().expect("a descriptor");
        std::thread::spawn(move || while (&server).read(&mut [0; 1 << 16]).is_ok() {});
    }

    /// Fails all pending requests with an error.
    fn give_up(&mut self) {
        let _ = unmount(&self.path, UnmountFlags::DETACH | UnmountFlags::FORCE);
        self.server = None;
    }
}

impl Drop for SilentMount {
    fn drop(&mut self) {
        self.give_up();
        std::fs::remove_dir(&self.path).expect("removed");
    }
}

#[test]
fn a_child_that_cannot_be_killed_is_left_behind_and_holds_up_nothing() {
    let mut silent = match SilentMount::new("silent") {
        Ok(silent) => silent,
        Err(reason) => return println!("skipped: {reason}"),
    };
    silent.serve();
    let cwd = CString::new(silent.path.as_os_str().as_bytes()).expect("a path");
    let mut spawner = Spawner::with_timeout(SHORT);
    let failure = start(&mut spawner, &cwd, None).expect_err("it hangs");
    assert_eq!((failure.step, failure.stuck), (Step::Cwd, true), "{failure}");
    let left = own_children();
    assert_eq!(left.len(), 1, "it waits inside the kernel");
    assert_starts(&mut spawner, None);
    silent.give_up();
    let started = Instant::now();
    while proc::stat(left[0]).is_ok_and(|stat| stat.is_living()) {
        assert!(started.elapsed() < DEADLINE, "it never ended");
        std::thread::sleep(Duration::from_millis(5));
    }
    let ended = pinfold_os::wait::reap_if_ended(left[0]).expect("waitid").expect("it ended");
    assert_eq!(
        ended.status,
        ExitStatus::Signaled { signal: 9, core_dumped: false },
        "without having executed anything"
    );
    assert_starts(&mut spawner, None);
}
