//! Real cgroups. Where this machine does not let us make one, the test prints `skipped` and passes.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use pinfold_os::cgroup::{Base, Cgroup, Unavailable, open_base};
use pinfold_os::proc;
use pinfold_os::sweep::{Remains, sweep_all};

const DEADLINE: Duration = Duration::from_secs(60);

/// The leaf cgroup of one test; dropping it kills everything in it.
struct TestCgroup {
    base: Base,
    leaf: Cgroup,
}

impl TestCgroup {
    fn open(test: &str) -> Option<TestCgroup> {
        let name = format!("pinfold-test-{}-{test}", std::process::id());
        match open_base(&name) {
            Ok(base) => Some(TestCgroup { leaf: base.make("leaf").expect("a leaf"), base }),
            Err(reason) => {
                println!("skipped: {reason}");
                None
            }
        }
    }

    /// Starts a script that is in the leaf before it runs its first command; returns when it has printed a line.
    fn start(&self, script: &str) -> Child {
        let script = format!("read go; {script}");
        let mut child =
            Command::new("sh").args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("sh");
        std::fs::write(self.leaf.path().join("cgroup.procs"), child.id().to_string()).expect("entered");
        child.stdin.take().expect("piped").write_all(b"go\n").expect("written");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
        child
    }
}

impl Drop for TestCgroup {
    fn drop(&mut self) {
        let _ = self.leaf.kill();
        let _ = self.leaf.wait_empty(DEADLINE);
        let _ = self.leaf.remove();
        let _ = std::fs::remove_dir(self.base.path());
    }
}

fn cgroup2_mounts() -> Vec<String> {
    let table = std::fs::read_to_string("/proc/self/mounts").expect("the mounts");
    let mounts = table.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    mounts.filter(|fields| fields[2] == "cgroup2").map(|fields| fields[1].to_owned()).collect()
}

fn is_frozen(cgroup: &Cgroup) -> bool {
    let events = std::fs::read_to_string(cgroup.path().join("cgroup.events")).expect("its events");
    events.lines().any(|line| line == "frozen 1")
}

fn lives(pid: u32) -> bool {
    proc::stat(pid).is_ok_and(|stat| stat.is_living())
}

fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !is_true() {
        assert!(Instant::now() < end, "timed out waiting until {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_refusal_says_what_to_do_and_a_base_is_on_cgroup2_and_leaves_no_probe() {
    let name = format!("pinfold-test-{}-probe", std::process::id());
    match open_base(&name) {
        Err(Unavailable::NoMount) => assert_eq!(cgroup2_mounts(), [""; 0]),
        Err(reason) => assert!(reason.to_string().len() > 40, "{reason}"),
        Ok(base) => {
            assert!(cgroup2_mounts().iter().any(|mount| base.path().starts_with(mount)));
            assert!(Cgroup::open(base.path()).expect("a cgroup").members().expect("listed").is_empty());
            std::fs::remove_dir(base.path()).expect("nothing below it");
        }
    }
}

#[test]
fn a_base_or_leaf_is_reused_and_bad_names_are_refused() {
    let Some(cgroup) = TestCgroup::open("reuse") else {
        return;
    };
    let name = cgroup.base.path().file_name().expect("named").to_str().expect("plain");
    assert_eq!(open_base(name).expect("again"), cgroup.base);
    assert_eq!(cgroup.base.make("leaf").expect("again").path(), cgroup.leaf.path());
    assert!(cgroup.base.make("../out").is_err() && cgroup.base.make("").is_err());
    assert!(matches!(open_base("a/b"), Err(Unavailable::NotWritable { .. })));
}

#[test]
fn kill_ends_every_member_with_those_in_sub_cgroups() {
    let Some(cgroup) = TestCgroup::open("kill") else {
        return;
    };
    let sub = Cgroup::open(&cgroup.leaf.path().join("a/b"));
    assert!(sub.is_err());
    std::fs::create_dir_all(cgroup.leaf.path().join("a/b")).expect("sub-cgroups");
    assert!(!cgroup.leaf.is_populated().expect("read"));
    let procs = cgroup.leaf.path().join("a/b/cgroup.procs");
    let script = format!("setsid env -i sleep 600 & echo $! >{}; sleep 600 & echo up; wait", procs.display());
    let mut leader = cgroup.start(&script);
    assert!(cgroup.leaf.is_populated().expect("read"));
    let members = cgroup.leaf.members().expect("listed");
    assert!(members.len() >= 3 && members.contains(&leader.id()), "{members:?}");
    assert!(cgroup.leaf.remove().is_err());

    cgroup.leaf.kill().expect("killed");
    assert!(cgroup.leaf.wait_empty(DEADLINE).expect("watched"));
    assert!(members.iter().all(|&pid| !lives(pid)));
    leader.wait().expect("reaped");
    cgroup.leaf.remove().expect("bottom up");
    assert!(!cgroup.leaf.path().exists());
    assert!(!cgroup.leaf.is_populated().expect("removed is empty"));
    assert!(cgroup.leaf.wait_empty(DEADLINE).expect("removed is empty"));
    cgroup.leaf.remove().expect("twice is once");
}

#[test]
fn freeze_halts_the_tree_until_thawed_and_a_frozen_tree_can_be_killed() {
    let Some(cgroup) = TestCgroup::open("freeze") else {
        return;
    };
    let mut leader = cgroup.start("echo up; exec sleep 600");
    cgroup.leaf.freeze(true).expect("asked");
    until("it is frozen", || is_frozen(&cgroup.leaf));
    cgroup.leaf.freeze(false).expect("asked");
    until("it is thawed", || !is_frozen(&cgroup.leaf));
    cgroup.leaf.freeze(true).expect("asked");
    until("it is frozen again", || is_frozen(&cgroup.leaf));
    cgroup.leaf.kill().expect("killed");
    assert!(cgroup.leaf.wait_empty(DEADLINE).expect("watched"));
    leader.wait().expect("reaped");
}

#[test]
fn sweep_ends_an_unmarked_orphan_that_is_in_the_cgroup() {
    let Some(cgroup) = TestCgroup::open("sweep") else {
        return;
    };
    let mut leader = cgroup.start("(setsid env -i sleep 600 &); echo up");
    leader.wait().expect("it left an orphan");
    let orphans = cgroup.leaf.members().expect("listed");
    assert_eq!(orphans.len(), 1);
    until("it runs its program", || proc::command_line(orphans[0]).is_ok_and(|line| line == "sleep 600"));
    let remains = Remains { mark: b"PINFOLD_TEST_MARK=unused", cgroup: Some(&cgroup.leaf) };
    let swept = &sweep_all(&[remains], DEADLINE)[0];
    assert_eq!((&swept.killed[..], &swept.survivors[..]), (&[(orphans[0], "sleep 600".to_owned())][..], &[][..]));
    assert!(!cgroup.leaf.is_populated().expect("read"));
}

#[test]
fn a_plain_directory_is_not_taken_for_a_cgroup() {
    assert!(Cgroup::open(Path::new("/tmp")).is_err());
}
