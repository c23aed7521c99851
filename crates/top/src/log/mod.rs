//! The log view of one process: position, follow, wrap, times, search, selection.

pub(crate) mod line_search;
pub(crate) mod window;

use std::collections::BTreeMap;

use pinfold_api::types::Record;
use regex::Regex;

use crate::list::Move;
use crate::message::{Direction, Effect, LogRead, LogToken, RawPiece, SearchProgress, SearchRequest};
use crate::text::{StyledLine, plain};
use line_search::compile;
use window::{Body, Item, LogWindow};

/// Bytes of one read.
pub(crate) const STEP: u64 = 256 << 10;
/// Lines beyond the screen that are read ahead.
const READ_AHEAD: usize = 200;
/// A follower that is more than this behind skips to the end: a screen cannot show it all.
const MAX_BEHIND: u64 = 2 * STEP;
/// A piece this large came from a process that writes faster than anyone reads: the next read waits a moment.
const MUCH: usize = 32 << 10;
/// Times of lines that are remembered; beyond this all are asked again.
const MAX_TIMES: usize = 10_000;
/// Bytes of output whose times are asked at once.
pub(crate) const TIMES_STEP: u64 = 64 << 10;

/// Where the first row of the screen is: a row of the line at a cursor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Top {
    at: u64,
    row: usize,
}

/// A pattern that is searched for.
#[derive(Clone, Debug)]
pub(crate) struct Search {
    pub(crate) regex: Regex,
    pub(crate) pattern: String,
    /// The cursor of the line that was found last.
    pub(crate) found: Option<u64>,
    /// How far a search is, while it runs.
    pub(crate) running: Option<SearchProgress>,
}

/// One row of the screen.
#[derive(Clone, Debug)]
pub(crate) struct VisibleRow {
    /// The index of its item in the window.
    pub(crate) index: usize,
    /// The row within the wrapped line.
    pub(crate) row: usize,
}

/// A log on the screen.
#[derive(Clone, Debug)]
pub(crate) struct LogView {
    pub(crate) id: String,
    /// Distinguishes answers for this log from those for an earlier one.
    pub(crate) token: LogToken,
    pub(crate) window: LogWindow,
    top: Top,
    pub(crate) follow: bool,
    pub(crate) wrap: bool,
    pub(crate) times: bool,
    /// The first column that is shown, without wrap.
    pub(crate) left: u16,
    pub(crate) search: Option<Search>,
    /// The lines from which to which text is selected, by cursor.
    pub(crate) selection: Option<(u64, u64)>,
    /// Bytes written since the start.
    pub(crate) end: u64,
    /// The dropped middle part.
    dropped: std::ops::Range<u64>,
    /// Whether the output is complete.
    pub(crate) closed: bool,
    pub(crate) error: Option<String>,
    loaded: bool,
    reading: Option<LogRead>,
    waiting: bool,
    /// The last piece was large.
    flooded: bool,
    /// A line to show when its part of the log is there.
    goto: Option<u64>,
    times_of: BTreeMap<u64, String>,
    asked_times: Option<u64>,
    columns: u16,
    rows: usize,
}

impl LogView {
    pub(crate) fn new(id: String, token: LogToken) -> Self {
        LogView {
            id,
            token,
            window: LogWindow::default(),
            top: Top::default(),
            follow: true,
            wrap: true,
            times: false,
            left: 0,
            search: None,
            selection: None,
            end: 0,
            dropped: 0..0,
            closed: false,
            error: None,
            loaded: false,
            reading: None,
            waiting: false,
            flooded: false,
            goto: None,
            times_of: BTreeMap::new(),
            asked_times: None,
            columns: 80,
            rows: 24,
        }
    }

    /// Opens it at a cursor instead of at the end.
    pub(crate) fn at(mut self, cursor: u64) -> Self {
        self.follow = false;
        self.goto = Some(cursor);
        self
    }

    /// What the record says about its output.
    pub(crate) fn observe(&mut self, record: &Record) {
        let output = &record.output;
        self.end = self.end.max(output.bytes);
        self.dropped = output.retained_from.saturating_sub(output.dropped)..output.retained_from;
        self.closed |= output.closed;
    }

    pub(crate) fn resize(&mut self, columns: u16, rows: usize) {
        (self.columns, self.rows) = (columns.max(1), rows.max(1));
    }

    /// The columns of a line: without those of the time before it.
    pub(crate) fn text_columns(&self) -> u16 {
        if self.times { self.columns.saturating_sub(TIME_COLUMNS).max(1) } else { self.columns }
    }

    /// The rows of the screen, from the top.
    pub(crate) fn visible(&self) -> Vec<VisibleRow> {
        let mut shown = Vec::with_capacity(self.rows);
        let (mut index, mut row) = self.first_visible();
        while index < self.window.items().len() && shown.len() < self.rows {
            let count = self.rows_of(index);
            while row < count && shown.len() < self.rows {
                shown.push(VisibleRow { index, row });
                row += 1;
            }
            (index, row) = (index + 1, 0);
        }
        shown
    }

    fn first_visible(&self) -> (usize, usize) {
        let bottom = self.bottom();
        if self.follow {
            return bottom;
        }
        let index = self.window.index_of(self.top.at);
        let exact = self.window.items().get(index).is_some_and(|item| item.at == self.top.at);
        (index, if exact { self.top.row.min(self.rows_of(index).saturating_sub(1)) } else { 0 }).min(bottom)
    }

    /// The first row of a screen that ends with the last line.
    fn bottom(&self) -> (usize, usize) {
        let mut missing = self.rows;
        for index in (0..self.window.items().len()).rev() {
            let count = self.rows_of(index);
            if count >= missing {
                return (index, count - missing);
            }
            missing -= count;
        }
        (0, 0)
    }

    fn rows_of(&self, index: usize) -> usize {
        match self.window.items().get(index) {
            Some(Item { body: Body::Line(bytes), .. }) if self.wrap => {
                // A short line of ASCII has one row: no need to parse it.
                if bytes.len() <= usize::from(self.text_columns()) && bytes.iter().all(|byte| *byte != b'\t') {
                    return 1;
                }
                StyledLine::parse(bytes).rows(self.text_columns()).len()
            }
            _ => 1,
        }
    }

    /// Moves the screen, or the end of the selection while there is one.
    pub(crate) fn go(&mut self, movement: Move) {
        if let Some((from, to)) = self.selection {
            let index = self.window.index_of(to) as i64;
            let last = self.window.items().len().saturating_sub(1) as i64;
            let index = match (movement, movement.lines(self.rows)) {
                (_, Some(lines)) => (index + lines).clamp(0, last),
                (Move::First, None) => 0,
                (_, None) => last,
            };
            let to = self.window.items().get(index as usize).map_or(to, |item| item.at);
            self.selection = Some((from, to));
            self.show(to);
            return;
        }
        match (movement, movement.lines(self.rows)) {
            (_, Some(lines)) => self.scroll(lines),
            (Move::First, None) => {
                self.follow = false;
                match self.window.start() == 0 && self.loaded {
                    true => self.top = Top::default(),
                    false => self.goto = Some(0),
                }
            }
            (_, None) => {
                self.follow = true;
                self.goto = None;
                // Far from the end: read there, not everything between.
                if self.end.saturating_sub(self.window.end()) > MAX_BEHIND {
                    self.loaded = false;
                }
            }
        }
    }

    fn scroll(&mut self, lines: i64) {
        let bottom = self.bottom();
        let (mut index, mut row) = self.first_visible();
        for _ in 0..lines.unsigned_abs() {
            if lines < 0 {
                match (row, index) {
                    (0, 0) => break,
                    (0, _) => (index, row) = (index - 1, self.rows_of(index - 1) - 1),
                    _ => row -= 1,
                }
            } else {
                if (index, row) >= bottom {
                    break;
                }
                (index, row) = if row + 1 < self.rows_of(index) { (index, row + 1) } else { (index + 1, 0) };
            }
        }
        if lines < 0 {
            self.follow = false;
        }
        self.set_top(index, row);
    }

    fn set_top(&mut self, index: usize, row: usize) {
        let at = self.window.items().get(index).map_or(0, |item| item.at);
        self.top = Top { at, row };
    }

    /// Brings a line onto the screen; a third of the screen stays above it.
    fn show(&mut self, cursor: u64) {
        let index = self.window.index_of(cursor);
        if self.visible().iter().any(|row| row.index == index) {
            if self.follow {
                let (index, row) = self.first_visible();
                self.follow = false;
                self.set_top(index, row);
            }
            return;
        }
        self.follow = false;
        self.set_top(index, 0);
        let (mut index, mut row, mut above) = (index, 0, self.rows / 3);
        while above > 0 && (index, row) != (0, 0) {
            (index, row) = if row > 0 { (index, row - 1) } else { (index - 1, self.rows_of(index - 1) - 1) };
            above -= 1;
        }
        self.set_top(index, row);
    }

    pub(crate) fn toggle_follow(&mut self) {
        match self.follow {
            true => {
                let (index, row) = self.first_visible();
                self.follow = false;
                self.set_top(index, row);
            }
            false => self.go(Move::Last),
        }
    }

    /// What to read next, given what is on the screen.
    pub(crate) fn wants(&mut self) -> Vec<Effect> {
        let mut effects = Vec::new();
        if self.error.is_some() {
            return effects;
        }
        let (id, token) = (self.id.clone(), self.token);
        if self.reading.is_none()
            && let Some(read) = self.next_read()
        {
            self.reading = Some(read);
            effects.push(Effect::ReadLog { id: id.clone(), token, read, pause: self.flooded });
        }
        let more_may_come = !self.closed || self.window.end() < self.end;
        if self.follow && self.loaded && !self.waiting && self.reading.is_none() && more_may_come {
            self.waiting = true;
            let read = LogRead::Follow { from: self.window.end() };
            effects.push(Effect::ReadLog { id: id.clone(), token, read, pause: self.flooded });
        }
        if self.times && self.asked_times.is_none() {
            let without = self.visible().into_iter().find_map(|row| {
                let item = &self.window.items()[row.index];
                let is_missing = item.starts_line && !item.bytes().is_empty() && !self.times_of.contains_key(&item.at);
                is_missing.then_some(item.at)
            });
            if let Some(from) = without {
                self.asked_times = Some(from);
                effects.push(Effect::ReadTimes { id, token, from });
            }
        }
        effects
    }

    fn next_read(&mut self) -> Option<LogRead> {
        if let Some(cursor) = self.goto {
            if self.loaded && (self.window.contains(cursor) || (cursor == 0 && self.window.start() == 0)) {
                self.goto = None;
                match cursor {
                    0 => self.top = Top::default(),
                    _ => self.show(cursor),
                }
                return None;
            }
            return Some(LogRead::Around { cursor });
        }
        if !self.loaded {
            return Some(LogRead::Tail);
        }
        let (first, _) = self.first_visible();
        let start = self.window.start();
        if first < READ_AHEAD && start > 0 && !self.window.is_empty() {
            // Nothing is stored in the dropped part: go on before it.
            let before = if start == self.dropped.end { self.dropped.start } else { start };
            if before > 0 {
                return Some(LogRead::Before { end: before });
            }
        }
        let below = self.window.items().len() - first.min(self.window.items().len());
        if !self.follow && below < self.rows + READ_AHEAD && self.window.end() < self.end {
            return Some(LogRead::After { from: self.window.end() });
        }
        None
    }

    /// Takes what was read.
    pub(crate) fn take(&mut self, read: LogRead, result: Result<RawPiece, String>) {
        let is_follow = matches!(read, LogRead::Follow { .. });
        match is_follow {
            true => self.waiting = false,
            false => self.reading = None,
        }
        let raw = match result {
            Ok(raw) => raw,
            Err(error) => {
                self.error = Some(error);
                return;
            }
        };
        self.end = self.end.max(raw.end);
        self.closed = raw.closed;
        self.flooded = is_follow && raw.piece.bytes.len() > MUCH;
        let is_stale = |from: u64| !self.window.is_empty() && from != self.window.end();
        match read {
            LogRead::Tail | LogRead::Around { .. } => {
                self.loaded = true;
                self.times_of.clear();
                let cursor = if let LogRead::Around { cursor } = read { cursor } else { u64::MAX };
                self.window = LogWindow::around(raw.piece, cursor);
                if matches!(read, LogRead::Around { .. }) {
                    self.goto = None;
                    self.follow = false;
                    if !self.window.contains(cursor) && cursor < self.window.start() {
                        self.set_top(0, 0);
                    } else {
                        self.top = Top { at: u64::MAX, row: 0 };
                        self.show(cursor);
                    }
                }
            }
            LogRead::Follow { from } | LogRead::After { from } if is_stale(from) => {}
            LogRead::Follow { .. } => {
                // A reader who scrolled up keeps the lines that are on the screen.
                match self.follow {
                    true if raw.end.saturating_sub(raw.next) > MAX_BEHIND => self.loaded = false,
                    true => self.window.append(raw.piece),
                    false => {}
                }
            }
            LogRead::After { .. } => self.window.append_some(raw.piece),
            LogRead::Before { .. } => {
                let before = self.window.start();
                self.window.prepend(raw.piece);
                if self.window.start() == before {
                    // Nothing usable came: what is before can no longer be read.
                    self.dropped = 0..before;
                }
            }
        }
    }

    /// After a failure: try again.
    pub(crate) fn retry(&mut self) {
        self.error = None;
    }

    /// Its reads were ended: they give no answer.
    pub(crate) fn forget_reads(&mut self) {
        (self.reading, self.waiting, self.asked_times) = (None, false, None);
        if let Some(search) = &mut self.search {
            search.running = None;
        }
    }

    /// Takes the times of lines: each line of the text starts with one.
    pub(crate) fn take_times(&mut self, from: u64, text: Result<String, String>) {
        self.asked_times = None;
        if self.times_of.len() > MAX_TIMES {
            self.times_of.clear();
        }
        let items = self.window.items();
        let lines = items.iter().skip(self.window.index_of(from)).filter(|item| item.starts_line);
        let text = text.unwrap_or_default();
        let times = text.split('\n').map(|line| crate::quantity::clock_of(line.split(' ').next().unwrap_or_default()));
        let mut any = false;
        for (item, time) in lines.zip(times).filter(|(_, time)| !time.is_empty()) {
            any = true;
            self.times_of.insert(item.at, time);
        }
        if !any {
            // Do not ask for ever for a time that the daemon does not know.
            self.times_of.insert(from, String::new());
        }
    }

    /// The time of a line, if it is known.
    pub(crate) fn time_of(&self, item: &Item) -> Option<&str> {
        self.times_of.get(&item.at).map(String::as_str)
    }

    /// Starts a search: upwards from the end while following, else downwards from the top of the screen.
    pub(crate) fn search(&mut self, pattern: &str) -> Result<Effect, String> {
        let regex = compile(pattern)?;
        let direction = if self.follow { Direction::Up } else { Direction::Down };
        let from = if self.follow { self.end } else { self.top.at };
        self.search = Some(Search { regex, pattern: pattern.to_owned(), found: None, running: None });
        Ok(self.start_search(pattern.to_owned(), from, direction))
    }

    /// The next match in this direction.
    pub(crate) fn search_on(&mut self, direction: Direction) -> Option<Effect> {
        let Search { found, pattern, .. } = self.search.as_ref()?;
        let (found, pattern) = (*found, pattern.clone());
        let (index, _) = self.first_visible();
        let from = match (found, direction) {
            (Some(found), _) => found,
            (None, Direction::Up) if self.follow => self.end,
            (None, _) => self.window.items().get(index).map_or(0, |item| item.at),
        };
        Some(self.start_search(pattern, from, direction))
    }

    fn start_search(&mut self, pattern: String, from: u64, direction: Direction) -> Effect {
        let total = if direction == Direction::Up { from } else { self.end.saturating_sub(from) };
        if let Some(search) = &mut self.search {
            search.running = Some(SearchProgress { searched: 0, total });
        }
        let skips_line = self.search.as_ref().is_some_and(|search| search.found.is_some());
        let (id, dropped) = (self.id.clone(), self.dropped.clone());
        let request = SearchRequest { id, pattern, from, skips_line, direction, dropped };
        Effect::SearchLog { token: self.token, request }
    }

    /// Takes how far a search is.
    pub(crate) fn take_progress(&mut self, progress: SearchProgress) {
        if let Some(running) = self.search.as_mut().and_then(|search| search.running.as_mut()) {
            *running = progress;
        }
    }

    /// Takes the result of a search; a note for the person if there is no match.
    pub(crate) fn take_found(&mut self, direction: Direction, found: Result<Option<u64>, String>) -> Option<String> {
        let search = self.search.as_mut()?;
        search.running = None;
        match found {
            Ok(Some(cursor)) => {
                search.found = Some(cursor);
                match self.window.contains(cursor) {
                    true => self.show(cursor),
                    false => {
                        self.follow = false;
                        self.goto = Some(cursor);
                    }
                }
                None
            }
            Ok(None) => Some(match direction {
                Direction::Down => format!("no match below for {} (N searches upwards)", search.pattern),
                Direction::Up => format!("no match above for {} (n searches downwards)", search.pattern),
            }),
            Err(error) => Some(error),
        }
    }

    /// Starts selecting at the line that was found last if it is on the screen, else at the last line on it.
    pub(crate) fn start_selection(&mut self) {
        let visible = self.visible();
        let items = self.window.items();
        let found = self.search.as_ref().and_then(|search| search.found);
        let on_screen = |cursor: &u64| visible.iter().any(|row| items[row.index].at == *cursor);
        let line = found.filter(on_screen).or_else(|| visible.last().map(|row| items[row.index].at));
        self.selection = line.map(|line| (line, line));
        if self.follow {
            self.toggle_follow();
        }
    }

    /// Whether a line is selected.
    pub(crate) fn is_selected(&self, item: &Item) -> bool {
        self.selection.is_some_and(|(from, to)| (from.min(to)..=from.max(to)).contains(&item.at))
    }

    /// The text to copy: the selected lines, else the line found last if it is on the screen, else the screen.
    pub(crate) fn copied(&self) -> String {
        let items = self.window.items();
        let found = self.search.as_ref().and_then(|search| search.found);
        let mut visible: Vec<usize> = self.visible().into_iter().map(|row| row.index).collect();
        visible.dedup();
        let chosen: Vec<&Item> = match (self.selection, found) {
            (Some(_), _) => items.iter().filter(|item| self.is_selected(item)).collect(),
            (None, Some(found)) if visible.iter().any(|index| items[*index].at == found) => {
                items.iter().filter(|item| item.at == found).collect()
            }
            _ => visible.iter().map(|index| &items[*index]).collect(),
        };
        let mut text = String::new();
        for item in chosen {
            if item.starts_line && !text.is_empty() {
                text.push('\n');
            }
            text.push_str(&plain(item.bytes()));
        }
        text
    }

    /// How far down the screen is, in percent of the output.
    pub(crate) fn percent(&self) -> u64 {
        let last = self.visible().last().map_or(0, |row| self.window.items()[row.index].end());
        (last * 100).checked_div(self.end).unwrap_or(100).min(100)
    }
}

/// Columns of the time before a line.
pub(crate) const TIME_COLUMNS: u16 = 9;

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
