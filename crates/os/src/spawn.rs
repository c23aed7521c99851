//! Starting a program: one clone3 that shares the parent's memory until exec, and tells which step failed.
//!
//! `clone3(CLONE_VM | CLONE_VFORK)` costs what posix_spawn costs, and can do what posix_spawn cannot: put the
//! child into its cgroup at birth and hand out its pidfd. The child runs on a stack of its own and does
//! nothing but system calls. The caller must not have signal handlers that could run in the child; all
//! signals are blocked around the clone.

use std::ffi::{CStr, CString};
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::time::Duration;

use crate::birth::{BirthClock, since_boot};
use crate::oom::OomStanding;

/// Enough for a dozen C wrappers; the child calls nothing deeper.
const CHILD_STACK: usize = 32 * 1024;
// libc's constants of these names are `c_int`s that overflow to 0.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
const CLONE_CLEAR_SIGHAND: u64 = 0x1_0000_0000;

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

/// A start that failed; no child is left.
#[derive(Debug, thiserror::Error)]
#[error("{step:?}: {error}")]
pub struct SpawnError {
    pub step: Step,
    pub error: io::Error,
}

/// What the children of one thread need, kept from start to start.
#[derive(Debug)]
pub struct Spawner {
    /// Their stack, of one at a time.
    stack: Vec<u8>,
    standing: Option<OomStanding>,
    clock: BirthClock,
}

/// What the child reads and, on failure, writes; it lives in the parent's frame while the parent is suspended.
struct Errand {
    programs: *const *const libc::c_char,
    argv: *const *const libc::c_char,
    env: *const *const libc::c_char,
    cwd: *const libc::c_char,
    stdio: [RawFd; 3],
    terminal: bool,
    entries: *const BorrowedFd<'static>,
    entry_count: usize,
    /// When it was there.
    alive: Duration,
    /// 0 while all is well.
    failed_step: i32,
    errno: i32,
}

impl Default for Spawner {
    fn default() -> Self {
        Self::new()
    }
}

impl Spawner {
    /// Reserves the child's stack. For the process that spawns: a copy that came through fork is another's.
    pub fn new() -> Self {
        Self { stack: vec![0; CHILD_STACK], standing: OomStanding::open(), clock: BirthClock::default() }
    }

    /// Starts a program in a session of its own, to be killed with this thread; returns when it has been
    /// executed, or the reason why not.
    pub fn spawn(&mut self, launch: &Launch<'_>) -> Result<Child, SpawnError> {
        let (programs, argv, env) = (pointers(launch.programs), pointers(launch.argv), pointers(launch.env));
        let mut errand = Errand {
            programs: programs.as_ptr(),
            argv: argv.as_ptr(),
            env: env.as_ptr(),
            cwd: launch.cwd.as_ptr(),
            stdio: [launch.stdin, launch.stdout, launch.stderr].map(|fd| fd.as_raw_fd()),
            terminal: launch.terminal,
            entries: launch.entries.as_ptr().cast(),
            entry_count: launch.entries.len(),
            alive: Duration::MAX,
            failed_step: 0,
            errno: 0,
        };
        let mut pidfd: RawFd = -1;
        let flags = libc::CLONE_VM as u64 | libc::CLONE_VFORK as u64 | libc::CLONE_PIDFD as u64 | CLONE_CLEAR_SIGHAND;
        // SAFETY: clone_args is plain data; all zero is its documented initial value.
        let mut args: libc::clone_args = unsafe { mem::zeroed() };
        args.flags = flags | launch.cgroup.map_or(0, |_| CLONE_INTO_CGROUP);
        args.pidfd = ptr::from_mut(&mut pidfd) as u64;
        args.exit_signal = libc::SIGCHLD as u64;
        args.stack = self.stack.as_mut_ptr() as u64;
        args.stack_size = (self.stack.len() & !15) as u64;
        args.cgroup = launch.cgroup.map_or(0, |cgroup| cgroup.as_raw_fd() as u64);

        let blocked = block_all_signals();
        // The child is born with it, and so is whatever it starts.
        self.standing.as_ref().inspect(|standing| standing.raise());
        let before = since_boot();
        let result = clone_onto_stack(&mut args, &mut errand);
        self.standing.as_ref().inspect(|standing| standing.restore());
        restore_signals(&blocked);
        if result < 0 {
            let error = io::Error::from_raw_os_error(-result as i32);
            return Err(SpawnError { step: Step::Clone, error });
        }
        let pid = result as u32;
        // SAFETY: the kernel stored a new descriptor there (CLONE_PIDFD), owned by nobody else.
        let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
        // The child wrote through the same memory; read it again.
        // SAFETY: `errand` is initialised and the child is past exec or gone.
        let errand = unsafe { ptr::read_volatile(&raw const errand) };
        match errand.failed_step {
            0 => Ok(Child { pid, pidfd, start_time: self.clock.start_time(pid, before, errand.alive) }),
            step => {
                let _ = crate::wait::reap(&pidfd);
                let step = [Step::Setup, Step::Cwd, Step::Exec, Step::Terminal][step as usize - 1];
                Err(SpawnError { step, error: io::Error::from_raw_os_error(errand.errno) })
            }
        }
    }
}

impl Errand {
    /// Notes the step that failed and ends the child.
    fn fail(&mut self, step: i32) -> ! {
        self.errno = io::Error::last_os_error().raw_os_error().unwrap_or(0);
        self.failed_step = step;
        // SAFETY: ends the child without running the parent's exit handlers.
        unsafe { libc::_exit(127) }
    }
}

/// The child's whole life before exec: system calls only, no allocation, no locks.
extern "C" fn child_main(errand: &mut Errand) -> ! {
    errand.alive = since_boot();
    for index in 0..errand.entry_count {
        // SAFETY: the array has this many elements.
        let place = unsafe { errand.entries.add(index) };
        // SAFETY: it belongs to the suspended parent.
        let entry = unsafe { *place };
        // SAFETY: plain system call on an open descriptor; `0` stands for the caller.
        if unsafe { libc::write(entry.as_raw_fd(), c"0".as_ptr().cast(), 1) } != 1 {
            errand.fail(1);
        }
    }
    // SAFETY: plain system call.
    if unsafe { libc::setsid() } < 0 {
        errand.fail(1);
    }
    // SAFETY: plain system call; a child whose keeper is gone must not run on unseen.
    if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } < 0 {
        errand.fail(1);
    }
    for (target, &source) in errand.stdio.clone().iter().enumerate() {
        // SAFETY: plain system call; sources are above 2, see `fsio`, so no target overwrites a source.
        if unsafe { libc::dup2(source, target as i32) } < 0 {
            errand.fail(1);
        }
    }
    // SAFETY: plain system call on descriptor 0, of which this new session becomes the owner.
    if errand.terminal && unsafe { libc::ioctl(0, libc::TIOCSCTTY, 0) } < 0 {
        errand.fail(4);
    }
    // SAFETY: cwd is a C string of the suspended parent.
    if unsafe { libc::chdir(errand.cwd) } < 0 {
        errand.fail(2);
    }
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
    }
    errand.errno = refused;
    errand.failed_step = 3;
    // SAFETY: ends the child without running the parent's exit handlers.
    unsafe { libc::_exit(127) }
}

/// clone3 with a stack of the child's own; the child calls `child_main` and never comes back.
#[cfg(target_arch = "x86_64")]
fn clone_onto_stack(args: &mut libc::clone_args, errand: &mut Errand) -> i64 {
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
            in("r12") ptr::from_mut(errand),
            in("r13") child_main as extern "C" fn(&mut Errand) -> ! as usize,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    result
}

#[cfg(target_arch = "aarch64")]
fn clone_onto_stack(args: &mut libc::clone_args, errand: &mut Errand) -> i64 {
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
            in("x20") ptr::from_mut(errand),
            in("x21") child_main as extern "C" fn(&mut Errand) -> ! as usize,
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
