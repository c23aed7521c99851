//! The program that packages hold: built, with its manual pages and completions.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

use super::{Profile, copy, missing, output};
use crate::cargo_build;

/// A built program.
pub(super) struct Program {
    pub(super) path: PathBuf,
    pub(super) version: String,
    /// Whether it needs no library of the machine.
    pub(super) is_static: bool,
}

impl Program {
    /// Builds the program into this directory; with another version than the manifest's if one is given.
    pub(super) fn build(root: &Path, into: &Path, profile: Profile, version: Option<&str>) -> anyhow::Result<Self> {
        let built = match profile {
            Profile::Release => cargo_build::build_static(root, "pinfold", version)?,
            Profile::Dev => cargo_build::build_versioned(root, "pinfold", version)?,
        };
        // The next build of another version has the same path.
        let path = into.join(version.unwrap_or("current")).join("pinfold");
        copy(&built, &path)?;
        if profile == Profile::Dev && missing("strip").is_none() {
            // Most of it is debug information and symbols, which only take time to pack.
            output(Command::new("strip").arg(&path))?;
        }
        let said = output(Command::new(&path).arg("--version"))?;
        let said = said.trim().strip_prefix("pinfold ").context("`pinfold --version` says no version")?.to_owned();
        ensure!(version.is_none_or(|version| version == said), "built {said} instead of {version:?}");
        let is_static = is_static(&path)?;
        ensure!(is_static || profile == Profile::Dev, "{} is not static", path.display());
        Ok(Self { path, version: said, is_static })
    }

    /// Writes one manual page for each command.
    pub(super) fn write_manual(&self, directory: &Path) -> anyhow::Result<()> {
        output(Command::new(&self.path).arg("man").arg(directory)).map(drop)
    }

    /// The completion script for a shell.
    pub(super) fn completions(&self, shell: &str) -> anyhow::Result<String> {
        output(Command::new(&self.path).args(["completions", shell]))
    }
}

/// Whether a program asks for no dynamic linker, which `PT_INTERP` would name.
pub(super) fn is_static(path: &Path) -> anyhow::Result<bool> {
    let bytes = std::fs::read(path)?;
    interpreter(&bytes).map(|has| !has).with_context(|| format!("{} is not a 64-bit ELF file", path.display()))
}

/// Whether a 64-bit little-endian ELF file has a `PT_INTERP` header; `None` for any other file.
fn interpreter(bytes: &[u8]) -> Option<bool> {
    const PT_INTERP: u32 = 3;
    if !bytes.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let number = |at: usize, size: usize| {
        let bytes = bytes.get(at..at.checked_add(size)?)?;
        Some(bytes.iter().rev().fold(0_u64, |number, byte| number << 8 | u64::from(*byte)))
    };
    let (table, size, count) = (number(32, 8)? as usize, number(54, 2)? as usize, number(56, 2)? as usize);
    for index in 0..count {
        if number(table.checked_add(index * size)?, 4)? == u64::from(PT_INTERP) {
            return Some(true);
        }
    }
    Some(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dynamic_program_is_told_from_a_static_one() {
        let own = std::fs::read("/proc/self/exe").expect("this test");
        assert_eq!(interpreter(&own), Some(true));
        let mut header = own[..64].to_vec();
        header[56..58].fill(0);
        assert_eq!(interpreter(&header), Some(false));
        assert_eq!(interpreter(b"#!/bin/sh"), None);
        assert_eq!(interpreter(b"\x7fELF\x02\x01"), None);
    }
}
