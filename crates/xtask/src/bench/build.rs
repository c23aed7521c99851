//! The release build: made by cargo, found by what cargo says, and entered with a clean environment.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use serde_json::Value;

/// Builds pinfold and this program in release and becomes that program. Returns only with the reason why not.
pub(super) fn continue_in_release(root: &Path) -> anyhow::Result<anyhow::Error> {
    let [xtask, pinfold] = build(root)?;
    let mut command = Command::new(&xtask);
    command.args(std::env::args_os().skip(1)).arg("--pinfold").arg(pinfold);
    // What cargo sets for the programs it runs would slow every exec below, bare and kept alike.
    for (name, _) in std::env::vars_os() {
        let name_text = name.to_string_lossy();
        if name_text.starts_with("CARGO") || name_text.starts_with("RUST") || name_text == "LD_LIBRARY_PATH" {
            command.env_remove(&name);
        }
    }
    Ok(anyhow::Error::new(command.exec()).context(format!("cannot run {}", xtask.display())))
}

fn build(root: &Path) -> anyhow::Result<[PathBuf; 2]> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["build", "--release", "-p", "pinfold", "-p", "xtask", "--message-format=json-render-diagnostics"])
        .current_dir(root)
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run cargo")?;
    if !output.status.success() {
        bail!("the release build failed");
    }
    let messages = String::from_utf8(output.stdout).context("cargo's messages are not UTF-8")?;
    Ok([executable(&messages, "xtask")?, executable(&messages, "pinfold")?])
}

/// The executable of this name in cargo's messages.
fn executable(messages: &str, name: &str) -> anyhow::Result<PathBuf> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut executables = messages.filter(|message| message["target"]["name"] == name);
    let path = executables.find_map(|message| message["executable"].as_str().map(PathBuf::from));
    path.with_context(|| format!("cargo built no executable `{name}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_executable_is_found_among_cargos_messages() {
        let messages = r#"{"reason":"compiler-artifact","target":{"name":"xtask"},"executable":null}
            {"reason":"compiler-artifact","target":{"name":"xtask"},"executable":"/t/release/xtask"}
            {"reason":"build-finished","success":true}"#;
        assert_eq!(executable(messages, "xtask").expect("found"), PathBuf::from("/t/release/xtask"));
        assert!(executable(messages, "pinfold").is_err());
    }
}
