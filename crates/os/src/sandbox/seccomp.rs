//! The seccomp filter: system calls and kinds of sockets that a sandboxed program may not use.
//!
//! A filter sees the numbers that a call was given, not what its pointers refer to. So a call that takes its flags in a
//! structure (clone3) fails as on a kernel that does not have it, and libraries fall back to the one that does not.
//! Everything else is allowed: Landlock decides about files, ports and signals.

use std::mem::offset_of;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use super::Sockets;

// Classic BPF: load a word, mask it, compare it, return.
const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const AND: u16 = (libc::BPF_ALU | libc::BPF_AND | libc::BPF_K) as u16;
const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const IF_AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
const IF_ANY_BIT: u16 = (libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

#[cfg(target_arch = "x86_64")]
const NATIVE: u32 = 0xC000_003E; // AUDIT_ARCH_X86_64
#[cfg(target_arch = "aarch64")]
const NATIVE: u32 = 0xC000_00B7; // AUDIT_ARCH_AARCH64
/// Numbers from here on are calls of the x32 ABI, which would bypass the rules below.
#[cfg(target_arch = "x86_64")]
const X32: u32 = 0x4000_0000;

/// CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET.
const NEW_NAMESPACE: u32 = 0x7E02_0000;
/// CLONE_NEWTIME: for unshare alone, since clone has its exit signal there.
const NEW_TIME: u32 = 0x80;
/// The part of a socket's type without SOCK_CLOEXEC and SOCK_NONBLOCK.
const SOCKET_TYPE: u32 = 0xF;
/// Connects without a call of connect, which Landlock does not see.
const MSG_FASTOPEN: u32 = 0x2000_0000;

/// Calls that fail with EPERM. For most of them root would need a capability that it does not have here either.
const DENIED: &[libc::c_long] = &[
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_setns,
    libc::SYS_open_by_handle_at,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_reboot,
    libc::SYS_acct,
    libc::SYS_quotactl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
];
/// Calls that fail with ENOSYS, so that programs use something else instead.
const ABSENT: &[libc::c_long] =
    &[libc::SYS_clone3, libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register];

/// A filter in the form in which the kernel takes it.
#[derive(Debug)]
pub(super) struct Filter {
    code: Vec<libc::sock_filter>,
}

impl Filter {
    pub(super) fn new(sockets: Sockets, unix_sockets: bool) -> Self {
        let mut code = vec![
            load(offset_of!(libc::seccomp_data, arch)),
            when(IF_EQUAL, NATIVE, 1, 0),
            give(libc::SECCOMP_RET_KILL_PROCESS),
            load(offset_of!(libc::seccomp_data, nr)),
        ];
        #[cfg(target_arch = "x86_64")]
        code.extend([when(IF_AT_LEAST, X32, 0, 1), fail(libc::ENOSYS)]);
        let mut rules: Vec<Rule> = Vec::with_capacity(DENIED.len() + ABSENT.len() + 8);
        for (calls, errno) in [(DENIED, libc::EPERM), (ABSENT, libc::ENOSYS)] {
            rules.extend(calls.iter().map(|call| (*call as u32, vec![fail(errno)])));
        }
        let mut rule = |call: libc::c_long, then| rules.push((call as u32, then));
        rule(libc::SYS_clone, deny_bits(0, NEW_NAMESPACE));
        rule(libc::SYS_unshare, deny_bits(0, NEW_NAMESPACE | NEW_TIME));
        rule(libc::SYS_prlimit64, limits_of_others());
        rule(libc::SYS_socket, socket(sockets, unix_sockets));
        if !unix_sockets {
            rule(libc::SYS_socketpair, connected_pairs());
        }
        if sockets == Sockets::TcpOnly {
            let sends = [(libc::SYS_sendto, 3), (libc::SYS_sendmsg, 2), (libc::SYS_sendmmsg, 3)];
            sends.into_iter().for_each(|(call, flags)| rule(call, deny_bits(flags, MSG_FASTOPEN)));
        }
        rules.sort_unstable_by_key(|(call, _)| *call);
        code.extend(search(&rules));
        Self { code }
    }

    /// The same filter, but the kernel asks for the result of calls that fail with EPERM.
    pub(super) fn notifying(&self) -> Self {
        let refuses = |code: &libc::sock_filter| code.code == RETURN && code.k == fail(libc::EPERM).k;
        let notify = |code: &libc::sock_filter| if refuses(code) { give(libc::SECCOMP_RET_USER_NOTIF) } else { *code };
        Self { code: self.code.iter().map(notify).collect() }
    }

    /// Installs it in the calling thread, which must have `no_new_privs`.
    pub(super) fn apply(&self) -> bool {
        self.install(0) == 0
    }

    /// Like [`Self::apply`], for a filter that is [`Self::notifying`]; gives the descriptor through which the kernel asks.
    /// It closes at exec. `None` if there is one already, as in some containers, or on a kernel before 5.0.
    pub(super) fn apply_notifying(&self) -> Option<OwnedFd> {
        let fd = self.install(libc::SECCOMP_FILTER_FLAG_NEW_LISTENER);
        // SAFETY: the kernel returned a new descriptor that nothing else owns.
        (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
    }

    fn install(&self, flags: libc::c_ulong) -> libc::c_long {
        let program = libc::sock_fprog { len: self.code.len() as u16, filter: self.code.as_ptr().cast_mut() };
        // SAFETY: the kernel copies the program, which outlives the call.
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program) }
    }
}

/// Whether this kernel has filters that can return an error.
pub(super) fn is_available() -> bool {
    let action = libc::SECCOMP_RET_ERRNO;
    // SAFETY: the kernel reads one local word.
    unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_ACTION_AVAIL, 0, &raw const action) == 0 }
}

/// What to do for one call; every path of it must return.
type Rule = (u32, Vec<libc::sock_filter>);

/// Finds the rule of a call by bisection, and allows calls without one. When a filter is installed, the kernel runs it once for
/// every call that there is: with one comparison after the other, that takes three times as long as all the rest.
fn search(rules: &[Rule]) -> Vec<libc::sock_filter> {
    if rules.len() <= 2 {
        let mut code = Vec::new();
        for (call, then) in rules {
            code.push(when(IF_EQUAL, *call, 0, distance(then)));
            code.extend_from_slice(then);
        }
        code.push(allow());
        return code;
    }
    let (low, high) = rules.split_at(rules.len() / 2);
    let (below, from) = (search(low), search(high));
    let mut code = vec![when(IF_AT_LEAST, high[0].0, distance(&below), 0)];
    code.extend(below);
    code.extend(from);
    code
}

/// The number of instructions to skip. A jump skips at most 255, which half of the rules is far from.
fn distance(code: &[libc::sock_filter]) -> u8 {
    debug_assert!(code.len() <= usize::from(u8::MAX));
    code.len() as u8
}

/// Refuses a call if its argument has one of these bits.
fn deny_bits(argument: usize, bits: u32) -> Vec<libc::sock_filter> {
    vec![load_argument(argument), when(IF_ANY_BIT, bits, 0, 1), fail(libc::EPERM), allow()]
}

/// Resource limits may be set for the caller and read for all: a CPU limit would kill a program outside.
fn limits_of_others() -> Vec<libc::sock_filter> {
    vec![
        load_argument(0),
        when(IF_EQUAL, 0, 5, 0),
        load_argument(2),
        when(IF_EQUAL, 0, 0, 2),
        load_high(2),
        when(IF_EQUAL, 0, 1, 0),
        fail(libc::EPERM),
        allow(),
    ]
}

/// Pairs of stream sockets. A datagram socket of a pair could be connected to any path again.
fn connected_pairs() -> Vec<libc::sock_filter> {
    vec![
        load_argument(1),
        mask(SOCKET_TYPE),
        when(IF_EQUAL, libc::SOCK_STREAM as u32, 2, 0),
        when(IF_EQUAL, libc::SOCK_SEQPACKET as u32, 1, 0),
        fail(libc::EPERM),
        allow(),
    ]
}

/// Which kinds of sockets can be created: Unix, routing netlink, TCP and UDP at most.
fn socket(sockets: Sockets, unix_sockets: bool) -> Vec<libc::sock_filter> {
    let mut code = vec![
        load_argument(0),
        when(IF_EQUAL, libc::AF_UNIX as u32, 0, 1),
        if unix_sockets { allow() } else { fail(libc::EPERM) },
        when(IF_EQUAL, libc::AF_NETLINK as u32, 0, 4),
        load_argument(2),
        when(IF_EQUAL, libc::NETLINK_ROUTE as u32, 0, 1),
        allow(),
        fail(libc::EPERM),
    ];
    if sockets != Sockets::NoNetwork {
        code.extend([
            when(IF_EQUAL, libc::AF_INET as u32, 2, 0),
            when(IF_EQUAL, libc::AF_INET6 as u32, 1, 0),
            fail(libc::EPERM),
            load_argument(1),
            mask(SOCKET_TYPE),
        ]);
    }
    match sockets {
        Sockets::NoNetwork => {}
        Sockets::TcpAndUdp => code.extend([
            when(IF_EQUAL, libc::SOCK_STREAM as u32, 1, 0),
            when(IF_EQUAL, libc::SOCK_DGRAM as u32, 0, 1),
            allow(),
        ]),
        // Landlock restricts the ports of plain TCP only, not of multipath TCP and SCTP.
        Sockets::TcpOnly => code.extend([
            when(IF_EQUAL, libc::SOCK_STREAM as u32, 0, 5),
            load_argument(2),
            when(IF_EQUAL, 0, 1, 0),
            when(IF_EQUAL, libc::IPPROTO_TCP as u32, 0, 1),
            allow(),
            fail(libc::EPROTONOSUPPORT),
        ]),
    }
    code.push(fail(libc::EPERM));
    code
}

fn statement(code: u16, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt: 0, jf: 0, k }
}

fn load(offset: usize) -> libc::sock_filter {
    statement(LOAD, offset as u32)
}

/// Loads the lower half of an argument: both supported machines are little endian.
fn load_argument(index: usize) -> libc::sock_filter {
    load(offset_of!(libc::seccomp_data, args) + index * size_of::<u64>())
}

fn load_high(index: usize) -> libc::sock_filter {
    load(offset_of!(libc::seccomp_data, args) + index * size_of::<u64>() + size_of::<u32>())
}

fn mask(bits: u32) -> libc::sock_filter {
    statement(AND, bits)
}

/// Skips so many instructions if the comparison is true, and so many if it is false.
fn when(comparison: u16, k: u32, if_true: u8, if_false: u8) -> libc::sock_filter {
    libc::sock_filter { code: comparison, jt: if_true, jf: if_false, k }
}

fn give(action: u32) -> libc::sock_filter {
    statement(RETURN, action)
}

fn allow() -> libc::sock_filter {
    give(libc::SECCOMP_RET_ALLOW)
}

fn fail(errno: i32) -> libc::sock_filter {
    give(libc::SECCOMP_RET_ERRNO | errno as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a filter as the kernel does.
    fn run(filter: &Filter, call: u32, arguments: [u64; 6]) -> u32 {
        let data = |offset: u32| match offset as usize {
            0 => call,
            4 => NATIVE,
            offset => {
                let place = offset - offset_of!(libc::seccomp_data, args);
                (arguments[place / 8] >> (place % 8 * 8)) as u32
            }
        };
        let (mut at, mut value) = (0, 0);
        loop {
            let step = filter.code[at];
            at += 1;
            let jump = |holds: bool| usize::from(if holds { step.jt } else { step.jf });
            match step.code {
                LOAD => value = data(step.k),
                AND => value &= step.k,
                IF_EQUAL => at += jump(value == step.k),
                IF_AT_LEAST => at += jump(value >= step.k),
                IF_ANY_BIT => at += jump(value & step.k != 0),
                RETURN => return step.k,
                other => panic!("an instruction that is not used: {other}"),
            }
        }
    }

    #[test]
    fn every_call_gets_its_own_rule_and_all_others_are_allowed() {
        for sockets in [Sockets::NoNetwork, Sockets::TcpOnly, Sockets::TcpAndUdp] {
            for unix_sockets in [false, true] {
                let filter = Filter::new(sockets, unix_sockets);
                for call in 0..600 {
                    let is = |calls: &[libc::c_long]| calls.contains(&libc::c_long::from(call));
                    let expected = match call {
                        _ if is(DENIED) => fail(libc::EPERM).k,
                        _ if is(ABSENT) => fail(libc::ENOSYS).k,
                        // A socket of family 0, and for others arguments that are allowed.
                        _ if libc::c_long::from(call) == libc::SYS_socket => fail(libc::EPERM).k,
                        _ if libc::c_long::from(call) == libc::SYS_socketpair && !unix_sockets => fail(libc::EPERM).k,
                        _ => allow().k,
                    };
                    assert_eq!(run(&filter, call, [0; 6]), expected, "call {call}, {sockets:?}, {unix_sockets}");
                    let asked = run(&filter.notifying(), call, [0; 6]);
                    let notifies = expected == fail(libc::EPERM).k;
                    assert_eq!(asked, if notifies { libc::SECCOMP_RET_USER_NOTIF } else { expected }, "call {call}");
                }
            }
        }
        let filter = Filter::new(Sockets::TcpOnly, false);
        let bits = |call: libc::c_long, index: usize, value: u64| {
            let mut arguments = [0; 6];
            arguments[index] = value;
            run(&filter, call as u32, arguments)
        };
        assert_eq!(bits(libc::SYS_clone, 0, 0x1000_0000), fail(libc::EPERM).k);
        assert_eq!(bits(libc::SYS_unshare, 0, 0x80), fail(libc::EPERM).k);
        assert_eq!(bits(libc::SYS_clone, 0, 17), allow().k);
        assert_eq!(bits(libc::SYS_sendto, 3, u64::from(MSG_FASTOPEN)), fail(libc::EPERM).k);
        assert_eq!(bits(libc::SYS_sendto, 3, 0x4000), allow().k);
    }
}
