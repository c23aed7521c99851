//! The results as a table and as JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::work::{AfterCrash, p50};
use super::{Comparison, Measured};
use crate::bench::machine::Machine;
use crate::bench::stats::Summary;

/// Number of lines of the job whose server is killed.
const ALL_TICKS: usize = 30;

pub(super) fn render(comparison: &Comparison, machine: &Machine) -> String {
    let mut text = String::new();
    let bare = &comparison.measured[0];
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{}\n", machine.render());
    let _ = writeln!(
        text,
        "| | `true`: start, wait, result: p50 / p95 ms | × bare | 16 clients, runs/s | × bare | 500 MB of lines, MB/s | \
         MiB idle / 100 / 500 running |\n|---|---|---|---|---|---|---|"
    );
    for peer in &comparison.measured {
        let _ = writeln!(text, "{}", cost(peer, bare));
    }
    let _ = writeln!(
        text,
        "\n| `kill -9` of its server under a job that counts to 30 and exits 7 | the job runs on | lines kept | exit code \
         known | survivors of seven escaping children after a stop |\n|---|---|---|---|---|"
    );
    for peer in comparison.measured.iter().filter(|peer| !peer.keeps_nothing()) {
        let _ = writeln!(text, "{}", kept(peer));
    }
    for peer in &comparison.measured {
        for remark in peer.broken.iter().chain(&peer.remarks) {
            let _ = writeln!(text, "\n- {}: {}", peer.tool.name(), shortened(remark));
        }
    }
    for (name, reason) in &comparison.skipped {
        let _ = writeln!(text, "\n- {name} is skipped: {reason}");
    }
    text
}

/// Maximum length of a remark: an error of a tool can quote the whole command of the test.
const MAX_REMARK_CHARS: usize = 160;

fn shortened(remark: &str) -> String {
    match remark.char_indices().nth(MAX_REMARK_CHARS) {
        Some((end, _)) => format!("{}…", remark[..end].trim_end()),
        None => remark.to_owned(),
    }
}

fn cost(peer: &Measured, bare: &Measured) -> String {
    let pair = |summary: Option<Summary>| summary.map_or("–".into(), |of| format!("{:.2} / {:.2}", of.p50, of.p95));
    let one = |value: Option<f64>| value.map_or("–".into(), |value| format!("{value:.0}"));
    let ratio = |own: Option<Summary>, bare: Option<Summary>| match (p50(own), p50(bare)) {
        (Some(own), Some(bare)) => format!("{:.2}×", own / bare),
        _ => "–".into(),
    };
    let memory: Vec<String> = peer.memory.iter().map(|mib| mib.map_or("–".into(), |mib| format!("{mib:.1}"))).collect();
    format!(
        "| {} | {} | {} | {} | {} | {} | {} |",
        peer.tool.name(),
        pair(peer.single),
        ratio(peer.single, bare.single),
        one(p50(peer.sixteen)),
        ratio(peer.sixteen, bare.sixteen),
        one(p50(peer.capture)),
        memory.join(" / "),
    )
}

fn kept(peer: &Measured) -> String {
    let survivors = peer.survivors.map_or("–".into(), |survivors| survivors.to_string());
    let Some(AfterCrash { ran_on, doubled, ticks, code }) = peer.crash.clone() else {
        let why = if peer.tool.server().is_none() { "no server" } else { "–" };
        return format!("| {} | {why} | – | – | {survivors} |", peer.tool.name());
    };
    let ran_on = match (ran_on, doubled) {
        (_, true) => "**a second copy is started**",
        (true, false) => "yes",
        (false, false) => "no",
    };
    let code = match code {
        Some(7) => "7".to_owned(),
        Some(wrong) => format!("**wrong: {wrong}**"),
        None => "no".to_owned(),
    };
    format!("| {} | {ran_on} | {ticks} of {ALL_TICKS} | {code} | {survivors} |", peer.tool.name())
}

pub(super) fn to_json(comparison: &Comparison, machine: &Machine) -> Value {
    let summary = |of: Option<Summary>| of.map(|of| json!({ "p50": of.p50, "p95": of.p95, "count": of.count }));
    let tools = comparison.measured.iter().map(|peer| {
        json!({
            "name": peer.tool.name(),
            "single_ms": summary(peer.single),
            "sixteen_per_second": summary(peer.sixteen),
            "capture_mb_per_second": summary(peer.capture),
            "memory_mib": { "idle": peer.memory[0], "running_100": peer.memory[1], "running_500": peer.memory[2] },
            "after_crash": peer.crash.as_ref().map(|after| json!({
                "ran_on": after.ran_on, "doubled": after.doubled, "ticks": after.ticks, "code": after.code,
            })),
            "survivors": peer.survivors,
            "broken": peer.broken,
            "remarks": peer.remarks,
        })
    });
    let tools: Vec<Value> = tools.collect();
    let skipped: Vec<Value> =
        comparison.skipped.iter().map(|(name, reason)| json!({ "name": name, "reason": reason })).collect();
    json!({ "machine": machine.to_json(), "tools": tools, "skipped": skipped })
}
