//! Counts the instructions of common operations of the daemon and the command line with callgrind, and compares them with
//! crates/xtask/instructions.toml.
//!
//! Counts do not depend on the speed or load of the machine, so a slower path is noticed on any machine. They are of the dev
//! profile, which every checkout builds anyway: they show what a change costs; `cargo xtask bench` shows what pinfold
//! costs. Keepers run outside of callgrind, which does not support clone3.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use clap::Args;
use pinfold_api::client::Client;
use pinfold_api::types::{ListQuery, OutputQuery, StartRequest, WaitQuery};
use tokio::runtime::Runtime;

use crate::cargo_build::{Profile, build};

/// The file with the recorded counts.
const RECORDED: &str = "crates/xtask/instructions.toml";
/// Allowed ratio to the recorded count: above the variation between C libraries and between times of index writes.
const TOLERANCE: f64 = 1.20;
/// Counted repetitions of each path, and repetitions before that to warm up.
const TIMES: u64 = 100;
const WARM_UP: u64 = 20;
/// Time for work that follows an answer.
const SETTLE: Duration = Duration::from_millis(500);
/// Time for the daemon to answer: callgrind makes it fifty times slower.
const DEADLINE: Duration = Duration::from_secs(120);

/// Options of the command.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Record the counts, for a change that is worth its cost
    #[arg(long)]
    write: bool,
}

/// Instructions of each path, by name.
type Counts = BTreeMap<String, u64>;

/// Counts and prints; fails if a path takes more than allowed.
pub fn run(root: &Path, options: &Options) -> anyhow::Result<ExitCode> {
    for tool in ["valgrind", "vgdb"] {
        let has = Command::new(tool).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        // vgdb has no --version, but runs.
        if has.is_err() {
            println!("skipped: `{tool}` cannot be run (Debian's package is called valgrind)");
            return Ok(ExitCode::SUCCESS);
        }
    }
    let [pinfold] = build(root, Profile::Dev, ["pinfold"])?;
    let counts = count(&pinfold)?;
    let path = root.join(RECORDED);
    if options.write {
        std::fs::write(&path, render(&counts)?).with_context(|| format!("cannot write {RECORDED}"))?;
        println!("wrote {RECORDED}");
        return Ok(ExitCode::SUCCESS);
    }
    let kept = std::fs::read_to_string(&path).with_context(|| format!("cannot read {RECORDED}"))?;
    let kept: Counts = toml::from_str(&kept).with_context(|| format!("{RECORDED} is not valid"))?;
    let (text, well) = judge(&counts, &kept);
    print!("{text}");
    if !well {
        println!(
            "find the cause with callgrind_annotate, or record the new counts with `cargo xtask instructions --write`"
        );
    }
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// One line for each path, and whether all are within the limit.
fn judge(counts: &Counts, kept: &Counts) -> (String, bool) {
    let (mut text, mut well) = (String::new(), true);
    for (path, count) in counts {
        let (verdict, before) = match kept.get(path) {
            None => ("NOT RECORDED: run with --write", 0),
            Some(before) if *count as f64 > *before as f64 * TOLERANCE => ("TOO MANY", *before),
            Some(before) if (*count as f64) < *before as f64 / TOLERANCE => ("fewer: record it with --write", *before),
            Some(before) => ("unchanged", *before),
        };
        well &= before > 0 && verdict != "TOO MANY";
        text += &format!("{path:<24} {count:>10} instructions, recorded {before:>10}: {verdict}\n");
    }
    (text, well)
}

fn render(counts: &Counts) -> anyhow::Result<String> {
    let about = "# Instructions of the dev build, written by `cargo xtask instructions --write`, compared in CI.\n";
    Ok(format!("{about}{}", toml::to_string(counts)?))
}

fn count(pinfold: &Path) -> anyhow::Result<Counts> {
    let daemon = Counted::start(pinfold)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let client = Client::new(daemon.home.join("socket"));
    let written = StartRequest { command: Some("yes 0123456 | head -c 20000".to_owned()), ..shell_true() };
    let id = runtime.block_on(client.start(&written))?.record.id;
    let read = || runtime.block_on(client.output(&id, &OutputQuery::default())).map(|page| page.end);
    let wait = WaitQuery { until: Some("finished".to_owned()), ..WaitQuery::default() };
    let list = ListQuery { limit: Some(10), ..ListQuery::default() };
    ensure!(
        runtime.block_on(client.wait(&id, &wait))?.record.outcome.is_some() && read()? == 20_000,
        "nothing to read"
    );

    let mut counts = Counts::new();
    let mut path = |name: &str, step: &mut dyn FnMut() -> anyhow::Result<()>| {
        (0..WARM_UP).try_for_each(|_| step())?;
        daemon.since_last(&runtime, &client)?;
        let question = daemon.since_last(&runtime, &client)?;
        (0..TIMES).try_for_each(|_| step())?;
        let all = daemon.since_last(&runtime, &client)?;
        counts.insert(name.to_owned(), all.saturating_sub(question) / TIMES);
        anyhow::Ok(())
    };
    path("start, exit, answer", &mut || {
        let answer = runtime.block_on(client.start(&shell_true()))?;
        ensure!(answer.record.outcome.is_some(), "it did not end");
        Ok(())
    })?;
    path("read 20 kB", &mut || {
        ensure!(read()? == 20_000, "not all was read");
        Ok(())
    })?;
    path("wait for what is over", &mut || {
        let answer = runtime.block_on(client.wait(&id, &wait))?;
        ensure!(answer.record.outcome.is_some(), "it is not over");
        Ok(())
    })?;
    path("list 10", &mut || {
        let listed = runtime.block_on(client.list(&list))?;
        ensure!(listed.processes.len() == 10, "a list of {}", listed.processes.len());
        Ok(())
    })?;
    counts.insert("pinfold run true".to_owned(), daemon.of_command(&["run", "true"])?);
    Ok(counts)
}

/// Starts `sh -c true` and waits for its exit.
fn shell_true() -> StartRequest {
    StartRequest { command: Some("true".to_owned()), wait: Some("60s".into()), ..StartRequest::default() }
}

/// A daemon in callgrind, in a home of its own.
struct Counted {
    home: PathBuf,
    pinfold: PathBuf,
    child: Child,
}

impl Counted {
    fn start(pinfold: &Path) -> anyhow::Result<Self> {
        let home = std::env::temp_dir().join(format!("pinfold-instructions-{}", std::process::id()));
        std::fs::create_dir(&home).with_context(|| format!("cannot make {}", home.display()))?;
        let child = in_callgrind(pinfold, &home, "daemon").args(["daemon", "run"]).spawn().context("valgrind")?;
        let daemon = Self { home, pinfold: pinfold.to_owned(), child };
        let deadline = Instant::now() + DEADLINE;
        while std::os::unix::net::UnixStream::connect(daemon.home.join("socket")).is_err() {
            ensure!(Instant::now() < deadline, "the daemon does not answer in callgrind");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(daemon)
    }

    /// Instructions since the last call of this, including those of the call itself.
    fn since_last(&self, runtime: &Runtime, client: &Client) -> anyhow::Result<u64> {
        // The answer to a list comes after all pending writes.
        runtime.block_on(client.list(&ListQuery { limit: Some(1), ..ListQuery::default() }))?;
        std::thread::sleep(SETTLE);
        let before = self.dumps()?.len();
        let dump = Command::new("vgdb").arg(format!("--pid={}", self.child.id())).arg("dump").output()?;
        ensure!(dump.status.success(), "vgdb: {}", String::from_utf8_lossy(&dump.stderr));
        let dumps = self.dumps()?;
        ensure!(dumps.len() == before + 1, "vgdb dumped nothing");
        total(&self.home.join(format!("daemon.{}", dumps.len())))
    }

    fn dumps(&self) -> anyhow::Result<Vec<PathBuf>> {
        let entries = std::fs::read_dir(&self.home)?.flatten().map(|entry| entry.path());
        Ok(entries
            .filter(|path| {
                path.to_string_lossy().contains("/daemon.")
                    && !path.ends_with("daemon.log")
                    && !path.ends_with("daemon.json")
            })
            .collect())
    }

    /// Instructions of one `pinfold` command.
    fn of_command(&self, arguments: &[&str]) -> anyhow::Result<u64> {
        let status = in_callgrind(&self.pinfold, &self.home, "command").args(arguments).status()?;
        ensure!(status.success(), "`pinfold {}` failed: {status}", arguments.join(" "));
        total(&self.home.join("command"))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut stop = Command::new(&self.pinfold);
        let stopped =
            stop.args(["daemon", "stop", "--all"]).env("PINFOLD_HOME", &self.home).stdout(Stdio::null()).status();
        if !stopped.is_ok_and(|status| status.success()) {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.home);
    }
}

/// pinfold in callgrind, with an environment that is the same on every machine.
fn in_callgrind(pinfold: &Path, home: &Path, name: &str) -> Command {
    let mut command = Command::new("valgrind");
    command.args(["--quiet", "--tool=callgrind"]).arg(format!("--callgrind-out-file={}", home.join(name).display()));
    command
        .arg(pinfold)
        .env_clear()
        .env("PINFOLD_HOME", home)
        .env("HOME", home)
        .env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// The total of a dump.
fn total(dump: &Path) -> anyhow::Result<u64> {
    let text = std::fs::read_to_string(dump).with_context(|| format!("cannot read {}", dump.display()))?;
    let counts = text.lines().filter_map(|line| line.strip_prefix("totals: ").or(line.strip_prefix("summary: ")));
    match counts.filter_map(|count| count.trim().parse().ok()).next() {
        Some(total) => Ok(total),
        None => bail!("{} has no total", dump.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(of: &[(&str, u64)]) -> Counts {
        of.iter().map(|(path, count)| ((*path).to_owned(), *count)).collect()
    }

    #[test]
    fn a_count_above_the_recorded_one_or_without_one_fails() {
        let kept = counts(&[("a", 1000), ("b", 1000)]);
        assert!(judge(&counts(&[("a", 1190), ("b", 500)]), &kept).1);
        assert!(!judge(&counts(&[("a", 1210), ("b", 1000)]), &kept).1);
        let (text, well) = judge(&counts(&[("c", 1)]), &kept);
        assert!(!well && text.contains("NOT RECORDED"), "{text}");
    }

    #[test]
    fn kept_counts_are_read_as_they_were_written() {
        let counts = counts(&[("start, exit, answer", 467_090), ("list 10", 7)]);
        let text = render(&counts).expect("toml");
        assert_eq!(toml::from_str::<Counts>(&text).expect("toml"), counts);
    }
}
