//! A log: the lines of the window that are on the screen.

use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::style::Modifier;

use super::theme::Theme;
use super::{put, span};
use crate::describe::Tone;
use crate::log::window::Body;
use crate::log::{LogView, TIME_COLUMNS};
use crate::quantity::render_bytes;
use crate::state::State;
use crate::text::{StyledLine, width};

pub(super) fn draw(log: &LogView, state: &State, theme: Theme, area: Rect, buffer: &mut Buffer) {
    draw_position(log, state, theme, area, buffer);
    if log.window.is_empty() {
        let text = match &log.error {
            Some(error) => error.clone(),
            None if log.end == 0 && log.closed => "it wrote nothing".to_owned(),
            None if log.end == 0 => "no output yet".to_owned(),
            None => "reading …".to_owned(),
        };
        put(buffer, area.x, area.y, area.width, [span(format!(" {text}"), theme.tone(Tone::Faint))]);
        return;
    }
    let mut parsed: Option<(usize, StyledLine)> = None;
    for (row, y) in log.visible().into_iter().zip(area.y..area.y + area.height) {
        let item = &log.window.items()[row.index];
        let area = Rect { y, height: 1, ..area };
        if let Body::Gap { to } = item.body {
            let text = format!("── {} no longer stored ──", render_bytes(to - item.at));
            put(buffer, area.x, y, area.width, [span(text, theme.tone(Tone::Needs))]);
            continue;
        }
        let mut x = area.x;
        if log.times {
            let time = log.time_of(item).filter(|_| row.row == 0).unwrap_or_default();
            put(buffer, x, y, TIME_COLUMNS, [span(time.to_owned(), theme.tone(Tone::Faint))]);
            x += TIME_COLUMNS;
        }
        // Consecutive rows are often of one line.
        if parsed.as_ref().is_none_or(|(index, _)| *index != row.index) {
            parsed = Some((row.index, StyledLine::parse(item.bytes())));
        }
        if let Some((_, line)) = &parsed {
            draw_line(log, theme, line, row.row, Rect { x, width: area.right().saturating_sub(x), ..area }, buffer);
        }
        if log.is_selected(item) {
            buffer.set_style(area, theme.selected());
        } else if log.search.as_ref().is_some_and(|search| search.found == Some(item.at)) {
            buffer.set_style(area, ratatui::style::Style::default().add_modifier(Modifier::BOLD));
        }
    }
}

fn draw_line(log: &LogView, theme: Theme, line: &StyledLine, row: usize, area: Rect, buffer: &mut Buffer) {
    let cells = if log.wrap { line.rows(area.width).get(row).cloned().unwrap_or(0..0) } else { 0..line.cells.len() };
    let matches: Vec<std::ops::Range<usize>> = match &log.search {
        Some(search) => search.regex.find_iter(&line.text).map(|found| found.range()).collect(),
        None => Vec::new(),
    };
    let skip = if log.wrap { 0 } else { log.left };
    let mut column = 0;
    for index in cells {
        let cell = &line.cells[index];
        let x = column;
        column += cell.width;
        if x < skip {
            continue;
        }
        let x = area.x + (x - skip);
        if x + cell.width > area.right() {
            break;
        }
        let is_match = matches.iter().any(|range| range.contains(&cell.start));
        let style = if is_match { theme.found() } else { theme.foreign(cell.style) };
        if let Some(target) = buffer.cell_mut(Position { x, y: area.y }) {
            target.set_symbol(line.text_of(index)).set_style(style);
        }
    }
}

/// Position and modes, at the right of the header.
fn draw_position(log: &LogView, state: &State, theme: Theme, area: Rect, buffer: &mut Buffer) {
    if area.y == 0 || !matches!(state.link, crate::state::Link::Connected) {
        return;
    }
    let mut words = Vec::new();
    let running = log.search.as_ref().and_then(|search| search.running);
    if let Some(search) = &log.search {
        words.push(format!("/{}", search.pattern));
    }
    if log.error.is_some() {
        words.push("cannot read".to_owned());
    }
    if !log.wrap {
        words.push("no wrap".to_owned());
    }
    let size = render_bytes(log.end);
    words.push(match (log.follow, log.closed) {
        (true, true) => format!("complete, {size}"),
        (true, false) => format!("following, {size}"),
        (false, _) => format!("{}% of {size}", log.percent()),
    });
    let text = match running {
        Some(progress) => {
            format!(" searched {} of {} ", render_bytes(progress.searched), render_bytes(progress.total))
        }
        None => format!(" {} ", crate::text::one_line(&words.join(" "))),
    };
    let columns = (width(&text) as u16).min(area.width / 2);
    let x = area.right() - columns;
    put(buffer, x, area.y - 1, columns, [span(text, theme.tone(Tone::Busy))]);
}
