//! Resource use of a tree, added up as its members end.

use pinfold_model::facts::Usage;
use pinfold_os::wait::EndedChild;

#[derive(Debug)]
pub(crate) struct UsageTotals {
    pub(crate) cpu_us: u64,
    max_rss_bytes: u64,
    /// The largest number of processes seen at once.
    processes: u32,
}

impl UsageTotals {
    pub(crate) fn new() -> Self {
        Self { cpu_us: 0, max_rss_bytes: 0, processes: 1 }
    }

    pub(crate) fn add(&mut self, ended: &EndedChild) {
        self.cpu_us += ended.cpu_us;
        self.max_rss_bytes = self.max_rss_bytes.max(ended.max_rss_bytes);
    }

    pub(crate) fn note_alive(&mut self, count: u32) {
        self.processes = self.processes.max(count);
    }

    pub(crate) fn usage(&self) -> Usage {
        Usage { cpu_ms: self.cpu_us / 1000, max_rss_bytes: self.max_rss_bytes, processes: self.processes }
    }
}
