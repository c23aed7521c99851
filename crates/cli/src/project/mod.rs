//! Project files: the processes of a directory, what each depends on, and what `up` has to do.
//!
//! Reading and deciding are pure; the commands `up` and `down` carry it out over the api client. A project has one owner, named
//! after its directory, so that `down` finds its processes also when the file is broken or gone.

mod dependencies;
mod env_file;
mod file;
mod plan;
mod procfile;
mod toml_file;

use std::collections::BTreeMap;
use std::path::PathBuf;

use pinfold_api::types::StartRequest;
use sha2::{Digest, Sha256};

pub(crate) use dependencies::{Condition, Dependency, depths};
pub(crate) use file::{Location, find, read};
pub(crate) use plan::{Action, CONFIG_LABEL, decide};

/// A project file, read and checked.
#[derive(Debug)]
pub(crate) struct Project {
    pub(crate) processes: Vec<Definition>,
}

/// One process of a project.
#[derive(Debug)]
pub(crate) struct Definition {
    pub(crate) name: String,
    pub(crate) depends_on: Vec<Dependency>,
    /// The start request, without the environment of the caller: that differs from shell to shell.
    pub(crate) request: StartRequest,
}

impl Definition {
    /// A digest of the definition: the same text, the same digest.
    pub(crate) fn digest(&self) -> String {
        let json = serde_json::to_vec(&self.request).unwrap_or_default();
        hex(&Sha256::digest(json), 8)
    }
}

impl Project {
    /// The positions of these processes and of all that they depend on; of all processes if no name is given.
    pub(crate) fn select(&self, names: &[String]) -> Result<Vec<usize>, String> {
        if names.is_empty() {
            return Ok((0..self.processes.len()).collect());
        }
        let mut selected = vec![false; self.processes.len()];
        let mut open = Vec::new();
        for name in names {
            open.push(self.position(name).ok_or_else(|| self.unknown(name))?);
        }
        while let Some(position) = open.pop() {
            if !std::mem::replace(&mut selected[position], true) {
                open.extend(self.processes[position].depends_on.iter().map(|dependency| dependency.on));
            }
        }
        Ok((0..selected.len()).filter(|position| selected[*position]).collect())
    }

    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        self.processes.iter().position(|process| process.name == name)
    }

    fn unknown(&self, name: &str) -> String {
        let names: Vec<_> = self.processes.iter().map(|process| process.name.as_str()).collect();
        format!("no process `{name}` in the project file; it has: {}", names.join(", "))
    }
}

/// Why a project file cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ProjectError {
    pub(crate) path: PathBuf,
    /// Line and column, from 1.
    pub(crate) at: Option<(usize, usize)>,
    pub(crate) message: String,
}

impl std::fmt::Display for ProjectError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}:", self.path.display())?;
        if let Some((line, column)) = self.at {
            write!(formatter, "{line}:{column}:")?;
        }
        write!(formatter, " {}", self.message)
    }
}

/// Line and column of a byte offset, from 1; columns count characters.
fn line_and_column(text: &str, offset: usize) -> (usize, usize) {
    let mut offset = offset.min(text.len());
    while !text.is_char_boundary(offset) {
        offset -= 1;
    }
    let before = &text[..offset];
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

/// The owner of a project: the name of its directory, and a digest of the path, since names are not unique. Another file
/// than the one that is found in the directory by itself is another project.
pub(crate) fn owner_of(location: &Location) -> String {
    let directory = &location.directory;
    let name = directory.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let name: String =
        name.chars().filter(|letter| letter.is_ascii_alphanumeric() || "._-".contains(*letter)).take(40).collect();
    let name = if name.is_empty() { "project" } else { &name };
    let mut digest = Sha256::new_with_prefix(directory.as_os_str().as_encoded_bytes());
    if let Some(file) = location.file.file_name().filter(|_| !location.is_default()) {
        digest.update(b"/");
        digest.update(file.as_encoded_bytes());
    }
    format!("{name}@{}", hex(&digest.finalize(), 4))
}

fn hex(digest: &[u8], bytes: usize) -> String {
    digest.iter().take(bytes).map(|byte| format!("{byte:02x}")).collect()
}

/// Variables of a process, from its files and its own table.
type Variables = BTreeMap<String, String>;

#[cfg(test)]
mod tests {
    use super::*;

    fn owner_of_file(directory: &str, file: &str) -> String {
        let directory = PathBuf::from(directory);
        owner_of(&Location { file: directory.join(file), directory })
    }

    #[test]
    fn another_file_in_the_same_directory_is_another_project() {
        assert_ne!(owner_of_file("/a/shop", "pinfold.toml"), owner_of_file("/a/shop", "two.toml"));
        assert_ne!(owner_of_file("/a/shop", "one.toml"), owner_of_file("/a/shop", "two.toml"));
    }

    #[test]
    fn an_owner_is_a_valid_name_and_differs_between_directories_of_one_name() {
        let owner_of = |directory: &str| owner_of_file(directory, "pinfold.toml");
        let (one, two) = (owner_of("/a/shop"), owner_of("/b/shop"));
        assert_ne!(one, two);
        assert!(one.starts_with("shop@") && one.len() == "shop@".len() + 8, "{one}");
        assert!(owner_of("/").starts_with("project@"));
        assert!(owner_of("/a/日本 x*").starts_with("x@"));
    }

    #[test]
    fn a_position_is_told_in_lines_and_characters() {
        assert_eq!(line_and_column("ab\ncd", 4), (2, 2));
        assert_eq!(line_and_column("é=1", 2), (1, 2));
        assert_eq!(line_and_column("", 10), (1, 1));
    }
}
