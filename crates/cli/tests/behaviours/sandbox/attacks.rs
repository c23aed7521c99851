//! Attempts to get out of a sandbox. Each prints ESCAPED if it works, and does so without a sandbox, so that a test that
//! tries nothing is noticed.

use pinfold_testkit::environments::User;

use super::{Places, TIERS, daemons, run};

/// Writes outside, with `$OUT` as the directory outside and `$PPID` as the keeper.
const WRITES: [&str; 19] = [
    "echo x > $OUT/new && echo ESCAPED",
    "echo x >> $OUT/file && echo ESCAPED",
    "cd $OUT && echo x > new && echo ESCAPED",
    "ln -s $OUT/file link && echo x >> link && echo ESCAPED",
    "ln -s $OUT dir && echo x > dir/new && echo ESCAPED",
    "ln $OUT/file hard && echo x >> hard && echo ESCAPED",
    "echo x > mine && mv mine $OUT/mine && echo ESCAPED",
    "echo x > mine && ln mine $OUT/mine && echo ESCAPED",
    "mv $OUT/file stolen && echo ESCAPED",
    "rm -f $OUT/file && test ! -e $OUT/file && echo ESCAPED",
    "truncate -s 0 $OUT/file && echo ESCAPED",
    "echo x > /proc/self/root$OUT/new && echo ESCAPED",
    "echo x > /proc/$PPID/root$OUT/new && echo ESCAPED",
    "cd /proc/self/root$OUT && ln -s file other && echo x >> other && echo ESCAPED",
    "perl -e 'rename(\"$ARGV[0]/file\", \"$ARGV[0]/other\") && print \"ESCAPED\"' $OUT",
    "echo x > mine && perl -e 'my ($a, $b) = (\"mine\", \"$ARGV[0]/file\"); syscall($ARGV[1] + 0, -100, $a, -100, $b, 2) == 0 && print \"ESCAPED\"' $OUT $RENAMEAT2",
    "mkdir $OUT/dir && echo ESCAPED",
    "mkfifo $OUT/pipe && echo ESCAPED",
    "ln -s /etc/passwd $OUT/link && echo ESCAPED",
];

#[test]
fn nothing_is_written_outside_of_the_workspace() {
    let places = Places::new();
    for (environment, pinfold) in daemons() {
        for attack in WRITES {
            let renameat2 = if cfg!(target_arch = "x86_64") { 316 } else { 276 };
            let script = format!("OUT={}; RENAMEAT2={renameat2}; ({attack}) 2>&1", places.outside().display());
            let (_, text) = run(&pinfold, &script, &places.work(), None);
            assert!(text.contains("ESCAPED"), "{environment}: without a sandbox, {attack}: {text}");
            places.reset();
            let landlock = ["read-only,tier=landlock", "workspace-write,tier=landlock"];
            for sandbox in landlock.into_iter().chain(["workspace-write", "read-only,network=none,unix=any"]) {
                let (record, text) = run(&pinfold, &script, &places.work(), Some(sandbox));
                assert!(!text.contains("ESCAPED"), "{environment}, {sandbox}, {attack}: {text}");
                assert!(places.is_untouched(), "{environment}, {sandbox}, {attack}");
                assert!(record.sandbox.expect("a sandbox").missing.is_empty());
            }
            places.reset();
        }
    }
}

/// The keeper and the daemon can be neither signalled, traced nor limited, and their files in /proc not written.
#[test]
fn programs_outside_cannot_be_reached() {
    const TRACE: &str =
        "perl -e '$n = (`uname -m` =~ /x86/) ? 101 : 117; exit(syscall($n, 0x4206, $ARGV[0] + 0, 0, 0) == -1)'";
    // pidfd_open, then pidfd_send_signal of CONT.
    const SIGNAL: &str =
        "perl -e '$f = syscall(434, $ARGV[0] + 0, 0); exit($f < 0 || syscall(424, $f, 18, 0, 0) == -1)'";
    let places = Places::new();
    for (environment, pinfold) in daemons() {
        let daemon = pinfold.daemon_pid();
        let other = pinfold.start_request(&super::request("exec sleep 31421", &places.work(), None)).record;
        let leader = other.pid.expect("a leader");
        for target in ["$PPID".to_owned(), daemon.to_string(), leader.to_string()] {
            for (attack, works_without) in [
                (format!("kill -0 {target}"), true),
                (format!("kill -CONT {target}"), true),
                (format!("kill -CONT -{leader}"), true),
                (format!("{SIGNAL} {target}"), true),
                (format!("cat /proc/{target}/root/etc/passwd"), false),
                (format!("ls /proc/{target}/cwd/"), false),
                (format!("cat /proc/{target}/fd/0"), false),
                (format!("prlimit --pid {target} --core=0:0"), true),
                (format!("echo 0 > /proc/{target}/oom_score_adj"), environment.user == User::Root),
                (format!("dd if=/dev/zero of=/proc/{target}/mem bs=1 count=0 conv=notrunc"), false),
                (format!("cat /proc/{target}/environ"), false),
                (format!("{TRACE} {target}"), environment.user == User::Root),
            ] {
                let script = format!("({attack}) >/dev/null 2>&1 && echo ESCAPED");
                if works_without {
                    let (_, text) = run(&pinfold, &script, &places.work(), None);
                    assert!(text.contains("ESCAPED"), "{environment}: without a sandbox, {attack}: {text}");
                }
                for tier in TIERS {
                    let sandbox = format!("workspace-write{tier}");
                    let (_, text) = run(&pinfold, &script, &places.work(), Some(&sandbox));
                    assert!(!text.contains("ESCAPED"), "{environment}, {sandbox}, {attack}: {text}");
                }
            }
        }
        assert_eq!(pinfold.daemon_pid(), daemon);
        pinfold.stop(&other.id);
    }
}

/// A signal still reaches the process's own children.
#[test]
fn its_own_tree_can_be_signalled_and_traced() {
    let places = Places::new();
    for (environment, pinfold) in daemons() {
        let (record, text) = run(
            &pinfold,
            "sleep 1000 & kill -TERM $! && wait $!; echo $?; cat /proc/$$/environ >/dev/null && echo readable",
            &places.work(),
            Some("read-only"),
        );
        assert!(text.ends_with("143\nreadable\n"), "{environment}: {text}, {record:?}");
    }
}

/// Perl that creates a socket of this family, type and protocol, which says ESCAPED if it can.
fn socket(family: u32, kind: u32, protocol: u32) -> String {
    format!("perl -e 'use Socket; socket(my $s, {family}, {kind}, {protocol}) && print \"ESCAPED\"; print \" $!\"'")
}

const UNIX: u32 = 1;
const INET: u32 = 2;
const INET6: u32 = 10;
const NETLINK: u32 = 16;
const PACKET: u32 = 17;
const ALG: u32 = 38;
const VSOCK: u32 = 40;
const STREAM: u32 = 1;
const DATAGRAM: u32 = 2;
const RAW: u32 = 3;
const MULTIPATH: u32 = 262;

#[test]
fn only_the_kinds_of_sockets_that_are_allowed_can_be_created() {
    let places = Places::new();
    let tcp = [(INET, STREAM, 0), (INET6, STREAM, 0)];
    let udp = [(INET, DATAGRAM, 0), (INET6, DATAGRAM, 0)];
    // Netlink other than routing: sockets, SELinux, audit, connector, netfilter, uevents, generic.
    let netlink = [2, 4, 7, 9, 11, 12, 15, 16].map(|protocol| (NETLINK, RAW, protocol));
    let never = [(INET, RAW, 1), (PACKET, RAW, 0), (VSOCK, STREAM, 0), (ALG, 5, 0), (INET, STREAM, 132)];
    let never: Vec<_> = never.into_iter().chain(netlink).collect();
    for (environment, pinfold) in daemons() {
        let creates = |sandbox: &str, (family, kind, protocol): (u32, u32, u32)| {
            run(&pinfold, &socket(family, kind, protocol), &places.work(), Some(sandbox)).1.contains("ESCAPED")
        };
        for (sandbox, with_tcp, with_udp, with_unix) in [
            ("read-only,network=none", false, false, false),
            ("read-only,network=none,unix=any", false, false, true),
            ("read-only,network=leased", true, false, false),
            ("read-only", true, true, false),
        ] {
            for socket in tcp {
                assert_eq!(creates(sandbox, socket), with_tcp, "{environment}, {sandbox}, {socket:?}");
            }
            for socket in udp {
                assert_eq!(creates(sandbox, socket), with_udp, "{environment}, {sandbox}, {socket:?}");
            }
            for socket in [(UNIX, STREAM, 0), (UNIX, DATAGRAM, 0)] {
                assert_eq!(creates(sandbox, socket), with_unix, "{environment}, {sandbox}, {socket:?}");
            }
            for &socket in &never {
                assert!(!creates(sandbox, socket), "{environment}, {sandbox}, {socket:?}");
            }
            assert!(creates(sandbox, (NETLINK, RAW, 0)), "{environment}, {sandbox}: routing netlink");
        }
        assert!(!creates("read-only,network=leased", (INET, STREAM, MULTIPATH)), "{environment}");
    }
}

/// With `unix=any`, abstract sockets of programs outside stay out of reach; without it, so does pinfold's own.
#[test]
fn unix_sockets_outside_are_out_of_reach() {
    use std::os::linux::net::SocketAddrExt;
    let places = Places::new();
    let name = format!("pinfold-sandbox-test-{}", std::process::id());
    let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).expect("a name");
    let _listener = std::os::unix::net::UnixListener::bind_addr(&address).expect("it listens");
    // As ssh-agent, D-Bus and Docker have theirs.
    let path = places.root.join("agent.sock");
    let _agent = std::os::unix::net::UnixListener::bind(&path).expect("it listens");
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o666)).expect("its mode");
    for (environment, pinfold) in daemons() {
        let connect = |address: &str| {
            format!(
                "perl -e 'use Socket; my $s; socket($s, 1, 1, 0) && connect($s, sockaddr_un({address})) && print \"ESCAPED\"; print \" $!\"'"
            )
        };
        let abstract_one = connect(&format!("\"\\0{name}\""));
        let own = connect(&format!("\"{}\"", pinfold.home().join("socket").display()));
        let escapes =
            |script: &str, sandbox: Option<&str>| run(&pinfold, script, &places.work(), sandbox).1.contains("ESCAPED");
        let agent = connect(&format!("\"{}\"", path.display()));
        for socket in [&abstract_one, &own, &agent] {
            assert!(escapes(socket, None), "{environment}: without a sandbox, {socket}");
            for tier in TIERS {
                assert!(!escapes(socket, Some(&format!("read-only{tier}"))), "{environment}, {tier}: {socket}");
            }
        }
        assert!(escapes(&agent, Some("read-only,unix=any")), "{environment}: with unix=any a path can be reached");
        for tier in TIERS {
            assert!(!escapes(&abstract_one, Some(&format!("read-only,unix=any{tier}"))), "{environment}, {tier}");
        }
        // From the environment, as programs find it.
        let by_variable = connect("$ENV{SSH_AUTH_SOCK}");
        let mut request = super::request(&by_variable, &places.work(), Some("read-only"));
        request.env.insert("SSH_AUTH_SOCK".into(), Some(path.to_str().expect("text").into()));
        let record = pinfold.start_request(&request).record;
        pinfold.wait_finished(&record.id);
        assert!(!pinfold.text(&record.id).contains("ESCAPED"), "{environment}: {}", pinfold.text(&record.id));
        let pair = "perl -e 'use Socket; socketpair(my $a, my $b, 1, 2, 0) && print \"ESCAPED\"'";
        assert!(!escapes(pair, Some("read-only")), "{environment}: a datagram pair could be connected to any path");
        let stream_pair = pair.replace("1, 2, 0", "1, 1, 0");
        assert!(
            escapes(&stream_pair, Some("read-only,network=none")),
            "{environment}: a pair of streams is no way out"
        );
    }
}

/// TCP ports other than the leased and the listed ones.
#[test]
fn a_leased_network_has_only_its_own_ports() {
    let places = Places::new();
    let outside = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let port = outside.local_addr().expect("its address").port();
    for (environment, pinfold) in daemons() {
        let connect = format!(
            "perl -e 'use Socket; socket(my $s, 2, 1, 0); print connect($s, sockaddr_in({port}, INADDR_LOOPBACK)) ? \"yes\" : \"no\"'"
        );
        let fast_open = format!(
            "perl -e 'use Socket; socket(my $s, 2, 1, 0); print defined(send($s, \"x\", 0x20000000, sockaddr_in({port}, INADDR_LOOPBACK))) ? \"yes\" : \"no\"'"
        );
        let answers = |script: &str, sandbox: &str| run(&pinfold, script, &places.work(), Some(sandbox)).1;
        assert_eq!(answers(&connect, "read-only"), "yes", "{environment}");
        assert_eq!(answers(&connect, "read-only,network=leased"), "no", "{environment}");
        assert_eq!(answers(&fast_open, "read-only,network=leased"), "no", "{environment}");
        assert_eq!(answers(&connect, &format!("read-only,network=leased,connect={port}")), "yes", "{environment}");
        let bind = "perl -e 'use Socket; for my $p ($ENV{PORT}, $ENV{PORT} ^ 1) { socket(my $s, 2, 1, 0); \
                    print bind($s, sockaddr_in($p, INADDR_LOOPBACK)) && listen($s, 1) ? \"yes \" : \"no \" }'";
        let mut request = super::request(bind, &places.work(), Some("read-only,network=leased"));
        request.ports.insert("PORT".into(), serde_json::from_value("lease".into()).expect("a port"));
        let record = pinfold.start_request(&request).record;
        pinfold.wait_finished(&record.id);
        assert_eq!(pinfold.text(&record.id), "yes no ", "{environment}");
    }
}

#[test]
fn privileged_calls_and_namespaces_are_refused() {
    let places = Places::new();
    let (keyctl, bpf, add_key, perf) =
        if cfg!(target_arch = "x86_64") { (250, 321, 248, 298) } else { (219, 280, 217, 241) };
    let call = |arguments: String| {
        format!(
            "perl -e 'my $p = \"\\0\" x 256; my ($u, $n, $v) = qw(user name value); syscall({arguments}) != -1 && print \"ESCAPED\"'"
        )
    };
    let calls = [
        (call("425, 1, $p".into()), "io_uring_setup"),
        (call("426, 0, 0, 0, 0, 0".into()), "io_uring_enter"),
        (call(format!("{keyctl}, 0, -3, 1")), "keyctl"),
        (call(format!("{keyctl}, 6, -4")), "reading a keyring"),
        (call(format!("{add_key}, $u, $n, $v, 5, -2")), "add_key"),
        (call(format!("{perf}, $p, 0, -1, -1, 0")), "perf_event_open"),
        ("unshare --user true && echo ESCAPED".to_owned(), "a user namespace"),
    ];
    let as_root = [
        (call(format!("{bpf}, 0, $p, 72")), "bpf"),
        ("mount -t tmpfs none . && umount . && echo ESCAPED".to_owned(), "mount"),
        ("unshare --mount true && echo ESCAPED".to_owned(), "a mount namespace"),
        ("mknod null c 1 3 && echo ESCAPED".to_owned(), "a device file"),
    ];
    for (environment, pinfold) in daemons() {
        for (script, what) in calls.iter().chain(as_root.iter()) {
            let script = format!("({script}) 2>/dev/null");
            for tier in TIERS {
                let (_, text) = run(&pinfold, &script, &places.work(), Some(&format!("workspace-write{tier}")));
                assert!(!text.contains("ESCAPED"), "{environment}, {tier}, {what}: {text}");
            }
            places.reset();
        }
        let (_, status) =
            run(&pinfold, "grep -E 'NoNewPrivs|CapEff|Seccomp:' /proc/self/status", &places.work(), Some("read-only"));
        let words: Vec<&str> = status.split_whitespace().collect();
        let capabilities = words.iter().position(|word| *word == "CapEff:").map(|at| words[at + 1]).expect("a set");
        // Of root's: none that changes the machine, such as sys_admin, sys_ptrace, net_admin and sys_module.
        assert_eq!(u64::from_str_radix(capabilities, 16).expect("hexadecimal") & !0x4ff, 0, "{environment}: {status}");
        assert!(words.windows(2).any(|pair| pair == ["NoNewPrivs:", "1"]), "{environment}: {status}");
        assert!(words.windows(2).any(|pair| pair == ["Seccomp:", "2"]), "{environment}: {status}");
    }
}

/// A set-user-id program gets no other user's rights.
#[test]
fn a_setuid_program_gains_nothing() {
    if !pinfold_testkit::environments::is_root() {
        return;
    }
    use std::os::unix::fs::PermissionsExt;
    let places = Places::new();
    for (environment, pinfold) in daemons().into_iter().filter(|(environment, _)| environment.user == User::Ordinary) {
        let program = places.work().join("id");
        std::fs::copy("/usr/bin/id", &program).expect("a copy");
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o4755)).expect("its mode");
        let (_, without) = run(&pinfold, "./id -u", &places.work(), None);
        let (_, with) = run(&pinfold, "./id -u", &places.work(), Some("workspace-write"));
        assert!(without.trim() == "0" || without == with, "{environment}: {without}");
        assert_ne!(with.trim(), "0", "{environment}");
    }
}
