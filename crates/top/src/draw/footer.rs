//! The last row: the keys of the screen, or a message to the person, which takes as many rows as it needs.

use pinfold_api::types::InboxKind;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::theme::Theme;
use super::{put, span};
use crate::describe::Tone;
use crate::state::{Notice, State, View};
use crate::text::{cut, width, wrap};

type Hints = &'static [(&'static str, &'static str)];

const HELP: (&str, &str) = ("?", "help");

pub(super) fn draw(state: &State, theme: Theme, area: Rect, buffer: &mut Buffer) {
    match &state.notice {
        Some(notice) => draw_notice(notice, theme, area, buffer),
        None => draw_hints(state, theme, Rect { y: area.bottom() - 1, height: 1, ..area }, buffer),
    }
}

/// Draws a message at the bottom of the area, over what is there: at most the lower half of it.
pub(super) fn draw_notice(notice: &Notice, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let columns = usize::from(area.width).saturating_sub(2).max(1);
    let mut lines = wrap(&notice.text, columns);
    let room = usize::from(area.height / 2).max(1);
    if lines.len() > room {
        lines.truncate(room);
        if let Some(last) = lines.last_mut() {
            *last = format!("{} …", cut(last, columns.saturating_sub(2)));
        }
    }
    let tone = if notice.failed { Tone::Bad } else { Tone::Busy };
    let top = area.bottom().saturating_sub(lines.len() as u16);
    for (line, y) in lines.into_iter().zip(top..area.bottom()) {
        super::clear(Rect { y, height: 1, ..area }, buffer);
        put(buffer, area.x, y, area.width, [span(format!(" {line}"), theme.tone(tone))]);
    }
}

/// Draws as many keys as fit. Where there is not room for all, the key of the help is among them.
fn draw_hints(state: &State, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let hints = hints(state);
    let columns = |(key, what): &(&str, &str)| width(key) + width(what) + 3;
    // On a screen that takes all keys, `?` is not help.
    let has_help = !matches!(state.view(), View::Attach(_) | View::Help { .. });
    let mut room = usize::from(area.width);
    if has_help {
        room = room.saturating_sub(columns(&HELP));
    }
    let mut shown: Vec<(&str, &str)> = Vec::new();
    for hint in hints {
        if columns(hint) > room && (has_help || !shown.is_empty()) {
            break;
        }
        room = room.saturating_sub(columns(hint));
        shown.push(*hint);
    }
    if has_help {
        shown.push(HELP);
    }
    let mut spans = Vec::new();
    for (key, what) in shown {
        spans.push(span(format!(" {key}"), theme.title()));
        spans.push(span(format!(" {what} "), theme.tone(Tone::Faint)));
    }
    put(buffer, area.x, area.y, area.width, spans);
}

/// The keys that do something on the screen, the most useful ones first.
fn hints(state: &State) -> Hints {
    match state.view() {
        View::Processes => &[
            ("Enter", "logs"),
            ("t", "tree"),
            ("a", "attach"),
            ("x", "stop"),
            ("/", "filter"),
            ("!", "needs me"),
            (":", "commands"),
            ("q", "quit"),
        ],
        View::Inbox => match state.inbox_item().map(|item| item.kind) {
            Some(InboxKind::Permission) => {
                &[("y/n", "answer"), ("Enter", "log"), ("!", "next"), ("x", "stop"), ("q", "back")]
            }
            Some(InboxKind::WaitingForInput) => {
                &[("i", "input"), ("a", "attach"), ("Enter", "log"), ("!", "next"), ("x", "stop"), ("q", "back")]
            }
            Some(InboxKind::Failed) => &[("Enter", "log"), ("m", "seen"), ("!", "next"), ("q", "back")],
            None => &[("j/k", "select"), ("q", "back")],
        },
        View::Agents => match state.agent() {
            Some(agent) if !agent.asks.is_empty() => {
                &[("y/n", "answer"), ("Enter", "turns"), ("x", "stop"), ("q", "back")]
            }
            Some(_) => &[("Enter", "turns"), ("x", "stop"), ("t", "tree"), ("q", "back")],
            None => &[("q", "back")],
        },
        View::Events => &[("Enter", "log"), ("/", "filter"), ("G", "follow"), ("q", "back")],
        View::Log(view) if view.search.as_ref().is_some_and(|search| search.running.is_some()) => {
            &[("Esc", "cancel the search")]
        }
        View::Log(view) if view.selection.is_some() => &[("j/k", "extend"), ("y", "copy"), ("Esc", "cancel")],
        View::Log(_) => &[
            ("/", "search"),
            ("n/N", "match"),
            ("f", "follow"),
            ("w", "wrap"),
            ("T", "times"),
            ("v", "select"),
            ("y", "copy"),
            ("q", "back"),
        ],
        View::Tree(_) => &[("Enter", "log"), ("x", "stop"), ("X", "kill"), ("p", "pause"), ("q", "back")],
        View::Turns(view) => match state.agents.iter().find(|agent| agent.id == view.agent) {
            Some(agent) if !agent.asks.is_empty() => &[("y/n", "answer"), ("Enter", "log"), ("q", "back")],
            _ => &[("Enter", "log"), ("q", "back")],
        },
        View::Attach(view) if view.ended.is_some() => &[("q", "back")],
        View::Attach(_) => &[("ctrl+p ctrl+q", "leave: everything else goes to the process")],
        View::Help { .. } => &[("j/k", "scroll"), ("q", "back")],
    }
}
