//! Starts a program with one clone3 that shares the parent's memory until exec, and reports which step failed.
//!
//! `clone3(CLONE_VM)` costs as much as posix_spawn, and can do two things that posix_spawn cannot: start the child in a
//! cgroup, and return its pidfd. The child runs on a stack of its own and only makes system calls. The caller must not
//! have signal handlers that could run in the child; all signals are blocked around the clone.
//!
//! CLONE_VFORK is not used: it suspends the parent until the child calls exec, without a timeout, and a child in a
//! frozen cgroup or on a file system that does not respond never gets there. Instead the parent waits on a futex that
//! the kernel clears when the child execs or exits (CLONE_CHILD_CLEARTID), for at most [`EXEC_TIMEOUT`].

use std::ffi::{CStr, CString};
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::oom::OomScore;
use crate::sandbox::Restrictions;
use crate::start_time::{BirthClock, since_boot};
use crate::{proc, wait};

/// Stack size of the child before exec: enough for a dozen C wrappers, and it calls nothing deeper.
const CHILD_STACK: usize = 32 * 1024;
// libc defines these two as `c_int`, where they overflow to 0.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
const CLONE_CLEAR_SIGHAND: u64 = 0x1_0000_0000;
/// Time from clone to exec after which the child is killed.
pub const EXEC_TIMEOUT: Duration = Duration::from_secs(10);
/// Time that a killed child gets to exit. If it is stuck in the kernel for longer, it is left behind.
const KILL_TIMEOUT: Duration = Duration::from_secs(1);
/// When to check whether exec happened although the futex is not cleared: gVisor clears it only at exit.
const FIRST_CHECK: Duration = Duration::from_millis(50);
/// The value of the futex while the child shares our memory.
const SHARED: u32 = 1;

/// The program to start, and how.
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
    /// Whether stdin is a terminal that becomes its controlling terminal.
    pub terminal: bool,
    /// The v2 cgroup to start it in.
    pub cgroup: Option<BorrowedFd<'a>>,
    /// `cgroup.procs` files of v1 cgroups that the child enters first.
    pub entries: &'a [BorrowedFd<'a>],
    /// A file whose lock shows that the calling process is alive. The child closes it first, so that a child that hangs
    /// before exec does not keep the lock.
    pub lock: Option<BorrowedFd<'a>>,
    /// What it may not do, from exec on.
    pub sandbox: Option<&'a Restrictions>,
}

/// A child of this process, not yet reaped.
#[derive(Debug)]
pub struct Child {
    pub pid: u32,
    pub pidfd: OwnedFd,
    /// In clock ticks since boot, as in `/proc`; 0 if it cannot be read.
    pub start_time: u64,
}

/// The step that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Clone,
    Setup,
    Cwd,
    Exec,
    /// Taking the controlling terminal.
    Terminal,
    /// Restricting itself to its sandbox.
    Sandbox,
}

/// The steps by the number that the child stores; 0 means that it has not run yet.
const STEPS: [Step; 6] = [Step::Clone, Step::Setup, Step::Cwd, Step::Exec, Step::Terminal, Step::Sandbox];
const SETUP: i32 = 1;
const CWD: i32 = 2;
const EXEC: i32 = 3;
const TERMINAL: i32 = 4;
const SANDBOX: i32 = 5;

/// A failed start. No child is left, unless it was `stuck`.
#[derive(Debug, thiserror::Error)]
#[error("{step:?}: {error}")]
pub struct SpawnError {
    pub step: Step,
    pub error: io::Error,
    /// Index of the program that it tried last.
    pub program: usize,
    /// It did not reach exec within [`EXEC_TIMEOUT`] and was killed. If it is stuck in a system call, it exits when that
    /// returns, without having executed anything.
    pub stuck: bool,
}

/// Starts children one at a time, and keeps what can be reused from one start to the next.
#[derive(Debug)]
pub struct Spawner {
    /// The stack that each child runs on until exec.
    stack: Vec<u8>,
    /// [`SHARED`] while a child shares our memory; the kernel clears it. Boxed because a child that was left behind may
    /// exit, and clear it, at any later time.
    futex: Box<AtomicU32>,
    oom_score: Option<OomScore>,
    clock: BirthClock,
    /// [`EXEC_TIMEOUT`] except in tests.
    exec_timeout: Duration,
    /// Use CLONE_VFORK, because this kernel clears the futex only at exit.
    needs_vfork: bool,
}

/// What the child reads, and where it stores its progress. It lives in the parent's stack frame while the parent waits.
struct ChildArgs {
    programs: *const *const libc::c_char,
    argv: *const *const libc::c_char,
    env: *const *const libc::c_char,
    cwd: *const libc::c_char,
    stdio: [RawFd; 3],
    terminal: bool,
    entries: *const BorrowedFd<'static>,
    entry_count: usize,
    /// Descriptor to close; -1 for none.
    lock: RawFd,
    /// Null for none.
    sandbox: *const Restrictions,
    parent: libc::pid_t,
    /// Out: when the child first ran, in nanoseconds since boot.
    alive: AtomicU64,
    /// Out: the current step.
    step: AtomicI32,
    /// Out: index of the program being tried.
    program: AtomicUsize,
    /// Out: why it exited before exec; 0 if it has not failed.
    errno: AtomicI32,
}

impl Default for Spawner {
    fn default() -> Self {
        Self::new()
    }
}

impl Spawner {
    /// Allocates the child's stack. Call it in the process that spawns: a copy inherited through fork refers to the
    /// parent process.
    pub fn new() -> Self {
        Self::with_timeout(EXEC_TIMEOUT)
    }

    /// Like [`Self::new`], with a different [`EXEC_TIMEOUT`].
    pub fn with_timeout(exec_timeout: Duration) -> Self {
        Self {
            stack: vec![0; CHILD_STACK],
            futex: Box::default(),
            oom_score: OomScore::open(),
            clock: BirthClock::default(),
            exec_timeout,
            needs_vfork: false,
        }
    }

    /// Raises our OOM score for the next child to inherit. `spawn` does it too; doing it earlier, while idle, makes
    /// `spawn` faster.
    pub fn prepare(&mut self) {
        if let Some(score) = &mut self.oom_score {
            score.raise();
        }
    }

    /// Restores our own OOM score after a spawn. Until then the OOM killer is as likely to choose this process as its
    /// child.
    pub fn settle(&mut self) {
        if let Some(score) = &mut self.oom_score {
            score.restore();
        }
    }

    /// Starts a program in a new session; the kernel kills it when this thread exits (PDEATHSIG). Returns after exec, or
    /// with the reason of the failure.
    pub fn spawn(&mut self, launch: &Launch<'_>) -> Result<Child, SpawnError> {
        let (programs, argv, env) = (pointers(launch.programs), pointers(launch.argv), pointers(launch.env));
        let child_args = ChildArgs {
            programs: programs.as_ptr(),
            argv: argv.as_ptr(),
            env: env.as_ptr(),
            cwd: launch.cwd.as_ptr(),
            stdio: [launch.stdin, launch.stdout, launch.stderr].map(|fd| fd.as_raw_fd()),
            terminal: launch.terminal,
            entries: launch.entries.as_ptr().cast(),
            entry_count: launch.entries.len(),
            lock: launch.lock.map_or(-1, |lock| lock.as_raw_fd()),
            sandbox: launch.sandbox.map_or(ptr::null(), ptr::from_ref),
            parent: std::process::id() as libc::pid_t,
            alive: AtomicU64::new(u64::MAX),
            step: AtomicI32::new(0),
            program: AtomicUsize::new(0),
            errno: AtomicI32::new(0),
        };
        self.prepare();
        let blocked = block_all_signals();
        let before = since_boot();
        let cloned = self.clone(launch, &child_args);
        let reached_exec = cloned.as_ref().is_ok_and(|(pid, pidfd)| self.wait_for_exec(*pid, pidfd));
        restore_signals(&blocked);
        let failed = |step, error, stuck| {
            Err(SpawnError { step, error, program: child_args.program.load(Ordering::Acquire), stuck })
        };
        let (pid, pidfd) = match cloned {
            Ok(child) => child,
            Err(error) => return failed(Step::Clone, error, false),
        };
        let step = STEPS[child_args.step.load(Ordering::Acquire) as usize];
        if !reached_exec {
            let error = format!("no exec within {:?}", self.exec_timeout);
            return failed(step, io::Error::new(io::ErrorKind::TimedOut, error), true);
        }
        match child_args.errno.load(Ordering::Acquire) {
            0 => {
                let alive = Duration::from_nanos(child_args.alive.load(Ordering::Acquire));
                Ok(Child { pid, pidfd, start_time: self.clock.start_time(pid, before, alive) })
            }
            errno => {
                let _ = wait::reap(&pidfd);
                failed(step, io::Error::from_raw_os_error(errno), false)
            }
        }
    }

    fn clone(&mut self, launch: &Launch<'_>, child_args: &ChildArgs) -> io::Result<(u32, OwnedFd)> {
        let mut pidfd: RawFd = -1;
        let flags = libc::CLONE_VM | libc::CLONE_PIDFD | libc::CLONE_CHILD_CLEARTID;
        // SAFETY: clone_args is plain data; all zero is its documented initial value.
        let mut args: libc::clone_args = unsafe { mem::zeroed() };
        args.flags = flags as u64 | CLONE_CLEAR_SIGHAND | launch.cgroup.map_or(0, |_| CLONE_INTO_CGROUP);
        if self.needs_vfork {
            args.flags |= libc::CLONE_VFORK as u64;
        }
        args.pidfd = ptr::from_mut(&mut pidfd) as u64;
        args.child_tid = self.futex.as_ptr() as u64;
        args.exit_signal = libc::SIGCHLD as u64;
        args.stack = self.stack.as_mut_ptr() as u64;
        args.stack_size = (self.stack.len() & !15) as u64;
        args.cgroup = launch.cgroup.map_or(0, |cgroup| cgroup.as_raw_fd() as u64);
        self.futex.store(SHARED, Ordering::Release);
        match clone_onto_stack(&mut args, child_args) {
            result if result < 0 => Err(io::Error::from_raw_os_error(-result as i32)),
            // SAFETY: the kernel stored a new descriptor there (CLONE_PIDFD) that nothing else owns.
            pid => Ok((pid as u32, unsafe { OwnedFd::from_raw_fd(pidfd) })),
        }
    }

    /// Waits until the child no longer shares our memory: it called exec or exited. If it does neither in time, kills it
    /// and returns false.
    fn wait_for_exec(&mut self, pid: u32, pidfd: &OwnedFd) -> bool {
        if self.needs_vfork || self.is_released(FIRST_CHECK) {
            return true;
        }
        if is_another_program(pid) && !self.is_released(Duration::ZERO) {
            self.needs_vfork = true;
            return true;
        }
        if self.is_released(self.exec_timeout) {
            return true;
        }
        let _ = rustix::process::pidfd_send_signal(pidfd, rustix::process::Signal::KILL);
        if !self.is_released(KILL_TIMEOUT) {
            // It is stuck in the kernel. It uses the stack, and at its exit the kernel writes the futex: leak both.
            mem::forget(mem::replace(&mut self.stack, vec![0; CHILD_STACK]));
            mem::forget(mem::take(&mut self.futex));
            return false;
        }
        // It may have called exec just before the signal: then the program did run.
        if proc::has_executed(pid) {
            return true;
        }
        let _ = wait::reap(pidfd);
        false
    }

    /// Waits at most this long until the kernel has cleared the futex.
    fn is_released(&self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        loop {
            if self.futex.load(Ordering::Acquire) != SHARED {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let timeout = libc::timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
            // Not a private futex, because the kernel wakes a shared one. The result is ignored, because the child
            // shares our errno; the loop checks the futex itself.
            // SAFETY: the futex and the timeout outlive the call.
            unsafe {
                libc::syscall(libc::SYS_futex, self.futex.as_ptr(), libc::FUTEX_WAIT, SHARED, &raw const timeout)
            };
        }
    }
}

/// Whether the child has called exec and its command line differs from ours.
fn is_another_program(pid: u32) -> bool {
    let line = |pid: u32| proc::command_line(pid).ok();
    proc::has_executed(pid) && line(pid).is_some_and(|theirs| Some(theirs) != line(std::process::id()))
}

impl ChildArgs {
    fn begin(&self, step: i32) {
        self.step.store(step, Ordering::Release);
    }

    fn enter_directory(&self) {
        self.begin(CWD);
        // SAFETY: cwd is a C string of the waiting parent.
        if unsafe { libc::chdir(self.cwd) } < 0 {
            self.fail();
        }
    }

    /// Stores errno as the reason of the failure and exits the child.
    fn fail(&self) -> ! {
        self.end(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
    }

    fn end(&self, errno: i32) -> ! {
        self.errno.store(errno, Ordering::Release);
        // SAFETY: ends the child without running the parent's exit handlers.
        unsafe { libc::_exit(127) }
    }
}

/// Everything the child does before exec: system calls only, no allocation, no locks.
extern "C" fn child_main(child_args: &ChildArgs) -> ! {
    child_args.alive.store(since_boot().as_nanos() as u64, Ordering::Release);
    child_args.begin(SETUP);
    if child_args.lock >= 0 {
        // SAFETY: plain system call; the child's table of descriptors is its own.
        unsafe { libc::close(child_args.lock) };
    }
    for index in 0..child_args.entry_count {
        // SAFETY: the array has this many elements.
        let place = unsafe { child_args.entries.add(index) };
        // SAFETY: it belongs to the waiting parent.
        let entry = unsafe { *place };
        // SAFETY: plain system call on an open descriptor; `0` stands for the caller.
        if unsafe { libc::write(entry.as_raw_fd(), c"0".as_ptr().cast(), 1) } != 1 {
            child_args.fail();
        }
    }
    // SAFETY: plain system call.
    if unsafe { libc::setsid() } < 0 {
        child_args.fail();
    }
    // SAFETY: plain system call; a child whose keeper is gone must not run on unsupervised.
    if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } < 0 {
        child_args.fail();
    }
    // The kernel sends the signal only if the parent exits after this call: check that it has not exited before.
    // SAFETY: plain system call.
    if unsafe { libc::getppid() } != child_args.parent {
        child_args.end(libc::ESRCH);
    }
    for (target, &source) in child_args.stdio.iter().enumerate() {
        // SAFETY: plain system call; sources are above 2, see `fsio`, so no target overwrites a source.
        if unsafe { libc::dup2(source, target as i32) } < 0 {
            child_args.fail();
        }
    }
    if child_args.terminal {
        child_args.begin(TERMINAL);
        // SAFETY: plain system call on descriptor 0, which becomes the controlling terminal of this new session.
        if unsafe { libc::ioctl(0, libc::TIOCSCTTY, 0) } < 0 {
            child_args.fail();
        }
    }
    child_args.enter_directory();
    // SAFETY: null, or the restrictions of the waiting parent.
    if let Some(sandbox) = unsafe { child_args.sandbox.as_ref() } {
        child_args.begin(SANDBOX);
        if !sandbox.apply() {
            child_args.fail();
        }
        if sandbox.moves_mounts() {
            child_args.enter_directory();
        }
    }
    child_args.begin(EXEC);
    unblock_all_signals();
    let mut program = child_args.programs;
    let mut refused = 0;
    loop {
        // SAFETY: the array ends with a null pointer, checked before moving on.
        let path = unsafe { *program };
        if path.is_null() {
            break;
        }
        // SAFETY: all arrays end with a null pointer and outlive the call.
        unsafe { libc::execve(path, child_args.argv, child_args.env) };
        let errno = io::Error::last_os_error().raw_os_error().unwrap_or(0);
        // Skip a path that does not exist or that we may not execute, as execvp does; any other error is final.
        let skip = matches!(errno, libc::ENOENT | libc::ENOTDIR | libc::EACCES);
        if !skip || refused == 0 || refused == libc::ENOENT {
            refused = errno;
        }
        if !skip {
            break;
        }
        // SAFETY: the terminating null has not been reached yet.
        program = unsafe { program.add(1) };
        child_args.program.fetch_add(1, Ordering::Release);
    }
    child_args.end(if refused == 0 { libc::ENOENT } else { refused })
}

/// clone3 onto another stack. The child calls `child_main`, which never returns.
#[cfg(target_arch = "x86_64")]
fn clone_onto_stack(args: &mut libc::clone_args, child_args: &ChildArgs) -> i64 {
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
            in("r12") ptr::from_ref(child_args),
            in("r13") child_main as extern "C" fn(&ChildArgs) -> ! as usize,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    result
}

#[cfg(target_arch = "aarch64")]
fn clone_onto_stack(args: &mut libc::clone_args, child_args: &ChildArgs) -> i64 {
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
            in("x20") ptr::from_ref(child_args),
            in("x21") child_main as extern "C" fn(&ChildArgs) -> ! as usize,
        );
    }
    result
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("pinfold starts programs with clone3 on x86_64 and aarch64");

/// The addresses of C strings, terminated by a null pointer as exec requires.
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
