//! The screen as a function of the state: `draw(state, frame)`. It changes nothing.

mod attached_terminal;
mod footer;
pub(crate) mod help;
mod lists;
mod log;
mod overlays;
mod processes;
mod theme;

use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use crate::describe::Tone;
use crate::quantity::{elapsed, render_age, render_clock, render_count};
use crate::state::{Link, NARROW, State, View, ViewKind};
use crate::text::{cut, one_line, width};
use theme::Theme;

/// Draws the whole screen.
pub(crate) fn draw(state: &State, frame: &mut Frame<'_>) {
    let theme = Theme::new(state.colour);
    let area = frame.area();
    if area.height == 0 || area.width == 0 {
        return;
    }
    let header = Rect { height: 1, ..area };
    let body = Rect { y: area.y + 1, height: area.height.saturating_sub(2), ..area };
    draw_header(state, theme, header, frame.buffer_mut());
    match state.view() {
        View::Processes => processes::draw(state, theme, body, frame.buffer_mut()),
        View::Inbox => lists::draw_inbox(state, theme, body, frame.buffer_mut()),
        View::Agents => lists::draw_agents(state, theme, body, frame.buffer_mut()),
        View::Events => lists::draw_events(state, theme, body, frame.buffer_mut()),
        View::Log(view) => log::draw(view, state, theme, body, frame.buffer_mut()),
        View::Tree(view) => lists::draw_tree(view, theme, body, frame.buffer_mut()),
        View::Turns(view) => lists::draw_turns(view, state, theme, body, frame.buffer_mut()),
        View::Attach(view) => {
            if let Some(cursor) = attached_terminal::draw(view, theme, body, frame.buffer_mut()) {
                frame.set_cursor_position(cursor);
            }
        }
        View::Help { offset } => help::draw(*offset, theme, body, frame.buffer_mut()),
    }
    if area.height > 1 {
        footer::draw(state, theme, area, frame.buffer_mut());
    }
    if let Some(cursor) = overlays::draw(state, theme, area, frame.buffer_mut()) {
        frame.set_cursor_position(cursor);
    }
    draw_drag(state, area, frame.buffer_mut());
}

/// Writes spans on one row, cut at its end; nothing outside of the screen.
fn put(buffer: &mut Buffer, x: u16, y: u16, columns: u16, spans: impl IntoIterator<Item = Span<'static>>) {
    if !buffer.area.contains(Position { x, y }) {
        return;
    }
    buffer.set_line(x, y, &Line::from_iter(spans), columns);
}

fn span(text: impl Into<String>, style: Style) -> Span<'static> {
    Span::styled(text.into(), style)
}

fn draw_header(state: &State, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let columns = usize::from(area.width);
    if let Some(alarm) = alarm(state) {
        buffer.set_style(area, theme.alarm());
        put(buffer, area.x, area.y, area.width, [span(cut(&format!(" {alarm}"), columns), theme.alarm())]);
        return;
    }
    let mut spans = vec![span(format!(" {}", screen_title(state)), theme.title())];
    let inbox = &state.inbox;
    let needs = inbox.permission + inbox.waiting_for_input;
    let mut parts: Vec<(String, Tone)> = Vec::new();
    if needs > 0 {
        let verb = if needs == 1 { "needs" } else { "need" };
        let key = if area.width < NARROW { "" } else { " (!)" };
        parts.push((format!("{needs} {verb} you{key}"), Tone::Needs));
    }
    if inbox.failed > 0 {
        parts.push((format!("{} failed", inbox.failed), Tone::Bad));
    }
    // Before the list was read, nothing is known of it.
    if state.kind() == ViewKind::Processes && state.processes.loaded {
        let processes = &state.processes;
        parts.push((format!("{} live", processes.live.len()), Tone::Plain));
        parts.push((format!("{} ended", processes.ended_total), Tone::Faint));
        if let Some(owner) = &processes.owner {
            parts.push((format!("owner {}", one_line(owner)), Tone::Busy));
        }
        if !processes.filter.is_empty() {
            parts.push((format!("filter {}", one_line(&processes.filter)), Tone::Busy));
        }
    }
    parts.extend(state.notes.iter().map(|note| (one_line(note), Tone::Needs)));
    for (text, tone) in parts {
        spans.push(span("  ", Style::default()));
        spans.push(span(text, theme.tone(tone)));
    }
    put(buffer, area.x, area.y, area.width, spans);
}

/// Why what is on the screen may be old.
fn alarm(state: &State) -> Option<String> {
    let ago = |since| render_age(elapsed(since, state.now));
    match &state.link {
        Link::Connected => None,
        Link::Connecting { since } => {
            (elapsed(*since, state.now).as_secs() >= 1).then(|| format!("waiting for the daemon for {}", ago(*since)))
        }
        Link::Away { since, reason } => {
            Some(format!("daemon away since {} ({}): {}", render_clock(*since), ago(*since), one_line(reason)))
        }
        Link::Silent { since } => {
            Some(format!("daemon has not answered since {} ({})", render_clock(*since), ago(*since)))
        }
    }
}

fn screen_title(state: &State) -> String {
    let named = |id: &str| one_line(&state.label(id));
    match state.view() {
        View::Processes => "pinfold".to_owned(),
        View::Inbox => format!("inbox: {}", render_count(state.inbox.items.len(), "item", "items")),
        View::Agents => format!("agents: {}", state.agents.len()),
        View::Events => match state.events_filter.as_str() {
            "" => "events".to_owned(),
            filter => format!("events with {}", one_line(filter)),
        },
        View::Log(log) => format!("log of {}", named(&log.id)),
        View::Tree(tree) => format!("tree of {}", named(&tree.id)),
        View::Attach(attach) => format!("terminal of {}", named(&attach.id)),
        View::Turns(turns) => {
            let agent = state.agents.iter().find(|agent| agent.id == turns.agent);
            format!("turns of {}", one_line(agent.and_then(|agent| agent.name.as_deref()).unwrap_or(&turns.agent)))
        }
        View::Help { .. } => "help".to_owned(),
    }
}

fn clear(area: Rect, buffer: &mut Buffer) {
    use ratatui::widgets::{Clear, Widget};
    Clear.render(area.intersection(buffer.area), buffer);
}

/// Marks what is selected with the mouse.
fn draw_drag(state: &State, area: Rect, buffer: &mut Buffer) {
    let Some(drag) = state.drag.filter(|drag| drag.from != drag.to) else { return };
    for y in area.y..area.y + area.height {
        let Some(columns) = region_columns(drag.from, drag.to, y, area.width) else { continue };
        for x in columns {
            if let Some(cell) = buffer.cell_mut(Position { x, y }) {
                cell.modifier.toggle(Modifier::REVERSED);
            }
        }
    }
}

/// The columns of a row that are between two cells, as text is read.
fn region_columns(from: Position, to: Position, y: u16, columns: u16) -> Option<std::ops::Range<u16>> {
    let (first, last) = if (from.y, from.x) <= (to.y, to.x) { (from, to) } else { (to, from) };
    if !(first.y..=last.y).contains(&y) {
        return None;
    }
    let start = if y == first.y { first.x } else { 0 };
    let end = if y == last.y { last.x + 1 } else { columns };
    Some(start.min(columns)..end.min(columns))
}

/// The text between two cells of the screen.
pub(crate) fn region_text(buffer: &Buffer, from: Position, to: Position) -> String {
    let area = buffer.area;
    let mut lines = Vec::new();
    for y in area.y..area.y + area.height {
        let Some(columns) = region_columns(from, to, y, area.width) else { continue };
        let mut line = String::new();
        let mut skip = 0;
        for x in columns {
            let Some(cell) = buffer.cell(Position { x, y }) else { continue };
            if skip > 0 {
                skip -= 1;
                continue;
            }
            skip = width(cell.symbol()).saturating_sub(1);
            line.push_str(cell.symbol());
        }
        lines.push(line.trim_end().to_owned());
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests;
