//! The help screen: every command with its key.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::theme::Theme;
use super::{put, span};
use crate::command::PALETTE;
use crate::describe::Tone;
use crate::text::fit;

/// Keys that are not commands of the palette.
const KEYS: &[(&str, &str)] = &[
    ("j k g G", "down, up, first, last; also arrows, PgUp, PgDn, ctrl+d, ctrl+u"),
    ("h l", "in a log without wrap: left, right"),
    ("Tab", "the next of processes, inbox, agents, events"),
    ("Esc q", "back; on the list of processes: clear the filter, then leave"),
    ("ctrl+c", "leave"),
    (":", "all commands by name"),
    ("mouse", "the wheel scrolls, a click selects, dragging copies; Shift leaves the mouse to your terminal"),
];

/// The lines: key and what it does.
pub(crate) fn lines() -> Vec<(&'static str, &'static str)> {
    let commands = PALETTE.iter().map(|named| (named.key, named.help));
    commands.chain(KEYS.iter().copied()).collect()
}

pub(super) fn draw(offset: usize, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let shown = lines().into_iter().skip(offset).take(usize::from(area.height));
    for ((key, help), y) in shown.zip(area.y..) {
        let spans = [span(format!(" {} ", fit(key, 8)), theme.title()), span(help, theme.tone(Tone::Plain))];
        put(buffer, area.x, y, area.width, spans);
    }
}
