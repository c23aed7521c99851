//! What happens next: `update(state, message) -> effects`. It reads no clock, sends nothing and draws nothing.

mod acts;
mod commands;
mod mouse;
mod overlays;

use pinfold_api::types::Event;

use crate::command::{self, Command};
use crate::list::ListCursor;
use crate::message::{AttachNews, Effect, Interest, Message, Snapshot};
use crate::quantity::elapsed;
use crate::state::{
    Link, MAX_EVENTS, NOTICE_READING, NOTICE_SECONDS, Notice, Overlay, State, View, ViewKind, item_key, tree_rows,
};

pub(crate) use acts::question_lines;

/// Changes the state by what happened; what to do follows from it.
pub(crate) fn update(state: &mut State, message: Message) -> Vec<Effect> {
    let mut effects = match message {
        Message::KeyPressed(key) => on_key(state, key),
        Message::MouseUsed(event) => mouse::on_mouse(state, event),
        Message::Pasted(text) => overlays::on_paste(state, &text),
        Message::Resized { columns, rows } => on_resize(state, columns, rows),
        Message::Ticked(now) => on_tick(state, now),
        Message::Answered(snapshot) => on_answer(state, *snapshot),
        Message::Unreachable { reason } => {
            if !matches!(state.link, Link::Away { .. }) {
                state.link = Link::Away { since: state.now, reason };
            }
            Vec::new()
        }
        Message::Silent => {
            if !matches!(state.link, Link::Silent { .. }) {
                state.link = Link::Silent { since: state.now };
            }
            Vec::new()
        }
        Message::EventsHappened(events) => on_events(state, events),
        Message::LogWasRead { token, read, result } => {
            if let Some(log) = log_of(state, token) {
                log.take(read, result);
            }
            Vec::new()
        }
        Message::TimesWereRead { token, from, result } => {
            if let Some(log) = log_of(state, token) {
                log.take_times(from, result);
            }
            Vec::new()
        }
        Message::LogSearchWentOn { token, progress } => {
            if let Some(log) = log_of(state, token) {
                log.take_progress(progress);
            }
            Vec::new()
        }
        Message::LogWasSearched { token, direction, result } => {
            if let Some(note) = log_of(state, token).and_then(|log| log.take_found(direction, result)) {
                state.say(note);
            }
            Vec::new()
        }
        Message::Shown(record) => {
            if let Some(Overlay::Confirm(confirm)) = &mut state.overlay
                && let Some(process) = confirm.processes.iter_mut().find(|process| process.id == record.id)
            {
                process.members = acts::member_lines(&record);
            }
            Vec::new()
        }
        Message::Acted { text, failed } => {
            match failed {
                true => state.complain(text),
                false => state.say(text),
            }
            Vec::new()
        }
        Message::Attachment { token, news } => on_attachment(state, token, news),
        Message::Signalled(_) => vec![Effect::Quit],
    };
    effects.extend(settle(state));
    effects
}

/// After each message: positions on the screen, what to ask the daemon for, what to read of the log.
fn settle(state: &mut State) -> Vec<Effect> {
    let (columns, rows) = (state.columns, state.body_rows());
    state.processes.fit(rows);
    let upper = state.upper_rows();
    state.agents_cursor.fit(state.agents.len(), upper);
    settle_inbox(state, upper);
    let events = state.shown_events().len();
    if state.events_follow {
        state.events_cursor = ListCursor { index: events.saturating_sub(1), offset: usize::MAX };
    }
    let event_rows = state.event_rows();
    state.events_cursor.fit(events, event_rows);
    let mut effects = Vec::new();
    match state.views.last_mut() {
        Some(View::Log(log)) => {
            log.resize(columns, rows);
            effects.extend(log.wants());
        }
        Some(View::Tree(tree)) => {
            let members = tree.record.as_deref().map_or(0, |record| tree_rows(record).len());
            tree.cursor.fit(members, rows);
        }
        Some(View::Help { offset }) => {
            *offset = (*offset).min(crate::draw::help::rows(columns).len().saturating_sub(rows));
        }
        Some(View::Turns(turns)) => {
            if !turns.moved {
                turns.cursor.index = turns.turns.len().saturating_sub(1);
            }
            turns.cursor.fit(turns.turns.len(), upper);
        }
        _ => {}
    }
    let interest = interest(state);
    if interest != state.interest {
        state.interest = interest.clone();
        effects.push(Effect::Look(interest));
    }
    effects
}

/// The selection follows its item; if the item is gone nothing is selected until the person moves.
fn settle_inbox(state: &mut State, upper: usize) {
    let items = &state.inbox.items;
    if let Some(key) = &state.inbox_selected {
        match items.iter().position(|item| item_key(item) == *key) {
            Some(index) => state.inbox_cursor.index = index,
            None => state.inbox_selected = None,
        }
    }
    state.inbox_cursor.fit(items.len(), upper);
}

/// What the screen needs from the daemon.
fn interest(state: &State) -> Interest {
    let kind = state.kind();
    let turns = match state.view() {
        View::Turns(turns) => Some(turns.agent.clone()),
        _ => None,
    };
    let record = match kind {
        ViewKind::Processes | ViewKind::Log | ViewKind::Tree => state.subject(),
        _ => None,
    };
    Interest { processes: kind == ViewKind::Processes, ended: state.processes.ended_wanted, record, turns }
}

fn log_of(state: &mut State, token: u64) -> Option<&mut crate::log::LogView> {
    state.views.iter_mut().find_map(|view| match view {
        View::Log(log) if log.token == token => Some(&mut **log),
        _ => None,
    })
}

fn on_key(state: &mut State, key: crossterm::event::KeyEvent) -> Vec<Effect> {
    state.drag = None;
    if let Some(overlay) = state.overlay.take() {
        return overlays::on_key(state, overlay, key);
    }
    if let Some(View::Attach(attach)) = state.views.last_mut() {
        if attach.ended.is_some() || !attach.opened {
            // Nothing can be typed into it: any key that closes a screen leaves.
            return match command::of_key(key, ViewKind::Attach) {
                Some(Command::Back | Command::Close | Command::Quit | Command::OpenLog) => commands::back(state),
                _ => Vec::new(),
            };
        }
        return match attach.type_key(key) {
            None => commands::back(state),
            Some(bytes) if bytes.is_empty() => Vec::new(),
            Some(bytes) => vec![Effect::AttachInput(bytes)],
        };
    }
    state.notice = None;
    match command::of_key(key, state.kind()) {
        Some(command) => commands::run(state, command),
        None => Vec::new(),
    }
}

fn on_resize(state: &mut State, columns: u16, rows: u16) -> Vec<Effect> {
    (state.columns, state.rows) = (columns, rows);
    state.drag = None;
    let rows = state.body_rows() as u16;
    let mut effects = Vec::new();
    for view in &mut state.views {
        if let View::Attach(attach) = view {
            attach.resize(rows, columns);
            effects.push(Effect::AttachResize { rows, columns });
        }
    }
    effects
}

fn on_tick(state: &mut State, now: jiff::Timestamp) -> Vec<Effect> {
    state.now = now;
    let is_read = |notice: &Notice| {
        let seconds = NOTICE_SECONDS + (notice.text.len() / NOTICE_READING) as u64;
        elapsed(notice.at, now).as_secs() >= seconds
    };
    if state.notice.as_ref().is_some_and(is_read) {
        state.notice = None;
    }
    for view in &mut state.views {
        if let View::Log(log) = view {
            log.retry();
        }
    }
    Vec::new()
}

fn on_answer(state: &mut State, snapshot: Snapshot) -> Vec<Effect> {
    if let Link::Away { since, .. } | Link::Silent { since } = &state.link {
        let away = elapsed(*since, snapshot.at);
        state.say(format!("the daemon answers again after {}", crate::quantity::render_age(away)));
    }
    state.link = Link::Connected;
    state.now = state.now.max(snapshot.at);
    state.notes = snapshot.notes;
    let mut rebuilds = snapshot.live.is_some() || snapshot.ended.is_some();
    if let Some(owners) = snapshot.owners {
        state.processes.owners = owners;
    }
    if let Some(live) = snapshot.live {
        state.processes.take_live(live);
    }
    if let Some(ended) = snapshot.ended {
        state.processes.ended = ended.records;
        state.processes.ended_total = ended.total;
    }
    if let Some(agents) = &snapshot.agents {
        rebuilds |= state.processes.take_agents(agents);
    }
    if rebuilds {
        let rows = state.body_rows();
        state.processes.rebuild(rows);
    }
    if let Some(agents) = snapshot.agents {
        let selected = state.agent().map(|agent| agent.id.clone());
        state.agents = agents;
        let found = selected.and_then(|id| state.agents.iter().position(|agent| agent.id == id));
        state.agents_cursor.index = found.unwrap_or(state.agents_cursor.index);
    }
    if let Some(inbox) = snapshot.inbox {
        state.inbox = inbox;
    }
    if let Some((agent, list)) = snapshot.turns
        && let Some(View::Turns(turns)) = state.views.last_mut()
        && turns.agent == agent
    {
        turns.turns = list;
    }
    match (snapshot.record, state.views.last_mut()) {
        (Some(Ok(record)), Some(View::Log(log))) if log.id == record.id => log.observe(&record),
        (Some(Ok(record)), Some(View::Tree(tree))) if tree.id == record.id => {
            (tree.record, tree.error) = (Some(record), None);
        }
        (Some(Err(error)), Some(View::Tree(tree))) => tree.error = Some(error),
        (Some(Ok(record)), Some(View::Processes)) => state.processes.observe(*record),
        _ => {}
    }
    Vec::new()
}

fn on_events(state: &mut State, events: Vec<Event>) -> Vec<Effect> {
    for event in events {
        // After a reconnection the daemon may repeat some.
        if state.events.back().is_some_and(|last| event.seq <= last.seq) {
            continue;
        }
        state.events.push_back(event);
        if state.events.len() > MAX_EVENTS {
            state.events.pop_front();
            state.events_cursor.index = state.events_cursor.index.saturating_sub(1);
            state.events_cursor.offset = state.events_cursor.offset.saturating_sub(1);
        }
    }
    Vec::new()
}

fn on_attachment(state: &mut State, token: u64, news: AttachNews) -> Vec<Effect> {
    let attach = state.views.iter_mut().find_map(|view| match view {
        View::Attach(attach) if attach.token == token => Some(attach),
        _ => None,
    });
    let Some(attach) = attach else { return Vec::new() };
    match news {
        AttachNews::Opened => (attach.opened, attach.trouble) = (true, None),
        AttachNews::Bytes(bytes) => attach.parser.process(&bytes),
        AttachNews::Sized { rows, columns } => attach.resize(rows, columns),
        AttachNews::Lost(reason) => attach.trouble = Some(reason),
        AttachNews::Ended(how) => attach.ended = Some(how),
        AttachNews::Refused(message) => {
            state.complain(message);
        }
    }
    Vec::new()
}

#[cfg(test)]
mod tests;
