//! The text of `stats`.

use std::time::Duration;

use super::paint::{Paint, Tone};
use super::quantity::{render_count, render_duration};
use super::table::{Cell, Heading, Side, cell, cut, one_line, plain, render_table};
use crate::commands::process::stats::{Counts, Ranked, Stats};

const PERIODS: &[Heading] = &[
    ("UTC", Side::Left),
    ("RUNS", Side::Right),
    ("LIVE", Side::Right),
    ("FAILED", Side::Right),
    ("STOPPED", Side::Right),
    ("LOST", Side::Right),
    ("RUN TIME", Side::Right),
    ("MEDIAN", Side::Right),
    ("LONGEST", Side::Right),
];
/// Longest command in a line.
const MAX_COMMAND: usize = 60;

/// The time that is counted, the table by hour or day, and what is most frequent.
pub(crate) fn render_stats(stats: &Stats, width: Option<usize>, paint: Paint) -> String {
    let mut text = render_head(stats);
    if stats.total.runs == 0 {
        return text;
    }
    let mut rows: Vec<Vec<Cell>> =
        stats.periods.iter().map(|period| row(&period.period.replace('T', " "), &period.counts, Tone::Plain)).collect();
    if rows.len() > 1 {
        rows.push(row("total", &stats.total, Tone::Strong));
    }
    text.push_str(&format!("\n{}", render_table(PERIODS, &rows, width, paint)));
    if let Some(longest) = &stats.longest {
        let (time, command) = (millis(longest.run_time_ms), short(&longest.command));
        text.push_str(&format!("\nlongest run: {time}  {}  {command}\n", longest.id));
    }
    text.push_str(&render_ranks("busiest owners", &stats.owners));
    text.push_str(&render_ranks("commands that failed most often", &stats.failing_commands));
    text
}

/// Which time is counted, and what may be missing from it.
fn render_head(stats: &Stats) -> String {
    let runs = render_count(stats.total.runs, "process", "processes");
    let mut text = match (&stats.oldest, stats.reaches_oldest_stored) {
        (None, _) => format!("no processes since {}\n", one_line(&stats.since)),
        (Some(oldest), true) => format!("{runs} since {oldest}, the oldest that is stored\n"),
        (Some(_), false) => format!("{runs} since {}\n", one_line(&stats.since)),
    };
    if stats.not_read > 0 {
        text.push_str(&format!("{} older ones of this time are not counted: use a shorter --since\n", stats.not_read));
    }
    text
}

fn row(period: &str, counts: &Counts, tone: Tone) -> Vec<Cell> {
    let number = |count: u64, tone: Tone| cell(count.to_string(), if count == 0 { Tone::Plain } else { tone });
    let time = |time: Option<u64>| plain(time.map_or_else(|| "-".to_owned(), millis));
    vec![
        cell(period, tone),
        plain(counts.runs.to_string()),
        plain(counts.live.to_string()),
        number(counts.failed, Tone::Bad),
        plain(counts.stopped.to_string()),
        number(counts.lost, Tone::Bad),
        plain(millis(counts.run_time_ms)),
        time(counts.median_ms),
        time(counts.longest_ms),
    ]
}

fn render_ranks(title: &str, ranked: &[Ranked]) -> String {
    if ranked.is_empty() {
        return String::new();
    }
    let lines: String =
        ranked.iter().map(|ranked| format!("  {:>6}  {}\n", ranked.count, short(&ranked.name))).collect();
    format!("\n{title}:\n{lines}")
}

fn short(text: &str) -> String {
    cut(&one_line(text), MAX_COMMAND)
}

fn millis(millis: u64) -> String {
    render_duration(Duration::from_millis(millis))
}
