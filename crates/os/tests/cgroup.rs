//! Real cgroups, where this machine lets us make them; each test prints a line and passes where it does not.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use pinfold_os::cgroup::{Base, Cgroup, Unavailable, find_v2_mount, open_base};
use pinfold_os::proc;
use pinfold_os::sweep::sweep;

const DEADLINE: Duration = Duration::from_secs(60);

/// One leaf of its own for each test; everything in it ends with it.
struct Fold {
    base: Base,
    leaf: Cgroup,
}

impl Fold {
    fn open(test: &str) -> Option<Fold> {
        let name = format!("pinfold-test-{}-{test}", std::process::id());
        match open_base(&name) {
            Ok(base) => Some(Fold { leaf: base.make("leaf").expect("a leaf"), base }),
            Err(reason) => {
                println!("skipped: {reason}");
                None
            }
        }
    }

    /// Starts a script that is in the leaf before its first command; answers when it printed a line.
    fn start(&self, script: &str) -> Child {
        let script = format!("read go; {script}");
        let mut child =
            Command::new("sh").args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("sh");
        std::fs::write(self.leaf.path().join("cgroup.procs"), child.id().to_string()).expect("entered");
        child.stdin.take().expect("piped").write_all(b"go\n").expect("told");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
        child
    }
}

impl Drop for Fold {
    fn drop(&mut self) {
        let _ = self.leaf.kill();
        let _ = self.leaf.wait_empty(DEADLINE);
        let _ = self.leaf.remove();
        let _ = std::fs::remove_dir(self.base.path());
    }
}

fn lives(pid: u32) -> bool {
    proc::stat(pid).is_ok_and(|stat| stat.is_living())
}

fn until(what: &str, mut happened: impl FnMut() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !happened() {
        assert!(Instant::now() < end, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_refusal_says_what_to_do_and_a_base_is_on_cgroup2_and_leaves_no_probe() {
    let name = format!("pinfold-test-{}-probe", std::process::id());
    match open_base(&name) {
        Err(Unavailable::NoMount) => assert_eq!(find_v2_mount(), None),
        Err(reason) => assert!(reason.to_string().len() > 40, "{reason}"),
        Ok(base) => {
            assert!(base.path().starts_with(find_v2_mount().expect("a mount")));
            assert!(Cgroup::open(base.path()).expect("a cgroup").members().expect("listed").is_empty());
            std::fs::remove_dir(base.path()).expect("nothing below it");
        }
    }
}

#[test]
fn a_base_or_leaf_is_reused_and_bad_names_are_refused() {
    let Some(fold) = Fold::open("reuse") else {
        return;
    };
    let name = fold.base.path().file_name().expect("named").to_str().expect("plain");
    assert_eq!(open_base(name).expect("again"), fold.base);
    assert_eq!(fold.base.make("leaf").expect("again").path(), fold.leaf.path());
    assert!(fold.base.make("../out").is_err() && fold.base.make("").is_err());
    assert!(matches!(open_base("a/b"), Err(Unavailable::NotWritable { .. })));
}

#[test]
fn kill_ends_every_member_with_those_in_sub_cgroups() {
    let Some(fold) = Fold::open("kill") else {
        return;
    };
    let sub = Cgroup::open(&fold.leaf.path().join("a/b"));
    assert!(sub.is_err());
    std::fs::create_dir_all(fold.leaf.path().join("a/b")).expect("sub-cgroups");
    assert!(!fold.leaf.is_populated().expect("read"));
    let procs = fold.leaf.path().join("a/b/cgroup.procs");
    let script = format!("setsid env -i sleep 600 & echo $! >{}; sleep 600 & echo up; wait", procs.display());
    let mut leader = fold.start(&script);
    assert!(fold.leaf.is_populated().expect("read"));
    let members = fold.leaf.members().expect("listed");
    assert!(members.len() >= 3 && members.contains(&leader.id()), "{members:?}");
    assert!(fold.leaf.remove().is_err());

    fold.leaf.kill().expect("killed");
    assert!(fold.leaf.wait_empty(DEADLINE).expect("watched"));
    assert!(members.iter().all(|&pid| !lives(pid)));
    leader.wait().expect("reaped");
    fold.leaf.remove().expect("bottom up");
    assert!(!fold.leaf.path().exists());
    assert!(!fold.leaf.is_populated().expect("removed is empty"));
    assert!(fold.leaf.wait_empty(DEADLINE).expect("removed is empty"));
    fold.leaf.remove().expect("twice is once");
}

#[test]
fn freeze_halts_the_tree_until_thawed_and_a_frozen_tree_can_be_killed() {
    let Some(fold) = Fold::open("freeze") else {
        return;
    };
    let mut leader = fold.start("echo up; exec sleep 600");
    fold.leaf.freeze(true).expect("asked");
    until("it is frozen", || fold.leaf.is_frozen().expect("read"));
    fold.leaf.freeze(false).expect("asked");
    until("it is thawed", || !fold.leaf.is_frozen().expect("read"));
    fold.leaf.freeze(true).expect("asked");
    until("it is frozen again", || fold.leaf.is_frozen().expect("read"));
    fold.leaf.kill().expect("killed");
    assert!(fold.leaf.wait_empty(DEADLINE).expect("watched"));
    leader.wait().expect("reaped");
}

#[test]
fn sweep_ends_an_unmarked_orphan_that_is_in_the_cgroup() {
    let Some(fold) = Fold::open("sweep") else {
        return;
    };
    let mut leader = fold.start("(setsid env -i sleep 600 &); echo up");
    leader.wait().expect("it left an orphan");
    let orphans = fold.leaf.members().expect("listed");
    assert_eq!(orphans.len(), 1);
    until("it runs its program", || proc::command_line(orphans[0]).is_ok_and(|line| line == "sleep 600"));
    let swept = sweep(b"PINFOLD_TEST_MARK=nobody", Some(&fold.leaf), DEADLINE);
    assert_eq!((swept.killed, swept.survivors), (vec![(orphans[0], "sleep 600".to_owned())], vec![]));
    assert!(!fold.leaf.is_populated().expect("read"));
}

#[test]
fn a_plain_directory_is_not_taken_for_a_cgroup() {
    assert!(Cgroup::open(Path::new("/tmp")).is_err());
}
