//! Builds programs of this workspace; takes their paths from cargo's messages.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use serde_json::Value;

/// Read by the build of the program: see crates/cli/src/version.rs.
const VERSION_ENV: &str = "PINFOLD_VERSION";

/// Build profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    Dev,
    Release,
    /// `profile.simulate` in the root manifest.
    Simulate,
}

/// Builds these packages, each with a program of the same name, and returns the paths. A release is built per package, as users
/// build it; a dev build covers the workspace, which reuses what `cargo build --workspace` has built.
pub fn build<const N: usize>(root: &Path, profile: Profile, packages: [&str; N]) -> anyhow::Result<[PathBuf; N]> {
    match profile {
        Profile::Release => with(root, &["--release"], ["--package"; N], packages),
        Profile::Simulate => with(root, &["--profile", "simulate"], ["--package"; N], packages),
        Profile::Dev => with(root, &["--workspace"], ["--bin"; N], packages),
    }
}

/// Builds a program and an example in the dev profile.
pub fn program_and_example(root: &Path, program: &str, example: &str) -> anyhow::Result<[PathBuf; 2]> {
    with(root, &["--workspace"], ["--bin", "--example"], [program, example])
}

/// Builds a program of the workspace in the dev profile, with another version than the manifest's if one is given.
pub fn build_versioned(root: &Path, program: &str, version: Option<&str>) -> anyhow::Result<PathBuf> {
    let mut cargo = cargo(root, &["--workspace", "--bin", program]);
    cargo.envs(version.map(|version| (VERSION_ENV, version)));
    let [program] = built(cargo, [program])?;
    Ok(program)
}

/// Builds a release of a program that needs no library of the machine: with musl if the toolchain has it, else with a static
/// glibc.
pub fn build_static(root: &Path, program: &str, version: Option<&str>) -> anyhow::Result<PathBuf> {
    let arch = std::env::consts::ARCH;
    let musl = format!("{arch}-unknown-linux-musl");
    let has_musl = target_libraries(&musl).is_some_and(|path| path.is_dir())
        && Command::new("musl-gcc").arg("--version").output().is_ok_and(|output| output.status.success());
    let target = if has_musl { musl } else { format!("{arch}-unknown-linux-gnu") };
    // With a target of its own, the flags do not reach build scripts and macros.
    let mut cargo = cargo(root, &["--release", "--target", &target, "--package", program]);
    cargo.env("RUSTFLAGS", "-C target-feature=+crt-static").envs(version.map(|version| (VERSION_ENV, version)));
    let [program] = built(cargo, [program])?;
    Ok(program)
}

/// Where the toolchain has, or would have, the standard library of a target.
fn target_libraries(target: &str) -> Option<PathBuf> {
    let output = Command::new("rustc").args(["--print", "target-libdir", "--target", target]).output().ok()?;
    output.status.success().then(|| PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()))
}

/// The directory that cargo builds into.
pub fn target_directory(root: &Path) -> anyhow::Result<PathBuf> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["metadata", "--no-deps", "--format-version=1"]).current_dir(root);
    let output = command.output().context("cannot run cargo")?;
    let metadata: Value = serde_json::from_slice(&output.stdout).context("cargo metadata says no JSON")?;
    metadata["target_directory"].as_str().map(PathBuf::from).context("cargo metadata names no target directory")
}

fn with<const N: usize>(
    root: &Path,
    options: &[&str],
    kinds: [&str; N],
    names: [&str; N],
) -> anyhow::Result<[PathBuf; N]> {
    let mut command = cargo(root, options);
    command.args(kinds.iter().zip(names).flat_map(|(kind, name)| [*kind, name]));
    built(command, names)
}

fn cargo(root: &Path, options: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["build", "--message-format=json-render-diagnostics"]).args(options).current_dir(root);
    command
}

fn built<const N: usize>(mut command: Command, names: [&str; N]) -> anyhow::Result<[PathBuf; N]> {
    let output = command.stderr(Stdio::inherit()).output().context("cannot run cargo")?;
    ensure!(output.status.success(), "the build failed");
    let messages = String::from_utf8_lossy(&output.stdout);
    let mut programs = [const { PathBuf::new() }; N];
    for (program, name) in programs.iter_mut().zip(names) {
        *program = executable(&messages, name).with_context(|| format!("cargo built no `{name}`"))?;
    }
    Ok(programs)
}

/// The executable of this name in cargo's messages.
fn executable(messages: &str, name: &str) -> Option<PathBuf> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut of_this_name = messages.filter(|message| message["target"]["name"] == name);
    of_this_name.find_map(|message| message["executable"].as_str().map(PathBuf::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_executable_is_found_among_cargos_messages() {
        let messages = r#"{"reason":"compiler-artifact","target":{"name":"xtask"},"executable":null}
            {"reason":"compiler-artifact","target":{"name":"xtask"},"executable":"/t/release/xtask"}
            {"reason":"build-finished","success":true}"#;
        assert_eq!(executable(messages, "xtask"), Some(PathBuf::from("/t/release/xtask")));
        assert_eq!(executable(messages, "pinfold"), None);
    }
}
