//! What each command does.

use pinfold_api::types::{Record, Status, Stdin};

use crate::attached_terminal::AttachView;
use crate::command::Command;
use crate::list::Move;
use crate::log::LogView;
use crate::message::{Action, Effect};
use crate::processes::Row;
use crate::prompt::{Prompt, PromptKind};
use crate::state::{MAX_VIEWS, Overlay, State, TreeView, TurnsView, View, ViewKind, item_key};

use super::acts;

pub(super) fn run(state: &mut State, command: Command) -> Vec<Effect> {
    match command {
        Command::Go(movement) => go(state, movement),
        Command::Sideways(columns) => {
            if let Some(View::Log(log)) = state.views.last_mut() {
                log.left = (i32::from(log.left) + columns).clamp(0, 4096) as u16;
            }
            Vec::new()
        }
        Command::OpenProcesses => open_list(state, View::Processes),
        Command::OpenInbox => open_inbox(state),
        Command::OpenAgents => open_list(state, View::Agents),
        Command::OpenEvents => open_list(state, View::Events),
        Command::OpenHelp => push(state, View::Help { offset: 0 }),
        Command::NextScreen => match state.kind() {
            ViewKind::Processes => open_inbox(state),
            ViewKind::Inbox => open_list(state, View::Agents),
            ViewKind::Agents => open_list(state, View::Events),
            _ => open_list(state, View::Processes),
        },
        Command::OpenLog => open(state),
        Command::OpenTree => {
            with_subject(state, |state, id| push(state, View::Tree(TreeView { id, ..TreeView::default() })))
        }
        Command::Attach => with_subject(state, attach),
        Command::Input => with_subject(state, |state, id| ask_input(state, id, "")),
        Command::Filter if state.kind() == ViewKind::Log => run(state, Command::Search),
        Command::Filter => ask_filter(state),
        Command::Search => ask(state, PromptKind::Search, ""),
        Command::NextMatch(direction) => match state.views.last_mut() {
            Some(View::Log(log)) => match log.search_on(direction) {
                Some(effect) => vec![effect],
                None => ask(state, PromptKind::Search, ""),
            },
            _ => Vec::new(),
        },
        Command::NextNeed => next_need(state),
        Command::Answer(verdict) => acts::answer(state, verdict),
        Command::Stop(force) => acts::ask_stop(state, force),
        Command::Pause => with_subject(state, |state, id| {
            let paused = state.record(&id).is_some_and(|record| record.paused);
            let action = if paused { Action::Resume { id } } else { Action::Pause { id } };
            vec![Effect::Act(action)]
        }),
        Command::Restart => with_subject(state, |_, id| vec![Effect::Act(Action::Restart { id })]),
        Command::Owner => narrow(state),
        Command::ToggleEnded => {
            state.processes.hide_ended = !state.processes.hide_ended;
            rebuild(state)
        }
        Command::Follow => toggle(state, |log| log.toggle_follow()),
        Command::Wrap => toggle(state, |log| {
            log.wrap = !log.wrap;
            log.left = 0;
        }),
        Command::Times => match state.kind() {
            ViewKind::Log => toggle(state, |log| log.times = !log.times),
            _ => {
                state.absolute_times = !state.absolute_times;
                Vec::new()
            }
        },
        Command::Select => toggle(state, |log| match log.selection {
            Some(_) => log.selection = None,
            None => log.start_selection(),
        }),
        Command::Copy => copy(state),
        Command::MarkSeen => mark_seen(state),
        Command::Palette => ask(state, PromptKind::Palette { choice: 0 }, ""),
        Command::Back | Command::Close => match state.view() {
            View::Log(log) if log.selection.is_some() => toggle(state, |log| log.selection = None),
            View::Log(log) if log.search.as_ref().is_some_and(|search| search.running.is_some()) => {
                toggle(state, |log| {
                    log.search = None;
                    log.forget_reads();
                });
                state.say("the search was cancelled");
                vec![Effect::CloseLog]
            }
            _ if command == Command::Close && is_bottom(state) => {
                state.say("nothing to close: q leaves");
                Vec::new()
            }
            _ => back(state),
        },
        Command::Quit => vec![Effect::Quit],
    }
}

/// Whether there is nothing to close or to clear: the list of processes, unfiltered.
fn is_bottom(state: &State) -> bool {
    let processes = &state.processes;
    state.views.len() == 1
        && state.kind() == ViewKind::Processes
        && processes.filter.is_empty()
        && processes.owner.is_none()
}

/// Closes the screen; on the last one, leaves.
pub(super) fn back(state: &mut State) -> Vec<Effect> {
    if state.views.len() > 1 {
        return match state.views.pop() {
            Some(View::Log(_)) => reopened(state, vec![Effect::CloseLog]),
            Some(View::Attach(_)) => vec![Effect::Detach],
            _ => Vec::new(),
        };
    }
    match state.kind() {
        ViewKind::Processes if !state.processes.filter.is_empty() => {
            state.processes.filter.clear();
            rebuild(state)
        }
        ViewKind::Processes if state.processes.owner.is_some() => {
            state.processes.owner = None;
            rebuild(state)
        }
        ViewKind::Processes => vec![Effect::Quit],
        _ => open_list(state, View::Processes),
    }
}

/// A log below the one that was closed lost its reads, too: it asks again.
fn reopened(state: &mut State, effects: Vec<Effect>) -> Vec<Effect> {
    if let Some(View::Log(log)) = state.views.last_mut() {
        log.forget_reads();
    }
    effects
}

fn rebuild(state: &mut State) -> Vec<Effect> {
    let rows = state.body_rows();
    state.processes.rebuild(rows);
    Vec::new()
}

fn go(state: &mut State, movement: Move) -> Vec<Effect> {
    let (rows, upper) = (state.body_rows(), state.upper_rows());
    let events = state.shown_events().len();
    let agents = state.agents.len();
    let (columns, event_rows) = (state.columns, state.event_rows());
    let items = state.inbox.items.len();
    match state.views.last_mut() {
        Some(View::Inbox) => {
            // Without a selection the first movement selects the item under the cursor.
            if state.inbox_selected.is_some() {
                state.inbox_cursor.go(movement, items, upper);
            }
            state.inbox_cursor.fit(items, upper);
            state.inbox_selected = state.inbox.items.get(state.inbox_cursor.index).map(item_key);
        }
        Some(View::Agents) => state.agents_cursor.go(movement, agents, upper),
        Some(View::Events) => {
            state.events_cursor.go(movement, events, event_rows);
            state.events_follow = state.events_cursor.index + 1 >= events;
        }
        Some(View::Log(log)) => log.go(movement),
        Some(View::Tree(tree)) => {
            let members = tree.record.as_ref().map_or(0, |record| record.tree.len());
            tree.cursor.go(movement, members, rows);
        }
        Some(View::Turns(turns)) => {
            turns.moved = true;
            turns.cursor.go(movement, turns.turns.len(), upper);
        }
        Some(View::Help { offset }) => {
            let mut cursor = crate::list::ListCursor { index: *offset, offset: 0 };
            let length = crate::draw::help::rows(columns).len().saturating_sub(rows) + 1;
            cursor.go(movement, length, rows);
            *offset = cursor.index;
        }
        Some(View::Processes) | None => state.processes.go(movement, rows),
        Some(View::Attach(_)) => {}
    }
    Vec::new()
}

fn open_list(state: &mut State, view: View) -> Vec<Effect> {
    let effects = vec![Effect::CloseLog, Effect::Detach];
    state.views = vec![view];
    effects
}

fn open_inbox(state: &mut State) -> Vec<Effect> {
    if state.inbox_selected.is_none() {
        state.inbox_cursor.index = 0;
        state.inbox_selected = state.inbox.items.first().map(item_key);
    }
    open_list(state, View::Inbox)
}

pub(super) fn push(state: &mut State, view: View) -> Vec<Effect> {
    state.views.push(view);
    if state.views.len() > MAX_VIEWS {
        state.views.remove(1);
    }
    Vec::new()
}

fn with_subject(state: &mut State, act: impl FnOnce(&mut State, String) -> Vec<Effect>) -> Vec<Effect> {
    match state.subject() {
        Some(id) => act(state, id),
        None => {
            state.say("select a process first");
            Vec::new()
        }
    }
}

/// Enter: the log of the process, the turns of the agent.
fn open(state: &mut State) -> Vec<Effect> {
    let cursor = match state.view() {
        View::Agents => {
            let Some(agent) = state.agent() else { return Vec::new() };
            let turns = TurnsView { agent: agent.id.clone(), ..TurnsView::default() };
            return push(state, View::Turns(turns));
        }
        View::Processes => match state.processes.selected_row() {
            Some(Row::Owner { .. }) => return narrow(state),
            _ => None,
        },
        View::Events => state.shown_events().get(state.events_cursor.index).and_then(|event| event.cursor),
        View::Log(_) | View::Help { .. } | View::Attach(_) => return go(state, Move::Lines(1)),
        View::Tree(_) | View::Turns(_) | View::Inbox => None,
    };
    with_subject(state, |state, id| open_log(state, id, cursor))
}

fn open_log(state: &mut State, id: String, cursor: Option<u64>) -> Vec<Effect> {
    let token = state.next_token;
    state.next_token += 1;
    let mut log = LogView::new(id, token);
    if let Some(cursor) = cursor.filter(|cursor| *cursor > 0) {
        log = log.at(cursor);
    }
    if let Some(record) = state.record(&log.id) {
        log.observe(record);
    }
    push(state, View::Log(Box::new(log)))
}

fn attach(state: &mut State, id: String) -> Vec<Effect> {
    if state.kind() == ViewKind::Attach {
        return Vec::new();
    }
    if let Some(record) = state.record(&id) {
        let over = matches!(record.status, Status::Finished | Status::Lost);
        if over || record.pty.is_none() {
            let reason = if over { "has ended" } else { "has no terminal" };
            let advice = if takes_input(record) { ", i sends it a line" } else { "" };
            state.complain(format!("{} {reason}: Enter shows its log{advice}", state.label(&id)));
            return Vec::new();
        }
    }
    let token = state.next_token;
    state.next_token += 1;
    let (rows, columns) = (state.body_rows() as u16, state.columns);
    push(state, View::Attach(Box::new(AttachView::new(id.clone(), token, rows, columns))));
    vec![Effect::Attach { id, token, rows, columns }]
}

fn ask(state: &mut State, kind: PromptKind, text: &str) -> Vec<Effect> {
    state.overlay = Some(Overlay::Prompt(Prompt::new(kind, text)));
    Vec::new()
}

/// Whether a process can be sent a line.
fn takes_input(record: &Record) -> bool {
    let over = matches!(record.status, Status::Finished | Status::Lost);
    !over && (record.pty.is_some() || record.stdin != Stdin::Null)
}

/// Asks for a line to send to a process.
pub(super) fn ask_input(state: &mut State, id: String, text: &str) -> Vec<Effect> {
    let mut is_terminal = true;
    if let Some(record) = state.record(&id) {
        let over = matches!(record.status, Status::Finished | Status::Lost);
        is_terminal = record.pty.is_some();
        if !takes_input(record) {
            let reason = if over { "has ended" } else { "takes no input: it was started without --stdin or --pty" };
            state.complain(format!("{} {reason}", state.label(&id)));
            return Vec::new();
        }
    }
    let label = state.label(&id);
    ask(state, PromptKind::Input { id, label, is_terminal }, text)
}

fn ask_filter(state: &mut State) -> Vec<Effect> {
    let before = match state.kind() {
        ViewKind::Processes => state.processes.filter.clone(),
        ViewKind::Events => state.events_filter.clone(),
        _ => {
            state.say("/ filters processes and events, and searches in a log");
            return Vec::new();
        }
    };
    ask(state, PromptKind::Filter { before: before.clone() }, &before)
}

/// Only the owner of the selected row and its descendants; again: everything.
fn narrow(state: &mut State) -> Vec<Effect> {
    if state.kind() != ViewKind::Processes {
        return Vec::new();
    }
    state.processes.owner = match (&state.processes.owner, state.processes.selected_row()) {
        (Some(_), _) => None,
        (None, Some(Row::Owner { name, .. })) => Some(name.clone()),
        (None, Some(Row::Process { index, .. })) => Some(state.processes.get(*index).owner.clone()),
        (None, _) => None,
    };
    rebuild(state)
}

fn toggle(state: &mut State, change: impl FnOnce(&mut LogView)) -> Vec<Effect> {
    match state.views.last_mut() {
        Some(View::Log(log)) => change(log),
        _ => state.say("that is for logs: Enter opens one"),
    }
    Vec::new()
}

fn copy(state: &mut State) -> Vec<Effect> {
    let text = match state.views.last_mut() {
        Some(View::Log(log)) => {
            let text = log.copied();
            log.selection = None;
            text
        }
        _ => match state.subject() {
            Some(id) => id,
            None => return Vec::new(),
        },
    };
    let lines = text.lines().count();
    state.say(format!("copied {}", crate::quantity::render_count(lines, "line", "lines")));
    vec![Effect::Copy(text)]
}

/// The next item of the inbox: on its row in the list of processes if it is there, else in the inbox.
fn next_need(state: &mut State) -> Vec<Effect> {
    let items = state.inbox.items.len();
    if items == 0 {
        state.say("nothing waits for you");
        return Vec::new();
    }
    if state.kind() == ViewKind::Inbox {
        let next = match state.inbox_selected {
            Some(_) => (state.inbox_cursor.index + 1) % items,
            None => state.inbox_cursor.index.min(items - 1),
        };
        state.inbox_cursor.index = next;
        state.inbox_selected = state.inbox.items.get(next).map(item_key);
        return Vec::new();
    }
    open_inbox(state)
}

fn mark_seen(state: &mut State) -> Vec<Effect> {
    if state.inbox.failed == 0 {
        state.say("no failures to mark as seen");
        return Vec::new();
    }
    vec![Effect::Act(Action::MarkSeen { through: state.inbox.latest })]
}
