//! Builds programs of this workspace; takes their paths from cargo's messages.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use serde_json::Value;

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

fn with<const N: usize>(
    root: &Path,
    options: &[&str],
    kinds: [&str; N],
    names: [&str; N],
) -> anyhow::Result<[PathBuf; N]> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["build", "--message-format=json-render-diagnostics"]).args(options);
    command.args(kinds.iter().zip(names).flat_map(|(kind, name)| [*kind, name]));
    let output = command.current_dir(root).stderr(Stdio::inherit()).output().context("cannot run cargo")?;
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
