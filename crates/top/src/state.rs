//! Everything that is shown: one value, changed by `update` alone and drawn by `draw` alone.
//!
//! Bounds: live processes as many as the daemon lists (it limits them), [`MAX_ENDED`](crate::processes::MAX_ENDED) ended
//! ones, [`MAX_EVENTS`] events, one window of one log for each open log, [`MAX_VIEWS`] screens on top of each other.

use std::collections::VecDeque;

use jiff::Timestamp;
use pinfold_api::types::{Agent, Event, Inbox, InboxItem, InboxKind, Record, TreeMember, Turn};
use ratatui::layout::Position;

use crate::attached_terminal::AttachView;
use crate::list::ListCursor;
use crate::log::LogView;
use crate::message::{Action, Interest};
use crate::processes::Processes;
use crate::prompt::Prompt;

/// Events that are kept; older ones are forgotten.
pub(crate) const MAX_EVENTS: usize = 1000;
/// Screens on top of each other; beyond that the oldest is closed.
pub(crate) const MAX_VIEWS: usize = 8;
/// How long a notice is shown, in seconds; one second more for each [`NOTICE_READING`] characters.
pub(crate) const NOTICE_SECONDS: u64 = 8;
/// Characters that are read in a second.
pub(crate) const NOTICE_READING: usize = 12;
/// Below this many columns lists show less in a row.
pub(crate) const NARROW: u16 = 60;

/// Whether the daemon answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    /// No answer yet.
    Connecting {
        since: Timestamp,
    },
    Connected,
    /// It cannot be reached.
    Away {
        since: Timestamp,
        reason: String,
    },
    /// It accepts requests and does not answer.
    Silent {
        since: Timestamp,
    },
}

/// A short message to the person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Notice {
    pub(crate) text: String,
    pub(crate) failed: bool,
    pub(crate) at: Timestamp,
}

/// A screen.
#[derive(Debug)]
pub(crate) enum View {
    Processes,
    Inbox,
    Agents,
    Events,
    Log(Box<LogView>),
    Tree(TreeView),
    Attach(Box<AttachView>),
    Turns(TurnsView),
    Help { offset: usize },
}

/// The kind of a screen, for the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ViewKind {
    Processes,
    Inbox,
    Agents,
    Events,
    Log,
    Tree,
    Attach,
    Turns,
    Help,
}

/// The living tree of one process.
#[derive(Clone, Debug, Default)]
pub(crate) struct TreeView {
    pub(crate) id: String,
    pub(crate) record: Option<Box<Record>>,
    pub(crate) error: Option<String>,
    pub(crate) cursor: ListCursor,
}

/// The turns of one agent.
#[derive(Clone, Debug, Default)]
pub(crate) struct TurnsView {
    pub(crate) agent: String,
    pub(crate) turns: Vec<Turn>,
    pub(crate) cursor: ListCursor,
    /// The newest turn stays selected until the person moves.
    pub(crate) moved: bool,
}

/// A question that must be answered before something happens.
#[derive(Clone, Debug)]
pub(crate) struct Confirm {
    pub(crate) title: String,
    /// What it is about, line by line.
    pub(crate) lines: Vec<String>,
    /// The processes that it is about, each with its members.
    pub(crate) processes: Vec<ProcessMembers>,
    pub(crate) action: Action,
    /// The action for `n`, if that is not just "no".
    pub(crate) otherwise: Option<Action>,
    pub(crate) offset: usize,
}

impl Confirm {
    /// Everything that is listed: what it is about, then each process with its members.
    pub(crate) fn all_lines(&self) -> Vec<String> {
        let mut lines = self.lines.clone();
        for process in &self.processes {
            let indentation = if process.heading.is_some() { "  " } else { "" };
            lines.extend(process.heading.clone());
            lines.extend(process.members.iter().map(|member| format!("{indentation}{member}")));
        }
        lines
    }
}

/// A process in a question, with the members of its tree; a fresh record replaces them.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProcessMembers {
    pub(crate) id: String,
    /// The line above its members, if the question is about several processes.
    pub(crate) heading: Option<String>,
    pub(crate) members: Vec<String>,
}

/// What lies over the screen.
#[derive(Clone, Debug)]
pub(crate) enum Overlay {
    Prompt(Prompt),
    Confirm(Confirm),
}

/// Text that is selected with the mouse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Drag {
    pub(crate) from: Position,
    pub(crate) to: Position,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) now: Timestamp,
    pub(crate) columns: u16,
    pub(crate) rows: u16,
    /// Whether colours are used.
    pub(crate) colour: bool,
    pub(crate) link: Link,
    pub(crate) notes: Vec<String>,
    pub(crate) processes: Processes,
    pub(crate) agents: Vec<Agent>,
    pub(crate) agents_cursor: ListCursor,
    pub(crate) inbox: Inbox,
    /// The selected item. It is none if the item is gone: an answer must never go to another question.
    pub(crate) inbox_selected: Option<String>,
    pub(crate) inbox_cursor: ListCursor,
    pub(crate) events: VecDeque<Event>,
    pub(crate) events_cursor: ListCursor,
    pub(crate) events_follow: bool,
    pub(crate) events_filter: String,
    pub(crate) views: Vec<View>,
    pub(crate) overlay: Option<Overlay>,
    pub(crate) notice: Option<Notice>,
    pub(crate) drag: Option<Drag>,
    /// Show the time of the start instead of the age.
    pub(crate) absolute_times: bool,
    /// The requests to make now.
    pub(crate) interest: Interest,
    pub(crate) next_token: u64,
}

impl State {
    pub(crate) fn new(now: Timestamp, columns: u16, rows: u16, colour: bool) -> Self {
        State {
            now,
            columns,
            rows,
            colour,
            link: Link::Connecting { since: now },
            notes: Vec::new(),
            processes: Processes::new(),
            agents: Vec::new(),
            agents_cursor: ListCursor::default(),
            inbox: Inbox::default(),
            inbox_selected: None,
            inbox_cursor: ListCursor::default(),
            events: VecDeque::new(),
            events_cursor: ListCursor::default(),
            events_follow: true,
            events_filter: String::new(),
            views: vec![View::Processes],
            overlay: None,
            notice: None,
            drag: None,
            absolute_times: false,
            interest: Interest::default(),
            next_token: 1,
        }
    }

    pub(crate) fn view(&self) -> &View {
        self.views.last().unwrap_or(&View::Processes)
    }

    pub(crate) fn kind(&self) -> ViewKind {
        match self.view() {
            View::Processes => ViewKind::Processes,
            View::Inbox => ViewKind::Inbox,
            View::Agents => ViewKind::Agents,
            View::Events => ViewKind::Events,
            View::Log(_) => ViewKind::Log,
            View::Tree(_) => ViewKind::Tree,
            View::Attach(_) => ViewKind::Attach,
            View::Turns(_) => ViewKind::Turns,
            View::Help { .. } => ViewKind::Help,
        }
    }

    /// Rows between the header and the footer.
    pub(crate) fn body_rows(&self) -> usize {
        usize::from(self.rows.saturating_sub(2)).max(1)
    }

    /// Number of rows of a list that has a description of its selected item below it.
    pub(crate) fn upper_rows(&self) -> usize {
        let body = self.body_rows();
        // A small screen shows the list and two lines of the description.
        if body < 8 { body.saturating_sub(3).max(1) } else { body - self.detail_rows() }
    }

    /// Number of rows of that description, including the line above it.
    pub(crate) fn detail_rows(&self) -> usize {
        let body = self.body_rows();
        if body < 8 { body - self.upper_rows() } else { (body / 2).clamp(4, 14) }
    }

    /// Number of rows of the list of events: where a row is too narrow for an event, the selected one is below in full.
    pub(crate) fn event_rows(&self) -> usize {
        if self.columns < NARROW { self.upper_rows() } else { self.body_rows() }
    }

    pub(crate) fn say(&mut self, text: impl Into<String>) {
        self.notice = Some(Notice { text: text.into(), failed: false, at: self.now });
    }

    pub(crate) fn complain(&mut self, text: impl Into<String>) {
        self.notice = Some(Notice { text: text.into(), failed: true, at: self.now });
    }

    pub(crate) fn inbox_item(&self) -> Option<&InboxItem> {
        let key = self.inbox_selected.as_deref()?;
        self.inbox.items.iter().find(|item| item_key(item) == key)
    }

    pub(crate) fn agent(&self) -> Option<&Agent> {
        self.agents.get(self.agents_cursor.index)
    }

    /// The agent that runs in a process and asks something.
    pub(crate) fn asking_agent(&self, process: &str) -> Option<&Agent> {
        self.agents.iter().find(|agent| agent.process.as_deref() == Some(process) && !agent.asks.is_empty())
    }

    /// The events that fit the filter.
    pub(crate) fn shown_events(&self) -> Vec<&Event> {
        let wanted = self.events_filter.to_lowercase();
        let has = |text: &str| text.to_lowercase().contains(&wanted);
        let fits = |event: &&Event| {
            wanted.is_empty()
                || has(&event.process)
                || has(&event.command)
                || has(&event.owner)
                || has(crate::describe::event_word(event.kind))
        };
        self.events.iter().filter(fits).collect()
    }

    /// The process that the screen is about.
    pub(crate) fn subject(&self) -> Option<String> {
        match self.view() {
            View::Processes => self.processes.selected().map(|record| record.id.clone()),
            View::Inbox => self.inbox_item().and_then(|item| item.process.clone()),
            View::Agents => self.agent().and_then(|agent| agent.process.clone()),
            View::Events => self.shown_events().get(self.events_cursor.index).map(|event| event.process.clone()),
            View::Log(log) => Some(log.id.clone()),
            View::Tree(tree) => Some(tree.id.clone()),
            View::Attach(attach) => Some(attach.id.clone()),
            View::Turns(turns) => turns.turns.get(turns.cursor.index).and_then(|turn| turn.process.clone()),
            View::Help { .. } => None,
        }
    }

    /// What is known about a process, from wherever it was seen.
    pub(crate) fn record(&self, id: &str) -> Option<&Record> {
        let in_tree = self.views.iter().rev().find_map(|view| match view {
            View::Tree(tree) if tree.id == id => tree.record.as_deref(),
            _ => None,
        });
        in_tree.or_else(|| self.processes.find(id))
    }

    /// Name and id of a process, as far as they are known.
    pub(crate) fn label(&self, id: &str) -> String {
        match self.record(id).and_then(|record| self.processes.name(record)) {
            Some(name) => format!("{name} ({id})"),
            None => id.to_owned(),
        }
    }
}

/// What identifies an item of the inbox over refreshes.
pub(crate) fn item_key(item: &InboxItem) -> String {
    let process = item.process.as_deref().unwrap_or_default();
    match item.kind {
        InboxKind::Permission => {
            let ask = item.ask.as_ref().map(|ask| ask.id.as_str()).unwrap_or_default();
            format!("ask {} {ask}", item.agent.as_deref().unwrap_or_default())
        }
        // A process may ask again: another question is another item.
        InboxKind::WaitingForInput => format!("waits {process} {}", item.cursor.or(item.seq).unwrap_or(0)),
        InboxKind::Failed => format!("failed {process}"),
    }
}

/// The members of a tree in order, each with its depth and whether its parent is outside of the tree.
pub(crate) fn tree_rows(record: &Record) -> Vec<(&TreeMember, usize, bool)> {
    fn add<'a>(
        member: &'a TreeMember,
        depth: usize,
        members: &'a [TreeMember],
        rows: &mut Vec<(&'a TreeMember, usize, bool)>,
    ) {
        rows.push((member, depth, depth == 0));
        for child in members.iter().filter(|child| child.ppid == member.pid && child.pid != member.pid) {
            // A pid that was reused between two reads could make a cycle.
            if !rows.iter().any(|(shown, ..)| shown.pid == child.pid) {
                add(child, depth + 1, members, rows);
            }
        }
    }
    let members = record.tree.as_slice();
    let mut rows = Vec::with_capacity(members.len());
    let is_root = |member: &&TreeMember| !members.iter().any(|parent| parent.pid == member.ppid);
    let mut roots: Vec<&TreeMember> = members.iter().filter(is_root).collect();
    roots.sort_by_key(|member| (Some(member.pid) != record.pid, member.pid));
    for root in roots {
        add(root, 0, members, &mut rows);
    }
    for member in members {
        if !rows.iter().any(|(shown, ..)| shown.pid == member.pid) {
            rows.push((member, 0, true));
        }
    }
    rows
}
