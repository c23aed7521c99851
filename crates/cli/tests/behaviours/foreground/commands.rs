//! What a command gets: standard input, directory, environment, shell; and what a failed start leaves behind.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use pinfold_api::error::ErrorCode;
use pinfold_api::types::{ListQuery, Outcome, StartRequest, Started, Status};
use pinfold_testkit::{Pinfold, Setup, children_of, place_text};

use crate::PINFOLD;
use crate::requests::{call, ordinary_user, program, request, said};

/// Runs a request in the foreground; it must exit with 0.
fn run(pinfold: &Pinfold, request: StartRequest) -> Started {
    let called = pinfold.start_request(&StartRequest { wait: Some("60s".into()), ..request });
    assert_eq!(called.record.outcome, Some(Outcome::Exited { code: 0 }), "{}", said(&called));
    called
}

fn total(pinfold: &Pinfold, status: Option<&str>) -> u64 {
    pinfold.list(&ListQuery { status: status.map(Into::into), ..ListQuery::default() }).total
}

fn write_with_mode(path: &Path, text: &str, mode: u32) {
    std::fs::write(path, text).expect("a file");
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("its mode");
}

#[test]
fn stdin_is_devnull() {
    let pinfold = Pinfold::start(PINFOLD);
    let command = "cat; echo cat=$?; readlink /proc/self/fd/0; [ -p /dev/stdin ] || echo no pipe";
    assert_eq!(said(&run(&pinfold, request(command))), "cat=0\n/dev/null\nno pipe\n");
    assert_eq!(said(&run(&pinfold, program(&["cat"]))), "");
    assert_eq!(said(&run(&pinfold, program(&["readlink", "/proc/self/fd/0"]))), "/dev/null\n");
}

#[test]
fn empty_command_rejected() {
    let pinfold = Pinfold::start(PINFOLD);
    let empty = ["", " ", " \n\t "].map(request).into_iter();
    for asked in empty.chain([program(&[]), program(&[""]), StartRequest::default()]) {
        let error = pinfold.try_start(&asked).expect_err("refused");
        assert_eq!(error.code, ErrorCode::InvalidRequest, "{asked:?}");
        assert!(error.message.contains("command is empty"), "{}", error.message);
    }
    let cli = pinfold.cli(&["run", " "]);
    assert_eq!(cli.code, Some(125), "{}", cli.stderr);
    assert!(cli.stderr.contains("command is empty"), "{}", cli.stderr);
    assert_eq!(total(&pinfold, None), 0);
}

#[test]
fn workdir_rules() {
    let setup = Setup { env: vec![("HOME".into(), "/usr".into())], ..Setup::default() };
    let pinfold = Pinfold::start_with(PINFOLD, setup);
    let at = |cwd: Option<&str>| StartRequest { cwd: cwd.map(Into::into), ..request("pwd") };
    for (cwd, resolved) in [(Some("/etc"), "/etc"), (Some("~"), "/usr"), (Some("~/bin"), "/usr/bin"), (None, "/usr")] {
        let called = run(&pinfold, at(cwd));
        assert_eq!((called.record.cwd.as_str(), said(&called)), (resolved, format!("{resolved}\n").as_str()));
    }
    // The command line knows its working directory; the API does not.
    let cli = pinfold.command(&["run", "--json", "--cwd", "bin", "pwd"]).current_dir("/usr").output().expect("a run");
    let called: Started = serde_json::from_slice(&cli.stdout).expect("JSON");
    assert_eq!((called.record.cwd.as_str(), said(&called)), ("/usr/bin", "/usr/bin\n"));

    let count = total(&pinfold, None);
    for (cwd, code) in [
        ("bin", ErrorCode::InvalidRequest),
        ("./bin", ErrorCode::InvalidRequest),
        ("~nobody/bin", ErrorCode::InvalidRequest),
        ("/no/such/dir", ErrorCode::BadCwd),
        ("/etc/passwd", ErrorCode::BadCwd),
    ] {
        let error = pinfold.try_start(&at(Some(cwd))).expect_err("refused");
        assert_eq!(error.code, code, "{cwd}");
        assert!(error.message.contains(&format!("cwd `{cwd}`")), "{}", error.message);
        assert!(!error.message.contains("/bin/sh"), "{}", error.message);
    }
    assert_eq!(total(&pinfold, None), count);
}

#[test]
fn fresh_state_each_call() {
    let pinfold = Pinfold::start(PINFOLD);
    let look = "pwd; echo ${LEAK-unset} ${GIVEN-unset}; umask; ulimit -c; f 2>/dev/null || echo no f";
    let before = said(&run(&pinfold, request(look))).to_owned();
    assert!(before.contains("unset unset\n") && before.ends_with("no f\n"), "{before}");

    let change = "cd /etc; export LEAK=1; umask 0123; ulimit -c 17; f() { echo f; }; echo $GIVEN; pwd";
    let env = [("GIVEN".to_owned(), Some("given".to_owned()))].into();
    assert_eq!(said(&run(&pinfold, StartRequest { env, ..request(change) })), "given\n/etc\n");
    // More than once: whichever keeper ran the first call also runs one of these.
    for _ in 0..5 {
        assert_eq!(said(&run(&pinfold, request(look))), before);
    }
}

#[test]
fn shell_disclosed_and_selectable() {
    let pinfold = Pinfold::start(PINFOLD);
    let called = run(&pinfold, request("readlink /proc/$$/exe; echo $0"));
    assert_eq!(called.record.shell.as_deref(), Some("/bin/sh"));
    let sh = std::fs::canonicalize("/bin/sh").expect("a shell");
    assert_eq!(said(&called), format!("{}\n/bin/sh\n", sh.display()));

    let bashism = "a=(x y); [[ ${a[1]} == y ]] && echo ${BASH_VERSION:+bash}";
    for shell in ["bash", "/bin/bash"] {
        let called = run(&pinfold, StartRequest { shell: Some(shell.into()), ..request(bashism) });
        assert_eq!((called.record.shell.as_deref(), said(&called)), (Some(shell), "bash\n"));
        assert_eq!(pinfold.show(&called.record.id).shell.as_deref(), Some(shell));
    }
    assert_eq!(run(&pinfold, program(&["true"])).record.shell, None);

    let missing = StartRequest { shell: Some("nosuchshell".into()), ..request("true") };
    let error = pinfold.try_start(&missing).expect_err("refused");
    assert_eq!(error.code, ErrorCode::NoProgram);
    assert!(error.message.contains("shell `nosuchshell`"), "{}", error.message);
}

#[test]
fn long_command_over_128k() {
    let pinfold = Pinfold::start(PINFOLD);
    // 131,072 bytes including the NUL is the maximum of the kernel for one argument.
    for length in [131_071, 131_072, 200_000, 4_000_000] {
        let (head, tail) = ("readlink /proc/self/fd/0; text=", "; echo ${#text}; exit 5");
        let padding = length - head.len() - tail.len();
        let command = format!("{head}{}{tail}", "x".repeat(padding));
        let called = call(&pinfold, &command, "60s");
        assert_eq!(called.record.outcome, Some(Outcome::Exited { code: 5 }), "{length}: {}", said(&called));
        assert_eq!(said(&called), format!("/dev/null\n{padding}\n"));
        assert!(called.record.command == command, "the command is not shown as given");
    }
}

#[test]
fn no_login_shell_cost() {
    let pinfold = Pinfold::start(PINFOLD);
    let home = pinfold.home().join("someone");
    std::fs::create_dir(&home).expect("a home directory");
    for name in [".profile", ".bash_profile", ".bash_login", ".bashrc", ".shrc", ".zshenv"] {
        write_with_mode(&home.join(name), &format!("echo {name} was read\nexit 99\n"), 0o644);
    }
    let someone = home.to_str().expect("UTF-8").to_owned();
    for shell in ["/bin/sh", "bash"] {
        let env = [("HOME".to_owned(), Some(someone.clone()))].into();
        let called = run(&pinfold, StartRequest { env, shell: Some(shell.into()), ..request("echo $HOME") });
        assert_eq!(said(&called), format!("{someone}\n"));
    }
}

/// No start is in progress, and no keeper has a child, alive or dead.
fn assert_nothing_left(pinfold: &Pinfold) {
    assert_eq!(total(pinfold, Some("live")), 0);
    for keeper in pinfold.keepers() {
        assert_eq!(children_of(keeper), Vec::<u32>::new());
    }
}

#[test]
fn spawn_failure_leaves_nothing() {
    let pinfold = ordinary_user();
    let home = pinfold.home().display().to_string();
    place_text(b"\x7fELF, or is it", &pinfold.home().join("garbage"));
    let set_mode = |mode| {
        let locked = pinfold.home().join("locked");
        std::fs::set_permissions(locked, PermissionsExt::from_mode(mode)).expect("its mode");
    };
    std::fs::create_dir(pinfold.home().join("locked")).expect("a directory");
    set_mode(0o000);

    let (garbage, locked, long) = (format!("{home}/garbage"), format!("{home}/locked"), "x".repeat(200_000));
    // An inaccessible directory in PATH must not hide what is wrong with the program itself.
    let env = [("PATH".to_owned(), Some(format!("{locked}:/usr/bin:/bin")))].into();
    // Each passes every check before the fork.
    let failures = [
        (program(&[&garbage]), ErrorCode::NoProgram, "exec", "garbage"),
        (StartRequest { shell: Some(garbage.clone()), ..request("true") }, ErrorCode::NoProgram, "exec", "garbage"),
        (StartRequest { env, ..program(&["echo", &long]) }, ErrorCode::NoProgram, "exec", "Argument list too long"),
        (StartRequest { cwd: Some(locked), ..request("true") }, ErrorCode::BadCwd, "cwd", "locked"),
    ];
    for (asked, code, at, named) in failures {
        let error = pinfold.try_start(&asked).expect_err("refused");
        assert_eq!(error.code, code, "{}", error.message);
        assert!(error.message.contains(named), "{}", error.message);
        let record = pinfold.show(&error.id.expect("the failed process"));
        assert_eq!((record.status, record.pid, &record.tree), (Status::Finished, None, &vec![]));
        assert!(matches!(record.outcome, Some(Outcome::FailedToStart { step, .. }) if step == at));
        assert_nothing_left(&pinfold);
    }
    assert_eq!(said(&run(&pinfold, request("echo fine"))), "fine\n");
    // So that any user can remove it.
    set_mode(0o700);
}
