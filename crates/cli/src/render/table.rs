//! Tables with columns aligned by spaces.

use pinfold_api::plain::is_steering;

use super::paint::{Paint, Tone};

/// Minimum width of the last column on a narrow terminal.
const MIN_LAST: usize = 12;
/// Width of the last column that other columns are left out for.
const COMFORTABLE_LAST: usize = 24;

/// One cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    text: String,
    tone: Tone,
}

/// Alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Left,
    Right,
}

/// A heading and the alignment of its column.
pub(crate) type Heading = (&'static str, Side);

/// A cell of one line: line breaks and control characters become spaces.
pub(crate) fn cell(text: impl AsRef<str>, tone: Tone) -> Cell {
    Cell { text: one_line(text.as_ref()), tone }
}

/// A cell without colour.
pub(crate) fn plain(text: impl AsRef<str>) -> Cell {
    cell(text, Tone::Plain)
}

/// Line breaks and control characters as spaces.
pub(crate) fn one_line(text: &str) -> String {
    text.trim().chars().map(|c| if is_steering(c) { ' ' } else { c }).collect()
}

/// The text cut to at most `max` characters, with an ellipsis if it was cut.
pub(crate) fn cut(text: &str, max: usize) -> String {
    if text.chars().count() <= max {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(max.saturating_sub(1)).collect();
    short.push('…');
    short
}

/// Removes columns that are empty in every row: on a terminal the last column needs the space.
pub(crate) fn without_empty_columns(headings: &[Heading], rows: Vec<Vec<Cell>>) -> (Vec<Heading>, Vec<Vec<Cell>>) {
    let says = |column: usize| rows.iter().any(|row| row.get(column).is_some_and(|cell| cell.text != "-"));
    let kept: Vec<bool> = (0..headings.len()).map(says).collect();
    let keep = |row: Vec<Cell>| row.into_iter().zip(&kept).filter_map(|(cell, kept)| kept.then_some(cell)).collect();
    let headings = headings.iter().zip(&kept).filter_map(|(heading, kept)| kept.then_some(*heading)).collect();
    (headings, rows.into_iter().map(keep).collect())
}

/// Removes columns in this order until the last one has room: on a narrow terminal a row stays on one line.
pub(crate) fn fit_columns(
    (mut headings, mut rows): (Vec<Heading>, Vec<Vec<Cell>>),
    width: usize,
    dispensable: &[&str],
) -> (Vec<Heading>, Vec<Vec<Cell>>) {
    for name in dispensable {
        let widths = widths(&headings, &rows);
        let before: usize = widths[..widths.len().saturating_sub(1)].iter().map(|width| width + 2).sum();
        let wanted = widths.last().map_or(0, |last| (*last).min(COMFORTABLE_LAST));
        if before + wanted <= width {
            break;
        }
        if let Some(column) = headings.iter().position(|(heading, _)| heading == name) {
            headings.remove(column);
            rows.iter_mut().for_each(|row| drop(row.remove(column)));
        }
    }
    (headings, rows)
}

/// The width of each column.
fn widths(headings: &[Heading], rows: &[Vec<Cell>]) -> Vec<usize> {
    let width = |(column, (heading, _)): (usize, &Heading)| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.text.chars().count());
        cells.chain([heading.len()]).max().unwrap_or(0)
    };
    headings.iter().enumerate().map(width).collect()
}

/// The rows below their headings; the last column is cut to the width of the terminal.
pub(crate) fn render_table(headings: &[Heading], rows: &[Vec<Cell>], width: Option<usize>, paint: Paint) -> String {
    let last = headings.len().saturating_sub(1);
    let widths = widths(headings, rows);
    let before: usize = widths[..last].iter().map(|width| width + 2).sum();
    let room = width.map(|width| width.saturating_sub(before).max(MIN_LAST));

    let line = |cells: &[Cell]| {
        let mut text = String::new();
        for (column, cell) in cells.iter().enumerate() {
            let shown = match room {
                Some(room) if column == last => cut(&cell.text, room),
                _ => cell.text.clone(),
            };
            let padding = " ".repeat(widths[column].saturating_sub(shown.chars().count()));
            let painted = paint.apply(cell.tone, &shown);
            match headings[column].1 {
                Side::Right => text.extend([padding.as_str(), &painted]),
                Side::Left if column == last => text.push_str(&painted),
                Side::Left => text.extend([painted.as_str(), &padding]),
            }
            if column < last {
                text.push_str("  ");
            }
        }
        format!("{}\n", text.trim_end())
    };
    let heading: Vec<Cell> = headings.iter().map(|(text, _)| cell(text, Tone::Strong)).collect();
    std::iter::once(line(&heading)).chain(rows.iter().map(|row| line(row))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADINGS: &[Heading] = &[("ID", Side::Left), ("OUT", Side::Right), ("COMMAND", Side::Left)];

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [
            vec![plain("k3v9x2"), plain("3.0 KiB"), plain("npm run dev")],
            vec![plain("é"), plain("0 B"), plain("a\nb\t\u{1b}[31mc")],
        ];
        let text = render_table(HEADINGS, &rows, None, Paint::Plain);
        assert_eq!(text, "ID          OUT  COMMAND\nk3v9x2  3.0 KiB  npm run dev\né           0 B  a b  [31mc\n");
    }

    #[test]
    fn columns_are_left_out_in_order_until_the_last_has_room() {
        let rows = || vec![vec![plain("k3v9x2"), plain("3.0 KiB"), plain("npm run dev")]];
        let fitted = |width| fit_columns((HEADINGS.to_vec(), rows()), width, &["OUT", "ID"]).0.len();
        assert_eq!((fitted(28), fitted(27), fitted(18)), (3, 2, 1));
    }

    #[test]
    fn the_last_column_is_cut_to_the_terminal() {
        let rows = [vec![plain("a"), plain("1"), plain("x".repeat(50))]];
        let text = render_table(HEADINGS, &rows, Some(30), Paint::Plain);
        let row = text.lines().nth(1).expect("a row");
        assert_eq!(row.chars().count(), 30);
        assert!(row.ends_with("x…"));
    }

    #[test]
    fn colours_do_not_change_the_alignment() {
        let rows = [vec![cell("a", Tone::Bad), plain("1"), plain("x")]];
        let text = render_table(HEADINGS, &rows, None, Paint::Colour);
        assert!(text.lines().nth(1).expect("a row").starts_with("\u{1b}[31ma\u{1b}[0m "), "{text:?}");
    }
}
