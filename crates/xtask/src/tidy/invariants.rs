//! Every invariant that is stated in a header has a test with its name.
//!
//! Stated: `//! - L1 …` or `//! Invariant L5, …`. Tested: a test function whose name starts with `l1_`, or whose comment
//! contains `L1`.

use std::collections::{BTreeMap, BTreeSet};

use super::{Finding, Source, Tree};

/// Lifecycle, store, keeper, daemon, mcp, agents.
const FAMILIES: &str = "LSKDMG";

/// Every invariant that a header states has a test.
pub(crate) fn every_invariant_has_a_test(tree: &Tree) -> Vec<Finding> {
    let mut stated: BTreeMap<String, Finding> = BTreeMap::new();
    let mut borne = BTreeSet::new();
    for source in &tree.sources {
        for (line, code) in stated_in(source) {
            let lower = code.to_lowercase();
            let message = format!(
                "{code} has no test: name one `{lower}_…`, or write `/// {code}` above the test that would fail without it"
            );
            stated.entry(code).or_insert_with(|| Finding::new(&source.path, line, message));
        }
        borne.extend(borne_in(source));
    }
    stated.into_iter().filter(|(code, _)| !borne.contains(code)).map(|(_, finding)| finding).collect()
}

fn stated_in(source: &Source) -> Vec<(usize, String)> {
    let lines = source.text.lines().enumerate();
    let headers = lines.filter_map(|(index, line)| Some((index + 1, line.trim().strip_prefix("//!")?.trim())));
    let stated = headers.filter_map(|(line, words)| {
        let words = words.strip_prefix("- ").or_else(|| after(words, "Invariant "))?;
        leading_code(words).map(|code| (line, code))
    });
    stated.collect()
}

/// Codes of all test functions: from the name, and from the comments and attributes right above.
fn borne_in(source: &Source) -> BTreeSet<String> {
    let mut codes = BTreeSet::new();
    let mut above: Vec<&str> = Vec::new();
    for line in source.text.lines().map(str::trim) {
        if line.starts_with("//") || line.starts_with("#[") {
            above.push(line);
            continue;
        }
        let is_test = above.iter().any(|line| is_test_attribute(line));
        if is_test && let Some(name) = function_name(line) {
            codes.extend(leading_code(&name.to_uppercase()));
            codes.extend(above.iter().filter(|line| line.starts_with("//")).flat_map(|line| codes_in(line)));
        }
        above.clear();
    }
    codes
}

/// `#[test]`, `#[tokio::test]`, `#[tokio::test(…)]`.
fn is_test_attribute(line: &str) -> bool {
    line.starts_with("#[") && (line.contains("test]") || line.contains("::test("))
}

fn function_name(line: &str) -> Option<&str> {
    let name = after(line, "fn ")?;
    Some(&name[..name.find(['(', '<', ' ']).unwrap_or(name.len())])
}

fn after<'a>(line: &'a str, word: &str) -> Option<&'a str> {
    line.find(word).map(|at| &line[at + word.len()..])
}

/// `L1` of `L1 no outcome …` or of `L1_NO_OUTCOME`.
fn leading_code(words: &str) -> Option<String> {
    let digits = words.get(1..)?.bytes().take_while(u8::is_ascii_digit).count();
    let end = words.as_bytes().get(1 + digits).copied();
    let ends = end.is_none_or(|byte| !byte.is_ascii_alphanumeric());
    let is_code = digits > 0 && ends && words.starts_with(|family| FAMILIES.contains(family));
    is_code.then(|| words[..=digits].to_owned())
}

fn codes_in(comment: &str) -> Vec<String> {
    comment.split(|character: char| !character.is_ascii_alphanumeric()).filter_map(leading_code).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "//! Owns it.\n//! - L1 no outcome is invented.\n//! - L2 at most one end.\n//! Here Invariant S3, *x*: y\n//! - Last words\n";

    fn missing(tests: &str) -> Vec<(usize, String)> {
        let sources = vec![
            Source::new("crates/model/src/a.rs", "model", HEADER.to_owned()),
            Source::new("crates/model/src/a_tests.rs", "model", tests.to_owned()),
        ];
        let findings = every_invariant_has_a_test(&Tree::of(sources));
        findings.into_iter().map(|finding| (finding.line, finding.message[..2].to_owned())).collect()
    }

    #[test]
    fn an_invariant_without_a_test_is_found_where_it_is_stated() {
        assert_eq!(missing(""), [(2, "L1".to_owned()), (3, "L2".to_owned()), (4, "S3".to_owned())]);
    }

    #[test]
    fn a_test_bears_it_by_name_or_by_comment() {
        let tests = "#[test]\nfn l1_no_outcome_is_invented() {}\n\n/// L2 and S3\n#[tokio::test]\nasync fn at_most_one_end(x: X) {}\n";
        assert_eq!(missing(tests), []);
    }

    #[test]
    fn neither_a_plain_function_nor_a_comment_elsewhere_bears_it() {
        let tests =
            "fn l1_of_the_fixture() {}\n/// L2\n\n#[test]\nfn l10_other() {}\n// S3\nlet x = 1;\n#[test]\nfn y() {}\n";
        assert_eq!(missing(tests).len(), 3);
    }
}
