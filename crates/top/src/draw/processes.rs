//! The list of processes: a tree of owners, one row for each process.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use pinfold_api::types::{Record, Status};

use super::theme::Theme;
use super::{put, span};
use crate::describe::{SHORT_OUTCOME, Tone, standing};
use crate::processes::{Processes, Row};
use crate::quantity::{clock_of, render_age, render_bytes, since, sparkline};
use crate::state::State;
use crate::text::{cut, fit, fit_right, one_line, width};

/// Columns of the bars of CPU and of memory: one for each sample.
const BARS: usize = crate::processes::MAX_SAMPLES;

/// Which columns fit into the width; the last line takes the rest.
struct Columns {
    name: usize,
    standing: usize,
    age: bool,
    usage: bool,
    cpu_bars: bool,
    memory_bars: bool,
    ports: usize,
}

impl Columns {
    fn of(width: u16) -> Self {
        let width = usize::from(width);
        Columns {
            name: (width / 5).clamp(10, 28),
            standing: if width < 110 { SHORT_OUTCOME } else { 16 },
            age: width >= 50,
            usage: width >= 72,
            cpu_bars: width >= 100,
            memory_bars: width >= 130,
            ports: match width {
                0..64 => 0,
                64..110 => 6,
                _ => 11,
            },
        }
    }
}

pub(super) fn draw(state: &State, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let processes = &state.processes;
    if processes.rows.is_empty() {
        let text = if !processes.loaded {
            "reading the list of processes …"
        } else if !processes.filter.is_empty() || processes.owner.is_some() {
            "no process fits: Esc shows all"
        } else {
            "no processes yet: start one with `pinfold run -d COMMAND`"
        };
        put(buffer, area.x, area.y, area.width, [span(format!(" {text}"), theme.tone(Tone::Faint))]);
        return;
    }
    let columns = Columns::of(area.width);
    let rows = processes.rows.iter().enumerate().skip(processes.cursor.offset).take(usize::from(area.height));
    for ((index, row), y) in rows.zip(area.y..) {
        match row {
            Row::Owner { name, depth, live } => {
                let text = format!("{}{}", "  ".repeat(*depth), one_line(name));
                let spans =
                    [span(format!(" {text}"), theme.owner()), span(format!("  {live} live"), theme.tone(Tone::Faint))];
                put(buffer, area.x, y, area.width, spans);
            }
            Row::Process { index, depth } => {
                let record = processes.get(*index);
                draw_process(state, theme, record, *depth, &columns, Rect { y, height: 1, ..area }, buffer);
            }
            Row::More { count } => {
                let text = format!("  {count} older ones");
                put(buffer, area.x, y, area.width, [span(text, theme.tone(Tone::Faint))]);
            }
        }
        if index == processes.cursor.index {
            buffer.set_style(Rect { y, height: 1, ..area }, theme.selected());
        }
    }
}

fn draw_process(
    state: &State,
    theme: Theme,
    record: &Record,
    depth: usize,
    columns: &Columns,
    area: Rect,
    buffer: &mut Buffer,
) {
    let over = matches!(record.status, Status::Finished | Status::Lost);
    let base = if over { theme.tone(Tone::Faint) } else { Style::default() };
    let (words, tone) = standing(record, columns.standing);
    let indentation = 2 * depth + 2;
    let title = cut(&state.processes.title(record), columns.name.saturating_sub(indentation));
    let name = format!("{}{title}", " ".repeat(indentation));
    let mut spans = vec![
        span(format!("{} ", fit(&name, columns.name)), base),
        span(format!("{} ", fit(&words, columns.standing)), theme.tone(tone)),
    ];
    if columns.age {
        spans
            .push(span(format!("{} ", fit_right(&age(state, record), if state.absolute_times { 8 } else { 6 })), base));
    }
    if columns.usage {
        spans.push(span(usage(&state.processes, record, columns), base));
    }
    if columns.ports > 0 {
        spans.push(span(format!("{} ", fit(&ports(record), columns.ports)), theme.tone(Tone::Busy)));
    }
    let used: usize = spans.iter().map(|span| width(&span.content)).sum();
    let room = usize::from(area.width).saturating_sub(used);
    let (text, tone) = last_words(state, record);
    let style = if tone == Tone::Plain { base } else { theme.tone(tone) };
    spans.push(span(cut(&text, room), style));
    put(buffer, area.x, area.y, area.width, spans);
}

fn age(state: &State, record: &Record) -> String {
    let start = record.started_at.as_deref().unwrap_or(&record.created_at);
    match state.absolute_times {
        true => clock_of(start),
        false => since(start, state.now).map(render_age).unwrap_or_default(),
    }
}

/// CPU in percent of a core and memory, each with bars of the last samples; empty where nothing is known.
fn usage(processes: &Processes, record: &Record, columns: &Columns) -> String {
    let samples = processes.samples.get(&record.id);
    let latest = samples.and_then(|samples| samples.back());
    let percent = latest.and_then(|sample| sample.millicpus).map(|cpu| format!("{}%", cpu.div_ceil(10)));
    let memory = latest.map(|sample| render_bytes(sample.memory_bytes));
    let recent = || samples.into_iter().flatten();
    let cpu: Vec<u64> = recent().filter_map(|sample| sample.millicpus).collect();
    // A core is the scale, unless more are used.
    let cpu_bars = sparkline(cpu.iter().copied(), cpu.iter().copied().max().unwrap_or(0).max(1000));
    let mut text = String::new();
    if columns.cpu_bars {
        text.push_str(&format!("{} ", fit_right(&cpu_bars, BARS)));
    }
    let (percent, memory) = (percent.unwrap_or_default(), memory.unwrap_or_default());
    text.push_str(&format!("{} {} ", fit_right(&percent, 4), fit_right(&memory, 5)));
    if columns.memory_bars {
        let memory: Vec<u64> = recent().map(|sample| sample.memory_bytes).collect();
        text.push_str(&format!("{} ", fit_right(&sparkline(memory, processes.memory_scale), BARS)));
    }
    text
}

/// The ports that are known: those it listens on if its tree was read, and those reserved for it. An ended process has none.
fn ports(record: &Record) -> String {
    if record.status.is_over() {
        return String::new();
    }
    let listening = record.tree.iter().flat_map(|member| member.ports.iter().copied());
    let known =
        listening.chain(record.ready.as_ref().and_then(|ready| ready.port)).chain(record.ports.values().copied());
    let mut ports: Vec<u16> = known.collect();
    ports.sort_unstable();
    ports.dedup();
    let shown: Vec<String> = ports.iter().map(|port| format!(":{port}")).collect();
    shown.join(" ")
}

/// What a person should read about it: a question, else its last line, else its command.
fn last_words(state: &State, record: &Record) -> (String, Tone) {
    if let Some(ask) = state.asking_agent(&record.id).and_then(|agent| agent.asks.first()) {
        return (format!("asks: {}", one_line(&ask.what)), Tone::Needs);
    }
    let last = record.output.last_line.as_deref().map(one_line);
    if record.waiting_for_input == Some(true) {
        return (format!("waits: {}", last.unwrap_or_default()), Tone::Needs);
    }
    if record.status == Status::Lingering {
        let left = record.tree.len();
        let outcome = record.outcome.as_ref().map(|outcome| crate::describe::outcome_words(outcome, record.cause));
        let strays = if left > 0 { format!("{left} left running") } else { "strays run".to_owned() };
        return (format!("{}, {strays}: {}", outcome.unwrap_or_default(), one_line(&record.command)), Tone::Needs);
    }
    match last {
        Some(line) => (line, Tone::Plain),
        None => (one_line(&record.command), Tone::Faint),
    }
}
