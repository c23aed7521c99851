//! Text of processes as cells of a terminal: colours kept, everything else that would steer the terminal removed.
//!
//! A log line is parsed by itself: colours end with their line, as in `less -R`, so that any part of a log can be shown
//! without reading what comes before it.

use std::borrow::Cow;

use pinfold_api::plain::is_steering;
use ratatui::style::{Color, Modifier, Style};
use unicode_width::UnicodeWidthChar;
use vte::{Params, Parser, Perform};

/// Tab stops, in columns.
const TAB: usize = 8;

/// One character on the screen, with the zero-width characters that follow it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    /// Where its text starts in [`StyledLine::text`].
    pub(crate) start: usize,
    /// Columns.
    pub(crate) width: u16,
    pub(crate) style: Style,
}

/// A line as it is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StyledLine {
    pub(crate) text: String,
    pub(crate) cells: Vec<Cell>,
}

impl StyledLine {
    /// Parses the bytes of one line. A carriage return inside it starts the line again, as a progress bar does.
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        let mut painter = Painter::default();
        Parser::new().advance(&mut painter, bytes);
        painter.line
    }

    /// The text of a cell.
    pub(crate) fn text_of(&self, index: usize) -> &str {
        let start = self.cells[index].start;
        let end = self.cells.get(index + 1).map_or(self.text.len(), |next| next.start);
        &self.text[start..end]
    }

    /// Wraps the line at this width: the range of cells of each row. An empty line has one empty row.
    pub(crate) fn rows(&self, columns: u16) -> Vec<std::ops::Range<usize>> {
        let columns = columns.max(1);
        let mut rows = Vec::new();
        let (mut start, mut used) = (0, 0);
        for (index, cell) in self.cells.iter().enumerate() {
            if used + cell.width > columns && index > start {
                rows.push(start..index);
                (start, used) = (index, 0);
            }
            used += cell.width;
        }
        rows.push(start..self.cells.len());
        rows
    }
}

/// The text of a line without escape sequences, as searches see it.
pub(crate) fn plain(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) if is_plain(bytes) => Cow::Borrowed(text.trim_end_matches('\n')),
        _ => Cow::Owned(StyledLine::parse(bytes).text),
    }
}

/// Whether it is printable ASCII: then lines are shown as they are.
pub(crate) fn is_plain(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| matches!(byte, 0x20..0x7f | b'\n'))
}

/// One line of text for a list: characters that would steer the terminal become spaces.
pub(crate) fn one_line(text: &str) -> String {
    text.chars().map(|c| if is_steering(c) { ' ' } else { c }).collect()
}

/// The columns that a text takes.
pub(crate) fn width(text: &str) -> usize {
    text.chars().map(|c| c.width().unwrap_or(0)).sum()
}

/// The text within so many columns; `…` stands for what is cut off.
pub(crate) fn cut(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let mut shown = String::new();
    let mut used = 0;
    for c in text.chars() {
        let width = c.width().unwrap_or(0);
        if used + width + 1 > columns {
            break;
        }
        used += width;
        shown.push(c);
    }
    if columns > 0 {
        shown.push('…');
    }
    shown
}

/// The text cut or padded to exactly so many columns.
pub(crate) fn fit(text: &str, columns: usize) -> String {
    let mut shown = cut(text, columns);
    let missing = columns.saturating_sub(width(&shown));
    shown.extend(std::iter::repeat_n(' ', missing));
    shown
}

/// The same, with the text at the right.
pub(crate) fn fit_right(text: &str, columns: usize) -> String {
    let shown = cut(text, columns);
    let missing = columns.saturating_sub(width(&shown));
    " ".repeat(missing) + &shown
}

/// The text broken into lines of so many columns, at spaces where there are some.
pub(crate) fn wrap(text: &str, columns: usize) -> Vec<String> {
    let columns = columns.max(1);
    let mut lines = Vec::new();
    for paragraph in text.lines() {
        let words = paragraph.trim_start_matches(' ');
        // The indentation stays, if there is room for more than that.
        let indentation = (paragraph.len() - words.len()).min(columns / 2);
        let mut line = " ".repeat(indentation);
        for (index, word) in words.split(' ').enumerate() {
            let mut word = one_line(word);
            if index > 0 && width(&line) + 1 + width(&word) > columns {
                lines.push(std::mem::take(&mut line));
            } else if index > 0 {
                line.push(' ');
            }
            while width(&line) + width(&word) > columns {
                let room = columns - width(&line);
                let split = word.char_indices().scan(0, |used, (at, c)| {
                    *used += c.width().unwrap_or(0);
                    Some((at, *used))
                });
                let split = split.take_while(|(_, used)| *used <= room).last();
                let Some((at, _)) = split else { break };
                let end = at + word[at..].chars().next().map_or(0, char::len_utf8);
                line.push_str(&word[..end]);
                word.drain(..end);
                lines.push(std::mem::take(&mut line));
            }
            line.push_str(&word);
        }
        lines.push(line);
    }
    lines
}

/// Builds a line from what the parser of escape sequences reports.
#[derive(Default)]
struct Painter {
    line: StyledLine,
    style: Style,
    column: usize,
    /// A carriage return came: the next character starts the line again.
    returned: bool,
}

impl Painter {
    fn push(&mut self, c: char) {
        if std::mem::take(&mut self.returned) {
            self.line = StyledLine::default();
            self.column = 0;
        }
        let width = c.width().unwrap_or(0);
        let start = self.line.text.len();
        self.line.text.push(c);
        if width > 0 || self.line.cells.is_empty() {
            self.line.cells.push(Cell { start, width: width as u16, style: self.style });
        }
        self.column += width;
    }
}

impl Perform for Painter {
    fn print(&mut self, c: char) {
        self.push(if is_steering(c) { '\u{fffd}' } else { c });
    }

    fn execute(&mut self, byte: u8) {
        match byte {
            b'\t' => {
                for _ in 0..TAB - self.column % TAB {
                    self.push(' ');
                }
            }
            b'\r' => self.returned = true,
            0x08 => {
                if let Some(cell) = self.line.cells.pop() {
                    self.line.text.truncate(cell.start);
                    self.column -= usize::from(cell.width).min(self.column);
                }
            }
            _ => {}
        }
    }

    fn csi_dispatch(&mut self, params: &Params, intermediates: &[u8], _ignore: bool, action: char) {
        if action == 'm' && intermediates.is_empty() {
            self.style = with_sgr(self.style, params);
        }
    }
}

/// The style after "select graphic rendition".
fn with_sgr(mut style: Style, params: &Params) -> Style {
    let mut params = params.iter();
    while let Some(param) = params.next() {
        style = match param {
            [0] | [] => Style::default(),
            [1] => style.add_modifier(Modifier::BOLD),
            [2] => style.add_modifier(Modifier::DIM),
            [3] => style.add_modifier(Modifier::ITALIC),
            [4, ..] => style.add_modifier(Modifier::UNDERLINED),
            [7] => style.add_modifier(Modifier::REVERSED),
            [9] => style.add_modifier(Modifier::CROSSED_OUT),
            [22] => style.remove_modifier(Modifier::BOLD | Modifier::DIM),
            [23] => style.remove_modifier(Modifier::ITALIC),
            [24] => style.remove_modifier(Modifier::UNDERLINED),
            [27] => style.remove_modifier(Modifier::REVERSED),
            [29] => style.remove_modifier(Modifier::CROSSED_OUT),
            [n @ 30..=37] => style.fg(Color::Indexed((n - 30) as u8)),
            [n @ 40..=47] => style.bg(Color::Indexed((n - 40) as u8)),
            [n @ 90..=97] => style.fg(Color::Indexed((n - 90 + 8) as u8)),
            [n @ 100..=107] => style.bg(Color::Indexed((n - 100 + 8) as u8)),
            [39] => style.fg(Color::Reset),
            [49] => style.bg(Color::Reset),
            [38] => extended(&mut params).map_or(style, |color| style.fg(color)),
            [48] => extended(&mut params).map_or(style, |color| style.bg(color)),
            [38, rest @ ..] => subparameters(rest).map_or(style, |color| style.fg(color)),
            [48, rest @ ..] => subparameters(rest).map_or(style, |color| style.bg(color)),
            _ => style,
        };
    }
    style
}

/// A colour of `38;5;n` or `38;2;r;g;b`.
fn extended<'a>(params: &mut impl Iterator<Item = &'a [u16]>) -> Option<Color> {
    let mut next = || params.next().and_then(|param| param.first()).map(|value| *value as u8);
    match next()? {
        5 => next().map(Color::Indexed),
        2 => Some(Color::Rgb(next()?, next()?, next()?)),
        _ => None,
    }
}

/// A colour of `38:5:n` or `38:2::r:g:b`.
fn subparameters(rest: &[u16]) -> Option<Color> {
    match rest {
        [5, index] => Some(Color::Indexed(*index as u8)),
        [2, red, green, blue] | [2, _, red, green, blue] => Some(Color::Rgb(*red as u8, *green as u8, *blue as u8)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_stay_and_other_sequences_go() {
        let line =
            StyledLine::parse(b"\x1b[1;31mred\x1b[0m \x1b[2J\x1b]0;title\x07plain\x1b[38;5;208mx\x1b[38;2;1;2;3my\n");
        assert_eq!(line.text, "red plainxy");
        assert_eq!(line.cells[0].style, Style::default().fg(Color::Indexed(1)).add_modifier(Modifier::BOLD));
        assert_eq!(line.cells[4].style, Style::default());
        assert_eq!(line.cells[9].style.fg, Some(Color::Indexed(208)));
        assert_eq!(line.cells[10].style.fg, Some(Color::Rgb(1, 2, 3)));
    }

    #[test]
    fn nothing_that_steers_the_terminal_is_left() {
        let bytes = b"a\x1b[6n\x1b]52;c;eA==\x07\x9b31m\x00\x1bPq\x1b\\\xe2\x80\xaeb\xff\x1b(0";
        let line = StyledLine::parse(bytes);
        assert!(!line.text.chars().any(is_steering), "{:?}", line.text);
        assert!(line.text.starts_with('a') && line.text.contains('b'), "{:?}", line.text);
        assert!(!one_line("a\x1b[2J\u{202e}b").chars().any(is_steering));
    }

    #[test]
    fn a_progress_bar_shows_its_last_state() {
        assert_eq!(plain(b"10%\r55%\r100% done\r\n"), "100% done");
        assert_eq!(plain(b"a\tb"), "a       b");
        assert_eq!(plain(b"ab\x08c"), "ac");
    }

    #[test]
    fn wide_characters_are_never_split_between_rows() {
        let line = StyledLine::parse("a漢字e\u{301}b".as_bytes());
        assert_eq!(line.cells.iter().map(|cell| cell.width).collect::<Vec<_>>(), [1, 2, 2, 1, 1]);
        assert_eq!(line.text_of(3), "e\u{301}");
        assert_eq!(line.rows(4), [0..2, 2..5]);
        assert_eq!(line.rows(1).len(), 5);
        assert_eq!(StyledLine::default().rows(10).len(), 1);
    }

    #[test]
    fn texts_are_cut_and_padded_by_columns() {
        assert_eq!(cut("漢字漢字", 5), "漢字…");
        assert_eq!(fit("ab", 4), "ab  ");
        assert_eq!(fit_right("abcdef", 4), "abc…");
        assert_eq!(cut("abc", 0), "");
    }

    #[test]
    fn long_texts_wrap_at_spaces_and_long_words_break() {
        assert_eq!(wrap("one two three", 8), ["one two", "three"]);
        assert_eq!(wrap("  a bc", 8), ["  a bc"]);
        assert_eq!(wrap("abcdefgh", 3), ["abc", "def", "gh"]);
        assert_eq!(wrap("a\n\nb", 3), ["a", "", "b"]);
        assert_eq!(wrap("漢", 1), ["漢"]);
    }
}
