//! Sandboxes: what a process may not do, as root and as an ordinary user, and what it may do as before.

mod attacks;
mod inside;
mod namespaces;
mod options;
mod others;
mod refusals;
mod unchanged;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use pinfold_api::error::ApiError;
use pinfold_api::types::{Record, SandboxRequest, StartRequest, Started};
use pinfold_testkit::Pinfold;
use pinfold_testkit::environments::{Containment, Environment, User};

use crate::PINFOLD;

/// The sandbox's last part, for each tier.
const TIERS: [&str; 2] = [",tier=landlock", ",tier=auto"];

/// Two directories that everyone may write: `work`, and `outside` with a file in it. Removed when dropped.
struct Places {
    root: PathBuf,
}

impl Places {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("pinfold-sandbox-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let root = std::env::temp_dir().canonicalize().expect("a temporary directory").join(name);
        let places = Self { root };
        for directory in [places.root.clone(), places.work(), places.outside()] {
            std::fs::create_dir(&directory).expect("a directory");
            std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o777)).expect("its mode");
        }
        places.reset();
        places
    }

    fn work(&self) -> PathBuf {
        self.root.join("work")
    }

    fn outside(&self) -> PathBuf {
        self.root.join("outside")
    }

    /// Empties both, and puts the file back.
    fn reset(&self) {
        for directory in [self.work(), self.outside()] {
            for entry in std::fs::read_dir(&directory).expect("a directory") {
                let path = entry.expect("an entry").path();
                let _ = if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
            }
        }
        let file = self.outside().join("file");
        std::fs::write(&file, "as it was").expect("a file");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o666)).expect("its mode");
    }

    /// Whether nothing outside changed.
    fn is_untouched(&self) -> bool {
        let entries = std::fs::read_dir(self.outside()).expect("a directory").count();
        entries == 1 && std::fs::read(self.outside().join("file")).is_ok_and(|content| content == b"as it was")
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.root);
    }
}

/// A daemon as root and one as an ordinary user, as far as this user can have them.
fn daemons() -> Vec<(Environment, Pinfold)> {
    [User::Root, User::Ordinary]
        .into_iter()
        .filter_map(|user| {
            let environment = Environment { user, containment: Containment::Walk };
            environment.try_start(PINFOLD).ok().map(|daemon| (environment, daemon.pinfold))
        })
        .collect()
}

fn request(command: &str, cwd: &Path, sandbox: Option<&str>) -> StartRequest {
    StartRequest {
        command: Some(command.into()),
        cwd: Some(cwd.to_str().expect("text").into()),
        sandbox: sandbox.map(|text| SandboxRequest::Text(text.into())),
        ..StartRequest::default()
    }
}

fn try_start(pinfold: &Pinfold, command: &str, cwd: &Path, sandbox: &str) -> Result<Started, ApiError> {
    pinfold.try_start(&request(command, cwd, Some(sandbox)))
}

/// Runs a command to its end; gives its record and output.
fn run(pinfold: &Pinfold, command: &str, cwd: &Path, sandbox: Option<&str>) -> (Record, String) {
    let started = pinfold.start_request(&request(command, cwd, sandbox));
    let record = pinfold.wait_finished(&started.record.id);
    let text = pinfold.text(&record.id);
    (record, text)
}
