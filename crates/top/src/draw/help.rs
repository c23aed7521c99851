//! The help screen: every command with its key.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::theme::Theme;
use super::{put, span};
use crate::command::PALETTE;
use crate::describe::Tone;
use crate::text::{fit, wrap};

/// Columns of the keys.
const KEY_COLUMNS: usize = 8;

/// Keys that are not commands of the palette.
const KEYS: &[(&str, &str)] = &[
    ("j k g G", "down, up, first, last; also arrows, PgUp, PgDn, ctrl+d, ctrl+u"),
    ("h l", "in a log without wrap: left, right"),
    ("Tab", "the next of processes, inbox, agents, events"),
    ("Esc", "close what is open: a question, a selection, a search, a screen, the filter; it never leaves"),
    ("q", "the same; on the unfiltered list of processes: leave"),
    ("ctrl+c", "leave"),
    (":", "all commands by name"),
    ("mouse", "the wheel scrolls, a click selects, dragging copies; Shift leaves the mouse to your terminal"),
];

/// The lines: key and what it does.
fn lines() -> Vec<(&'static str, &'static str)> {
    let commands = PALETTE.iter().map(|named| (named.key, named.help));
    commands.chain(KEYS.iter().copied()).collect()
}

/// The rows at this width: a description that is too long goes on in the next row.
pub(crate) fn rows(columns: u16) -> Vec<(&'static str, String)> {
    let room = usize::from(columns).saturating_sub(KEY_COLUMNS + 2);
    let wrapped = |(key, help): (&'static str, &'static str)| {
        let keys = std::iter::once(key).chain(std::iter::repeat(""));
        keys.zip(wrap(help, room)).collect::<Vec<_>>()
    };
    lines().into_iter().flat_map(wrapped).collect()
}

pub(super) fn draw(offset: usize, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let shown = rows(area.width).into_iter().skip(offset).take(usize::from(area.height));
    for ((key, help), y) in shown.zip(area.y..) {
        let spans = [span(format!(" {} ", fit(key, KEY_COLUMNS)), theme.title()), span(help, theme.tone(Tone::Plain))];
        put(buffer, area.x, y, area.width, spans);
    }
}
