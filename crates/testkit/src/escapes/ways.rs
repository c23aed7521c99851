//! The ways to escape: small real programs that try to outlive the stop of the process that they belong to.
//!
//! Each has the unique number `{nap}` in its command line or environment, and exits by itself after at most that many
//! seconds. `{dir}` is a directory of its own. A script that waits for `{dir}/go` begins after the response to its start;
//! one that creates `{dir}/out` reports with it that it has escaped. Processes that change too fast to be found in `/proc`
//! hold a lock on `{dir}/lock`, which is free when the last of them has exited.

use crate::environments::{Containment, Environment, User};

/// One way to escape.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    pub name: &'static str,
    pub(super) program: Program,
    /// A shell command that succeeds if the attempt is possible here; empty if it always is.
    pub(super) needs: &'static str,
    pub(super) out: Out,
    pub(super) end: End,
    /// Why the kernel does not let us kill it on this ground, if so.
    pub freed: fn(Environment) -> Option<&'static str>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Program {
    Sh(&'static str),
    Bash(&'static str),
    /// Run after [`PRELUDE`]: TERM, HUP and INT are ignored, `libc` is loaded, `rest()` sleeps.
    Python(&'static str),
    Perl(&'static str),
}

/// How many living processes with the number there are once they have escaped.
#[derive(Clone, Copy, Debug)]
pub(super) enum Out {
    Exactly(usize),
    AtLeast(usize),
}

/// How the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// By a stop.
    Stopped,
    /// It kills its keeper, and pinfold must notice that.
    Lost,
}

pub(super) const PRELUDE: &str = "import ctypes, os, signal, threading, time
libc = ctypes.CDLL(None)
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT): signal.signal(number, signal.SIG_IGN)
intel = os.uname().machine == 'x86_64'
def rest():
    time.sleep({nap})
    os._exit(0)
";

pub(super) const PERL_PRELUDE: &str = "use POSIX (); $SIG{$_} = 'IGNORE' for qw(TERM HUP INT CHLD);
open my $lock, '>', '{dir}/lock'; flock $lock, 2; my $end = time + 15; sub rest { select undef, undef, undef, shift } ";

const fn way(name: &'static str, program: Program, out: Out) -> Way {
    Way { name, program, needs: "", out, end: End::Stopped, freed: |_| None }
}

const fn needing(needs: &'static str, way: Way) -> Way {
    Way { needs, ..way }
}

const PYTHON: &str = "test -x /usr/bin/python3";
const PERL: &str = "test -x /usr/bin/perl";

/// Every known way.
pub const WAYS: &[Way] = &[
    way("`setsid`", Program::Sh("setsid sleep {nap} & exit 0"), Out::Exactly(1)),
    way("`setsid -f`", Program::Sh("setsid -f sleep {nap}; exit 0"), Out::Exactly(1)),
    way("double fork", Program::Sh("sh -c '(sleep {nap} &) & exit 0'; exit 0"), Out::Exactly(1)),
    way("`nohup`", Program::Sh("nohup sleep {nap} >/dev/null 2>&1 & exit 0"), Out::Exactly(1)),
    way("`disown`", Program::Bash("sleep {nap} & disown -a; exit 0"), Out::Exactly(1)),
    way("own group by `set -m`", Program::Bash("set -m; sleep {nap} & exit 0"), Out::Exactly(1)),
    way("environment wiped", Program::Sh("env -i setsid -f /bin/sleep {nap}; exit 0"), Out::Exactly(1)),
    needing(
        PYTHON,
        way(
            "`daemon(3)`, all descriptors closed",
            Program::Python("libc.daemon(0, 0); os.closerange(0, 256); rest()"),
            Out::Exactly(1),
        ),
    ),
    way(
        "reparented through dead intermediates",
        Program::Sh("setsid -f sh -c 'setsid -f sh -c \"setsid -f sleep {nap}; exit 0\"; exit 0'; exit 0"),
        Out::Exactly(1),
    ),
    way("renamed by `exec -a`", Program::Bash("(exec -a '[kworker/0:1]' sleep {nap}) & exit 0"), Out::Exactly(1)),
    needing(
        PYTHON,
        way(
            "renamed by prctl",
            Program::Python(
                "if os.fork(): os._exit(0)\nos.setsid(); libc.prctl(15, b'systemd', 0, 0, 0); open('{dir}/out', 'w'); rest()",
            ),
            Out::Exactly(1),
        ),
    ),
    way(
        "TERM, HUP and INT ignored",
        Program::Sh("trap '' TERM HUP INT; setsid sh -c 'while :; do sleep {nap}; done' & sleep {nap}; exit 0"),
        Out::Exactly(4),
    ),
    needing(
        PYTHON,
        way(
            "every signal blocked",
            Program::Python(
                "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())\nif os.fork(): os._exit(0)\nos.setsid(); rest()",
            ),
            Out::Exactly(1),
        ),
    ),
    needing(
        PERL,
        way(
            "forks faster than it is killed",
            Program::Perl(
                "pipe my $read, my $write; for (1 .. 4) { next if fork; POSIX::setsid(); my $forked = 0;
                while (time < $end) { if (!fork) { rest(0.3); POSIX::_exit(0) }
                syswrite $write, '.' if ++$forked == 3; rest(0.005) } POSIX::_exit(0) }
                sysread $read, my $dot, 1 for 1 .. 4; open my $out, '>', '{dir}/out'",
            ),
            // At least twelve were forked. The living ones cannot be counted: each exits before a busy machine finds it.
            Out::AtLeast(0),
        ),
    ),
    needing(
        PERL,
        way(
            "forks and exits, never twice the same pid",
            Program::Perl(
                "for (1 .. 3) { next if fork; POSIX::setsid();
                while (time < $end) { my $pid = fork; POSIX::_exit(0) if $pid } POSIX::_exit(0) } open my $out, '>', '{dir}/out'",
            ),
            Out::AtLeast(0),
        ),
    ),
    way(
        "executes itself anew, all the time",
        Program::Sh(
            "trap '' TERM; echo '[ $2 != 3 ] || : > {dir}/out; [ $2 -gt 30000 ] || exec sh $0 $1 $(($2 + 1))' > {dir}/again; setsid -f sh {dir}/again {nap} 0; exit 0",
        ),
        // In the middle of an exec a process has no command line.
        Out::AtLeast(0),
    ),
    way(
        "stopped children",
        Program::Sh("trap '' TERM; setsid -f sleep {nap}; sleep {nap} & kill -STOP $!; kill -STOP $$; exit 0"),
        Out::Exactly(3),
    ),
    needing(
        PYTHON,
        way(
            "a vforked child that never executes",
            Program::Python("libc.syscall(56 if intel else 220, 0x4011, 0, 0, 0, 0); rest()"),
            Out::Exactly(2),
        ),
    ),
    needing(
        PYTHON,
        way(
            "born as the keeper's own child (CLONE_PARENT)",
            Program::Python("if libc.syscall(56 if intel else 220, 0x8011, 0, 0, 0, 0): os._exit(0)\nos.setsid(); rest()"),
            Out::Exactly(1),
        ),
    ),
    needing(
        PYTHON,
        way(
            "a subreaper of its own",
            Program::Python(
                "libc.prctl(36, 1, 0, 0, 0)\nif os.fork(): rest()\nos.setsid()\nif os.fork(): os._exit(0)\nos.setsid(); rest()",
            ),
            Out::Exactly(2),
        ),
    ),
    needing(
        PYTHON,
        way(
            "traces its leader",
            Program::Python(
                "leader = os.getpid()\nif os.fork(): rest()\nos.setsid(); libc.ptrace(0x4206, leader, 0, 0); open('{dir}/out', 'w'); rest()",
            ),
            Out::Exactly(2),
        ),
    ),
    needing(
        PYTHON,
        way(
            "holds its dead leader by tracing it",
            Program::Python(
                "leader = os.getpid()\nif os.fork():\n    while not os.path.exists('{dir}/out'): time.sleep(0.01)\n    os._exit(0)\nos.setsid(); libc.ptrace(0x4206, leader, 0, 0); open('{dir}/out', 'w'); rest()",
            ),
            Out::Exactly(1),
        ),
    ),
    needing(
        PYTHON,
        way(
            "threads whose main thread is gone",
            Program::Python("threading.Thread(target=rest).start(); libc.syscall(60 if intel else 93, 0)"),
            Out::Exactly(1),
        ),
    ),
    needing(
        PYTHON,
        way(
            "undumpable: its environment cannot be read",
            Program::Python(
                "if os.fork(): os._exit(0)\nos.setsid(); libc.prctl(4, 0, 0, 0, 0); open('{dir}/out', 'w'); rest()",
            ),
            Out::Exactly(1),
        ),
    ),
    needing(
        "unshare -Ur true",
        way(
            "a user namespace",
            Program::Sh("trap '' TERM; unshare -Ur setsid -f sleep {nap}; exit 0"),
            Out::Exactly(1),
        ),
    ),
    needing(
        "unshare -Urpf true",
        way(
            "a pid namespace",
            Program::Sh("setsid -f unshare -Urpf sh -c '(setsid sleep {nap} &) ; sleep {nap}; exit 0'; exit 0"),
            Out::Exactly(4),
        ),
    ),
    needing(
        "command -v script",
        way(
            "a terminal of its own (`script`)",
            Program::Sh("setsid -f script -qc 'sleep {nap}' /dev/null >/dev/null 2>&1; exit 0"),
            Out::AtLeast(2),
        ),
    ),
    needing(
        "command -v tmux",
        way(
            "`tmux`",
            Program::Sh("SHELL=/bin/sh tmux -S {dir}/tmux -f /dev/null new-session -d 'exec sleep {nap}'; exit 0"),
            Out::Exactly(2),
        ),
    ),
    needing(
        "command -v screen",
        way(
            "`screen`",
            Program::Sh("SHELL=/bin/sh SCREENDIR={dir} screen -c /dev/null -dmS out sleep {nap}; exit 0"),
            Out::AtLeast(2),
        ),
    ),
    needing(
        "test -x /sbin/start-stop-daemon",
        way(
            "`start-stop-daemon`",
            Program::Sh("/sbin/start-stop-daemon --start --background --make-pidfile --pidfile {dir}/pid --exec /bin/sleep -- {nap}; exit 0"),
            Out::Exactly(1),
        ),
    ),
    needing(
        "systemd-run --scope true || systemd-run --user --scope true",
        way(
            "a systemd scope",
            Program::Sh(
                "user=; [ $(id -u) = 0 ] || user=--user; setsid -f systemd-run $user --scope sleep {nap}; exit 0",
            ),
            Out::Exactly(1),
        ),
    ),
    way(
        "a nested pinfold",
        Program::Sh(
            "mkdir {dir}/n; echo 'containment = \"{containment}\"' > {dir}/n/config.toml; chmod 700 {dir}/n; \
             PINFOLD_HOME={dir}/n {pinfold} run -d \"trap '' TERM; setsid -f sleep {nap}; sleep {nap}; exit 0\"; exit 0",
        ),
        Out::AtLeast(3),
    ),
    needing(
        "{cgroup}",
        way(
            "leaves its cgroup",
            Program::Sh("trap '' TERM; echo $$ > {cgroup}/cgroup.procs && setsid -f sleep {nap}; exit 0"),
            Out::Exactly(1),
        ),
    ),
    needing(
        "{cgroup}",
        way(
            "leaves its cgroup, and forks and exits",
            Program::Perl(
                "open my $group, '>', '{cgroup}/cgroup.procs'; print $group $$; close $group;
                for (1 .. 3) { next if fork; POSIX::setsid();
                while (time < $end) { my $pid = fork; POSIX::_exit(0) if $pid } POSIX::_exit(0) } open my $out, '>', '{dir}/out'",
            ),
            Out::AtLeast(0),
        ),
    ),
    needing(
        "{cgroup}",
        way(
            "frozen in a cgroup of its own",
            Program::Sh(
                "d={mount}$(sed -n s/^0:://p /proc/self/cgroup)/own; mkdir $d && \
                 setsid -f sh -c \"echo \\$\\$ > $d/cgroup.procs; echo 1 > $d/cgroup.freeze; sleep {nap}\"; \
                 until grep -q 'frozen 1' $d/cgroup.events; do sleep 0.01; done; : > {dir}/out; exit 0",
            ),
            Out::Exactly(1),
        ),
    ),
    Way {
        freed: |ground| {
            let reason = "the kernel delivers signals only after the freezer is thawed by the process that froze it";
            (ground.user == User::Root).then_some(reason)
        },
        ..needing(
            "test -w {freezer}",
            way(
                "frozen by a cgroup v1 freezer",
                Program::Sh(
                    "mkdir {freezer}/{nap}; setsid -f sh -c 'echo $$ > {freezer}/{nap}/cgroup.procs; exec sleep {nap}'; \
                     until grep -q . {freezer}/{nap}/cgroup.procs; do sleep 0.01; done; echo FROZEN > {freezer}/{nap}/freezer.state; \
                     until grep -q FROZEN {freezer}/{nap}/freezer.state; do sleep 0.01; done; : > {dir}/out; exit 0",
                ),
                Out::Exactly(1),
            ),
        )
    },
    Way {
        freed: |ground| {
            let free = ground == Environment { user: User::Ordinary, containment: Containment::Walk };
            free.then_some("an ordinary user may not signal another user's process")
        },
        ..needing(
            "test $(id -u) = 0 -o -x {setuid}",
            way(
                "becomes another user",
                Program::Sh(
                    "who=0; be={setuid}; [ $(id -u) != 0 ] || { who=65534; be=setpriv; }; \
                     setsid -f $be --reuid=$who --regid=$who --clear-groups sleep {nap}; exit 0",
                ),
                Out::Exactly(1),
            ),
        )
    },
    way(
        "stops its keeper",
        Program::Sh(
            "k=$PPID; setsid -f sh -c \"trap '' TERM; until [ -e {dir}/go ]; do sleep 0.01; done; kill -STOP $k; : > {dir}/out; exec sleep {nap}\"; exit 0",
        ),
        Out::Exactly(1),
    ),
    Way {
        end: End::Lost,
        ..way(
            "kills its keeper",
            Program::Sh(
                "k=$PPID; setsid -f sh -c \"trap '' TERM; until [ -e {dir}/go ]; do sleep 0.01; done; kill -9 $k; exec sleep {nap}\"; exit 0",
            ),
            Out::AtLeast(0),
        )
    },
    Way {
        end: End::Lost,
        freed: |ground| {
            let reason = "its user may kill the keeper, and then nothing ties it to anybody: no parent, no mark, no cgroup";
            (ground.containment == Containment::Walk).then_some(reason)
        },
        ..way(
            "kills its keeper, environment wiped",
            Program::Sh(
                "k=$PPID; env -i setsid -f /bin/sh -c \"trap '' TERM; until [ -e {dir}/go ]; do /bin/sleep 0.01; done; kill -9 $k; exec /bin/sleep {nap}\"; exit 0",
            ),
            Out::AtLeast(0),
        )
    },
];
