//! One process as `/proc` shows it: identity, state, usage, command line, environment.
//!
//! Owns the parsing of `/proc/PID/*`. Read-only: nothing here signals, waits or keeps a descriptor. A process may exit
//! between any two reads, so every function returns an `io::Result`, and [`is_gone`] tells "no longer there" from other
//! errors. Nothing read here is trusted to be well formed.

use std::fs::File;
use std::io::{self, Read};
use std::sync::OnceLock;
use std::time::Duration;

/// Maximum length of a returned command line in bytes; a longer one is cut and ends with `…`.
const MAX_COMMAND_LINE: usize = 4096;
/// Maximum bytes of an environment that are searched; the kernel's own limit (3/4 of 8 MiB) is lower.
const MAX_ENVIRON: u64 = 8 << 20;
/// Maximum bytes read from the list of cgroups: a dozen hierarchies, each with a path.
const MAX_CGROUPS: u64 = 64 << 10;
/// A `stat` line has 52 fields of at most 20 digits and a name of at most 64 bytes.
const MAX_STAT: usize = 2048;

/// Kernel flag: the thread is exiting.
const PF_EXITING: u64 = 0x4;
/// Kernel flag: the process was forked and has not called exec yet.
const PF_FORKNOEXEC: u64 = 0x40;
/// The bit of SIGKILL in a signal set.
const KILL_BIT: u64 = 1 << (libc::SIGKILL - 1);

/// The fields of `/proc/PID/stat` that pinfold uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    /// Process id.
    pub pid: u32,
    /// Parent's process id.
    pub ppid: u32,
    /// Process group.
    pub pgid: i32,
    /// Session.
    pub session: i32,
    /// State letter of the main thread: R, S, D, T, t, Z, X, I.
    pub state: char,
    /// Start time in clock ticks since boot. Together with pid and boot id it identifies the process.
    pub start_time: u64,
    /// Time in user mode, in clock ticks.
    pub utime_ticks: u64,
    /// Time in the kernel, in clock ticks.
    pub stime_ticks: u64,
    /// User and kernel time of descendants that exited and were waited for, in clock ticks.
    pub waited_ticks: u64,
    /// Whether the main thread is exiting.
    pub exiting: bool,
    /// Whether it has called exec since it was forked.
    pub executed: bool,
    /// Resident set, in pages.
    pub rss_pages: u64,
    /// Threads not yet reaped, the main thread included.
    pub threads: u64,
    /// The kernel's name of the process, at most 15 bytes for a program.
    pub comm: String,
}

impl Stat {
    /// CPU time used so far, user and kernel, in milliseconds.
    pub fn cpu_ms(&self) -> u64 {
        let ticks = self.utime_ticks.saturating_add(self.stime_ticks);
        ticks.saturating_mul(1000) / clock_ticks_per_second()
    }

    /// CPU time used so far by the process and by the descendants it has waited for.
    pub fn cpu_with_waited(&self) -> Duration {
        let ticks = self.utime_ticks.saturating_add(self.stime_ticks).saturating_add(self.waited_ticks);
        Duration::from_millis(ticks.saturating_mul(1000) / clock_ticks_per_second())
    }

    /// Resident memory in bytes.
    pub fn rss_bytes(&self) -> u64 {
        self.rss_pages.saturating_mul(page_size())
    }

    /// Whether any thread is still alive. If only the main thread exited, the state is `Z` while other threads run on.
    pub fn is_living(&self) -> bool {
        !matches!(self.state, 'Z' | 'X' | 'x') || (self.state == 'Z' && self.threads > 1)
    }

    /// How long ago it was forked, to a clock tick.
    pub fn age(&self) -> Duration {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let now = Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32);
        now.saturating_sub(Duration::from_millis(self.start_time.saturating_mul(1000) / clock_ticks_per_second()))
    }

    /// Pid and start time, which together identify a process within one boot.
    pub fn identity(&self) -> (u32, u64) {
        (self.pid, self.start_time)
    }
}

/// Whether an error from `/proc` or from sending a signal means that the process no longer exists.
pub fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}

/// Whether we ran out of descriptors or memory. After such an error nothing is known: do not treat it as "no such
/// process".
pub fn is_shortage(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM))
}

/// For an error of [`is_exhausted`], says which limit was reached and how to raise it; any other error unchanged.
pub fn explain_shortage(error: &io::Error) -> String {
    let why = match error.raw_os_error() {
        Some(libc::EAGAIN) => {
            "the process limit of this user or of its cgroup is reached: end some processes, or raise `ulimit -u` or pids.max"
        }
        Some(libc::EMFILE) => "this process has too many files open: raise `ulimit -n`",
        Some(libc::ENFILE) => "this machine has too many files open: raise fs.file-max",
        Some(libc::ENOMEM) => "there is no memory left: end some processes",
        _ => return error.to_string(),
    };
    format!("{why} ({error})")
}

/// Whether the kernel had no process, thread, descriptor or memory left for us.
pub fn is_exhausted(error: &io::Error) -> bool {
    is_shortage(error) || error.raw_os_error() == Some(libc::EAGAIN)
}

/// Fails if this process has too few free descriptors to read `/proc`: a walk or a search opens at most four at once.
pub fn check_sight() -> io::Result<()> {
    let opened: io::Result<Vec<File>> = (0..4).map(|_| File::open("/proc/self/stat")).collect();
    opened.map(drop)
}

/// The kernel's id of this boot. Pids and start times are only valid within one boot.
pub fn boot_id() -> io::Result<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(text.trim().to_owned())
}

/// Reads `/proc/PID/stat`.
pub fn stat(pid: u32) -> io::Result<Stat> {
    let mut line = [0u8; MAX_STAT];
    let length = read_into(&mut File::open(format!("/proc/{pid}/stat"))?, &mut line)?;
    parse_stat(&line[..length]).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, format!("/proc/{pid}/stat is not in the kernel's format"))
    })
}

/// Whether a process is dead, exiting, or has a SIGKILL pending.
pub fn is_dying(pid: u32) -> bool {
    let Ok(stat) = stat(pid) else { return true };
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let pending = status.lines().filter_map(|line| line.split_once(':'));
    let pending = pending.filter(|(name, _)| matches!(*name, "SigPnd" | "ShdPnd"));
    let mut sets = pending.filter_map(|(_, set)| u64::from_str_radix(set.trim(), 16).ok());
    stat.exiting || !stat.is_living() || sets.any(|set| set & KILL_BIT != 0)
}

/// Whether an unreaped child, dead or alive, has called exec.
pub(crate) fn has_executed(pid: u32) -> bool {
    stat(pid).is_ok_and(|stat| stat.executed)
}

/// The start time in clock ticks since boot.
pub fn start_time(pid: u32) -> io::Result<u64> {
    Ok(stat(pid)?.start_time)
}

/// Whether a process shows arguments. One that is being executed shows none for a moment.
pub fn has_arguments(pid: u32) -> bool {
    let mut first = [0];
    File::open(format!("/proc/{pid}/cmdline")).and_then(|mut file| file.read(&mut first)).is_ok_and(|read| read > 0)
}

/// The arguments joined by spaces, or `[comm]` if there are none (kernel threads, zombies).
pub fn command_line(pid: u32) -> io::Result<String> {
    let mut raw = Vec::with_capacity(512);
    let file = File::open(format!("/proc/{pid}/cmdline"))?;
    file.take(MAX_COMMAND_LINE as u64 + 1).read_to_end(&mut raw)?;
    let cut = raw.len() > MAX_COMMAND_LINE;
    raw.truncate(MAX_COMMAND_LINE);
    while raw.last() == Some(&0) {
        raw.pop();
    }
    if raw.is_empty() {
        return Ok(format!("[{}]", printable(stat(pid)?.comm.as_bytes())));
    }
    let mut text = printable(&raw);
    if cut || text.len() > MAX_COMMAND_LINE {
        text.truncate(text.floor_char_boundary(MAX_COMMAND_LINE - '…'.len_utf8()));
        text.push('…');
    }
    Ok(text)
}

/// Resident and swapped-out memory in bytes, with each shared page divided by its number of users (PSS). Slow: the
/// kernel walks the process's memory map.
pub fn proportional_bytes(pid: u32) -> io::Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let kilobytes = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key))?;
        line.split_ascii_whitespace().next()?.parse::<u64>().ok()
    };
    let resident = kilobytes("Pss:").ok_or(io::ErrorKind::InvalidData)?;
    Ok((resident + kilobytes("SwapPss:").unwrap_or(0)).saturating_mul(1024))
}

/// Calls `find` with each `NAME=VALUE` of the environment that the process got at its last exec, and returns its first
/// `Some`.
pub fn environ_find<T>(pid: u32, find: impl FnMut(&[u8]) -> Option<T>) -> io::Result<Option<T>> {
    let mut environ = Vec::new();
    File::open(format!("/proc/{pid}/environ"))?.take(MAX_ENVIRON).read_to_end(&mut environ)?;
    Ok(environ.split(|&byte| byte == 0).find_map(find))
}

/// The cgroups of a process, one line per hierarchy.
pub fn cgroups(pid: u32) -> io::Result<String> {
    let mut text = String::new();
    File::open(format!("/proc/{pid}/cgroup"))?.take(MAX_CGROUPS).read_to_string(&mut text)?;
    Ok(text)
}

/// Every process id that `/proc` lists.
pub fn pids() -> io::Result<Vec<u32>> {
    let entries = std::fs::read_dir("/proc")?;
    Ok(entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}

fn parse_stat(line: &[u8]) -> Option<Stat> {
    // The name is in parentheses and may itself contain spaces and parentheses: it ends at the last ')'.
    let open = line.iter().position(|&byte| byte == b'(')?;
    let close = line.iter().rposition(|&byte| byte == b')')?;
    let pid = std::str::from_utf8(&line[..open]).ok()?.trim().parse().ok()?;
    let comm = String::from_utf8_lossy(line.get(open + 1..close)?).into_owned();
    let rest = std::str::from_utf8(&line[close + 1..]).ok()?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    // `number` counts as proc(5) does: state is field 3, the first after the name.
    let field = |number: usize| fields.get(number - 3).copied();
    let count = |number: usize| field(number)?.parse::<u64>().ok();
    Some(Stat {
        pid,
        comm,
        state: field(3)?.chars().next()?,
        ppid: field(4)?.parse().ok()?,
        pgid: field(5)?.parse().ok()?,
        session: field(6)?.parse().ok()?,
        exiting: count(9)? & PF_EXITING != 0,
        executed: count(9)? & PF_FORKNOEXEC == 0,
        utime_ticks: count(14)?,
        stime_ticks: count(15)?,
        waited_ticks: count(16).unwrap_or(0).saturating_add(count(17).unwrap_or(0)),
        threads: count(20)?,
        start_time: count(22)?,
        rss_pages: count(24).unwrap_or(0),
    })
}

fn read_into(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while length < buffer.len() {
        match file.read(&mut buffer[length..]) {
            Ok(0) => break,
            Ok(more) => length += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}

fn printable(raw: &[u8]) -> String {
    let shown = |letter: char| if letter.is_control() { ' ' } else { letter };
    String::from_utf8_lossy(raw).chars().map(shown).collect()
}

pub(crate) fn clock_ticks_per_second() -> u64 {
    static TICKS: OnceLock<u64> = OnceLock::new();
    *TICKS.get_or_init(|| sysconf(libc::_SC_CLK_TCK).unwrap_or(100))
}

fn page_size() -> u64 {
    static SIZE: OnceLock<u64> = OnceLock::new();
    *SIZE.get_or_init(|| sysconf(libc::_SC_PAGESIZE).unwrap_or(4096))
}

fn sysconf(name: libc::c_int) -> Option<u64> {
    // SAFETY: sysconf takes a plain number, touches no memory of ours and may be called from any thread.
    let value = unsafe { libc::sysconf(name) };
    u64::try_from(value).ok().filter(|&value| value > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAIL: &str = "S 7 8 9 0 -1 4194304 1 2 3 4 50 60 3 4 20 0 3 0 123456 1000 77 18446744073709551615";

    #[test]
    fn a_name_with_spaces_and_parentheses_does_not_shift_the_fields() {
        let line = format!("42 (a) R (b c)) {TAIL}\n");
        let stat = parse_stat(line.as_bytes()).expect("well formed");
        assert_eq!((stat.pid, stat.ppid, stat.comm.as_str(), stat.state), (42, 7, "a) R (b c)", 'S'));
        assert_eq!((stat.pgid, stat.session, stat.threads, stat.start_time), (8, 9, 3, 123_456));
        assert_eq!((stat.utime_ticks, stat.stime_ticks, stat.waited_ticks, stat.rss_pages), (50, 60, 7, 77));
    }

    #[test]
    fn malformed_lines_are_refused_without_panic() {
        for line in ["", "(", ")", ")(", "1 (x)", "1 (x) S", "x (y) S 1", "1 (x) S 1 2 3 4 5 6"] {
            assert_eq!(parse_stat(line.as_bytes()), None, "{line:?}");
        }
    }

    #[test]
    fn a_zombie_main_thread_with_other_threads_is_living() {
        let mut stat = parse_stat(format!("1 (x) {TAIL}").as_bytes()).expect("well formed");
        stat.state = 'Z';
        assert!(stat.is_living());
        stat.threads = 1;
        assert!(!stat.is_living());
    }

    #[test]
    fn this_process_is_seen_with_its_own_numbers() {
        let own = stat(std::process::id()).expect("own stat");
        assert_eq!(own.pid, std::process::id());
        assert!(own.is_living() && own.rss_bytes() > 0 && own.start_time > 0);
        let arguments: Vec<String> = std::env::args().collect();
        assert_eq!(command_line(own.pid).expect("own command line"), arguments.join(" "));
        let shared = proportional_bytes(own.pid).expect("own memory");
        assert!(shared > 0 && shared <= 2 * stat(own.pid).expect("own stat").rss_bytes());
        assert_eq!(boot_id().expect("boot id").len(), 36);
    }
}
