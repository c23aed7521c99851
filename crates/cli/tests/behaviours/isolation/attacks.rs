//! What another user of the machine, a process, or a forged id could try.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;

use pinfold_api::error::ErrorCode;
use pinfold_api::types::StartRequest;
use pinfold_testkit::Pinfold;

use crate::records::files_in;
use crate::{PINFOLD, wire};

const NOBODY: u32 = 65534;

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0)
}

/// Runs `pinfold` as another user, in the home of this one.
fn as_another_user(pinfold: &Pinfold, arguments: &[&str]) -> std::process::Output {
    let mut command = Command::new("setpriv");
    command.args([&format!("--reuid={NOBODY}"), &format!("--regid={NOBODY}"), "--clear-groups", PINFOLD]);
    command.args(arguments).env("PINFOLD_HOME", pinfold.home()).current_dir("/").output().expect("setpriv runs")
}

#[test]
fn another_user_cannot_use_the_daemon_even_if_the_socket_is_world_writable() {
    if !is_root() {
        return eprintln!("skipped: only root can become another user");
    }
    let pinfold = Pinfold::start(PINFOLD);
    let id = pinfold.sh("echo secret; sleep 300").id;
    // The permissions of the directory were opened by mistake: the peer's uid is still checked.
    let open = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("its mode can be set");
    };
    open(pinfold.home(), 0o711);
    open(&pinfold.home().join("socket"), 0o777);
    for arguments in [&["ps"][..], &["logs", &id], &["stop", &id], &["run", "true"]] {
        let output = as_another_user(&pinfold, arguments);
        assert!(!output.status.success(), "{arguments:?}: {output:?}");
        assert!(!String::from_utf8_lossy(&output.stdout).contains("secret"), "{output:?}");
    }
    open(pinfold.home(), 0o700);
    assert_eq!(pinfold.tree(&id).len(), 2);
}

#[test]
fn files_in_the_home_are_unreadable_for_other_users() {
    let pinfold = Pinfold::start(PINFOLD);
    pinfold.block(pinfold.client().add_token(&Default::default())).expect("a token");
    let id = pinfold.sh("echo secret").id;
    pinfold.wait_finished(&id);
    for path in files_in(pinfold.home()) {
        let mode = std::fs::symlink_metadata(&path).expect("metadata").mode();
        assert_eq!(mode & 0o077, 0, "{}", path.display());
    }
}

#[test]
fn ids_and_names_cannot_point_outside_of_the_home() {
    let pinfold = Pinfold::start(PINFOLD);
    let name = StartRequest {
        command: Some("sleep 300".into()),
        name: Some("../../socket".into()),
        ..StartRequest::default()
    };
    let id = pinfold.start_request(&name).record.id;
    assert_eq!(pinfold.show("../../socket").id, id, "a name is a name, and no path");
    for word in ["..", ".", "%2e%2e", "..%2f..%2fetc%2fpasswd", "%00", "a%2fb", "~", "%ff"] {
        let answer = wire::send(&pinfold, "GET", &format!("/v1/processes/{word}"), b"");
        assert!([400, 404].contains(&answer.status), "{word}: {answer:?}");
        let answer = wire::send(&pinfold, "GET", &format!("/v1/processes/{word}/output"), b"");
        assert!([400, 404].contains(&answer.status), "{word}: {answer:?}");
    }
}

#[test]
fn a_directory_that_is_a_link_is_not_followed() {
    let pinfold = Pinfold::start(PINFOLD);
    let target = pinfold.home().join("elsewhere");
    std::fs::create_dir(&target).expect("a directory");
    std::fs::write(target.join("record"), "nothing of ours").expect("a file");
    pinfold.kill_daemon();
    std::os::unix::fs::symlink(&target, pinfold.directory("zzzzzz")).expect("a link");
    pinfold.start_daemon();
    let refused = pinfold.try_show("zzzzzz").expect_err("it is no process");
    assert!([ErrorCode::NotFound, ErrorCode::Damaged].contains(&refused.code), "{refused:?}");
    pinfold.cli(&["gc", "--older-than", "0"]);
    assert!(target.join("record").exists(), "what a link leads to is never removed");
}
