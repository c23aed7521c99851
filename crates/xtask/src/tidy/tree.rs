//! The workspace in memory: sources and manifests for the checks.

use std::path::{Path, PathBuf};

use anyhow::Context;

/// The workspace.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    /// Where it was read from.
    pub root: PathBuf,
    pub manifest: Manifest,
    /// One for each crate, by directory name.
    pub rooms: Vec<Manifest>,
    /// The text of Cargo.lock.
    pub lock: String,
    /// The text of ARCHITECTURE.md.
    pub architecture: String,
    /// The text of docs/api.md.
    pub api_document: String,
    pub sources: Vec<Source>,
}

/// A Cargo.toml.
#[derive(Clone, Debug, Default)]
pub struct Manifest {
    /// Relative to the root.
    pub path: PathBuf,
    /// The crate: its directory name; empty for the root.
    pub room: String,
    pub text: String,
    pub value: toml::Table,
}

/// A .rs file.
#[derive(Clone, Debug, Default)]
pub struct Source {
    /// Relative to the root.
    pub path: PathBuf,
    /// The crate it is in.
    pub room: String,
    pub text: String,
    /// The text with comments and literals blanked, with the same lines.
    pub code: String,
    /// For each line whether it is compiled only for tests.
    pub test_lines: Vec<bool>,
}

impl Tree {
    /// Reads the workspace at this root.
    pub fn read(root: &Path) -> anyhow::Result<Self> {
        let read =
            |path: &Path| std::fs::read_to_string(root.join(path)).with_context(|| format!("cannot read {path:?}"));
        let mut tree = Tree { root: root.to_owned(), lock: read(Path::new("Cargo.lock"))?, ..Tree::default() };
        tree.architecture = read(Path::new("ARCHITECTURE.md"))?;
        tree.api_document = read(Path::new("docs/api.md"))?;
        tree.manifest = Manifest::parse("Cargo.toml", "", read(Path::new("Cargo.toml"))?)?;
        for directory in sorted_entries(&root.join("crates"))? {
            let Some(room) = directory.file_name().and_then(|name| name.to_str()).map(str::to_owned) else { continue };
            let path = Path::new("crates").join(&room).join("Cargo.toml");
            if !root.join(&path).exists() {
                continue;
            }
            tree.rooms.push(Manifest::parse(&path, &room, read(&path)?)?);
            let mut files = Vec::new();
            rust_files(&directory, &mut files)?;
            for file in files {
                let path = file.strip_prefix(root)?.to_owned();
                tree.sources.push(Source::new(&path, &room, read(&path)?));
            }
        }
        Ok(tree)
    }
}

impl Manifest {
    pub(crate) fn parse(path: impl Into<PathBuf>, room: &str, text: String) -> anyhow::Result<Self> {
        let path = path.into();
        let value = text.parse().with_context(|| format!("{} is not TOML", path.display()))?;
        Ok(Manifest { path, room: room.to_owned(), value, text })
    }

    /// The names in a table of dependencies, such as `dependencies` or `dev-dependencies`.
    pub(crate) fn names_in(&self, table: &str) -> Vec<&str> {
        let names = self.value.get(table).and_then(toml::Value::as_table);
        names.map(|names| names.keys().map(String::as_str).collect()).unwrap_or_default()
    }

    /// The line that sets this name inside a table; 1 if it is not found.
    pub(crate) fn line_of(&self, table: &str, name: &str) -> usize {
        let mut inside = false;
        for (index, line) in self.text.lines().enumerate() {
            let line = line.trim();
            if line.starts_with('[') {
                inside = line.starts_with(&format!("[{table}]"));
                if line.starts_with(&format!("[{table}.{name}]")) {
                    return index + 1;
                }
            } else if inside && line.strip_prefix(name).is_some_and(|rest| rest.trim_start().starts_with(['=', '.'])) {
                return index + 1;
            }
        }
        1
    }
}

impl Source {
    pub(crate) fn new(path: impl Into<PathBuf>, room: &str, text: String) -> Self {
        let path = path.into();
        let code = super::code::blank_comments_and_literals(&text);
        let whole = is_test_file(&path) || room == "testkit";
        let test_lines = if whole { vec![true; code.lines().count()] } else { super::code::lines_for_tests(&code) };
        Source { path, room: room.to_owned(), text, code, test_lines }
    }

    /// Lines of code with their number and whether they are only for tests.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (usize, &str, bool)> {
        let lines = self.code.lines().enumerate();
        lines.map(|(index, line)| (index + 1, line, self.test_lines.get(index).copied().unwrap_or(false)))
    }

    /// Whether the whole file is for tests.
    pub(crate) fn is_test_file(&self) -> bool {
        is_test_file(&self.path)
    }
}

fn is_test_file(path: &Path) -> bool {
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    path.components().any(|part| part.as_os_str() == "tests")
        || stem == "tests"
        || stem == "testing"
        || stem.ends_with("_tests")
}

fn rust_files(directory: &Path, found: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    for path in sorted_entries(directory)? {
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "target") {
                rust_files(&path, found)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    Ok(())
}

fn sorted_entries(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(directory).with_context(|| format!("cannot list {}", directory.display()))?;
    let mut paths = entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>()?;
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
impl Tree {
    /// A tree for testing one check.
    pub(crate) fn of(sources: Vec<Source>) -> Self {
        Tree { sources, ..Tree::default() }
    }

    /// A tree of manifests: the root's text, and each room's.
    pub(crate) fn of_manifests(root: &str, rooms: &[(&str, &str)]) -> Self {
        let room = |(room, text): &(&str, &str)| {
            Manifest::parse(format!("crates/{room}/Cargo.toml"), room, (*text).to_owned()).expect("TOML")
        };
        Tree {
            manifest: Manifest::parse("Cargo.toml", "", root.to_owned()).expect("TOML"),
            rooms: rooms.iter().map(room).collect(),
            ..Tree::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_told_by_their_place_and_name() {
        for path in
            ["crates/a/tests/b.rs", "crates/a/src/b_tests.rs", "crates/a/src/b/tests.rs", "crates/a/src/testing.rs"]
        {
            assert!(is_test_file(Path::new(path)), "{path}");
        }
        assert!(!is_test_file(Path::new("crates/a/src/protests.rs")));
    }

    #[test]
    fn a_name_is_found_in_its_own_table_alone() {
        let text = "[dependencies]\nserde = \"1\"\n\n[dev-dependencies]\nserde.workspace = true\nserde_json = \"1\"\n";
        let manifest = Manifest::parse("Cargo.toml", "", text.to_owned()).expect("TOML");
        assert_eq!(manifest.line_of("dependencies", "serde"), 2);
        assert_eq!(manifest.line_of("dev-dependencies", "serde"), 5);
        assert_eq!(manifest.line_of("dev-dependencies", "serde_json"), 6);
        assert_eq!(manifest.names_in("dev-dependencies"), ["serde", "serde_json"]);
    }
}
