//! Starting programs and waiting for them, against the real kernel.

use std::ffi::{CStr, CString};
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};

use pinfold_os::spawn::{Child, Launch, SpawnError, Spawner, Step};
use pinfold_os::wait::{EndedChild, ExitStatus, observe_exit, reap};
use pinfold_os::{daemonize, fsio, poll, proc, socket};

/// Runs `/bin/sh -c script`; returns the child and all its output.
fn run(script: &str, cwd: &CStr, programs: &[&str]) -> Result<(Child, String), SpawnError> {
    run_by(&mut Spawner::new(), script, cwd, programs)
}

fn run_by(spawner: &mut Spawner, script: &str, cwd: &CStr, programs: &[&str]) -> Result<(Child, String), SpawnError> {
    let pipe = fsio::pipe().expect("a pipe");
    let null = fsio::dev_null().expect("/dev/null");
    let strings = |texts: &[&str]| texts.iter().map(|text| CString::new(*text).expect("no NUL")).collect::<Vec<_>>();
    let launch = Launch {
        programs: &strings(programs),
        argv: &strings(&["sh", "-c", script]),
        env: &[c"PATH=/usr/bin:/bin", c"GREETING=hello"],
        cwd,
        stdin: null.as_fd(),
        stdout: pipe.write.as_fd(),
        stderr: pipe.write.as_fd(),
        terminal: false,
        cgroup: None,
        entries: &[],
        lock: None,
        sandbox: None,
    };
    let child = spawner.spawn(&launch)?;
    drop(pipe.write);
    Ok((child, read_all(pipe.read.as_fd())))
}

fn read_all(pipe: BorrowedFd<'_>) -> String {
    let mut text = Vec::new();
    loop {
        text.reserve(4096);
        poll::wait_ready(&[(pipe, poll::Interest::Read)], None).expect("poll");
        match fsio::read_some(pipe, &mut text).expect("read") {
            fsio::ReadResult::Bytes(_) | fsio::ReadResult::Empty => {}
            fsio::ReadResult::Closed => return String::from_utf8(text).expect("text"),
        }
    }
}

fn end(child: &Child) -> EndedChild {
    reap(&child.pidfd).expect("waitid").expect("it ended")
}

#[test]
fn a_child_runs_with_its_arguments_environment_and_directory() {
    let (child, output) = run("echo $GREETING; pwd; exit 7", c"/usr", &["/bin/sh"]).expect("started");
    assert_eq!(output, "hello\n/usr\n");
    let ended = end(&child);
    assert_eq!((ended.pid, ended.status), (child.pid, ExitStatus::Exited { code: 7 }));
    assert!(ended.max_rss_bytes > 0);
}

#[test]
fn the_start_time_is_the_one_that_proc_shows() {
    let mut spawner = Spawner::new();
    for _ in 0..100 {
        let (child, _) = run_by(&mut spawner, "true", c"/", &["/bin/sh"]).expect("started");
        assert_eq!(child.start_time, proc::start_time(child.pid).expect("not reaped yet"));
        end(&child);
    }
}

#[test]
fn an_exit_by_signal_is_distinguished_from_an_exit_code() {
    let (child, _) = run("kill -9 $$", c"/", &["/bin/sh"]).expect("started");
    assert_eq!(end(&child).status, ExitStatus::Signaled { signal: 9, core_dumped: false });
}

#[test]
fn observing_leaves_the_child_to_be_reaped() {
    let (child, _) = run("exit 3", c"/", &["/bin/sh"]).expect("started");
    let ready = [(child.pidfd.as_fd(), poll::Interest::Read)];
    poll::wait_ready(&ready, None).expect("poll");
    for _ in 0..2 {
        let seen = observe_exit(&child.pidfd).expect("waitid").expect("it ended");
        assert_eq!(seen.status, ExitStatus::Exited { code: 3 });
    }
    assert_eq!(end(&child).status, ExitStatus::Exited { code: 3 });
    assert!(observe_exit(&child.pidfd).is_err(), "no child is left");
}

#[test]
fn a_failed_start_names_its_step_and_leaves_no_child() {
    let failed = |cwd, programs: &[&str]| {
        let failure = run("true", cwd, programs).expect_err("refused");
        (failure.step, failure.error.raw_os_error())
    };
    assert_eq!(failed(c"/does/not/exist", &["/bin/sh"]), (Step::Cwd, Some(libc::ENOENT)));
    assert_eq!(failed(c"/etc/passwd", &["/bin/sh"]), (Step::Cwd, Some(libc::ENOTDIR)));
    assert_eq!(failed(c"/", &["/bin/nope", "/usr/nope"]), (Step::Exec, Some(libc::ENOENT)));
    assert_eq!(failed(c"/", &["/nope", "/etc/passwd"]), (Step::Exec, Some(libc::EACCES)));
}

#[test]
fn the_first_program_that_exists_is_executed() {
    let (child, output) = run("echo found", c"/", &["/nope/sh", "/etc/passwd/sh", "/bin/sh"]).expect("started");
    assert_eq!(output, "found\n");
    end(&child);
}

#[test]
fn a_child_has_a_session_of_its_own_with_default_signals_and_no_extra_descriptors() {
    // The Rust runtime ignores SIGPIPE; this thread blocks some signals as a keeper does.
    std::thread::spawn(|| {
        daemonize::default_signals();
        daemonize::block_group_signals().expect("blocked");
        let _child_signal = poll::ChildSignal::new().expect("signalfd");
        let script = "read _ _ _ _ pgrp sid _ < /proc/self/stat; echo $((pgrp == $$)) $((sid == $$)); \
                      grep -E '^Sig(Blk|Ign|Cgt)' /proc/self/status; ls -l /proc/self/fd";
        let (child, output) = run(script, c"/", &["/bin/sh"]).expect("started");
        end(&child);
        let lines: Vec<_> = output.lines().collect();
        assert_eq!(lines[0], "1 1", "{output}");
        // 32 and 33 belong to the C library, which does not let us set them.
        let mask = |line: &str| u64::from_str_radix(line.rsplit('\t').next().unwrap_or(line), 16).expect("a mask");
        assert!(lines[1..3].iter().all(|line| mask(line) & !(0b11 << 31) == 0), "{output}");
        // Of ours only the pipe, as 1 and 2; what the test itself inherited may be there too.
        assert!(!output.contains("signalfd") && !output.contains("pidfd"), "{output}");
        assert_eq!(output.matches("-> pipe:").count(), 2 + inherited_pipes(), "{output}");
    })
    .join()
    .expect("asserted");
}

/// Pipes above 2 that this program got from its parent and passes on to every child.
fn inherited_pipes() -> usize {
    let entries = std::fs::read_dir("/proc/self/fd").expect("/proc").flatten();
    let is_passed_on = |number: &str| {
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{number}")).unwrap_or_default();
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).map(str::trim).unwrap_or("0");
        i32::from_str_radix(flags, 8).is_ok_and(|flags| flags & libc::O_CLOEXEC == 0)
    };
    entries
        .filter(|entry| std::fs::read_link(entry.path()).is_ok_and(|link| link.to_string_lossy().starts_with("pipe:")))
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|number| number.parse::<u32>().is_ok_and(|number| number > 2) && is_passed_on(number))
        .count()
}

#[test]
fn descriptors_travel_through_a_socket() {
    let (ours, theirs) = socket::pair().expect("a pair");
    let mut file = tempfile_with("through a socket");
    socket::send_fd(ours.as_fd(), file.as_fd()).expect("sent");
    drop(ours);
    let received = socket::receive_fd(theirs.as_fd()).expect("received").expect("a descriptor");
    let mut text = String::new();
    std::io::Seek::rewind(&mut file).expect("rewound");
    std::fs::File::from(received).read_to_string(&mut text).expect("read");
    assert_eq!(text, "through a socket");
    assert!(socket::receive_fd(theirs.as_fd()).expect("closed").is_none());
}

fn tempfile_with(text: &str) -> std::fs::File {
    let path = std::env::temp_dir().join(format!("pinfold-os-{}-fd", std::process::id()));
    std::fs::write(&path, text).expect("written");
    let file = std::fs::File::open(&path).expect("opened");
    std::fs::remove_file(&path).expect("removed");
    file
}

#[test]
fn sockets_work_at_paths_longer_than_the_kernel_takes() {
    let root = std::env::temp_dir().join(format!("pinfold-os-{}-long", std::process::id()));
    let directory = root.join("d".repeat(120));
    std::fs::create_dir_all(&directory).expect("made");
    let path = directory.join("socket");
    let listener = socket::listen(&path).expect("bound");
    let stream = socket::connect(&path).expect("connected");
    assert_eq!(socket::peer_uid(stream.as_fd()).expect("credentials"), socket::own_uid());
    drop(listener);
    std::fs::remove_dir_all(&root).expect("removed");
}
