//! One attempt: start the program, wait until its processes have escaped, stop it, and look for survivors.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use pinfold_api::types::{StartRequest, Status};

use super::ways::{End, Out, PERL_PRELUDE, PRELUDE, Program, Way};
use crate::carriers::{carriers_of, kill_carriers};
use crate::environments::{Containment, DaemonIn, Environment, NOBODY, cgroup_mount, is_root};
use crate::place::place_copy;
use crate::procs::{until, until_some};

/// Consecutive checks that must agree before the processes count as having escaped.
const QUIET_CHECKS: usize = 3;
const CHECK_INTERVAL: Duration = Duration::from_millis(10);
/// Time between TERM and KILL of a stop.
const GRACE: &str = "200ms";

/// The result of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Result {
    /// This many processes had escaped, and none survived the stop.
    Ended { out: usize },
    /// Some survived, and the response to the stop listed all of them.
    Named { left: Vec<String> },
    /// Some survived that the response did not list.
    Escaped { left: Vec<String> },
    /// The attempt is not possible here.
    Skipped,
}

impl Result {
    /// Whether a process survived the stop.
    pub fn is_left(&self) -> bool {
        matches!(self, Result::Named { .. } | Result::Escaped { .. })
    }

    /// Whether the result is as expected: no process survived, or the kernel does not let us kill it and the response to
    /// the stop listed it. After the death of a keeper there is no such response.
    pub fn is_right(&self, way: &Way, ground: Environment) -> bool {
        match self {
            Result::Ended { .. } | Result::Skipped => true,
            Result::Named { .. } => (way.freed)(ground).is_some(),
            Result::Escaped { .. } => (way.freed)(ground).is_some() && way.end == End::Lost,
        }
    }
}

/// Makes one attempt, and kills the survivors afterwards.
pub fn attempt(way: &Way, on: &DaemonIn) -> Result {
    let Some(scene) = Scene::set(way, on) else { return Result::Skipped };
    let request = StartRequest { grace: Some(GRACE.into()), ..scene.request(way.program) };
    let id = on.pinfold.start_request(&request).record.id;
    fs::write(scene.dir.join("go"), "").expect("a file");
    let out = scene.until_out(way);
    let named: Vec<u32> = match way.end {
        End::Stopped => on.pinfold.stop(&id).survivors.iter().map(|survivor| survivor.pid).collect(),
        End::Lost => {
            assert_eq!(on.pinfold.wait_finished(&id).status, Status::Lost);
            vec![]
        }
    };
    let result = classify(out, &scene.left(), &named);
    scene.clear();
    on.pinfold.wait_finished(&id);
    result
}

fn classify(out: usize, left: &[(u32, String)], named: &[u32]) -> Result {
    let names = left.iter().map(|(pid, what)| format!("{pid} {what}")).collect();
    match left.iter().all(|(pid, _)| named.contains(pid)) {
        true if left.is_empty() => Result::Ended { out },
        true => Result::Named { left: names },
        false => Result::Escaped { left: names },
    }
}

/// The resources of one attempt.
struct Scene<'a> {
    on: &'a DaemonIn,
    /// The unique number in the command line or environment of its processes. As seconds: ten minutes.
    nap: String,
    dir: PathBuf,
    freezer: Option<PathBuf>,
}

impl<'a> Scene<'a> {
    /// `None` if the attempt is not possible here.
    fn set(way: &Way, on: &'a DaemonIn) -> Option<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let nap = format!("600.{:010}{number:06}", std::process::id());
        let dir = on.pinfold.home().join(format!("way-{nap}"));
        let scene = Scene { on, nap, dir, freezer: freezer_mount() };
        if way.needs == "{cgroup}" && on.cgroups.is_none() {
            return None;
        }
        scene.make_directory(way.needs.contains("{setuid}"));
        let needs = if way.needs == "{cgroup}" { "true".to_owned() } else { scene.fill(way.needs) };
        let probed = needs.is_empty() || on.pinfold.run(&format!("{needs}; exit $?")).0.outcome == Some(success());
        match probed {
            true => Some(scene),
            false => {
                scene.clear();
                None
            }
        }
    }

    fn make_directory(&self, with_setuid: bool) {
        fs::create_dir(&self.dir).expect("a directory");
        if !is_root() {
            return;
        }
        let owner = drops_root(self.on).then_some(NOBODY);
        chown(&self.dir, owner, owner).expect("it can be given away");
        if with_setuid && let Some(owner) = owner {
            let path = self.dir.join("setpriv");
            place_copy(Path::new("/usr/bin/setpriv"), &path);
            chown(&path, Some(0), Some(owner)).expect("it is root's");
            fs::set_permissions(&path, PermissionsExt::from_mode(0o4710)).expect("a mode");
        }
    }

    fn fill(&self, text: &str) -> String {
        let show = |path: &Option<PathBuf>| path.as_deref().unwrap_or(Path::new("/nowhere")).display().to_string();
        let containment = match self.on.ground.containment {
            Containment::Cgroup => "auto",
            Containment::Walk => "subreaper",
        };
        let values = [
            ("{nap}", self.nap.clone()),
            ("{dir}", self.dir.display().to_string()),
            ("{setuid}", self.dir.join("setpriv").display().to_string()),
            ("{pinfold}", self.on.pinfold.binary().display().to_string()),
            ("{containment}", containment.to_owned()),
            ("{cgroup}", show(&self.on.cgroups)),
            ("{mount}", show(&cgroup_mount())),
            ("{freezer}", show(&self.freezer)),
        ];
        values.iter().fold(text.to_owned(), |text, (name, value)| text.replace(name, value))
    }

    fn request(&self, program: Program) -> StartRequest {
        let argv = |words: [&str; 3]| StartRequest {
            argv: Some(words.iter().map(|word| self.fill(word)).chain([self.nap.clone()]).collect()),
            ..StartRequest::default()
        };
        match program {
            Program::Sh(script) => StartRequest { command: Some(self.fill(script)), ..StartRequest::default() },
            Program::Bash(script) => {
                let (command, shell) = (Some(self.fill(script)), Some("bash".into()));
                StartRequest { command, shell, ..StartRequest::default() }
            }
            Program::Python(code) => argv(["/usr/bin/python3", "-c", &format!("{PRELUDE}{code}")]),
            Program::Perl(code) => argv(["/usr/bin/perl", "-e", &format!("{PERL_PRELUDE}{code}")]),
        }
    }

    /// Waits until the expected number of processes have escaped; returns how many there are.
    fn until_out(&self, way: &Way) -> usize {
        let reports_itself = match way.program {
            Program::Sh(text) | Program::Bash(text) | Program::Python(text) | Program::Perl(text) => {
                text.contains("{dir}/out")
            }
        };
        let mut quiet = 0;
        until_some(&format!("{} has escaped", way.name), || {
            let count = carriers_of(&self.nap).len();
            let enough = match way.out {
                Out::Exactly(exactly) => count == exactly,
                Out::AtLeast(min) => count >= min,
            };
            let is_out = enough && (!reports_itself || self.dir.join("out").exists());
            quiet = if is_out { quiet + 1 } else { 0 };
            std::thread::sleep(CHECK_INTERVAL);
            (quiet == QUIET_CHECKS).then_some(count)
        })
    }

    /// The survivors, with pid and name; pid 0 for one that was not found but holds the lock.
    fn left(&self) -> Vec<(u32, String)> {
        let mut left: Vec<_> =
            carriers_of(&self.nap).into_iter().map(|member| (member.pid, member.stat.comm)).collect();
        if left.is_empty() && self.is_locked() {
            left.push((0, "somebody".to_owned()));
        }
        left
    }

    fn is_locked(&self) -> bool {
        fs::File::open(self.dir.join("lock")).is_ok_and(|lock| lock.try_lock().is_err())
    }

    /// Thaws and kills the survivors, and removes the resources of this attempt.
    fn clear(&self) {
        let frozen = self.freezer.as_ref().map(|mount| mount.join(&self.nap)).filter(|own| own.exists());
        if let Some(own) = &frozen {
            fs::write(own.join("freezer.state"), "THAWED").expect("it can be thawed");
        }
        until("no survivor is left", || {
            kill_carriers(&self.nap);
            self.left().is_empty()
        });
        if let Some(own) = &frozen {
            until("its freezer is empty", || fs::remove_dir(own).is_ok());
        }
        until("its directory is removed", || fs::remove_dir_all(&self.dir).is_ok() || !self.dir.exists());
    }
}

/// Whether the tests run as root, and the daemon as an ordinary user.
fn drops_root(on: &DaemonIn) -> bool {
    is_root() && on.ground.user == crate::environments::User::Ordinary
}

fn success() -> pinfold_api::types::Outcome {
    pinfold_api::types::Outcome::Exited { code: 0 }
}

/// Where the cgroup v1 freezer hierarchy is mounted, if it is.
fn freezer_mount() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let is_freezer = |line: &&str| {
        let mut fields = line.split(' ').skip(2);
        fields.next() == Some("cgroup")
            && fields.next().is_some_and(|options| options.split(',').any(|o| o == "freezer"))
    };
    mounts.lines().find(is_freezer)?.split(' ').nth(1).map(PathBuf::from)
}
