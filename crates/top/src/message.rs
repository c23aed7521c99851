//! What happens (messages), and what is to be done about it (effects).

use std::ops::Range;

use crossterm::event::{KeyEvent, MouseEvent};
use jiff::Timestamp;
use pinfold_api::types::{Agent, Event, Inbox, Owner, Record, Turn, Verdict};
use ratatui::layout::Position;

use crate::log::window::Piece;

/// Distinguishes the logs and attachments that are opened one after the other.
pub(crate) type LogToken = u64;

/// Something that happened.
#[derive(Debug)]
pub(crate) enum Message {
    KeyPressed(KeyEvent),
    MouseUsed(MouseEvent),
    Pasted(String),
    Resized {
        columns: u16,
        rows: u16,
    },
    Ticked(Timestamp),
    /// The daemon answered.
    Answered(Box<Snapshot>),
    /// The daemon cannot be reached.
    Unreachable {
        reason: String,
    },
    /// The daemon accepted a request and did not answer in time.
    Silent,
    EventsHappened(Vec<Event>),
    LogWasRead {
        token: LogToken,
        read: LogRead,
        result: Result<RawPiece, String>,
    },
    TimesWereRead {
        token: LogToken,
        from: u64,
        result: Result<String, String>,
    },
    /// A search goes on.
    LogSearchWentOn {
        token: LogToken,
        progress: SearchProgress,
    },
    LogWasSearched {
        token: LogToken,
        direction: Direction,
        result: Result<Option<u64>, String>,
    },
    /// A fresh record, for what is about to be stopped.
    Shown(Box<Record>),
    /// The result of an action.
    Acted {
        text: String,
        failed: bool,
    },
    Attachment {
        token: LogToken,
        news: AttachNews,
    },
    /// The program is to end: by this signal.
    Signalled(i32),
}

/// What is known about an attached process.
#[derive(Debug)]
pub(crate) enum AttachNews {
    Opened,
    Bytes(Vec<u8>),
    Sized {
        rows: u16,
        columns: u16,
    },
    Refused(String),
    /// The connection broke; it is made again.
    Lost(String),
    Ended(String),
}

/// The answers of the daemon in one round.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    pub(crate) at: Timestamp,
    pub(crate) live: Option<Vec<Record>>,
    pub(crate) ended: Option<EndedPage>,
    pub(crate) owners: Option<Vec<Owner>>,
    pub(crate) agents: Option<Vec<Agent>>,
    pub(crate) inbox: Option<Inbox>,
    /// The selected process, or why it cannot be shown.
    pub(crate) record: Option<Result<Box<Record>, String>>,
    /// The turns of the selected agent, with the agent's id.
    pub(crate) turns: Option<(String, Vec<Turn>)>,
    /// What the daemon says about its own state.
    pub(crate) notes: Vec<String>,
}

/// The most recent ended processes.
#[derive(Debug, Default)]
pub(crate) struct EndedPage {
    pub(crate) records: Vec<Record>,
    /// How many there are in all.
    pub(crate) total: u64,
}

/// What to ask the daemon for, once a second.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Interest {
    /// Live processes, with what they use, and owners.
    pub(crate) processes: bool,
    /// So many ended processes.
    pub(crate) ended: u32,
    pub(crate) record: Option<String>,
    pub(crate) turns: Option<String>,
}

/// Which part of a log to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogRead {
    Tail,
    Around {
        cursor: u64,
    },
    Before {
        end: u64,
    },
    After {
        from: u64,
    },
    /// Waits for output from there on.
    Follow {
        from: u64,
    },
}

/// A stretch of a log, and where it stands in the whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RawPiece {
    pub(crate) piece: Piece,
    /// The cursor after it.
    pub(crate) next: u64,
    /// Bytes written since the start.
    pub(crate) end: u64,
    pub(crate) closed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Up,
    Down,
}

/// A search in a log for the nearest matching line in one direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SearchRequest {
    pub(crate) id: String,
    pub(crate) pattern: String,
    /// A start of a line, or the end of the output.
    pub(crate) from: u64,
    /// Downwards: the line at `from` was found before, and the next one is wanted.
    pub(crate) skips_line: bool,
    pub(crate) direction: Direction,
    /// The part of the output that is no longer stored.
    pub(crate) dropped: Range<u64>,
}

/// How much of a log was searched, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SearchProgress {
    pub(crate) searched: u64,
    pub(crate) total: u64,
}

/// Something to do. Everything but `Copy…` and `Quit` is done beside the screen.
#[derive(Clone, Debug)]
pub(crate) enum Effect {
    Look(Interest),
    ReadLog {
        id: String,
        token: LogToken,
        read: LogRead,
        pause: bool,
    },
    ReadTimes {
        id: String,
        token: LogToken,
        from: u64,
    },
    /// Searches the log; an earlier search is ended.
    SearchLog {
        token: LogToken,
        request: SearchRequest,
    },
    /// Ends reads and searches of logs.
    CloseLog,
    Show {
        id: String,
    },
    Act(Action),
    Attach {
        id: String,
        token: LogToken,
        rows: u16,
        columns: u16,
    },
    AttachInput(Vec<u8>),
    AttachResize {
        rows: u16,
        columns: u16,
    },
    Detach,
    /// Puts text on the clipboard of the terminal.
    Copy(String),
    /// The same with what is on the screen between two cells.
    CopyRegion(Position, Position),
    Quit,
}

/// A change that the user requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Stop { ids: Vec<String>, force: Force },
    Pause { id: String },
    Resume { id: String },
    Restart { id: String },
    Send { id: String, text: String, line_end: LineEnd },
    Answer { agent: String, ask: String, verdict: Verdict, what: String },
    StopAgent { id: String },
    MarkSeen { through: u64 },
}

/// How a process is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Force {
    /// Its own stop signal, then KILL.
    Stop,
    Kill,
}

/// What ends a line of input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineEnd {
    /// The Enter key of a terminal.
    Enter,
    /// A newline in a pipe.
    Newline,
}
