//! The mouse: the wheel scrolls, a click selects a row, dragging copies what is between two cells.

use crossterm::event::{MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::Position;

use crate::command::Command;
use crate::list::Move;
use crate::message::Effect;
use crate::state::{Drag, State, View, item_key};

use super::commands;

/// Lines for one notch of the wheel.
const WHEEL: i64 = 3;

pub(super) fn on_mouse(state: &mut State, event: MouseEvent) -> Vec<Effect> {
    let at = Position { x: event.column, y: event.row };
    match event.kind {
        MouseEventKind::ScrollDown if state.overlay.is_none() => commands::run(state, Command::Go(Move::Lines(WHEEL))),
        MouseEventKind::ScrollUp if state.overlay.is_none() => commands::run(state, Command::Go(Move::Lines(-WHEEL))),
        MouseEventKind::Down(MouseButton::Left) => {
            state.drag = None;
            if state.overlay.is_none() {
                click(state, at);
            }
            state.drag = Some(Drag { from: at, to: at });
            Vec::new()
        }
        MouseEventKind::Drag(MouseButton::Left) => {
            if let Some(drag) = &mut state.drag {
                drag.to = at;
            }
            Vec::new()
        }
        MouseEventKind::Up(MouseButton::Left) => match state.drag.take() {
            Some(drag) if drag.from != at => {
                state.say("copied");
                vec![Effect::CopyRegion(drag.from, at)]
            }
            _ => Vec::new(),
        },
        _ => Vec::new(),
    }
}

/// Selects the row under the mouse.
fn click(state: &mut State, at: Position) {
    // The header has one row.
    let Some(row) = usize::from(at.y).checked_sub(1) else { return };
    let (rows, upper, event_rows) = (state.body_rows(), state.upper_rows(), state.event_rows());
    match state.views.last_mut() {
        Some(View::Processes) => {
            let index = state.processes.cursor.offset + row;
            if row < rows && index < state.processes.rows.len() {
                state.processes.select(index, rows);
            }
        }
        Some(View::Inbox) if row < upper => {
            let index = state.inbox_cursor.offset + row;
            if let Some(item) = state.inbox.items.get(index) {
                state.inbox_cursor.index = index;
                state.inbox_selected = Some(item_key(item));
            }
        }
        Some(View::Agents) if row < upper => state.agents_cursor.index = state.agents_cursor.offset + row,
        Some(View::Events) if row < event_rows => {
            state.events_follow = false;
            state.events_cursor.index = state.events_cursor.offset + row;
        }
        Some(View::Turns(turns)) if row < upper => {
            turns.moved = true;
            turns.cursor.index = turns.cursor.offset + row;
        }
        Some(View::Tree(tree)) if row < rows => tree.cursor.index = tree.cursor.offset + row,
        _ => {}
    }
}
