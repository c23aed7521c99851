//! Starting a program: one clone3 that shares the parent's memory until exec, and tells which step failed.
//!
//! `clone3(CLONE_VM)` costs what posix_spawn costs, and can do what posix_spawn cannot: put the child into its
//! cgroup at birth and hand out its pidfd. The child runs on a stack of its own and does nothing but system
//! calls. The caller must not have signal handlers that could run in the child; all signals are blocked around
//! the clone.
//!
//! There is no CLONE_VFORK: it suspends the parent until the child's exec without any limit, and a child in a
//! frozen cgroup or on a file system that does not answer never gets there. Instead the parent waits on a word
//! that the kernel clears at the child's exec or exit (CLONE_CHILD_CLEARTID), for at most [`EXEC_TIMEOUT`].

use std::ffi::{CStr, CString};
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::birth::{BirthClock, since_boot};
use crate::oom::OomStanding;
use crate::{proc, wait};

/// Enough for a dozen C wrappers; the child calls nothing deeper.
const CHILD_STACK: usize = 32 * 1024;
// libc's constants of these names are `c_int`s that overflow to 0.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
const CLONE_CLEAR_SIGHAND: u64 = 0x1_0000_0000;
/// How long a child may take from its birth to its exec; then it is killed.
pub const EXEC_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a killed child may take to end. One that waits inside the kernel for longer is left behind.
const KILL_TIMEOUT: Duration = Duration::from_secs(1);
/// When to check whether an exec happened without the kernel clearing the word: gVisor clears it at exit only.
const FIRST_CHECK: Duration = Duration::from_millis(50);
/// The word while the child shares our memory.
const SHARED: u32 = 1;

/// What to start.
#[derive(Debug)]
pub struct Launch<'a> {
    /// Paths to try in this order; the first that exists is executed.
    pub programs: &'a [CString],
    pub argv: &'a [CString],
    pub env: &'a [&'a CStr],
    pub cwd: &'a CStr,
    pub stdin: BorrowedFd<'a>,
    pub stdout: BorrowedFd<'a>,
    pub stderr: BorrowedFd<'a>,
    /// Whether its stdin is a terminal that becomes its own.
    pub terminal: bool,
    /// The cgroup it is born into.
    pub cgroup: Option<BorrowedFd<'a>>,
    /// `cgroup.procs` files of v1 cgroups that it enters before anything else.
    pub entries: &'a [BorrowedFd<'a>],
    /// A file whose lock tells that this process lives: the child closes it at once, so that one that hangs does not hold
    /// the lock.
    pub lock: Option<BorrowedFd<'a>>,
}

/// A child of this process, not yet reaped.
#[derive(Debug)]
pub struct Child {
    pub pid: u32,
    pub pidfd: OwnedFd,
    /// In clock ticks since boot, as `/proc` tells it; 0 if that is not to be known.
    pub start_time: u64,
}

/// The step that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Clone,
    Setup,
    Cwd,
    Exec,
    /// Making a terminal its own.
    Terminal,
}

/// The steps that a child takes, by the number it reports them with. 0: it has not run yet.
const STEPS: [Step; 5] = [Step::Clone, Step::Setup, Step::Cwd, Step::Exec, Step::Terminal];
const SETUP: i32 = 1;
const CWD: i32 = 2;
const EXEC: i32 = 3;
const TERMINAL: i32 = 4;

/// A start that failed; no child is left, unless it was stuck.
#[derive(Debug, thiserror::Error)]
#[error("{step:?}: {error}")]
pub struct SpawnError {
    pub step: Step,
    pub error: io::Error,
    /// Which of the programs it tried last.
    pub program: usize,
    /// It did not reach its exec within [`EXEC_TIMEOUT`] and was killed. If it waits inside the kernel it ends when
    /// that returns, without having executed anything.
    pub stuck: bool,
}

/// What the children of one thread need, kept from start to start.
#[derive(Debug)]
pub struct Spawner {
    /// Their stack, of one at a time.
    stack: Vec<u8>,
    /// [`SHARED`] while a child shares our memory; the kernel clears it. In a box: a child that was left behind may end,
    /// and clear it, at any time later.
    word: Box<AtomicU32>,
    standing: Option<OomStanding>,
    clock: BirthClock,
    /// [`EXEC_TIMEOUT`], but in tests.
    exec_timeout: Duration,
    /// Whether this kernel clears the word only at exit: then it has to suspend us until the exec.
    suspends: bool,
}

/// What the child reads and reports; it lives in the parent's frame while the parent waits.
struct Errand {
    programs: *const *const libc::c_char,
    argv: *const *const libc::c_char,
    env: *const *const libc::c_char,
    cwd: *const libc::c_char,
    stdio: [RawFd; 3],
    terminal: bool,
    entries: *const BorrowedFd<'static>,
    entry_count: usize,
    /// To be closed; -1 for none.
    lock: RawFd,
    parent: libc::pid_t,
    /// When it was there, in nanoseconds since boot.
    alive: AtomicU64,
    /// The step it is at.
    step: AtomicI32,
    /// The program it tries.
    program: AtomicUsize,
    /// Why it ended instead of executing; 0 while all is well.
    errno: AtomicI32,
}

impl Default for Spawner {
    fn default() -> Self {
        Self::new()
    }
}

impl Spawner {
    /// Reserves the child's stack. For the process that spawns: a copy that came through fork is another's.
    pub fn new() -> Self {
        Self::with_timeout(EXEC_TIMEOUT)
    }

    /// As `new`, with another time from birth to exec.
    pub fn with_timeout(exec_timeout: Duration) -> Self {
        Self {
            stack: vec![0; CHILD_STACK],
            word: Box::default(),
            standing: OomStanding::open(),
            clock: BirthClock::default(),
            exec_timeout,
            suspends: false,
        }
    }

    /// Prepares for the next child: whoever has time for it now spares the child the wait.
    pub fn prepare(&mut self) {
        if let Some(standing) = &mut self.standing {
            standing.raise();
        }
    }

    /// Undoes what the last child needed of us: until then this process goes as soon as its child when memory runs out.
    pub fn settle(&mut self) {
        if let Some(standing) = &mut self.standing {
            standing.restore();
        }
    }

    /// Starts a program in a session of its own, to be killed with this thread; returns when it has been
    /// executed, or the reason why not.
    pub fn spawn(&mut self, launch: &Launch<'_>) -> Result<Child, SpawnError> {
        let (programs, argv, env) = (pointers(launch.programs), pointers(launch.argv), pointers(launch.env));
        let errand = Errand {
            programs: programs.as_ptr(),
            argv: argv.as_ptr(),
            env: env.as_ptr(),
            cwd: launch.cwd.as_ptr(),
            stdio: [launch.stdin, launch.stdout, launch.stderr].map(|fd| fd.as_raw_fd()),
            terminal: launch.terminal,
            entries: launch.entries.as_ptr().cast(),
            entry_count: launch.entries.len(),
            lock: launch.lock.map_or(-1, |lock| lock.as_raw_fd()),
            parent: std::process::id() as libc::pid_t,
            alive: AtomicU64::new(u64::MAX),
            step: AtomicI32::new(0),
            program: AtomicUsize::new(0),
            errno: AtomicI32::new(0),
        };
        self.prepare();
        let blocked = block_all_signals();
        let before = since_boot();
        let born = self.clone(launch, &errand);
        let reached = born.as_ref().is_ok_and(|(pid, pidfd)| self.wait_for_exec(*pid, pidfd));
        restore_signals(&blocked);
        let failed = |step, error, stuck| {
            Err(SpawnError { step, error, program: errand.program.load(Ordering::Acquire), stuck })
        };
        let (pid, pidfd) = match born {
            Ok(child) => child,
            Err(error) => return failed(Step::Clone, error, false),
        };
        let step = STEPS[errand.step.load(Ordering::Acquire) as usize];
        if !reached {
            let error = format!("no exec within {:?}", self.exec_timeout);
            return failed(step, io::Error::new(io::ErrorKind::TimedOut, error), true);
        }
        match errand.errno.load(Ordering::Acquire) {
            0 => {
                let alive = Duration::from_nanos(errand.alive.load(Ordering::Acquire));
                Ok(Child { pid, pidfd, start_time: self.clock.start_time(pid, before, alive) })
            }
            errno => {
                let _ = wait::reap(&pidfd);
                failed(step, io::Error::from_raw_os_error(errno), false)
            }
        }
    }

    /// The one system call.
    fn clone(&mut self, launch: &Launch<'_>, errand: &Errand) -> io::Result<(u32, OwnedFd)> {
        let mut pidfd: RawFd = -1;
        let flags = libc::CLONE_VM | libc::CLONE_PIDFD | libc::CLONE_CHILD_CLEARTID;
        // SAFETY: clone_args is plain data; all zero is its documented initial value.
        let mut args: libc::clone_args = unsafe { mem::zeroed() };
        args.flags = flags as u64 | CLONE_CLEAR_SIGHAND | launch.cgroup.map_or(0, |_| CLONE_INTO_CGROUP);
        if self.suspends {
            args.flags |= libc::CLONE_VFORK as u64;
        }
        args.pidfd = ptr::from_mut(&mut pidfd) as u64;
        args.child_tid = self.word.as_ptr() as u64;
        args.exit_signal = libc::SIGCHLD as u64;
        args.stack = self.stack.as_mut_ptr() as u64;
        args.stack_size = (self.stack.len() & !15) as u64;
        args.cgroup = launch.cgroup.map_or(0, |cgroup| cgroup.as_raw_fd() as u64);
        self.word.store(SHARED, Ordering::Release);
        match clone_onto_stack(&mut args, errand) {
            result if result < 0 => Err(io::Error::from_raw_os_error(-result as i32)),
            // SAFETY: the kernel stored a new descriptor there (CLONE_PIDFD), owned by nobody else.
            pid => Ok((pid as u32, unsafe { OwnedFd::from_raw_fd(pidfd) })),
        }
    }

    /// Waits until the child shares our memory no more: it executed something, or it ended. False if it did neither in
    /// time; then it is killed.
    fn wait_for_exec(&mut self, pid: u32, pidfd: &OwnedFd) -> bool {
        if self.suspends || self.is_released(FIRST_CHECK) {
            return true;
        }
        if is_another_program(pid) && !self.is_released(Duration::ZERO) {
            self.suspends = true;
            return true;
        }
        if self.is_released(self.exec_timeout) {
            return true;
        }
        let _ = rustix::process::pidfd_send_signal(pidfd, rustix::process::Signal::KILL);
        if !self.is_released(KILL_TIMEOUT) {
            // It waits inside the kernel. When that returns it ends, and the kernel clears the word; until then it has the
            // stack too.
            mem::forget(mem::replace(&mut self.stack, vec![0; CHILD_STACK]));
            mem::forget(mem::take(&mut self.word));
            return false;
        }
        // It may have come to its exec at the last moment: then it ran.
        if proc::has_executed(pid) {
            return true;
        }
        let _ = wait::reap(pidfd);
        false
    }

    /// Waits for at most this time until the kernel has cleared the word.
    fn is_released(&self, within: Duration) -> bool {
        let deadline = Instant::now() + within;
        loop {
            if self.word.load(Ordering::Acquire) != SHARED {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let timeout = libc::timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
            // Not a private futex: the kernel wakes a shared one. What it answers is not looked at, since the child shares
            // our errno; the word tells.
            // SAFETY: the word and the timeout outlive the call.
            unsafe { libc::syscall(libc::SYS_futex, self.word.as_ptr(), libc::FUTEX_WAIT, SHARED, &raw const timeout) };
        }
    }
}

/// Whether a child that shares our memory until its exec shows another command line than ours.
fn is_another_program(pid: u32) -> bool {
    let line = |pid: u32| proc::command_line(pid).ok();
    proc::has_executed(pid) && line(pid).is_some_and(|theirs| Some(theirs) != line(std::process::id()))
}

impl Errand {
    fn begin(&self, step: i32) {
        self.step.store(step, Ordering::Release);
    }

    /// Notes why the step failed and ends the child.
    fn fail(&self) -> ! {
        self.end(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
    }

    fn end(&self, errno: i32) -> ! {
        self.errno.store(errno, Ordering::Release);
        // SAFETY: ends the child without running the parent's exit handlers.
        unsafe { libc::_exit(127) }
    }
}

/// The child's whole life before exec: system calls only, no allocation, no locks.
extern "C" fn child_main(errand: &Errand) -> ! {
    errand.alive.store(since_boot().as_nanos() as u64, Ordering::Release);
    errand.begin(SETUP);
    if errand.lock >= 0 {
        // SAFETY: plain system call; the child's table of descriptors is its own.
        unsafe { libc::close(errand.lock) };
    }
    for index in 0..errand.entry_count {
        // SAFETY: the array has this many elements.
        let place = unsafe { errand.entries.add(index) };
        // SAFETY: it belongs to the waiting parent.
        let entry = unsafe { *place };
        // SAFETY: plain system call on an open descriptor; `0` stands for the caller.
        if unsafe { libc::write(entry.as_raw_fd(), c"0".as_ptr().cast(), 1) } != 1 {
            errand.fail();
        }
    }
    // SAFETY: plain system call.
    if unsafe { libc::setsid() } < 0 {
        errand.fail();
    }
    // SAFETY: plain system call; a child whose keeper is gone must not run on unseen.
    if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } < 0 {
        errand.fail();
    }
    // The signal comes only for a death after the call: a parent that died before it is not ours any more.
    // SAFETY: plain system call.
    if unsafe { libc::getppid() } != errand.parent {
        errand.end(libc::ESRCH);
    }
    for (target, &source) in errand.stdio.iter().enumerate() {
        // SAFETY: plain system call; sources are above 2, see `fsio`, so no target overwrites a source.
        if unsafe { libc::dup2(source, target as i32) } < 0 {
            errand.fail();
        }
    }
    if errand.terminal {
        errand.begin(TERMINAL);
        // SAFETY: plain system call on descriptor 0, of which this new session becomes the owner.
        if unsafe { libc::ioctl(0, libc::TIOCSCTTY, 0) } < 0 {
            errand.fail();
        }
    }
    errand.begin(CWD);
    // SAFETY: cwd is a C string of the waiting parent.
    if unsafe { libc::chdir(errand.cwd) } < 0 {
        errand.fail();
    }
    errand.begin(EXEC);
    unblock_all_signals();
    let mut program = errand.programs;
    let mut refused = 0;
    loop {
        // SAFETY: the array ends with a null pointer, checked before moving on.
        let path = unsafe { *program };
        if path.is_null() {
            break;
        }
        // SAFETY: all arrays end with a null pointer and outlive the call.
        unsafe { libc::execve(path, errand.argv, errand.env) };
        let errno = io::Error::last_os_error().raw_os_error().unwrap_or(0);
        // A path that is not there or closed to us is passed by; any other error is of the program itself.
        let passed_by = matches!(errno, libc::ENOENT | libc::ENOTDIR | libc::EACCES);
        if !passed_by || refused == 0 || refused == libc::ENOENT {
            refused = errno;
        }
        if !passed_by {
            break;
        }
        // SAFETY: the terminating null has not been reached yet.
        program = unsafe { program.add(1) };
        errand.program.fetch_add(1, Ordering::Release);
    }
    errand.end(if refused == 0 { libc::ENOENT } else { refused })
}

/// clone3 with a stack of the child's own; the child calls `child_main` and never comes back.
#[cfg(target_arch = "x86_64")]
fn clone_onto_stack(args: &mut libc::clone_args, errand: &Errand) -> i64 {
    let result: i64;
    // SAFETY: the child branches away inside the block, runs `child_main` on the given stack and never
    // reaches the end; the parent sees an ordinary system call.
    unsafe {
        std::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "mov rdi, r12",
            "call r13",
            "ud2",
            "2:",
            inlateout("rax") libc::SYS_clone3 => result,
            in("rdi") ptr::from_mut(args),
            in("rsi") size_of::<libc::clone_args>(),
            in("r12") ptr::from_ref(errand),
            in("r13") child_main as extern "C" fn(&Errand) -> ! as usize,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    result
}

#[cfg(target_arch = "aarch64")]
fn clone_onto_stack(args: &mut libc::clone_args, errand: &Errand) -> i64 {
    let result: i64;
    // SAFETY: as on x86_64.
    unsafe {
        std::arch::asm!(
            "svc #0",
            "cbnz x0, 2f",
            "mov x0, x20",
            "blr x21",
            "brk #1",
            "2:",
            in("x8") libc::SYS_clone3,
            inlateout("x0") ptr::from_mut(args) => result,
            in("x1") size_of::<libc::clone_args>(),
            in("x20") ptr::from_ref(errand),
            in("x21") child_main as extern "C" fn(&Errand) -> ! as usize,
        );
    }
    result
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("pinfold starts programs with clone3 on x86_64 and aarch64");

/// The addresses of C strings, ended by a null pointer as exec wants them.
fn pointers(strings: &[impl AsRef<CStr>]) -> Vec<*const libc::c_char> {
    strings.iter().map(|string| string.as_ref().as_ptr()).chain([ptr::null()]).collect()
}

fn block_all_signals() -> libc::sigset_t {
    // SAFETY: sigset_t is plain data.
    let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = unsafe { mem::zeroed() };
    // SAFETY: writes the local set.
    unsafe { libc::sigfillset(&mut all) };
    // SAFETY: both sets are valid locals.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before) };
    before
}

fn restore_signals(before: &libc::sigset_t) {
    // SAFETY: the set came from `block_all_signals`.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, ptr::null_mut()) };
}

fn unblock_all_signals() {
    // SAFETY: sigset_t is plain data; all zero is the empty set.
    let none: libc::sigset_t = unsafe { mem::zeroed() };
    // SAFETY: the set is a valid local.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, &none, ptr::null_mut()) };
}
