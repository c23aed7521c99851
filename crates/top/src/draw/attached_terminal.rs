//! The terminal of an attached process: a small widget over vt100's screen.

use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::style::{Color, Modifier, Style};

use super::theme::Theme;
use super::{put, span};
use crate::attached_terminal::AttachView;
use crate::describe::Tone;

/// Draws the screen; gives the place of the text cursor if it is to be shown.
pub(super) fn draw(view: &AttachView, theme: Theme, area: Rect, buffer: &mut Buffer) -> Option<Position> {
    let screen = view.parser.screen();
    for row in 0..area.height {
        for column in 0..area.width {
            let Some(cell) = screen.cell(row, column) else { continue };
            let at = Position { x: area.x + column, y: area.y + row };
            let Some(target) = buffer.cell_mut(at).filter(|_| !cell.is_wide_continuation()) else { continue };
            // The emulator keeps control characters out of cells.
            let contents = cell.contents();
            target.set_symbol(if contents.is_empty() { " " } else { contents });
            target.set_style(theme.foreign(style_of(cell)));
        }
    }
    let state = view.ended.as_ref().or(view.trouble.as_ref());
    let state = state.cloned().or_else(|| (!view.opened).then(|| "connecting …".to_owned()));
    if let Some(text) = state {
        let text = format!(" {} ", crate::text::one_line(&text));
        let y = area.y + area.height.saturating_sub(1);
        put(buffer, area.x, y, area.width, [span(text, theme.tone(Tone::Needs).add_modifier(Modifier::REVERSED))]);
        return None;
    }
    let (row, column) = screen.cursor_position();
    let is_inside = row < area.height && column < area.width && !screen.hide_cursor();
    is_inside.then_some(Position { x: area.x + column, y: area.y + row })
}

fn style_of(cell: &vt100::Cell) -> Style {
    let mut style = Style::default().fg(color(cell.fgcolor())).bg(color(cell.bgcolor()));
    for (is_set, modifier) in [
        (cell.bold(), Modifier::BOLD),
        (cell.dim(), Modifier::DIM),
        (cell.italic(), Modifier::ITALIC),
        (cell.underline(), Modifier::UNDERLINED),
        (cell.inverse(), Modifier::REVERSED),
    ] {
        if is_set {
            style = style.add_modifier(modifier);
        }
    }
    style
}

fn color(color: vt100::Color) -> Color {
    match color {
        vt100::Color::Default => Color::Reset,
        vt100::Color::Idx(index) => Color::Indexed(index),
        vt100::Color::Rgb(red, green, blue) => Color::Rgb(red, green, blue),
    }
}
