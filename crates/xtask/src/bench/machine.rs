//! The machine that was measured, and its load.

use std::path::Path;

use serde_json::{Value, json};

use super::test_bed::TestDir;

/// What a reader of the figures needs to know.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    cores: usize,
    cpu: String,
    kernel: String,
    memory_mib: u64,
    filesystem: String,
    shell: String,
    containment: String,
    /// The load average over a minute, before …
    load_before: String,
    /// … and after.
    load_after: Option<String>,
}

impl Machine {
    pub(super) fn look(stage: &TestDir) -> anyhow::Result<Self> {
        Ok(Machine {
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            cpu: field("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown".to_owned()),
            kernel: line("/proc/sys/kernel/osrelease"),
            memory_mib: field("/proc/meminfo", "MemTotal").and_then(|text| leading_number(&text)).unwrap_or(0) / 1024,
            filesystem: filesystem_of(stage.directory(), &line_all("/proc/mounts")),
            shell: std::fs::canonicalize("/bin/sh").map_or("/bin/sh".to_owned(), |path| path.display().to_string()),
            containment: stage.daemon("look")?.containment()?,
            load_before: load(),
            load_after: None,
        })
    }

    pub(super) fn look_again(&mut self) {
        self.load_after = Some(load());
    }

    pub(super) fn render(&self) -> String {
        format!(
            "{} cores ({}), Linux {}, {} MiB memory, {} below the homes, {} as shell, containment by {}; load {} before, {} after.",
            self.cores,
            self.cpu,
            self.kernel,
            self.memory_mib,
            self.filesystem,
            self.shell,
            self.containment,
            self.load_before,
            self.load_after.as_deref().unwrap_or("unknown"),
        )
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "cores": self.cores,
            "cpu": self.cpu,
            "kernel": self.kernel,
            "memory_mib": self.memory_mib,
            "filesystem": self.filesystem,
            "shell": self.shell,
            "containment": self.containment,
            "load_before": self.load_before,
            "load_after": self.load_after,
        })
    }
}

fn load() -> String {
    line("/proc/loadavg").split(' ').next().unwrap_or("unknown").to_owned()
}

fn line_all(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

fn line(path: &str) -> String {
    line_all(path).trim().to_owned()
}

fn field(path: &str, name: &str) -> Option<String> {
    let text = line_all(path);
    let line = text.lines().find(|line| line.starts_with(name))?;
    line.split_once(':').map(|(_, value)| value.trim().to_owned())
}

fn leading_number(text: &str) -> Option<u64> {
    text.split_whitespace().next()?.parse().ok()
}

/// The type of the filesystem with the longest mount point above this path.
fn filesystem_of(path: &Path, mounts: &str) -> String {
    let mounts = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        Some((words.next()?, words.next()?))
    });
    let above = mounts.filter(|(point, _)| path.starts_with(point));
    above.max_by_key(|(point, _)| point.len()).map_or("unknown".to_owned(), |(_, kind)| kind.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_mount_names_the_filesystem() {
        let mounts = "/dev/a / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\nx /tmpfoo xfs rw 0 0\n";
        assert_eq!(filesystem_of(Path::new("/tmp/bench"), mounts), "tmpfs");
        assert_eq!(filesystem_of(Path::new("/home"), mounts), "ext4");
    }
}
