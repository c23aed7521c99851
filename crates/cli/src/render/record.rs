//! The text of `show`: details of one process.

use std::time::Duration;

use jiff::Timestamp;
use pinfold_api::plain::visible;
use pinfold_api::types::{
    LifeShown, Lifetime, LimitsShown, NotifyShown, ReadyShown, ReadyState, Record, SandboxPart, SandboxShown, Stdin,
    TreeMember,
};

use super::outcome::{outcome_tone, render_details, render_outcome, render_status, status_tone};
use super::paint::{Paint, Tone};
use super::ps::ran;
use super::quantity::{render_duration, render_size};
use super::table::one_line;

/// Maximum indentation of the tree. Also ends a loop, should the data contain one.
const MAX_DEPTH: usize = 16;

/// One line for each fact, then the process tree as an indented list.
pub(crate) fn render_record(record: &Record, now: Timestamp, paint: Paint) -> String {
    let mut text = String::new();
    for (name, value, tone) in facts(record, now) {
        let name = paint.apply(Tone::Faint, &format!("{name:<9}"));
        text.push_str(&format!("{name} {}\n", paint.apply(tone, &visible(&value))));
    }
    if !record.tree.is_empty() {
        text.push_str(&paint.apply(Tone::Faint, "tree"));
        text.push('\n');
        text.push_str(&render_tree(&record.tree));
    }
    text
}

fn facts(record: &Record, now: Timestamp) -> Vec<(&'static str, String, Tone)> {
    let mut facts = Vec::new();
    let mut say = |name: &'static str, value: String, tone: Tone| facts.push((name, value, tone));
    let mut plain = |name: &'static str, value: Option<String>| {
        if let Some(value) = value {
            say(name, value, Tone::Plain);
        }
    };
    plain("id", Some(record.id.clone()));
    plain("name", record.name.clone());
    plain("command", Some(record.command.replace('\n', "\n          ")));
    plain("shell", record.shell.clone());
    plain("cwd", Some(record.cwd.clone()));
    plain("intent", record.intent.clone());
    plain("owner", Some(render_owner(record)));
    plain("input", render_input(record));
    plain("notify", record.notify.as_ref().map(render_notify));
    let labels: Vec<_> = record.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    plain("labels", (!labels.is_empty()).then(|| labels.join(" ")));
    say("status", render_status(record), status_tone(record));
    if let Some(outcome) = &record.outcome {
        let by = record.stopped_by.as_ref().map(|by| format!(", by {by}")).unwrap_or_default();
        let details = render_details(outcome).map(|details| format!(": {details}")).unwrap_or_default();
        say("outcome", format!("{}{details}{by}", render_outcome(outcome, record.cause)), outcome_tone(Some(outcome)));
    }
    let mut plain = |name: &'static str, value: Option<String>| {
        if let Some(value) = value {
            say(name, value, Tone::Plain);
        }
    };
    plain("pid", record.pid.map(|pid| pid.to_string()));
    plain("started", record.started_at.clone());
    plain("exited", record.exited_at.clone());
    plain("finished", record.finished_at.clone());
    plain("ran", ran(record, now).map(render_duration));
    plain("output", Some(render_output(record)));
    plain("usage", Some(render_usage(record)));
    plain("limits", record.limits.as_ref().map(render_limits));
    plain("sandbox", record.sandbox.as_ref().map(render_sandbox));
    plain("ready", record.ready.as_ref().map(render_ready));
    let ports: Vec<_> = record.ports.iter().map(|(name, port)| format!("{name}={port}")).collect();
    plain("ports", (!ports.is_empty()).then(|| ports.join(" ")));
    plain("restart", record.life.as_ref().map(render_life));
    plain("note", record.note.clone());
    facts
}

/// `chat-7, child of team, stopped when it ends`.
fn render_owner(record: &Record) -> String {
    let below = record.parent.as_ref().map(|parent| format!(", child of {parent}")).unwrap_or_default();
    let lifetime = match record.lifetime {
        Lifetime::Keep => "",
        Lifetime::Owner => ", stopped when it ends",
        Lifetime::Parent => ", handed over to its parent when it ends",
    };
    format!("{}{below}{lifetime}", record.owner)
}

/// Where its stdin comes from, and whether it waits for input.
fn render_input(record: &Record) -> Option<String> {
    let from = match (record.pty, record.stdin) {
        (Some(size), _) => format!("a terminal of {}x{}", size.rows, size.cols),
        (None, Stdin::Pipe) => "an open pipe".to_owned(),
        (None, Stdin::Null) => return None,
    };
    let waits = if record.waiting_for_input == Some(true) { ", waiting for input" } else { "" };
    Some(format!("{from}{waits}"))
}

/// What the owner is notified of, and how.
fn render_notify(notify: &NotifyShown) -> String {
    let end = if notify.on_complete { "its end" } else { "not of its end" };
    let patterns = notify.patterns.iter().map(|pattern| format!("lines that match `{}`", one_line(pattern)));
    let heartbeat = notify.heartbeat_ms.map(Duration::from_millis);
    let heartbeat = heartbeat.map(|every| format!("heartbeat every {}", render_duration(every)));
    let webhook = notify.webhook.as_ref().map(|host| format!("to {host}"));
    let command = notify.command.as_ref().map(|command| format!("by `{}`", one_line(command)));
    let events = std::iter::once(end.to_owned()).chain(patterns).chain(heartbeat).chain(webhook).chain(command);
    events.collect::<Vec<_>>().join(", ")
}

fn render_output(record: &Record) -> String {
    let output = &record.output;
    let size = render_size(output.dropped);
    let dropped = match output.dropped {
        0 => String::new(),
        all if all >= output.bytes => ", none of it kept".to_owned(),
        _ if output.retained_from == 0 => format!(", the last {size} not kept"),
        first if first == output.retained_from => format!(", the first {size} not kept"),
        _ => format!(", {size} in the middle not kept"),
    };
    format!("{}{dropped}, {}", render_size(output.bytes), if output.closed { "closed" } else { "open" })
}

fn render_usage(record: &Record) -> String {
    let usage = &record.usage;
    let cpu = render_duration(Duration::from_millis(usage.cpu_ms));
    let memory = render_size(usage.max_rss_bytes);
    format!("cpu {cpu}, memory peak {memory}, up to {} processes at once", usage.processes)
}

/// `memory 64 MiB, 100 pids, 0.5 cores, cpu 5s, run 2h00m, idle 30s`.
/// The requested sandbox, and how it is enforced.
fn render_sandbox(sandbox: &SandboxShown) -> String {
    let names = |parts: &[SandboxPart]| parts.iter().map(|part| part.name()).collect::<Vec<_>>().join(" ");
    let mut text = format!(
        "{} ({}, Landlock ABI {}: {})",
        sandbox.asked.render(),
        sandbox.tier.name(),
        sandbox.landlock_abi,
        names(&sandbox.got)
    );
    if !sandbox.missing.is_empty() {
        text.push_str(&format!(", not enforced: {}", names(&sandbox.missing)));
    }
    if let Some(refused) = sandbox.refused.as_ref().and_then(|refused| refused.render()) {
        text.push_str(&format!("; refused {refused}"));
    }
    text
}

fn render_limits(limits: &LimitsShown) -> String {
    let span = |millis: u64| render_duration(std::time::Duration::from_millis(millis));
    let parts = [
        limits.memory_bytes.map(|bytes| format!("memory {}", render_size(bytes))),
        limits.pids.map(|pids| format!("{pids} pids")),
        limits.millicpus.map(|millis| format!("{} cores", f64::from(millis) / 1000.0)),
        limits.cpu_time_ms.map(|millis| format!("cpu {}", span(millis))),
        limits.time_ms.map(|millis| format!("run {}", span(millis))),
        limits.idle_ms.map(|millis| format!("idle {}", span(millis))),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// `run 3 (on_failure), previous k3v9x2, first a1b2c3, restarting at …`.
fn render_life(life: &LifeShown) -> String {
    let mut parts = vec![format!("run {} ({})", life.number, life.restart)];
    parts.extend(life.previous.as_ref().map(|previous| format!("previous {previous}")));
    let first = life.first.as_ref().filter(|first| life.previous.as_ref() != Some(*first));
    parts.extend(first.map(|first| format!("first {first}")));
    parts.extend(life.next.as_ref().map(|next| format!("next {next}")));
    parts.extend(life.restarting_at.as_ref().map(|at| format!("restarting at {at}")));
    parts.extend(life.awaits_turn.then(|| "restarts on `pinfold restart`".to_owned()));
    parts.extend(life.gave_up.clone());
    parts.join(", ")
}

/// `waiting for port 3000`, `since …: it listens on port 3000`.
fn render_ready(ready: &ReadyShown) -> String {
    let at = ready.at.as_deref().unwrap_or_default();
    let state = match ready.state {
        ReadyState::Waiting => format!("waiting for {}", ready.by),
        ReadyState::Ready => format!("since {at}"),
        ReadyState::TimedOut => format!("timed out at {at}"),
        ReadyState::Exited => "no, it ended before".to_owned(),
    };
    match &ready.text {
        Some(text) => format!("{state}: {}", one_line(text)),
        None => state,
    }
}

/// Children below their parents, indented by two spaces.
pub(crate) fn render_tree(tree: &[TreeMember]) -> String {
    let mut text = String::new();
    let is_root = |member: &&TreeMember| !tree.iter().any(|other| other.pid == member.ppid);
    let mut drawn = vec![false; tree.len()];
    let mut pending: Vec<(u32, usize)> = tree.iter().filter(is_root).rev().map(|member| (member.pid, 1)).collect();
    while let Some((pid, depth)) = pending.pop() {
        let Some(index) = tree.iter().position(|member| member.pid == pid) else { continue };
        if std::mem::replace(&mut drawn[index], true) {
            continue;
        }
        text.push_str(&format!("{}{}\n", "  ".repeat(depth), render_member(&tree[index])));
        let deeper = (depth + 1).min(MAX_DEPTH);
        pending.extend(tree.iter().rev().filter(|member| member.ppid == pid).map(|member| (member.pid, deeper)));
    }
    text
}

/// `4713 S node vite  cpu 812ms  mem 86 MiB  ports 3000,3001`.
fn render_member(member: &TreeMember) -> String {
    let ports: Vec<_> = member.ports.iter().map(u16::to_string).collect();
    let ports = if ports.is_empty() { String::new() } else { format!("  ports {}", ports.join(",")) };
    let cpu = render_duration(Duration::from_millis(member.cpu_ms));
    let memory = render_size(member.rss_bytes);
    format!("{} {} {}  cpu {cpu}  mem {memory}{ports}", member.pid, member.state, one_line(&member.command))
}

#[cfg(test)]
mod tests {
    use pinfold_api::types::{Cause, Outcome, OutputSummary, Status};

    use super::super::sample::{self, member};
    use super::*;

    #[test]
    fn incomplete_output_says_which_part_is_missing() {
        let shown = |bytes, retained_from, dropped| {
            let output = OutputSummary { bytes, retained_from, dropped, closed: true, ..Default::default() };
            render_output(&Record { output, ..sample::record() })
        };
        assert_eq!(shown(1000, 0, 0), "1000 B, closed");
        assert_eq!(shown(1000, 700, 300), "1000 B, 300 B in the middle not kept, closed");
        assert_eq!(shown(1000, 300, 300), "1000 B, the first 300 B not kept, closed");
        assert_eq!(shown(1000, 0, 300), "1000 B, the last 300 B not kept, closed");
        assert_eq!(shown(1000, 0, 1000), "1000 B, none of it kept, closed");
    }

    #[test]
    fn every_fact_has_its_line() {
        let text = render_record(&sample::record(), sample::now(), Paint::Plain);
        let expected = "\
id        k3v9x2
name      web
command   npm run dev
shell     /bin/sh
cwd       /srv/app
owner     chat-7
labels    team=ui
status    running
pid       4711
started   2026-01-01T00:55:00Z
ran       5m00s
output    3.0 KiB, open
usage     cpu 830ms, memory peak 87 MiB, up to 3 processes at once
tree
  4711 S npm  cpu 812ms  mem 86 MiB
    4713 S node vite  cpu 812ms  mem 86 MiB  ports 3000,3001
";
        assert_eq!(text, expected);
    }

    #[test]
    fn limits_are_shown_in_readable_units() {
        let limits = LimitsShown {
            memory_bytes: Some(64 << 20),
            pids: Some(100),
            millicpus: Some(500),
            cpu_time_ms: Some(5000),
            ..LimitsShown::default()
        };
        let text = render_record(&Record { limits: Some(limits), ..sample::record() }, sample::now(), Paint::Plain);
        assert!(text.contains("limits    memory 64 MiB, 100 pids, 0.5 cores, cpu 5s\n"), "{text}");
    }

    #[test]
    fn an_outcome_shows_how_why_and_by_whom() {
        let record = Record {
            status: Status::Finished,
            outcome: Some(Outcome::Signaled { signal: 15, name: "TERM".into(), core_dumped: false }),
            cause: Some(Cause::StopRequested),
            stopped_by: Some("pinfold stop".into()),
            ..sample::record()
        };
        let text = render_record(&record, sample::now(), Paint::Plain);
        assert!(text.contains("outcome   signal TERM (stopped), by pinfold stop\n"), "{text}");
    }

    #[test]
    fn intent_owner_and_notifications_are_shown() {
        let notify = NotifyShown {
            on_complete: true,
            patterns: vec!["ERROR".into()],
            heartbeat_ms: Some(60_000),
            webhook: Some("https://x".into()),
            command: None,
        };
        let record = Record {
            parent: Some("team".into()),
            lifetime: Lifetime::Owner,
            intent: Some("the dev server".into()),
            notify: Some(notify),
            ..sample::record()
        };
        let text = render_record(&record, sample::now(), Paint::Plain);
        for line in [
            "intent    the dev server\n",
            "owner     chat-7, child of team, stopped when it ends\n",
            "notify    its end, lines that match `ERROR`, heartbeat every 1m00s, to https://x\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }

    #[test]
    fn a_tree_is_drawn_once_even_with_missing_parents_or_a_loop() {
        let tree = [member(5, 9, "orphan", &[]), member(6, 5, "child", &[]), member(7, 6, "deep", &[])];
        let text = render_tree(&tree);
        let indents: Vec<_> = text.lines().map(|line| line.len() - line.trim_start().len()).collect();
        assert_eq!(indents, [2, 4, 6]);
        assert_eq!(render_tree(&[member(1, 2, "a", &[]), member(2, 1, "b", &[])]), "");
    }
}
