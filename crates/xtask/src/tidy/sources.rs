//! Rules for source files: header, size, where `unsafe` and printing are allowed, names.

use std::path::Path;

use super::code::has_word;
use super::{Finding, Source, Tree};

/// Longer files get a warning …
const LONG: usize = 400;
/// … and even longer ones an error.
const TOO_LONG: usize = 600;
/// Names that do not say what a module owns.
const EMPTY_NAMES: [&str; 9] =
    ["manager", "managers", "helper", "helpers", "util", "utils", "common", "misc", "miscellaneous"];
/// Crates that may print.
const PRINTING_ROOMS: [&str; 3] = ["cli", "simulation", "xtask"];

/// Every file starts with `//!`: what it owns, what it must not do, its invariants.
pub(crate) fn files_begin_with_a_header(tree: &Tree) -> Vec<Finding> {
    let bare = tree.sources.iter().filter(|source| {
        let first = source.text.lines().next().unwrap_or_default();
        first.strip_prefix("//!").is_none_or(|words| words.trim().is_empty())
    });
    bare.map(|source| Finding::new(&source.path, 1, "start with `//!` and say what this file owns")).collect()
}

/// No file of the product is longer than 600 lines.
pub(crate) fn files_are_short(tree: &Tree) -> Vec<Finding> {
    let message = |lines| format!("{lines} lines, at most {TOO_LONG}: two concerns share this file, split it");
    longer_than(tree, TOO_LONG).map(|(source, lines)| Finding::new(&source.path, TOO_LONG, message(lines))).collect()
}

/// Warns about files that are getting long.
pub(crate) fn files_are_getting_long(tree: &Tree) -> Vec<Finding> {
    let message = |lines| format!("{lines} lines, aim at {LONG}");
    let long = longer_than(tree, LONG).filter(|(_, lines)| *lines <= TOO_LONG);
    long.map(|(source, lines)| Finding::new(&source.path, LONG, message(lines))).collect()
}

/// `unsafe` is allowed only in `os`.
pub(crate) fn unsafe_is_in_os_alone(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in tree.sources.iter().filter(|source| source.room != "os") {
        for (line, code, _) in source.lines().filter(|(_, code, _)| has_word(code, "unsafe")) {
            let message = format!("`unsafe` outside `os`: move the system call there ({})", code.trim());
            findings.push(Finding::new(&source.path, line, message));
        }
    }
    findings
}

/// Neither `todo!` nor `dbg!`, anywhere.
pub(crate) fn nothing_is_left_unfinished(tree: &Tree) -> Vec<Finding> {
    macro_calls(tree, &["todo", "unimplemented", "dbg"], |_, _| true)
        .map(|(source, line, name)| {
            Finding::new(&source.path, line, format!("`{name}!` must not be committed: finish or remove it"))
        })
        .collect()
}

/// Crates other than [`PRINTING_ROOMS`] log or return text; they do not print.
pub(crate) fn printing_is_for_the_command_line(tree: &Tree) -> Vec<Finding> {
    let counts = |source: &Source, in_test: bool| !in_test && !PRINTING_ROOMS.contains(&source.room.as_str());
    macro_calls(tree, &["println", "print"], counts)
        .map(|(source, line, name)| {
            let message = format!("`{name}!` in `{}`: return it, log it, or let `cli` print it", source.room);
            Finding::new(&source.path, line, message)
        })
        .collect()
}

/// No manager, helper, util, common or misc, as file, directory or module.
pub(crate) fn modules_are_named_for_what_they_own(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in &tree.sources {
        if let Some(name) = path_names(&source.path).find(|name| is_empty_name(name)) {
            findings.push(Finding::new(&source.path, 1, empty_name(&name)));
        }
        for (line, code, _) in source.lines() {
            if let Some(name) = module_name(code).filter(|name| is_empty_name(name)) {
                findings.push(Finding::new(&source.path, line, empty_name(name)));
            }
        }
    }
    findings
}

fn longer_than(tree: &Tree, max: usize) -> impl Iterator<Item = (&Source, usize)> {
    let counted = tree.sources.iter().filter(|source| !source.is_test_file());
    counted.map(|source| (source, source.text.lines().count())).filter(move |(_, lines)| *lines > max)
}

/// Calls of these macros in code.
fn macro_calls<'a>(
    tree: &'a Tree,
    names: &'static [&'static str],
    counts: impl Fn(&Source, bool) -> bool + 'a,
) -> impl Iterator<Item = (&'a Source, usize, &'static str)> {
    tree.sources.iter().flat_map(move |source| {
        let mut found = Vec::new();
        for (line, code, _) in
            source.lines().filter(|(_, code, in_test)| code.contains('!') && counts(source, *in_test))
        {
            found.extend(names.iter().filter(|name| calls(code, name)).map(|name| (source, line, *name)));
        }
        found
    })
}

fn calls(code: &str, name: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    code.match_indices(&format!("{name}!")).any(|(at, _)| at == 0 || !is_part(code.as_bytes()[at - 1]))
}

fn path_names(path: &Path) -> impl Iterator<Item = String> {
    let names = path.components().filter_map(|part| part.as_os_str().to_str());
    names.map(|name| name.trim_end_matches(".rs").to_owned())
}

fn module_name(code: &str) -> Option<&str> {
    let words: Vec<&str> = code.split_whitespace().collect();
    let at = words.iter().position(|word| *word == "mod")?;
    // `pub mod x;`, `pub(crate) mod x {`: nothing but visibility before it.
    if at > 1 || (at == 1 && !words[0].starts_with("pub")) {
        return None;
    }
    words.get(at + 1).map(|name| name.trim_end_matches([';', '{']))
}

fn is_empty_name(name: &str) -> bool {
    name.split(['_', '-']).any(|word| EMPTY_NAMES.contains(&word))
}

fn empty_name(name: &str) -> String {
    format!("`{name}` is too vague: name it for what it owns")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(path: &str, text: &str) -> Tree {
        let room = path.split('/').nth(1).unwrap_or_default().to_owned();
        Tree::of(vec![Source::new(path, &room, text.to_owned())])
    }

    fn lines(findings: &[Finding]) -> Vec<usize> {
        findings.iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_file_without_a_header_is_found() {
        for (text, bad) in [
            ("fn main() {}", true),
            ("", true),
            ("//!\nfn f() {}", true),
            ("#![allow(x)]\n//! y", true),
            ("//! It.\n", false),
        ] {
            assert_eq!(
                files_begin_with_a_header(&tree("crates/os/src/lib.rs", text)).len(),
                usize::from(bad),
                "{text}"
            );
        }
    }

    #[test]
    fn a_long_file_warns_and_a_longer_one_fails_but_not_tests() {
        let (long, longer) = ("//\n".repeat(401), "//\n".repeat(601));
        assert_eq!(files_are_getting_long(&tree("crates/os/src/a.rs", &long)).len(), 1);
        assert_eq!(files_are_short(&tree("crates/os/src/a.rs", &long)), []);
        assert_eq!(files_are_short(&tree("crates/os/src/a.rs", &longer)).len(), 1);
        assert_eq!(files_are_short(&tree("crates/os/src/a_tests.rs", &longer)), []);
        assert_eq!(files_are_short(&tree("crates/os/tests/a.rs", &longer)), []);
    }

    #[test]
    fn unsafe_code_outside_os_is_found_and_words_about_it_are_not() {
        let text = "//! unsafe\n#![deny(unsafe_code)]\nlet x = \"unsafe\";\nlet y = unsafe { z() };\n";
        assert_eq!(lines(&unsafe_is_in_os_alone(&tree("crates/store/src/a.rs", text))), [4]);
        assert_eq!(unsafe_is_in_os_alone(&tree("crates/os/src/a.rs", text)), []);
    }

    #[test]
    fn unfinished_work_is_found_even_in_tests() {
        let text = "fn f() { todo!() }\n// dbg!(x)\n#[cfg(test)]\nmod tests {\n    fn g() { dbg!(1); }\n}\n";
        assert_eq!(lines(&nothing_is_left_unfinished(&tree("crates/cli/src/a.rs", text))), [1, 5]);
    }

    #[test]
    fn printing_is_found_outside_the_command_line_and_tests() {
        let text =
            "fn f() { println!(\"x\"); eprintln!(\"y\"); }\n#[cfg(test)]\nmod tests {\n    fn g() { println!(); }\n}\n";
        assert_eq!(lines(&printing_is_for_the_command_line(&tree("crates/daemon/src/a.rs", text))), [1]);
        assert_eq!(printing_is_for_the_command_line(&tree("crates/cli/src/a.rs", text)), []);
        assert_eq!(printing_is_for_the_command_line(&tree("crates/daemon/tests/a.rs", text)), []);
    }

    #[test]
    fn empty_names_are_found_in_paths_and_modules() {
        assert_eq!(modules_are_named_for_what_they_own(&tree("crates/os/src/util.rs", "")).len(), 1);
        assert_eq!(modules_are_named_for_what_they_own(&tree("crates/os/src/helpers/a.rs", "")).len(), 1);
        assert_eq!(modules_are_named_for_what_they_own(&tree("crates/os/src/process_manager.rs", "")).len(), 1);
        let text = "pub(crate) mod common {\n}\nmod misc;\nmod tree;\n// mod util;\n";
        assert_eq!(lines(&modules_are_named_for_what_they_own(&tree("crates/os/src/a.rs", text))), [1, 3]);
    }
}
