//! Coverage-guided fuzzing of every parser of outside input: the targets of crates/hostile with libFuzzer.
//!
//! The programs are built in fuzz/, a separate workspace, with coverage counters in our code and its dependencies. The compiler
//! flags are those of `cargo fuzz` without a sanitizer, so the stable toolchain is enough: `unsafe` is only in `os`, and
//! fuzzing looks for panics, hangs, memory use and failed assertions. Each target starts with its corpus in fuzz/corpus;
//! new inputs are kept below target/fuzz for the next run.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;

use anyhow::{Context, bail, ensure};
use clap::Args;

/// Coverage counters at every edge, and tracing of comparisons.
const COVERAGE: &[&str] = &[
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];
/// Limits of time and memory for one input: far above normal, so that a stalled machine does not cause a failure.
const SECONDS_AN_INPUT: u32 = 30;
const MEMORY_MIB: u32 = 1024;
/// Default seed, for the same inputs in each run; another seed finds other inputs.
const SEED: u32 = 7;
/// Lines of a failed run to print.
const SHOWN: usize = 40;

/// Options of the command.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Seconds for each target
    #[arg(long, default_value_t = 60)]
    seconds: u32,
    /// Seed: another number tries other inputs
    #[arg(long, default_value_t = SEED)]
    seed: u32,
    /// Only these targets [default: all]
    #[arg(value_name = "TARGET")]
    targets: Vec<String>,
}

/// The fuzzing programs and their directories.
struct Workshop {
    /// fuzz/ in the tree.
    sources: PathBuf,
    /// target/fuzz.
    place: PathBuf,
    host: String,
}

/// Builds the programs and runs one per core at a time.
pub fn run(root: &Path, options: &Options) -> anyhow::Result<ExitCode> {
    let workshop = Workshop::new(root)?;
    let targets = workshop.choose(&options.targets)?;
    if let Some(reason) = workshop.lacks() {
        println!("SKIPPED: fuzzing: {reason}");
        return Ok(ExitCode::SUCCESS);
    }
    workshop.build(&targets)?;
    let waiting = Mutex::new(targets.iter());
    let broken = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(target) = next(&waiting) {
                    match workshop.run(target, options) {
                        Ok(line) => println!("{line}"),
                        Err(error) => {
                            println!("{target}: BROKEN\n{error:#}");
                            push(&broken, target.clone());
                        }
                    }
                }
            });
        }
    });
    let broken = broken.into_inner().unwrap_or_default();
    println!("fuzz: {} targets, {} s each, {} broken", targets.len(), options.seconds, broken.len());
    Ok(if broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn next<'a>(waiting: &Mutex<std::slice::Iter<'a, String>>) -> Option<&'a String> {
    waiting.lock().ok()?.next()
}

fn push(broken: &Mutex<Vec<String>>, target: String) {
    if let Ok(mut broken) = broken.lock() {
        broken.push(target);
    }
}

impl Workshop {
    fn new(root: &Path) -> anyhow::Result<Self> {
        let own = std::env::current_exe().context("own executable")?;
        let place = own.ancestors().nth(2).context("not built by cargo")?.join("fuzz");
        let version = Command::new("rustc").arg("-vV").output().context("rustc cannot be run")?;
        let version = String::from_utf8_lossy(&version.stdout).into_owned();
        let host = version.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc names no host")?;
        Ok(Workshop { sources: root.join("fuzz"), place, host: host.to_owned() })
    }

    /// The given targets, or all.
    fn choose(&self, asked: &[String]) -> anyhow::Result<Vec<String>> {
        let mut known = Vec::new();
        for entry in std::fs::read_dir(self.sources.join("fuzz_targets"))? {
            known.extend(entry?.path().file_stem().map(|name| name.to_string_lossy().into_owned()));
        }
        known.sort();
        if let Some(unknown) = asked.iter().find(|name| !known.contains(name)) {
            bail!("there is no target `{unknown}`: use {}", known.join(", "));
        }
        Ok(if asked.is_empty() { known } else { asked.to_vec() })
    }

    /// Why fuzzing is not possible here, if so.
    fn lacks(&self) -> Option<String> {
        let compiler = std::env::var_os("CXX").unwrap_or_else(|| "c++".into());
        let has_compiler =
            Command::new(&compiler).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        if !has_compiler.is_ok_and(|status| status.success()) {
            return Some(format!("{} cannot be run, and libFuzzer is C++", compiler.to_string_lossy()));
        }
        let fetched = self.cargo("fetch").args(["--quiet", "--target", &self.host]).output();
        match fetched {
            Ok(output) if output.status.success() => None,
            Ok(output) => Some(format!("cargo fetch: {}", String::from_utf8_lossy(&output.stderr).trim_end())),
            Err(error) => Some(format!("cargo cannot be run: {error}")),
        }
    }

    fn cargo(&self, command: &str) -> Command {
        let mut cargo = Command::new("cargo");
        cargo.args([command, "--manifest-path"]).arg(self.sources.join("Cargo.toml"));
        cargo.stdin(Stdio::null());
        cargo
    }

    fn build(&self, targets: &[String]) -> anyhow::Result<()> {
        let mut build = self.cargo("build");
        // With an explicit --target the flags do not apply to build scripts and macros.
        build.args(["--release", "--target", &self.host, "--target-dir"]).arg(&self.place);
        build.args(targets.iter().flat_map(|target| ["--bin", target]));
        build.env("RUSTFLAGS", COVERAGE.join(" ")).env_remove("CARGO_ENCODED_RUSTFLAGS");
        ensure!(build.status().context("cargo cannot be run")?.success(), "the fuzzing programs cannot be built");
        Ok(())
    }

    /// Runs one target; returns a summary.
    fn run(&self, target: &str, options: &Options) -> anyhow::Result<String> {
        let directory = |what: &str| {
            let path = self.place.join(what).join(target);
            std::fs::create_dir_all(&path).with_context(|| path.display().to_string()).map(|()| path)
        };
        let (corpus, broken) = (directory("corpus")?, directory("broken")?);
        let program = self.place.join(&self.host).join("release").join(target);
        let mut command = Command::new(&program);
        command.arg(&corpus).arg(self.sources.join("corpus").join(target));
        command.arg(format!("-max_total_time={}", options.seconds)).arg(format!("-seed={}", options.seed));
        command.arg(format!("-artifact_prefix={}/", broken.display()));
        command.arg(format!("-timeout={SECONDS_AN_INPUT}")).arg(format!("-rss_limit_mb={MEMORY_MIB}"));
        command.args(["-print_final_stats=1", "-verbosity=1"]).stdin(Stdio::null());
        let output = command.output().with_context(|| format!("{} cannot be run", program.display()))?;
        let log = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "{}", explain(&program, &log));
        Ok(summary(target, &log))
    }
}

/// The end of the output of a failed target, and how to reproduce the failure.
fn explain(program: &Path, log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    let mut text = lines[lines.len().saturating_sub(SHOWN)..].join("\n");
    match log.lines().find_map(|line| line.split_once("Test unit written to ")) {
        Some((_, file)) => {
            let _ = write!(
                text,
                "\nto reproduce: {} {file}\nonce it is fixed, add the file to fuzz/corpus",
                program.display()
            );
        }
        None => text.push_str("\nit wrote no input"),
    }
    text
}

/// The final statistics of libFuzzer on one line.
fn summary(target: &str, log: &str) -> String {
    let stat = |name: &str| log.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("?").trim();
    let edges = log.lines().rev().find_map(|line| line.split_once(" cov: ")).map_or("?", |(_, rest)| rest);
    let edges = edges.split_whitespace().next().unwrap_or("?");
    format!(
        "{target}: {} runs, {} a second, {edges} edges, {} new inputs, {} MiB",
        stat("stat::number_of_executed_units:"),
        stat("stat::average_exec_per_sec:"),
        stat("stat::new_units_added:"),
        stat("stat::peak_rss_mb:"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_target_is_told_with_the_input_that_breaks_it() {
        let log =
            "INFO: seed\nthread panicked at x\nartifact_prefix='/b/'; Test unit written to /b/crash-01\nBase64: AA==\n";
        let text = explain(Path::new("/t/view"), log);
        assert!(text.contains("panicked at x") && text.contains("to reproduce: /t/view /b/crash-01"), "{text}");
    }

    #[test]
    fn a_run_is_told_in_a_line() {
        let log = "#2\tINITED cov: 10 ft: 11 corp: 1\n#9\tDONE   cov: 12 ft: 15 corp: 3\n\
                   stat::number_of_executed_units: 900\nstat::average_exec_per_sec:     90\nstat::new_units_added: 2\n\
                   stat::slowest_unit_time_sec: 0\nstat::peak_rss_mb: 40\n";
        assert_eq!(summary("view", log), "view: 900 runs, 90 a second, 12 edges, 2 new inputs, 40 MiB");
    }
}
