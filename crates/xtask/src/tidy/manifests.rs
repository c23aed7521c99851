//! Dependencies are pinned in one place, each with a reason, all used, all from crates.io.

use super::code::has_word;
use super::{Finding, Manifest, Tree};

const WORKSPACE: &str = "workspace.dependencies";
const TABLES: [&str; 3] = ["dependencies", "dev-dependencies", "build-dependencies"];
/// The feature that lets tests kill a program at a given point.
const CRASH_POINTS: &str = "crash-points";
/// The only allowed source of packages.
const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Every dependency in the root manifest has a comment with its reason. Our own crates need none.
pub(crate) fn dependencies_have_reasons(tree: &Tree) -> Vec<Finding> {
    let manifest = &tree.manifest;
    let mut findings = Vec::new();
    for (name, value) in pinned(manifest) {
        let line = manifest.line_of(WORKSPACE, name);
        let is_room = value.get("path").is_some();
        if !is_room && !has_reason(manifest, line) {
            let message =
                format!("`{name}` has no reason: add a comment at the end of its line that says why it is needed");
            findings.push(Finding::new(&manifest.path, line, message));
        }
    }
    findings
}

/// Crates take their dependencies from the root manifest, where versions are pinned.
pub(crate) fn dependencies_are_pinned_in_the_root(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for manifest in &tree.rooms {
        for table in TABLES {
            let Some(entries) = manifest.value.get(table).and_then(toml::Value::as_table) else { continue };
            for (name, value) in entries {
                if value.get("workspace").and_then(toml::Value::as_bool) != Some(true) {
                    let message = format!(
                        "`{name}` is not pinned in the root manifest: move it to [{WORKSPACE}] and write `{name}.workspace = true`"
                    );
                    findings.push(Finding::new(&manifest.path, manifest.line_of(table, name), message));
                }
            }
        }
    }
    findings
}

/// Every dependency of the root manifest is used by a crate, and every dependency of a crate by its code.
pub(crate) fn dependencies_are_used(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, _) in pinned(&tree.manifest) {
        let taken = tree.rooms.iter().any(|room| TABLES.iter().any(|table| room.names_in(table).contains(&name)));
        if !taken {
            let line = tree.manifest.line_of(WORKSPACE, name);
            findings.push(Finding::new(&tree.manifest.path, line, format!("no crate uses `{name}`: remove it")));
        }
    }
    for manifest in &tree.rooms {
        for table in TABLES {
            for name in manifest.names_in(table).into_iter().filter(|name| !is_named(tree, &manifest.room, name)) {
                let message = format!("no source file of `{}` uses `{name}`: remove it", manifest.room);
                findings.push(Finding::new(&manifest.path, manifest.line_of(table, name), message));
            }
        }
    }
    findings
}

/// Cargo.lock has no source except crates.io.
pub(crate) fn packages_come_from_crates_io(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in tree.lock.lines().enumerate() {
        let Some(source) = line.strip_prefix("source = ") else { continue };
        if source.trim_matches('"') != CRATES_IO {
            let message = format!("{source} is not crates.io: use a published version");
            findings.push(Finding::new("Cargo.lock", index + 1, message));
        }
    }
    findings
}

/// Crash points are enabled only by tests: not by a dependency of the product, and not by default.
pub(crate) fn crash_points_are_for_tests(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for manifest in tree.rooms.iter().chain([&tree.manifest]) {
        let mut allowed = "";
        for (index, line) in manifest.text.lines().enumerate() {
            if line.starts_with('[') {
                allowed = match line.trim() {
                    "[dev-dependencies]" => "a test's dependency",
                    "[features]" if manifest.room == "os" => "the feature itself",
                    _ => "",
                };
            }
            let code = line.split_once('#').map_or(line, |(code, _)| code);
            let by_default = code.starts_with("default");
            if code.contains(CRASH_POINTS) && (allowed.is_empty() || by_default) {
                let message = format!("`{CRASH_POINTS}` would ship: enable it only in [dev-dependencies]");
                findings.push(Finding::new(&manifest.path, index + 1, message));
            }
        }
    }
    findings
}

fn pinned(manifest: &Manifest) -> Vec<(&str, &toml::Value)> {
    let table = manifest.value.get("workspace").and_then(|workspace| workspace.get("dependencies"));
    let table = table.and_then(toml::Value::as_table);
    table.map(|table| table.iter().map(|(name, value)| (name.as_str(), value)).collect()).unwrap_or_default()
}

/// A comment at the end of the line, or alone on the line above.
fn has_reason(manifest: &Manifest, line: usize) -> bool {
    let lines: Vec<&str> = manifest.text.lines().collect();
    let at = |number: usize| number.checked_sub(1).and_then(|index| lines.get(index)).copied().unwrap_or_default();
    let says_something = |comment: &str| comment.trim_matches(['#', ' ']).len() > 2;
    let above = at(line - 1).trim();
    comment_of(at(line)).is_some_and(says_something) || (above.starts_with('#') && says_something(above))
}

/// The comment of a line of TOML; a `#` inside a string does not start one.
fn comment_of(line: &str) -> Option<&str> {
    let mut quoted = false;
    for (at, character) in line.char_indices() {
        match character {
            '"' => quoted = !quoted,
            '#' if !quoted => return Some(&line[at..]),
            _ => {}
        }
    }
    None
}

fn is_named(tree: &Tree, room: &str, package: &str) -> bool {
    let name = package.replace('-', "_");
    let mut sources = tree.sources.iter().filter(|source| source.room == room);
    sources.any(|source| source.code.contains(&name) && source.code.lines().any(|line| has_word(line, &name)))
}

#[cfg(test)]
mod tests {
    use super::super::Source;
    use super::*;

    const ROOT: &str = "[workspace.dependencies]\npinfold-os = { path = \"crates/os\" }\nserde = \"1\" # the wire types\n\
                        libc = { version = \"0.2\", features = [\"#\"] }\n# for colours\nanstyle = \"1\"\n";

    #[test]
    fn a_dependency_without_a_reason_is_found() {
        let findings = dependencies_have_reasons(&Tree::of_manifests(ROOT, &[]));
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].line, 4);
        assert!(findings[0].message.contains("`libc`"));
    }

    #[test]
    fn a_version_in_a_room_is_found() {
        let room =
            "[dependencies]\nserde.workspace = true\nlibc = \"0.2\"\n[dev-dependencies]\nx = { version = \"1\" }\n";
        let findings = dependencies_are_pinned_in_the_root(&Tree::of_manifests(ROOT, &[("os", room)]));
        assert_eq!(findings.iter().map(|finding| finding.line).collect::<Vec<_>>(), [3, 5]);
    }

    #[test]
    fn what_nobody_takes_and_what_nobody_names_is_found() {
        let room = "[dependencies]\nserde.workspace = true\nlibc.workspace = true\npinfold-os.workspace = true\n";
        let mut tree = Tree::of_manifests(ROOT, &[("os", room)]);
        let text = "use serde::Serialize; // libc\nfn f() { pinfold_os::x() }";
        tree.sources.push(Source::new("crates/os/src/lib.rs", "os", text.to_owned()));
        let found: Vec<String> = dependencies_are_used(&tree).into_iter().map(|finding| finding.message).collect();
        assert_eq!(found, ["no crate uses `anstyle`: remove it", "no source file of `os` uses `libc`: remove it"]);
    }

    #[test]
    fn a_foreign_source_in_the_lock_file_is_found() {
        let lock = format!("source = \"{CRATES_IO}\"\nsource = \"git+https://example.org/x\"\n");
        let findings = packages_come_from_crates_io(&Tree { lock, ..Tree::default() });
        assert_eq!(findings.iter().map(|finding| finding.line).collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn crash_points_that_would_ship_are_found() {
        let found =
            |root: &str, rooms: &[(&str, &str)]| crash_points_are_for_tests(&Tree::of_manifests(root, rooms)).len();
        let take = "pinfold-os = { workspace = true, features = [\"crash-points\"] }\n";
        let feature = "[features]\ncrash-points = []\n";
        assert_eq!(found("", &[("cli", &format!("[dev-dependencies]\n{take}")), ("os", feature)]), 0);
        assert_eq!(found("", &[("cli", &format!("[dependencies]\n{take}"))]), 1);
        assert_eq!(found(&format!("[workspace.dependencies]\n{take}"), &[]), 1);
        assert_eq!(found("", &[("os", "[features]\ndefault = [\"crash-points\"]\n"), ("keeper", feature)]), 2);
    }
}
