//! State directories that cannot be used, and what another program left in them.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};

use pinfold_api::types::Outcome;
use pinfold_testkit::{Cli, Pinfold, Setup, until};

use crate::PINFOLD;
use crate::clients::Running;

/// `pinfold` with this in `PINFOLD_HOME`.
fn with_home(home: &str, arguments: &[&str]) -> Cli {
    let mut command = Command::new(PINFOLD);
    Cli::from(command.args(arguments).env("PINFOLD_HOME", home).stdin(Stdio::null()).output().expect("pinfold"))
}

/// Checks that a command was refused, and that its message contains all of these.
#[track_caller]
fn assert_refused(cli: &Cli, code: i32, named: &[&str]) {
    assert_eq!(cli.code, Some(code), "{cli:?}");
    assert!(!cli.stderr.contains("panicked"), "{}", cli.stderr);
    for name in named {
        assert!(cli.stderr.contains(name), "`{name}` is not named: {}", cli.stderr);
    }
}

fn chmod(path: &Path, mode: u32) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("chmod");
}

#[test]
fn a_home_must_be_an_absolute_directory() {
    let pinfold = Pinfold::prepare(PINFOLD, Setup::default());
    assert_refused(&with_home("some/where", &["ps"]), 2, &["PINFOLD_HOME", "some/where", "absolute"]);
    let file = pinfold.home().join("file");
    std::fs::write(&file, "mine").expect("a file");
    let path = file.to_str().expect("text");
    for arguments in [&["ps"][..], &["run", "true"], &["daemon", "start"]] {
        let cli = with_home(path, arguments);
        let code = if arguments[0] == "run" { 125 } else { 1 };
        assert_refused(&cli, code, &[path, "PINFOLD_HOME"]);
    }
    assert_refused(&with_home(&format!("{path}/below"), &["ps"]), 1, &[path, "PINFOLD_HOME"]);
    assert_eq!(std::fs::read_to_string(&file).expect("it"), "mine");
}

#[test]
fn a_home_that_others_may_write_is_refused() {
    let pinfold = Pinfold::prepare(PINFOLD, Setup::default());
    let home = pinfold.home().to_str().expect("text");
    for mode in [0o777, 0o770, 0o720] {
        chmod(pinfold.home(), mode);
        assert_refused(&pinfold.cli(&["ps"]), 1, &[home, &format!("{mode:o}"), &format!("chmod 700 {home}")]);
        assert_refused(&pinfold.cli(&["doctor"]), 1, &[]);
        assert!(pinfold.cli(&["doctor"]).stdout.contains(&format!("chmod 700 {home}")));
    }
    chmod(pinfold.home(), 0o700);
    assert_eq!(pinfold.cli(&["ps"]).code, Some(0));
}

#[test]
fn an_unwritable_home_is_refused() {
    let root = std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    let setup = Setup { user: root.then_some(65534), ..Setup::default() };
    let pinfold = Pinfold::prepare(PINFOLD, setup);
    let home = pinfold.home().to_str().expect("text");
    chmod(pinfold.home(), 0o500);
    assert_refused(&pinfold.cli(&["ps"]), 1, &[home, "Permission denied", "PINFOLD_HOME"]);
    assert_refused(&pinfold.cli(&["run", "true"]), 125, &[home, "Permission denied", "PINFOLD_HOME"]);
    chmod(pinfold.home(), 0o700);
    assert_eq!(pinfold.cli(&["ps"]).code, Some(0));
}

/// The directory becomes read-only while the daemon runs: a start is refused, and running processes continue.
#[test]
fn a_home_that_becomes_unwritable_refuses_starts_and_nothing_else() {
    let root = std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    let env = vec![("HOME".to_owned(), "/".to_owned())];
    let pinfold = Pinfold::start_with(PINFOLD, Setup { user: root.then_some(65534), env, ..Setup::default() });
    let running = pinfold.sh("echo up; sleep 300").id;
    let processes = pinfold.home().join("processes");
    chmod(&processes, 0o500);
    // Directories that were created in advance are used up first.
    let error = pinfold_testkit::until_some("a refused start", || {
        let request = pinfold_api::types::StartRequest { command: Some("exit 0".into()), ..Default::default() };
        pinfold.try_start(&request).err()
    });
    chmod(&processes, 0o700);
    assert_eq!(error.code, pinfold_api::error::ErrorCode::StoreUnwritable, "{error}");
    assert!(error.message.contains("Permission denied") && error.message.contains("check its permissions"), "{error}");
    assert_eq!(pinfold.show(&running).status, pinfold_api::types::Status::Running);
    assert_eq!(pinfold.run("exit 6").0.outcome, Some(Outcome::Exited { code: 6 }));
}

#[test]
fn a_bad_configuration_is_refused_by_name() {
    for (config, named) in [
        ("grase = 1\n", "grase"),
        ("grace = \"soon\"\n", "grace"),
        ("containment = \"jail\"\n", "jail"),
        ("[limits]\nprocesses = -1\n", "processes"),
        ("= = =\n", "config.toml"),
    ] {
        let pinfold = Pinfold::prepare(PINFOLD, Setup { config: config.into(), ..Setup::default() });
        let path = pinfold.home().join("config.toml").to_str().expect("text").to_owned();
        assert_refused(&pinfold.cli(&["daemon", "start"]), 1, &[&path, named]);
        assert_refused(&pinfold.cli(&["config"]), 2, &[&path, named]);
        let doctor = pinfold.cli(&["doctor"]);
        assert!(doctor.code == Some(1) && doctor.stdout.contains(named), "{doctor:?}");
    }
}

#[test]
fn a_dead_socket_is_replaced() {
    let pinfold = Pinfold::start(PINFOLD);
    pinfold.kill_daemon();
    assert!(pinfold.home().join("socket").exists());
    assert_eq!(pinfold.cli(&["run", "exit 3"]).code, Some(3));

    // A socket that is not ours, and a regular file in its place.
    pinfold.kill_daemon();
    std::fs::remove_file(pinfold.home().join("socket")).expect("removed");
    drop(UnixListener::bind(pinfold.home().join("socket")).expect("another's socket"));
    assert_eq!(pinfold.cli(&["run", "exit 4"]).code, Some(4));
    pinfold.kill_daemon();
    std::fs::remove_file(pinfold.home().join("socket")).expect("removed");
    std::fs::write(pinfold.home().join("socket"), "no socket").expect("a file");
    assert_eq!(pinfold.cli(&["run", "exit 5"]).code, Some(5));
}

/// A program that listens on the socket in place of the daemon and answers nonsense is reported as such.
#[test]
fn a_foreign_server_on_the_socket_is_recognised() {
    let pinfold = Pinfold::prepare(PINFOLD, Setup::default());
    let listener = UnixListener::bind(pinfold.home().join("socket")).expect("a socket");
    listener.set_nonblocking(true).expect("it does not block");
    for nonsense in [&b"220 smtp ready\r\n"[..], b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnope", b""] {
        let mut client = Running::start(&pinfold, &["ps"]);
        until("the client gives up", || {
            if let Ok((mut stream, _)) = listener.accept() {
                stream.set_nonblocking(false).expect("it blocks");
                let _ = stream.read(&mut [0; 4096]);
                let _ = stream.write_all(nonsense);
            }
            client.is_over()
        });
        let cli = client.end();
        assert_refused(&cli, 1, &["daemon"]);
    }
}

#[test]
fn a_very_long_home_path_works() {
    let outer = Pinfold::prepare(PINFOLD, Setup::default());
    let home = outer.home().join("x".repeat(200)).join("y".repeat(100));
    let home = home.to_str().expect("text");
    let run = with_home(home, &["run", "echo from afar; exit 5"]);
    assert_eq!((run.code, run.stdout.as_str()), (Some(5), "from afar\n"), "{}", run.stderr);
    // The next daemon also finds the socket of a keeper.
    let id = with_home(home, &["run", "-d", "sleep 300"]).stdout.trim().to_owned();
    assert_eq!(with_home(home, &["daemon", "stop"]).code, Some(0));
    let shown = with_home(home, &["show", &id]);
    assert!(shown.stdout.contains("status    running"), "{shown:?}");
    let stopped = with_home(home, &["daemon", "stop", "--all"]);
    assert!(stopped.stdout.contains("1 process stopped"), "{stopped:?}");
    until("keepers end", || {
        std::fs::read_dir(Path::new(home).join("keepers")).is_ok_and(|mut left| left.next().is_none())
    });
}
