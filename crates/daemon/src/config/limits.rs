//! `[limits]` and `[limits.owner]`: limits of the whole daemon and of each owner, and the defaults for processes that
//! set no limits.

use std::fmt::Write as _;
use std::time::Duration;

use pinfold_model::admission::{Limits, OwnerLimits};
use pinfold_model::limits::{ProcessLimits, TreeLimits, parse_cpus};
use pinfold_model::units::{parse_duration, parse_size};
use serde::Deserialize;

use super::{Text, render_bytes};

/// The tables' contents.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileLimits {
    processes: Option<usize>,
    store: Option<Text>,
    retention: Option<Text>,
    time_limit: Option<Text>,
    idle_limit: Option<Text>,
    memory_limit: Option<Text>,
    pids_limit: Option<u32>,
    cpus: Option<Cores>,
    cpu_time_limit: Option<Text>,
    #[serde(default)]
    owner: FileOwnerLimits,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileOwnerLimits {
    processes: Option<usize>,
    memory: Option<Text>,
    store: Option<Text>,
}

/// `2` or `0.5`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(untagged, expecting = "expected a number of cores, such as 2 or 0.5")]
enum Cores {
    Whole(u32),
    Part(f64),
}

/// A setting and what is wrong with it.
type Problem = (&'static str, String);

impl FileLimits {
    pub(super) fn limits(&self) -> Result<Limits, Problem> {
        let default = Limits::default();
        Ok(Limits {
            processes: self.processes.unwrap_or(default.processes),
            store_bytes: size("limits.store", &self.store)?.unwrap_or(default.store_bytes),
            retention: duration("limits.retention", &self.retention)?.unwrap_or(default.retention),
            owner: OwnerLimits {
                processes: self.owner.processes,
                memory_bytes: size("limits.owner.memory", &self.owner.memory)?,
                store_bytes: size("limits.owner.store", &self.owner.store)?,
            },
        })
    }

    pub(super) fn process(&self) -> Result<ProcessLimits, Problem> {
        let cpus = self.cpus.map(|cpus| match cpus {
            Cores::Whole(cores) => f64::from(cores),
            Cores::Part(cores) => cores,
        });
        let limits = ProcessLimits {
            time: duration("limits.time_limit", &self.time_limit)?,
            idle: duration("limits.idle_limit", &self.idle_limit)?,
            tree: TreeLimits {
                memory: size("limits.memory_limit", &self.memory_limit)?,
                pids: self.pids_limit,
                millicpus: cpus.map(parse_cpus).transpose().map_err(|bad| ("limits.cpus", bad.to_string()))?,
                cpu_time: duration("limits.cpu_time_limit", &self.cpu_time_limit)?,
            },
        };
        limits.tree.check().map_err(|bad| ("limits", bad.to_string()))?;
        for (setting, limit) in [("limits.time_limit", limits.time), ("limits.idle_limit", limits.idle)] {
            if limit.is_some_and(|limit| limit.is_zero()) {
                return Err((setting, "it is zero: leave it out for no limit".to_owned()));
            }
        }
        Ok(limits)
    }
}

fn duration(setting: &'static str, text: &Option<Text>) -> Result<Option<Duration>, Problem> {
    text.as_ref().map(|text| parse_duration(&text.text())).transpose().map_err(|bad| (setting, bad.to_string()))
}

fn size(setting: &'static str, text: &Option<Text>) -> Result<Option<u64>, Problem> {
    text.as_ref().map(|text| parse_size(&text.text())).transpose().map_err(|bad| (setting, bad.to_string()))
}

/// Renders the tables; unset limits as comments.
pub(super) fn render(limits: &Limits, process: &ProcessLimits) -> String {
    let mut text = "\n[limits]\n".to_owned();
    let seconds = |duration: Duration| format!("\"{}s\"", duration.as_secs_f64());
    let mut write = |about: &str, name: &str, value: Option<String>, example: &str| {
        let line = value.map_or(format!("# {name} = {example}"), |value| format!("{name} = {value}"));
        let _ = write!(text, "# {about}\n{line}\n");
    };
    write("live processes at once", "processes", Some(limits.processes.to_string()), "");
    let about = "bytes of the whole store; the oldest ended processes are removed first";
    write(about, "store", Some(render_bytes(limits.store_bytes)), "");
    write("how long an ended process is kept, from its end", "retention", Some(seconds(limits.retention)), "");
    let tree = &process.tree;
    let about = "defaults for each process: run time, and time without output";
    write(about, "time_limit", process.time.map(seconds), "\"2h\"");
    write("", "idle_limit", process.idle.map(seconds), "\"30m\"");
    let about = "defaults for the whole tree of each: memory, processes and threads, cores, processor time";
    write(about, "memory_limit", tree.memory.map(render_bytes), "\"4G\"");
    write("", "pids_limit", tree.pids.map(|pids| pids.to_string()), "2000");
    write("", "cpus", tree.millicpus.map(|millis| (f64::from(millis) / 1000.0).to_string()), "1.5");
    write("", "cpu_time_limit", tree.cpu_time.map(seconds), "\"1h\"");
    text.push_str("\n[limits.owner]\n");
    let mut write = |about: &str, name: &str, value: Option<String>, example: &str| {
        let line = value.map_or(format!("# {name} = {example}"), |value| format!("{name} = {value}"));
        let _ = write!(text, "# {about}\n{line}\n");
    };
    let owner = &limits.owner;
    write("live processes of one owner at once", "processes", owner.processes.map(|max| max.to_string()), "50");
    let about = "the memory limits of one owner's live processes together; each then needs one";
    write(about, "memory", owner.memory_bytes.map(render_bytes), "\"16G\"");
    let about = "bytes of one owner's processes in the store; its oldest ended ones are removed first";
    write(about, "store", owner.store_bytes.map(render_bytes), "\"1G\"");
    text.replace("# \n", "")
}
