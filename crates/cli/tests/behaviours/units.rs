//! The daemon as a unit of a service manager: installed, started by its socket, restarted without ending a process.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use pinfold_api::types::Status;
use pinfold_testkit::{Pidfd, Pinfold, Setup, alive, until};
use serde_json::Value;

use crate::PINFOLD;
use crate::requests::is_root;

/// A user's home directory in which no daemon runs.
struct UserHome(PathBuf);

impl UserHome {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("pinfold-units-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }

    /// A command of this user, who has no service manager.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(PINFOLD);
        command.args(arguments).env("HOME", &self.0).env("XDG_RUNTIME_DIR", &self.0).current_dir("/");
        for name in ["PINFOLD_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "DBUS_SESSION_BUS_ADDRESS", "PINFOLD_OWNER"] {
            command.env_remove(name);
        }
        command
    }

    fn units(&self) -> PathBuf {
        self.0.join(".config/systemd/user")
    }
}

impl Drop for UserHome {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn without_a_service_manager_install_says_what_to_do_instead() {
    let home = UserHome::new("none");
    let refused = home.command(&["daemon", "install"]).output().expect("pinfold");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    for part in ["no systemd runs", "pinfold needs none", "pinfold daemon run", "--print"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!home.units().exists(), "nothing was written");
    let refused = home.command(&["daemon", "uninstall"]).output().expect("pinfold");
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("no units"), "{refused:?}");
}

#[test]
fn the_units_are_printed_for_this_program_and_this_home() {
    let home = UserHome::new("printed");
    let printed = home.command(&["daemon", "install", "--print"]).output().expect("pinfold");
    let text = String::from_utf8(printed.stdout).expect("text");
    let program = std::fs::canonicalize(PINFOLD).expect("a path");
    assert!(text.contains(&format!("ExecStart={} daemon run", program.display())), "{text}");
    assert!(text.contains(&format!("ListenStream={}/.local/state/pinfold/socket", home.0.display())), "{text}");
    assert!(text.contains("\nKillMode=process\n") && text.contains("\nDelegate=yes\n"), "{text}");
    let other = home.command(&["daemon", "install", "--print", "--home", "/elsewhere"]).output().expect("pinfold");
    assert_eq!(other.status.code(), Some(2), "{other:?}");
}

#[test]
fn a_file_of_somebody_else_is_neither_overwritten_nor_removed() {
    let home = UserHome::new("foreign");
    std::fs::create_dir_all(home.units()).expect("a directory");
    let file = home.units().join("pinfold.service");
    std::fs::write(&file, "[Service]\nExecStart=/bin/true\n").expect("a unit");
    let refused = home.command(&["daemon", "uninstall"]).output().expect("pinfold");
    assert_eq!(refused.status.code(), Some(1));
    assert_eq!(std::fs::read_to_string(&file).expect("the unit"), "[Service]\nExecStart=/bin/true\n");
}

/// A daemon in the foreground, as a service manager runs it.
fn daemon_run(pinfold: &Pinfold) -> Child {
    let mut command = pinfold.command(&["daemon", "run"]);
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("a daemon");
    until("the daemon answers", || pinfold.block(pinfold.client().health()).is_ok());
    child
}

/// What `KillMode=process` does: TERM to the main process and to no other, and later the unit is started again.
#[test]
fn a_restart_that_signals_the_main_process_ends_no_kept_process() {
    let pinfold = Pinfold::prepare(PINFOLD, Setup::default());
    let mut main = daemon_run(&pinfold);
    let kept = pinfold.sh("while :; do echo on; sleep 0.05; done");
    for signal in [15, 9] {
        let pid = pinfold.daemon_pid();
        Pidfd::open(pid).expect("the daemon").signal(signal);
        main.wait().expect("the daemon ends");
        assert!(alive(kept.pid.expect("a pid")), "signal {signal} ended the process");
        main = daemon_run(&pinfold);
        let record = pinfold.show(&kept.id);
        assert_eq!((record.status, record.pid), (Status::Running, kept.pid));
        until("it writes on", || pinfold.show(&kept.id).output.bytes > record.output.bytes);
    }
    pinfold.stop(&kept.id);
    Pidfd::open(main.id()).expect("the daemon").signal(15);
    main.wait().expect("the daemon ends");
}

#[test]
fn a_socket_that_was_passed_on_is_used_and_outlives_the_daemon() {
    let pinfold = Pinfold::prepare(PINFOLD, Setup::default());
    let socket = pinfold.home().join("socket");
    let listener = UnixListener::bind(&socket).expect("a socket");
    let run = || {
        let daemon = pinfold.command(&["daemon", "run"]);
        let mut command = Command::new("sh");
        command.args(["-c", "exec 3<&0 0</dev/null; LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=x exec \"$0\" \"$@\""]);
        command.arg(PINFOLD).args(["daemon", "run"]);
        command.envs(daemon.get_envs().filter_map(|(name, value)| Some((name, value?)))).current_dir("/");
        let passed = OwnedFd::from(listener.try_clone().expect("a copy"));
        command.stdin(Stdio::from(passed)).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("a daemon")
    };
    let mut first = run();
    // The kernel queued this connection before the daemon ran.
    let (record, text) = pinfold.run("env");
    assert!(record.outcome.is_some() && !text.contains("LISTEN_"), "{text}");
    assert_eq!(pinfold.health().pid, first.id());
    let kept = pinfold.sh("sleep 600");
    let stopped = pinfold.cli(&["daemon", "stop"]);
    assert_eq!(stopped.code, Some(0), "{}", stopped.stderr);
    first.wait().expect("it ends");
    assert!(socket.exists(), "the socket belongs to the service manager");
    let mut second = run();
    assert_eq!(pinfold.show(&kept.id).pid, kept.pid);
    pinfold.stop(&kept.id);
    Pidfd::open(second.id()).expect("the daemon").signal(15);
    second.wait().expect("it ends");
}

/// In a mount namespace of its own and below a cgroup of its own, where systemd finds what it needs to run for a user.
const UNDER_SYSTEMD: &str = r#"
set -eu
export HOME=$1 pinfold=$2 XDG_RUNTIME_DIR=/run/user/0
unset PINFOLD_HOME PINFOLD_OWNER XDG_CONFIG_HOME XDG_STATE_HOME DBUS_SESSION_BUS_ADDRESS
cgroups=
for base in /sys/fs/cgroup /sys/fs/cgroup/unified /sys/fs/cgroup/systemd; do
    if [ -e $base/cgroup.procs ]; then
        mkdir $base/pinfold-units-$$ && echo $$ >$base/pinfold-units-$$/cgroup.procs && cgroups="$base $cgroups"
    fi
done
manager=
leave() {
    "$pinfold" daemon stop --all >/dev/null 2>&1 || :
    [ -z "$manager" ] || kill $manager 2>/dev/null || :
    [ -z "$manager" ] || wait $manager 2>/dev/null || :
    for base in $cgroups; do echo $$ >$base/cgroup.procs; done
    # systemd may have made some in other hierarchies too.
    for place in /sys/fs/cgroup/pinfold-units-$$ /sys/fs/cgroup/*/pinfold-units-$$; do
        for try in $(seq 50); do
            [ -e $place ] || break
            find $place -depth -type d -exec rmdir {} \; 2>/dev/null || :
            sleep 0.1
        done
    done
}
trap leave EXIT
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/system $XDG_RUNTIME_DIR
/usr/lib/systemd/systemd --user >/run/manager.log 2>&1 &
manager=$!
for try in $(seq 300); do systemctl --user show-environment >/dev/null 2>&1 && break; sleep 0.1; done
systemctl --user show-environment >/dev/null 2>&1 || { echo unavailable; tail -1 /run/manager.log; exit 0; }
value() { systemctl --user show -p "$1" --value pinfold.service; }

"$pinfold" daemon install >&2
id=$("$pinfold" run -d 'while :; do echo on; sleep 0.05; done')
echo "active $(systemctl --user is-active pinfold.service)"
echo "before $(value MainPID) $("$pinfold" show "$id" --json)"
systemctl --user restart pinfold.service
echo "restarted $(value MainPID) $("$pinfold" show "$id" --json)"
kill -9 "$(value MainPID)"
echo "killed 0 $("$pinfold" show "$id" --json)"
"$pinfold" daemon stop >&2
echo "stopped 0 $("$pinfold" show "$id" --json)"
"$pinfold" daemon uninstall >&2
echo "uninstalled 0 $("$pinfold" show "$id" --json)"
ls "$HOME/.config/systemd/user" | grep pinfold >&2 && echo left || :
"$pinfold" stop "$id" >&2
"#;

#[test]
fn under_systemd_a_restart_of_the_unit_ends_no_kept_process() {
    if !is_root() || !Path::new("/usr/lib/systemd/systemd").exists() {
        println!("SKIPPED: this needs root, and systemd installed");
        return;
    }
    let home = UserHome::new("systemd");
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", UNDER_SYSTEMD, "sh"]).arg(&home.0).arg(PINFOLD);
    let output = command.stdin(Stdio::null()).output().expect("unshare");
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if said.starts_with("unavailable") || errors.contains("unshare:") || errors.contains("mount:") {
        println!("SKIPPED: systemd cannot run for a user here: {said}{errors}");
        return;
    }
    assert!(output.status.success(), "{said}{errors}");
    assert!(said.contains("active active\n") && !said.contains("left\n"), "{said}{errors}");
    let state = |word: &str| -> (String, Value) {
        let line = said
            .lines()
            .find_map(|line| line.strip_prefix(word))
            .unwrap_or_else(|| panic!("no {word}: {said}{errors}"));
        let (main, record) = line.trim().split_once(' ').expect("a record");
        (main.to_owned(), serde_json::from_str(record).expect("JSON"))
    };
    let (first, before) = state("before");
    let (second, _) = state("restarted");
    assert_ne!(first, second, "the unit has another main process");
    let bytes = |record: &Value| record["output"]["bytes"].as_u64();
    let mut last = bytes(&before);
    for word in ["restarted", "killed", "stopped", "uninstalled"] {
        let (_, record) = state(word);
        assert_eq!((&record["status"], &record["pid"]), (&Value::from("running"), &before["pid"]), "{word}");
        assert!(bytes(&record) >= last, "{word} lost output");
        last = bytes(&record);
    }
}
