//! A generated section of a document, between two markers.

use std::path::Path;

use anyhow::Context;

/// The two markers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Section {
    pub(crate) begin: &'static str,
    pub(crate) end: &'static str,
}

impl Section {
    /// Replaces the text between the markers; `None` if a marker is missing.
    pub(crate) fn put(self, text: &str, body: &str) -> Option<String> {
        let Section { begin, end } = self;
        let (before, rest) = text.split_once(begin)?;
        let (_, after) = rest.split_once(end)?;
        Some(format!("{before}{begin}\n{body}{end}{after}"))
    }

    /// Replaces the section in a file.
    pub(crate) fn write(self, path: &Path, body: &str) -> anyhow::Result<()> {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let missing = || format!("{} has no lines `{}` and `{}`", path.display(), self.begin, self.end);
        let text = self.put(&text, body).with_context(missing)?;
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}
