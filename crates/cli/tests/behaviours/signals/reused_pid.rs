//! Reused pids: tested in a pid namespace, where a pid can be chosen.

use std::process::{Child, Command, Stdio};

use pinfold_api::error::ErrorCode;
use pinfold_api::types::{ShutdownRequest, Status};
use pinfold_testkit::{Pinfold, Setup, until};

use crate::PINFOLD;
use crate::requests::{call, is_root, said, until_sleepers};

/// A daemon in its own pid namespace; everything in it dies with it.
struct Apart {
    child: Child,
    pinfold: Pinfold,
}

impl Apart {
    fn start() -> Self {
        // Without cgroups: those of keepers that die with the namespace would be left behind.
        let config = "containment = \"subreaper\"\n".into();
        let pinfold = Pinfold::prepare(PINFOLD, Setup { config, ..Setup::default() });
        let mut unshare = Command::new("unshare");
        unshare.args(["--pid", "--fork", "--mount-proc", "--kill-child"]);
        // The shell is the init of the namespace and reaps orphans, which a daemon does not do.
        unshare.args(["sh", "-c", "\"$0\" daemon run & wait", PINFOLD]);
        unshare.env("PINFOLD_HOME", pinfold.home()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let apart = Self { child: unshare.spawn().expect("a namespace"), pinfold };
        // The test is outside of the namespace, and is served all the same.
        until("its daemon answers", || apart.pinfold.block(apart.pinfold.client().health()).is_ok());
        apart
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        let shutdown = ShutdownRequest { stop_processes: true };
        let _ = self.pinfold.block(self.pinfold.client().shutdown(&shutdown));
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Pids can be chosen only by root, or where user namespaces are allowed; this needs no more than root.
#[test]
fn stop_ignores_reused_pid() {
    if !is_root() {
        return;
    }
    let apart = Apart::start();
    let pinfold = &apart.pinfold;
    let (ended, _) = pinfold.run("exit 0");
    let pid = ended.pid.expect("a leader");
    pinfold.wait_finished(&ended.id);

    // Another process gets the pid, and makes it the id of a group and a session.
    let claim = format!("echo {} > /proc/sys/kernel/ns_last_pid; setsid sleep 300 & echo $!", pid - 1);
    let (other, _) = (0..100)
        .map(|_| call(pinfold, &claim, "60s"))
        .map(|called| (called.record.id.clone(), said(&called).trim().to_owned()))
        .find(|(_, claimed)| *claimed == pid.to_string())
        .expect("the pid comes back");
    assert_eq!(until_sleepers(pinfold, &other, 1), [pid]);

    assert!(pinfold.stop(&ended.id).already_over);
    assert_eq!(pinfold.signal(&ended.id, "KILL").expect_err("refused").code, ErrorCode::AlreadyOver);
    assert_eq!(pinfold.show(&other).status, Status::Lingering);
    assert_eq!(pinfold.tree(&other), [pid]);
}
