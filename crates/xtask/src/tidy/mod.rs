//! Checks the rules of the repository: dependencies between crates, invariants, headers, sizes, documents.
//!
//! Every check is a function from the tree in memory to findings, so that each can be tested with a bad example. A finding
//! names the file, the line and what to do.

mod agents_interface;
mod arrows;
mod code;
mod daemon_arrows;
mod daemon_rooms;
mod documents;
mod invariants;
mod manifests;
mod sources;
mod tree;

use std::fmt::Write as _;
use std::path::PathBuf;

pub use tree::{Manifest, Source, Tree};

/// One violation of a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Relative to the workspace root.
    pub file: PathBuf,
    /// Counted from 1.
    pub line: usize,
    /// What is wrong and what to do.
    pub message: String,
}

/// What all checks found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Errors: tidy fails if there is one.
    pub findings: Vec<Finding>,
    /// Warnings.
    pub warnings: Vec<Finding>,
}

impl Finding {
    fn new(file: impl Into<PathBuf>, line: usize, message: impl Into<String>) -> Self {
        Self { file: file.into(), line, message: message.into() }
    }
}

impl Report {
    /// Whether no rule is broken.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }

    /// In the format of compilers, so that editors can jump to the line.
    pub fn render(&self) -> String {
        let mut text = String::new();
        for (kind, list) in [("warning", &self.warnings), ("error", &self.findings)] {
            for finding in list {
                // Writing to a String cannot fail.
                let _ = writeln!(text, "{}:{}: {kind}: {}", finding.file.display(), finding.line, finding.message);
            }
        }
        let _ = writeln!(text, "tidy: {} errors, {} warnings", self.findings.len(), self.warnings.len());
        text
    }
}

/// Every check, in order.
pub fn check(tree: &Tree) -> Report {
    let checks: &[fn(&Tree) -> Vec<Finding>] = &[
        arrows::rooms_use_only_what_the_arrows_allow,
        daemon_arrows::the_daemons_rooms_use_only_what_the_table_allows,
        agents_interface::hosted_agents_have_one_interface,
        daemon_rooms::the_architecture_shows_the_daemons_rooms,
        daemon_rooms::the_daemons_rooms_say_what_they_may_use,
        manifests::dependencies_have_reasons,
        manifests::dependencies_are_pinned_in_the_root,
        manifests::dependencies_are_used,
        manifests::packages_come_from_crates_io,
        manifests::crash_points_are_for_tests,
        sources::files_begin_with_a_header,
        sources::files_are_short,
        sources::unsafe_is_in_os_alone,
        sources::nothing_is_left_unfinished,
        sources::printing_is_for_the_command_line,
        sources::modules_are_named_for_what_they_own,
        invariants::every_invariant_has_a_test,
        documents::generated_documents_are_current,
        documents::paths_in_the_architecture_exist,
        documents::every_error_code_is_documented,
    ];
    let mut findings: Vec<Finding> = checks.iter().flat_map(|check| check(tree)).collect();
    findings.sort();
    findings.dedup();
    Report { findings, warnings: sources::files_are_getting_long(tree) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_names_file_line_and_rule_and_counts() {
        let report = Report {
            findings: vec![Finding::new("a/b.rs", 7, "do this")],
            warnings: vec![Finding::new("c.rs", 1, "look")],
        };
        assert_eq!(report.render(), "c.rs:1: warning: look\na/b.rs:7: error: do this\ntidy: 1 errors, 1 warnings\n");
        assert!(!report.is_clean());
        assert!(Report::default().is_clean());
    }
}
