//! Reads /proc: memory of processes, and which processes run a program.

use std::path::Path;

use anyhow::Context;

const KIB_PER_MIB: f64 = 1024.0;

/// Proportional set size in MiB.
pub(super) fn pss_mib(pid: u32) -> anyhow::Result<f64> {
    kib_field(&format!("/proc/{pid}/smaps_rollup"), "Pss:")
}

/// Resident set size in MiB.
pub(super) fn rss_mib(pid: u32) -> anyhow::Result<f64> {
    kib_field(&format!("/proc/{pid}/status"), "VmRSS:")
}

/// Peak resident set size since the start, or since [`reset_peak`], in MiB.
pub(super) fn peak_mib(pid: u32) -> anyhow::Result<f64> {
    kib_field(&format!("/proc/{pid}/status"), "VmHWM:")
}

/// Resets the peak.
pub(super) fn reset_peak(pid: u32) -> anyhow::Result<()> {
    let path = format!("/proc/{pid}/clear_refs");
    std::fs::write(&path, "5").with_context(|| format!("cannot write {path}"))
}

/// Every process that runs this executable.
pub(super) fn running(executable: &Path) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return vec![] };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|link| link == executable)).collect()
}

/// How many descriptors a process has open.
pub(super) fn descriptors(pid: u32) -> anyhow::Result<usize> {
    let path = format!("/proc/{pid}/fd");
    Ok(std::fs::read_dir(&path).with_context(|| format!("cannot list {path}"))?.count())
}

/// The children of a process, zombies included.
pub(super) fn children(pid: u32) -> Vec<u32> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<_>>())
        .collect()
}

/// Whether it is a zombie.
pub(super) fn is_zombie(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/status")).is_ok_and(|status| status.contains("State:\tZ"))
}

fn kib_field(path: &str, name: &str) -> anyhow::Result<f64> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    parse_kib(&text, name).with_context(|| format!("{path} has no {name}"))
}

fn parse_kib(text: &str, name: &str) -> Option<f64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: f64 = value.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kib / KIB_PER_MIB)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_read_in_mib() {
        let text = "Rss:                2048 kB\nPss:                 512 kB\nPss_Anon:  4 kB\n";
        assert_eq!(parse_kib(text, "Pss:"), Some(0.5));
        assert_eq!(parse_kib(text, "Swap:"), None);
    }

    #[test]
    fn this_program_runs_and_uses_memory() {
        let own = std::env::current_exe().expect("own executable");
        assert!(running(&own).contains(&std::process::id()));
        assert!(rss_mib(std::process::id()).expect("rss") > 0.1);
        assert!(pss_mib(std::process::id()).expect("pss") > 0.1);
    }
}
