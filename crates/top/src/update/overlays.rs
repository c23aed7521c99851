//! Keys while a line is typed or a question is open.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::command::matching;
use crate::message::{Action, Effect, LineEnd};
use crate::prompt::{Prompt, PromptKind, Typed};
use crate::state::{Confirm, Overlay, State, View, ViewKind};

use super::commands;

pub(super) fn on_key(state: &mut State, overlay: Overlay, key: KeyEvent) -> Vec<Effect> {
    match overlay {
        Overlay::Confirm(confirm) => on_confirm_key(state, confirm, key),
        Overlay::Prompt(mut prompt) => {
            let typed = prompt.type_key(key);
            on_typed(state, prompt, typed)
        }
    }
}

pub(super) fn on_paste(state: &mut State, text: &str) -> Vec<Effect> {
    match state.overlay.take() {
        Some(Overlay::Prompt(mut prompt)) => {
            let typed = prompt.paste(text);
            on_typed(state, prompt, typed)
        }
        overlay => {
            state.overlay = overlay;
            match state.views.last() {
                Some(View::Attach(attach)) if attach.opened && attach.ended.is_none() => {
                    vec![Effect::AttachInput(attach.paste(text))]
                }
                _ => Vec::new(),
            }
        }
    }
}

fn on_confirm_key(state: &mut State, mut confirm: Confirm, key: KeyEvent) -> Vec<Effect> {
    let last = confirm.all_lines().len().saturating_sub(1);
    match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Vec::new(),
        KeyCode::Char('y' | 'Y') => return vec![Effect::Act(confirm.action)],
        // Enter confirms a stop; a question of an agent is answered by a letter only.
        KeyCode::Enter if confirm.otherwise.is_none() => return vec![Effect::Act(confirm.action)],
        KeyCode::Char('n' | 'N') => return confirm.otherwise.map(Effect::Act).into_iter().collect(),
        KeyCode::Esc | KeyCode::Char('q') => return Vec::new(),
        KeyCode::Char('j') | KeyCode::Down => confirm.offset = (confirm.offset + 1).min(last),
        KeyCode::Char('k') | KeyCode::Up => confirm.offset = confirm.offset.saturating_sub(1),
        KeyCode::PageDown | KeyCode::Char(' ') => confirm.offset = (confirm.offset + 8).min(last),
        KeyCode::PageUp => confirm.offset = confirm.offset.saturating_sub(8),
        _ => {}
    }
    state.overlay = Some(Overlay::Confirm(confirm));
    Vec::new()
}

fn on_typed(state: &mut State, mut prompt: Prompt, typed: Typed) -> Vec<Effect> {
    match (typed, &mut prompt.kind) {
        (Typed::Cancelled, PromptKind::Filter { before }) => {
            let before = std::mem::take(before);
            return set_filter(state, before);
        }
        (Typed::Cancelled, _) => return Vec::new(),
        (Typed::Submitted, _) => return submit(state, prompt),
        (Typed::Edited, PromptKind::Filter { .. }) => {
            let text = prompt.text.clone();
            set_filter(state, text);
        }
        (Typed::Edited, PromptKind::Palette { choice }) => *choice = 0,
        (Typed::Moved(by), PromptKind::Palette { choice }) => {
            let last = matching(&prompt.text).len().saturating_sub(1) as i64;
            *choice = (*choice as i64 + by).clamp(0, last) as usize;
        }
        (Typed::Completed, PromptKind::Palette { choice }) => {
            if let Some(named) = matching(&prompt.text).get(*choice) {
                *choice = 0;
                prompt.set(named.name);
            }
        }
        _ => {}
    }
    state.overlay = Some(Overlay::Prompt(prompt));
    Vec::new()
}

fn set_filter(state: &mut State, text: String) -> Vec<Effect> {
    match state.kind() {
        ViewKind::Events => state.events_filter = text,
        _ => {
            let rows = state.body_rows();
            state.processes.filter = text;
            state.processes.rebuild(rows);
        }
    }
    Vec::new()
}

fn submit(state: &mut State, prompt: Prompt) -> Vec<Effect> {
    match prompt.kind {
        PromptKind::Filter { .. } => set_filter(state, prompt.text),
        PromptKind::Search => search(state, prompt),
        PromptKind::Input { id, is_terminal, .. } => {
            let line_end = if is_terminal { LineEnd::Enter } else { LineEnd::Newline };
            vec![Effect::Act(Action::Send { id, text: prompt.text, line_end })]
        }
        PromptKind::Palette { choice } => match matching(&prompt.text).get(choice) {
            Some(named) => commands::run(state, named.command),
            None => {
                state.complain(format!("no command `{}`: ? lists them all", prompt.text));
                Vec::new()
            }
        },
    }
}

fn search(state: &mut State, prompt: Prompt) -> Vec<Effect> {
    let Some(View::Log(log)) = state.views.last_mut() else { return Vec::new() };
    if prompt.text.is_empty() {
        log.search = None;
        return Vec::new();
    }
    match log.search(&prompt.text) {
        Ok(effect) => vec![effect],
        Err(error) => {
            state.complain(error);
            state.overlay = Some(Overlay::Prompt(prompt));
            Vec::new()
        }
    }
}
