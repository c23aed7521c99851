//! How many instructions the daemon and the command line take for what everybody does, counted by callgrind and compared
//! with the counts that are kept in crates/xtask/instructions.toml.
//!
//! Counts do not depend on how fast or busy the machine is, so that a path that has become slower is seen at once, on any
//! machine. They are those of the dev profile, which every checkout has built anyway; they say what a change costs, not
//! what pinfold costs: that is `cargo xtask bench`. Keepers run outside of callgrind, which knows no clone3.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use clap::Args;
use pinfold_api::client::Client;
use pinfold_api::types::{ListQuery, OutputQuery, StartRequest, WaitQuery};
use tokio::runtime::Runtime;

use crate::build::{Profile, build};

/// Where the counts are kept.
const KEPT: &str = "crates/xtask/instructions.toml";
/// How much more than kept is too much: above what other C libraries, and other moments at which the index is written, make of it.
const TOLERANCE: f64 = 1.20;
/// Each path is taken so many times, after this many that are not counted.
const TIMES: u64 = 100;
const WARM_UP: u64 = 20;
/// Work that follows an answer is done within this.
const SETTLE: Duration = Duration::from_millis(500);
/// How long a daemon may take to answer, fifty times slower than it is.
const PATIENCE: Duration = Duration::from_secs(120);

/// Whether to keep what is counted.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Keep the counts: for a change that is worth what it costs
    #[arg(long)]
    write: bool,
}

/// What each path takes, by its name.
type Counts = BTreeMap<String, u64>;

/// Counts, prints, and fails if a path takes more than it may.
pub fn run(root: &Path, options: &Options) -> anyhow::Result<ExitCode> {
    for tool in ["valgrind", "vgdb"] {
        let has = Command::new(tool).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        // vgdb knows no version and says so.
        if has.is_err() {
            println!("skipped: `{tool}` cannot be run (Debian's package is called valgrind)");
            return Ok(ExitCode::SUCCESS);
        }
    }
    let [pinfold] = build(root, Profile::Dev, ["pinfold"])?;
    let counts = count(&pinfold)?;
    let path = root.join(KEPT);
    if options.write {
        std::fs::write(&path, render(&counts)?).with_context(|| format!("cannot write {KEPT}"))?;
        println!("wrote {KEPT}");
        return Ok(ExitCode::SUCCESS);
    }
    let kept = std::fs::read_to_string(&path).with_context(|| format!("cannot read {KEPT}"))?;
    let kept: Counts = toml::from_str(&kept).with_context(|| format!("{KEPT} is none"))?;
    let (text, well) = judge(&counts, &kept);
    print!("{text}");
    if !well {
        println!(
            "look where it goes with callgrind_annotate; `cargo xtask instructions --write` keeps what is worth it"
        );
    }
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A line for each path, and whether all may be as they are.
fn judge(counts: &Counts, kept: &Counts) -> (String, bool) {
    let (mut text, mut well) = (String::new(), true);
    for (path, count) in counts {
        let (verdict, before) = match kept.get(path) {
            None => ("NOT KEPT: run with --write", 0),
            Some(before) if *count as f64 > *before as f64 * TOLERANCE => ("TOO MANY", *before),
            Some(before) if (*count as f64) < *before as f64 / TOLERANCE => ("fewer: keep it with --write", *before),
            Some(before) => ("as before", *before),
        };
        well &= before > 0 && verdict != "TOO MANY";
        text += &format!("{path:<24} {count:>10} instructions, kept {before:>10}: {verdict}\n");
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

/// A start of `sh -c true`, answered with its end.
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
        let deadline = Instant::now() + PATIENCE;
        while std::os::unix::net::UnixStream::connect(daemon.home.join("socket")).is_err() {
            ensure!(Instant::now() < deadline, "the daemon does not answer in callgrind");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(daemon)
    }

    /// The instructions since this was asked last; those of the question among them.
    fn since_last(&self, runtime: &Runtime, client: &Client) -> anyhow::Result<u64> {
        // A list comes after everything that was to be written.
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
            .filter(|path| path.to_string_lossy().contains("/daemon.") && !path.ends_with("daemon.log"))
            .collect())
    }

    /// The instructions of one command of the command line.
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

/// A pinfold that is counted, with nothing in its environment that differs from machine to machine.
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

/// What a dump adds up to.
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
    fn more_than_kept_is_too_many_and_what_is_not_kept_is_said() {
        let kept = counts(&[("a", 1000), ("b", 1000)]);
        assert!(judge(&counts(&[("a", 1190), ("b", 500)]), &kept).1);
        assert!(!judge(&counts(&[("a", 1210), ("b", 1000)]), &kept).1);
        let (text, well) = judge(&counts(&[("c", 1)]), &kept);
        assert!(!well && text.contains("NOT KEPT"), "{text}");
    }

    #[test]
    fn kept_counts_are_read_as_they_were_written() {
        let counts = counts(&[("start, exit, answer", 467_090), ("list 10", 7)]);
        let text = render(&counts).expect("toml");
        assert_eq!(toml::from_str::<Counts>(&text).expect("toml"), counts);
    }
}
