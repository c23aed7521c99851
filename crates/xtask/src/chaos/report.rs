//! What a campaign came to, in lines for people, and as a section of docs/reliability.md.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, bail};

use super::check::Account;
use super::faults::Done;

/// Where the section stands in docs/reliability.md.
const BEGIN: &str = "<!-- chaos: begin, written by `cargo xtask chaos --markdown` -->";
const END: &str = "<!-- chaos: end -->";

/// A run in figures.
pub(super) struct Figures<'a> {
    pub(super) command: String,
    pub(super) machine: String,
    pub(super) account: &'a Account,
    pub(super) done: &'a Done,
    pub(super) repeated: u64,
    pub(super) losses: usize,
}

impl Figures<'_> {
    /// Name and figure of each line.
    fn rows(&self) -> Vec<(&'static str, String)> {
        let Account { processes, bytes, gaps, events, torn, kinds, outcomes, unanswered, told, told_again } =
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
                "ends told to agents over MCP",
                format!("{told}, {told_again} of them again after a killed server or a torn index"),
            ),
            ("starts found though never answered", unanswered.to_string()),
            ("torn records, reported", torn.to_string()),
            ("requests made again", self.repeated.to_string()),
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
        text
    }

    /// Puts the section into the document, between its markers.
    pub(super) fn write_into(&self, document: &Path) -> anyhow::Result<()> {
        let text = std::fs::read_to_string(document).with_context(|| format!("cannot read {}", document.display()))?;
        let Some(replaced) = between_markers(&text, &self.render_markdown()) else {
            bail!("{} has no lines `{BEGIN}` and `{END}`", document.display());
        };
        Ok(std::fs::write(document, replaced)?)
    }
}

fn listed(counts: &BTreeMap<&'static str, u64>) -> String {
    counts.iter().map(|(name, count)| format!("{count} {name}")).collect::<Vec<_>>().join(", ")
}

fn between_markers(text: &str, section: &str) -> Option<String> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n\n{section}\n{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_put_between_its_markers_and_nowhere_else() {
        let text = format!("# a\n{BEGIN}\nold\n{END}\nb\n");
        assert_eq!(between_markers(&text, "new\n"), Some(format!("# a\n{BEGIN}\n\nnew\n\n{END}\nb\n")));
        assert_eq!(between_markers("# a\n", "new\n"), None);
    }
}
