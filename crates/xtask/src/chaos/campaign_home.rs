//! The directory of the campaign: a copy of the binary, a home on a small filesystem (if one can be mounted), and its daemon.
//! However the run ends, everything that was started is stopped and removed, except the home if it is kept as evidence.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use pinfold_api::client::Client;
use pinfold_testkit::Pidfd;
use serde_json::Value;

/// Size of the small filesystem.
const DISK: &str = "192m";

#[derive(Debug)]
pub(super) struct CampaignHome {
    directory: PathBuf,
    pub(super) binary: PathBuf,
    pub(super) home: PathBuf,
    /// Whether the home is on a filesystem that can be filled.
    pub(super) mounted: bool,
}

/// Identifies a keeper: pid and start time.
pub(super) type KeeperName = (u32, u64);

impl CampaignHome {
    pub(super) fn set_up(pinfold: &Path) -> anyhow::Result<Self> {
        let directory = std::env::temp_dir().join(format!("pinfold-chaos-{}", std::process::id()));
        let disk = directory.join("disk");
        std::fs::create_dir_all(&disk).with_context(|| format!("cannot make {}", disk.display()))?;
        let directory = directory.canonicalize()?;
        let (binary, disk) = (directory.join("pinfold"), directory.join("disk"));
        std::fs::copy(pinfold, &binary).with_context(|| format!("cannot copy {}", pinfold.display()))?;
        let options = format!("size={DISK},mode=700");
        let mount = run(Command::new("mount").args(["-t", "tmpfs", "-o", &options, "pinfold-chaos"]).arg(&disk));
        let mounted = mount.is_ok_and(|output| output.status.success());
        let home = disk.join("home");
        std::fs::create_dir(&home)?;
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(&home, PermissionsExt::from_mode(0o700))?;
        Ok(Self { directory, binary, home, mounted })
    }

    /// A `pinfold` command in this home.
    pub(super) fn pinfold(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command.args(arguments).env("PINFOLD_HOME", &self.home).current_dir("/").stdin(Stdio::null());
        command
    }

    pub(super) fn client(&self) -> Client {
        Client::new(self.home.join("socket"))
    }

    /// Starts a daemon if none runs; returns when one answers.
    pub(super) fn start_daemon(&self) -> anyhow::Result<()> {
        self.try_start_daemon()?.map_err(|said| anyhow!("no daemon comes up: {said}"))
    }

    /// The same; the inner error is why the daemon did not start.
    pub(super) fn try_start_daemon(&self) -> anyhow::Result<Result<(), String>> {
        let output = run(&mut self.pinfold(&["daemon", "start"]))?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        Ok(if output.status.success() { Ok(()) } else { Err(said) })
    }

    /// A pidfd of the daemon.
    pub(super) fn daemon(&self) -> Option<(u32, Pidfd)> {
        let pid = std::fs::read_to_string(self.home.join("lock")).ok()?.trim().parse().ok()?;
        self.hold(pid).map(|pidfd| (pid, pidfd))
    }

    /// A pidfd of this process, if it runs our copy of the binary.
    pub(super) fn hold(&self, pid: u32) -> Option<Pidfd> {
        let pidfd = Pidfd::open(pid)?;
        let ours = std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|link| link == self.binary);
        ours.then_some(pidfd)
    }

    /// Every process that runs our copy of the binary, with its command line.
    pub(super) fn programs(&self) -> Vec<(u32, String)> {
        let runs = |pid: &u32| std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|link| link == self.binary);
        pids().into_iter().filter(runs).map(|pid| (pid, pinfold_testkit::command_line(pid))).collect()
    }

    pub(super) fn process(&self, id: &str) -> PathBuf {
        self.home.join("processes").join(id)
    }

    pub(super) fn has_output(&self, id: &str) -> bool {
        self.process(id).join("out.00000000000000000000").exists()
    }

    /// The keeper of a process and its cgroup, from the record.
    pub(super) fn keeper(&self, id: &str) -> Option<(KeeperName, Option<PathBuf>)> {
        let record = std::fs::read_to_string(self.process(id).join("record")).ok()?;
        let (_, json) = record.lines().next()?.split_once(' ')?;
        let keeper = serde_json::from_str::<Value>(json).ok()?["keeper"].clone();
        let name = (keeper["pid"].as_u64()? as u32, keeper["start_time"].as_u64()?);
        Some((name, keeper["cgroup"].as_str().map(PathBuf::from)))
    }

    /// Whether the record of a process has its end.
    pub(super) fn is_over(&self, id: &str) -> bool {
        let record = std::fs::read_to_string(self.process(id).join("record")).unwrap_or_default();
        record
            .lines()
            .last()
            .is_some_and(|line| line.contains(r#"{"fact":"finished""#) || line.contains(r#"{"fact":"lost""#))
    }

    /// Fills the disk with a file.
    pub(super) fn fill_disk(&self) -> std::io::Result<PathBuf> {
        use std::io::Write;
        let path = self.directory.join("disk").join("ballast");
        let mut file = std::fs::File::create(&path)?;
        for piece in [1 << 20, 4096] {
            let zeros = vec![0; piece];
            while file.write_all(&zeros).is_ok() {}
        }
        Ok(path)
    }

    /// Stops and removes everything; with `keep` the home stays as evidence, and its path is returned.
    pub(super) fn clear(self, keep: bool) -> anyhow::Result<Option<PathBuf>> {
        let _ = std::fs::remove_file(self.directory.join("disk").join("ballast"));
        for verb in [&["daemon", "start"][..], &["daemon", "stop", "--all"]] {
            let _ = run(&mut self.pinfold(verb));
        }
        let deadline = Instant::now() + Duration::from_secs(10);
        while !self.programs().is_empty() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
        let evidence =
            keep.then(|| self.directory.with_file_name(format!("pinfold-chaos-evidence-{}", std::process::id())));
        if let Some(evidence) = &evidence {
            let _ = run(Command::new("cp").arg("-a").arg(&self.home).arg(evidence));
        }
        if self.mounted {
            let unmount = run(Command::new("umount").arg(self.directory.join("disk")))?;
            ensure!(unmount.status.success(), "{} stays mounted", self.directory.join("disk").display());
        }
        std::fs::remove_dir_all(&self.directory)?;
        Ok(evidence)
    }
}

/// All pids.
pub(super) fn pids() -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Runs a command to its end and captures its output.
pub(super) fn run(command: &mut Command) -> std::io::Result<Output> {
    command.stdin(Stdio::null()).output()
}
