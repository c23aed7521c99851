//! One try: start the way, wait until it is out, stop the process, and look who is left.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use pinfold_api::types::{StartRequest, Status};

use super::ways::{End, Out, PERL_PRELUDE, PRELUDE, Program, Way};
use crate::carriers::{carriers_of, kill_carriers};
use crate::ground::{Containment, Ground, Grounded, NOBODY, cgroup_mount, is_root};
use crate::place::place_copy;
use crate::procs::{until, until_some};

/// Looks in a row that must show the same before a tree counts as being out.
const QUIET_LOOKS: usize = 3;
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);
/// What a stop leaves between TERM and KILL.
const GRACE: &str = "200ms";

/// What came of a way out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Result {
    /// So many were out, and none was left.
    Ended { out: usize },
    /// Some were left, and the answer to the stop named exactly those.
    Named { left: Vec<String> },
    /// Some were left without a word.
    Escaped { left: Vec<String> },
    /// It cannot be tried here.
    Skipped,
}

impl Result {
    /// Whether somebody outlived the stop.
    pub fn is_left(&self) -> bool {
        matches!(self, Result::Named { .. } | Result::Escaped { .. })
    }

    /// Whether it came as it must: nobody was left, or the kernel lets him go and he was named. A stop names; a
    /// keeper that is dead cannot.
    pub fn is_right(&self, way: &Way, ground: Ground) -> bool {
        match self {
            Result::Ended { .. } | Result::Skipped => true,
            Result::Named { .. } => (way.freed)(ground).is_some(),
            Result::Escaped { .. } => (way.freed)(ground).is_some() && way.end == End::Lost,
        }
    }
}

/// Tries a way out. Ends whatever is left afterwards.
pub fn attempt(way: &Way, on: &Grounded) -> Result {
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
    let result = judge(out, &scene.left(), &named);
    scene.clear();
    on.pinfold.wait_finished(&id);
    result
}

fn judge(out: usize, left: &[(u32, String)], named: &[u32]) -> Result {
    let names = left.iter().map(|(pid, what)| format!("{pid} {what}")).collect();
    match left.iter().all(|(pid, _)| named.contains(pid)) {
        true if left.is_empty() => Result::Ended { out },
        true => Result::Named { left: names },
        false => Result::Escaped { left: names },
    }
}

/// What one try has to itself.
struct Scene<'a> {
    on: &'a Grounded,
    /// The number that its processes hold: as seconds, ten minutes.
    nap: String,
    dir: PathBuf,
    freezer: Option<PathBuf>,
}

impl<'a> Scene<'a> {
    /// `None` where the way cannot be tried.
    fn set(way: &Way, on: &'a Grounded) -> Option<Self> {
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
        let probed = needs.is_empty() || on.pinfold.run(&format!("{needs}; exit $?")).0.outcome == Some(well());
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
        let owner = on_root(self.on).then_some(NOBODY);
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

    /// Waits until all that it wants outside are there; how many those are.
    fn until_out(&self, way: &Way) -> usize {
        let says_so = match way.program {
            Program::Sh(text) | Program::Bash(text) | Program::Python(text) | Program::Perl(text) => {
                text.contains("{dir}/out")
            }
        };
        let mut quiet = 0;
        until_some(&format!("{} is out", way.name), || {
            let count = carriers_of(&self.nap).len();
            let enough = match way.out {
                Out::Exactly(exactly) => count == exactly,
                Out::AtLeast(least) => count >= least,
            };
            let is_out = enough && (!says_so || self.dir.join("out").exists());
            quiet = if is_out { quiet + 1 } else { 0 };
            std::thread::sleep(BETWEEN_LOOKS);
            (quiet == QUIET_LOOKS).then_some(count)
        })
    }

    /// Who is left, with pid and name; 0 for somebody who was not seen and holds the lock.
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

    /// Thaws and ends what is left, and removes what it had to itself.
    fn clear(&self) {
        let frozen = self.freezer.as_ref().map(|mount| mount.join(&self.nap)).filter(|own| own.exists());
        if let Some(own) = &frozen {
            fs::write(own.join("freezer.state"), "THAWED").expect("it can be thawed");
        }
        until("nobody is left", || {
            kill_carriers(&self.nap);
            self.left().is_empty()
        });
        if let Some(own) = &frozen {
            until("its freezer is empty", || fs::remove_dir(own).is_ok());
        }
        until("its directory is gone", || fs::remove_dir_all(&self.dir).is_ok() || !self.dir.exists());
    }
}

/// Whether root lends the ground to an ordinary user.
fn on_root(on: &Grounded) -> bool {
    is_root() && on.ground.user == crate::ground::User::Ordinary
}

fn well() -> pinfold_api::types::Outcome {
    pinfold_api::types::Outcome::Exited { code: 0 }
}

/// Where cgroup v1 freezers are, if there are any.
fn freezer_mount() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let is_freezer = |line: &&str| {
        let mut fields = line.split(' ').skip(2);
        fields.next() == Some("cgroup")
            && fields.next().is_some_and(|options| options.split(',').any(|o| o == "freezer"))
    };
    mounts.lines().find(is_freezer)?.split(' ').nth(1).map(PathBuf::from)
}
