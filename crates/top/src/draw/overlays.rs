//! Lines that are typed and questions, over the screen.

use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::style::Style;

use super::theme::Theme;
use super::{clear, footer, put, span};
use crate::command::matching;
use crate::describe::Tone;
use crate::prompt::{Prompt, PromptKind};
use crate::quantity::render_count;
use crate::state::{Confirm, Overlay, State};
use crate::text::{cut, fit, one_line, width, wrap};

/// Choices of the palette that are shown at once.
const CHOICES: usize = 10;
/// Columns of a command's name and of its key.
const NAME_COLUMNS: usize = 14;
const KEY_COLUMNS: usize = 5;

/// Draws what lies over the screen; gives the place of the text cursor.
pub(super) fn draw(state: &State, theme: Theme, area: Rect, buffer: &mut Buffer) -> Option<Position> {
    match state.overlay.as_ref()? {
        Overlay::Prompt(prompt) => Some(draw_prompt(prompt, state, theme, area, buffer)),
        Overlay::Confirm(confirm) => {
            draw_confirm(confirm, theme, area, buffer);
            None
        }
    }
}

fn draw_prompt(prompt: &Prompt, state: &State, theme: Theme, area: Rect, buffer: &mut Buffer) -> Position {
    let label = match &prompt.kind {
        PromptKind::Filter { .. } | PromptKind::Search => "/".to_owned(),
        PromptKind::Palette { .. } => ":".to_owned(),
        PromptKind::Input { label, .. } => format!("{}> ", cut(&one_line(label), usize::from(area.width) / 2)),
    };
    let y = area.bottom().saturating_sub(1);
    clear(Rect { y, height: 1, ..area }, buffer);
    // The end of the text before the cursor is always visible.
    let room = usize::from(area.width).saturating_sub(width(&label) + 1);
    let mut head: &str = &prompt.text[..prompt.cursor];
    while width(head) > room {
        head = &head[head.chars().next().map_or(0, char::len_utf8)..];
    }
    let x = width(&label) + width(head);
    let text = format!("{}{}", one_line(head), one_line(&prompt.text[prompt.cursor..]));
    put(buffer, area.x, y, area.width, [span(label, theme.title()), span(text, Style::default())]);
    if let PromptKind::Palette { choice } = prompt.kind {
        draw_choices(&prompt.text, choice, theme, area, buffer);
    } else if let Some(notice) = &state.notice.as_ref().filter(|_| y > 0) {
        // A pattern that cannot be used says why, above the line.
        footer::draw_notice(notice, theme, Rect { height: area.height - 1, ..area }, buffer);
    }
    Position { x: area.x + x as u16, y }
}

fn draw_choices(text: &str, choice: usize, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let found = matching(text);
    let room = usize::from(area.height.saturating_sub(2));
    let help_columns = usize::from(area.width).saturating_sub(NAME_COLUMNS + KEY_COLUMNS + 3);
    let helps: Vec<Vec<String>> = found.iter().map(|named| wrap(named.help, help_columns)).collect();
    // Where a description takes several rows, fewer choices are shown; the chosen one always is.
    let rows = |range: std::ops::Range<usize>| helps[range].iter().map(Vec::len).sum::<usize>();
    let mut last = found.len().min(CHOICES).max(choice + 1).min(found.len());
    let mut first = last.saturating_sub(CHOICES);
    while rows(first..last) > room && last > choice + 1 {
        last -= 1;
    }
    while rows(first..last) > room && first < choice {
        first += 1;
    }
    let mut y = area.bottom().saturating_sub(1 + rows(first..last).min(room) as u16);
    for (index, named) in found.iter().enumerate().take(last).skip(first) {
        for (row, help) in helps[index].iter().enumerate() {
            if y + 1 >= area.bottom() {
                return;
            }
            let line = Rect { y, height: 1, ..area };
            clear(line, buffer);
            let (name, key) = if row == 0 { (named.name, named.key) } else { ("", "") };
            let spans = [
                span(format!(" {} ", fit(name, NAME_COLUMNS)), theme.title()),
                span(format!("{} ", fit(key, KEY_COLUMNS)), theme.tone(Tone::Busy)),
                span(help.clone(), theme.tone(Tone::Faint)),
            ];
            put(buffer, area.x, y, area.width, spans);
            if index == choice {
                buffer.set_style(line, theme.selected());
            }
            y += 1;
        }
    }
}

fn draw_confirm(confirm: &Confirm, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let columns = usize::from(area.width).min(76);
    let inner = columns.saturating_sub(4).max(1);
    let lines: Vec<String> = confirm.all_lines().iter().flat_map(|line| wrap(line, inner)).collect();
    let title = wrap(&confirm.title, inner);
    let fixed = title.len() + 3;
    let room = usize::from(area.height).saturating_sub(fixed + 1).max(1);
    let shown = lines.len().min(room);
    let hidden = lines.len().saturating_sub(confirm.offset.min(lines.len().saturating_sub(shown)) + shown);
    let height = (shown + fixed + usize::from(hidden > 0)).min(usize::from(area.height));
    let window = Rect {
        x: area.x + (area.width - columns as u16) / 2,
        y: area.y + (area.height - height as u16) / 2,
        width: columns as u16,
        height: height as u16,
    };
    clear(window, buffer);
    frame(window, theme, buffer);
    let mut y = window.y + 1;
    let mut write = |text: String, style: Style, buffer: &mut Buffer| {
        if y + 1 < window.bottom() {
            put(buffer, window.x + 2, y, inner as u16, [span(text, style)]);
            y += 1;
        }
    };
    for line in title {
        write(line, theme.title(), buffer);
    }
    let offset = confirm.offset.min(lines.len().saturating_sub(shown));
    for line in lines.into_iter().skip(offset).take(shown) {
        write(line, Style::default(), buffer);
    }
    if hidden > 0 {
        write(
            format!("… {} (j scrolls)", render_count(hidden, "more line", "more lines")),
            theme.tone(Tone::Faint),
            buffer,
        );
    }
    let answers = if confirm.otherwise.is_some() { "y allow   n deny   Esc later" } else { "y yes   n no" };
    put(
        buffer,
        window.x + 2,
        window.bottom().saturating_sub(1),
        inner as u16,
        [span(format!(" {answers} "), theme.tone(Tone::Needs))],
    );
}

fn frame(area: Rect, theme: Theme, buffer: &mut Buffer) {
    use ratatui::widgets::{Block, BorderType, Widget};
    Block::bordered().border_type(BorderType::Rounded).border_style(theme.tone(Tone::Faint)).render(area, buffer);
}
