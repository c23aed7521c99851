//! Documents match the code: generated ones are up to date, named paths exist, every error code is documented.

use super::code::has_word;
use super::{Finding, Tree};
use crate::generate::{self, Mode};

/// Every generated document is up to date.
pub(crate) fn generated_documents_are_current(tree: &Tree) -> Vec<Finding> {
    match generate::run(&tree.root, Mode::Check) {
        Ok(stale) => {
            stale.into_iter().map(|path| Finding::new(path, 1, "out of date: run `cargo xtask generate`")).collect()
        }
        Err(error) => vec![Finding::new("docs", 1, format!("cannot be compared: {error}"))],
    }
}

/// Every path and module that ARCHITECTURE.md names exists: links, `crates/…` and `docs/…`, files of a crate
/// (`keeper/driver.rs`), and modules and items of one (`model::lifecycle::step`).
pub(crate) fn paths_in_the_architecture_exist(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in tree.architecture.lines().enumerate() {
        let wrong = links(line).filter(|link| !tree.root.join(link).exists());
        let wrong = wrong.chain(quoted(line).filter(|name| !names_something(tree, name)));
        findings.extend(wrong.map(|name| {
            Finding::new("ARCHITECTURE.md", index + 1, format!("`{name}` does not exist: update the path"))
        }));
    }
    findings
}

/// Every error code of the API is in docs/api.md.
pub(crate) fn every_error_code_is_documented(tree: &Tree) -> Vec<Finding> {
    let Some(source) = tree.sources.iter().find(|source| source.path.ends_with("crates/api/src/error.rs")) else {
        return vec![];
    };
    let variants = source.code.split_once("pub enum ErrorCode {").and_then(|(_, rest)| rest.split_once('}'));
    let variants = variants.map_or("", |(variants, _)| variants);
    let codes = variants.split(',').map(str::trim).filter(|name| !name.is_empty()).map(snake_case);
    let missing = codes.filter(|code| !tree.api_document.contains(&format!("`{code}`")));
    missing
        .map(|code| Finding::new("docs/api.md", 1, format!("the error code `{code}` is not documented: add it")))
        .collect()
}

/// Targets of Markdown links inside the repository.
fn links(line: &str) -> impl Iterator<Item = &str> {
    let targets = line.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    targets.map(|(target, _)| target.split('#').next().unwrap_or_default()).filter(|target| !target.contains("://"))
}

/// The texts between backticks.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

fn names_something(tree: &Tree, name: &str) -> bool {
    let name = name.split(['(', ' ']).next().unwrap_or_default();
    let room_and_rest = |separator: &str| {
        let (room, rest) = name.split_once(separator)?;
        let source = tree.root.join("crates").join(room).join("src");
        source.is_dir().then(|| (room.to_owned(), source, rest.to_owned()))
    };
    if name.starts_with("crates/") || name.starts_with("docs/") {
        return tree.root.join(name).exists();
    }
    if let Some((_, source, rest)) = room_and_rest("/") {
        return source.join(rest).exists();
    }
    let Some((room, mut place, rest)) = room_and_rest("::") else { return true };
    let segments: Vec<&str> = rest.split("::").collect();
    for (at, segment) in segments.iter().enumerate() {
        let (directory, file) = (place.join(segment), place.join(format!("{segment}.rs")));
        if directory.is_dir() || file.is_file() {
            place = directory;
            continue;
        }
        // The rest of the path is an item, or parts of it.
        let kinds = ["fn", "struct", "enum", "trait", "const", "type", "mod"];
        let is_item = |source: &&super::Source| {
            source.room == room && kinds.iter().any(|kind| has_word(&source.code, &format!("{kind} {segment}")))
        };
        return at + 2 >= segments.len() && tree.sources.iter().any(|source| is_item(&source));
    }
    true
}

fn snake_case(name: &str) -> String {
    let mut text = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.extend(letter.to_lowercase());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_document_is_found() {
        let root = std::env::temp_dir().join("pinfold-tidy-no-such-root");
        let findings = generated_documents_are_current(&Tree { root, ..Tree::default() });
        assert_eq!(findings.len(), generate::documents().len());
        assert!(findings[0].message.contains("cargo xtask generate"));
    }

    #[test]
    fn a_path_that_does_not_exist_is_found_with_its_line() {
        let root = crate::workspace_root();
        let name = |text: &str| Tree { architecture: text.to_owned(), ..Tree::read(&root).expect("the workspace") };
        let good = "[model](crates/model/src/lib.rs) `keeper/driver.rs` `model::lifecycle::step(phase, input)` `docs/api.md`\n\
                    `processes/<id>/record` `pause` [site](https://example.org) `daemon::request_error`\n";
        assert_eq!(paths_in_the_architecture_exist(&name(good)), []);
        let bad = [
            "[x](crates/no/such.rs)",
            "`keeper/no_such.rs`",
            "`model::no_such_module::step`",
            "`docs/no_such.md`",
            "`os::no_such_item`",
        ];
        for bad in bad {
            let findings = paths_in_the_architecture_exist(&name(&format!("fine\n{bad}\n")));
            assert_eq!(findings.iter().map(|finding| finding.line).collect::<Vec<_>>(), [2], "{bad}");
        }
    }

    #[test]
    fn an_error_code_without_a_document_is_found() {
        let text = "/// Codes.\npub enum ErrorCode {\n    /// One.\n    NotFound,\n    KeyReused,\n}\n";
        let sources = vec![super::super::Source::new("crates/api/src/error.rs", "api", text.to_owned())];
        let tree = Tree { api_document: "| 404 | `not_found` |".to_owned(), ..Tree::of(sources) };
        let findings = every_error_code_is_documented(&tree);
        assert!(findings.len() == 1 && findings[0].message.contains("`key_reused`"), "{findings:?}");
    }
}
