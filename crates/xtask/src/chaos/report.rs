//! The figures of a campaign, as text and as a section of docs/reliability.md.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use super::check::CheckResult;
use super::faults::Done;
use crate::document_section::Section;

/// The section in docs/reliability.md.
const SECTION: Section =
    Section { begin: "<!-- chaos: begin, written by `cargo xtask chaos --markdown` -->", end: "<!-- chaos: end -->" };

/// The figures of a run.
pub(super) struct Figures<'a> {
    pub(super) command: String,
    pub(super) machine: String,
    pub(super) account: &'a CheckResult,
    pub(super) done: &'a Done,
    pub(super) repeated: u64,
    pub(super) losses: usize,
}

/// What the kinds of `workloads.rs` mean, below the table.
const KINDS: &str = "
Kinds of processes: *an agent's*: started over MCP. *counting*: prints numbered lines slowly, then exits. *noisy*: prints thousands of lines at once.
*silent*: prints nothing. *signalled*: kills itself with a signal. *stray*: its leader exits before a descendant prints the last line. *deaf*: ignores
TERM, so that a stop ends it with KILL. *patient*: handles TERM and exits with its own code. *forking*: starts many children. *escapee*: leaves a
descendant in a session of its own; *wiped escapee*: one that also cleared its environment. *racing*: is stopped just as it exits. *fed*: is sent numbered
input. *on a terminal*: runs on a pty. *killed while paused*: is paused and then killed.
";

impl Figures<'_> {
    /// Name and figure of each line.
    fn rows(&self) -> Vec<(&'static str, String)> {
        let CheckResult { processes, bytes, gaps, events, torn, kinds, outcomes, unanswered, reported, reported_again } =
            self.account;
        let faults: u64 = self.done.counts.values().sum();
        vec![
            ("faults injected", format!("{faults}: {}", listed(&self.done.counts))),
            ("processes", format!("{processes}: {}", listed(kinds))),
            ("outcomes", listed(outcomes)),
            ("bytes of output, each checked", bytes.to_string()),
            ("bytes in counted gaps (disk full)", gaps.to_string()),
            ("events", events.to_string()),
            (
                "process ends reported to agents over MCP",
                format!("{reported}, {reported_again} of them again after a killed server or a torn index"),
            ),
            ("processes whose start was never answered", unanswered.to_string()),
            ("torn records, reported", torn.to_string()),
            ("requests repeated", self.repeated.to_string()),
            ("lost", self.losses.to_string()),
        ]
    }

    pub(super) fn render_text(&self) -> String {
        let mut text = format!("{}\n{}\n", self.command, self.machine);
        for (name, figure) in self.rows() {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{name:>34}  {figure}");
        }
        for missing in &self.done.missing {
            let _ = writeln!(text, "{:>34}  {missing}", "not done");
        }
        text
    }

    fn render_markdown(&self) -> String {
        let mut text = format!("`{}`, {}.\n\n| | |\n|---|---|\n", self.command, self.machine);
        for (name, figure) in self.rows() {
            let _ = writeln!(text, "| {name} | {figure} |");
        }
        for missing in &self.done.missing {
            let _ = writeln!(text, "| not done | {missing} |");
        }
        text.push_str(KINDS);
        text
    }

    /// Writes the section to the document.
    pub(super) fn write_into(&self, document: &Path) -> anyhow::Result<()> {
        SECTION.write(document, &format!("\n{}\n", self.render_markdown()))
    }
}

fn listed(counts: &BTreeMap<&'static str, u64>) -> String {
    counts.iter().map(|(name, count)| format!("{count} {name}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_put_between_its_markers_and_nowhere_else() {
        let Section { begin, end } = SECTION;
        let text = format!("# a\n{begin}\nold\n{end}\nb\n");
        assert_eq!(SECTION.put(&text, "\nnew\n\n"), Some(format!("# a\n{begin}\n\nnew\n\n{end}\nb\n")));
        assert_eq!(SECTION.put("# a\n", "new\n"), None);
    }
}
