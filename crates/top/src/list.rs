//! A position in a list that is longer than the screen.

/// The selected row, and the first row that is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ListCursor {
    pub(crate) index: usize,
    pub(crate) offset: usize,
}

/// A movement in a list or a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Move {
    Lines(i64),
    /// Pages, in halves.
    HalfPages(i64),
    First,
    Last,
}

impl Move {
    /// The number of lines, where a page has so many; `None` for the ends.
    pub(crate) fn lines(self, page: usize) -> Option<i64> {
        match self {
            Move::Lines(lines) => Some(lines),
            Move::HalfPages(halves) => Some(halves * (page as i64 / 2).max(1)),
            Move::First | Move::Last => None,
        }
    }
}

impl ListCursor {
    /// Moves within a list of this length; [`Self::fit`] must follow.
    pub(crate) fn go(&mut self, movement: Move, length: usize, page: usize) {
        let last = length.saturating_sub(1);
        self.index = match (movement, movement.lines(page)) {
            (_, Some(lines)) => (self.index as i64 + lines).clamp(0, last as i64) as usize,
            (Move::First, None) => 0,
            (_, None) => last,
        };
    }

    /// Keeps the selected row inside the list and on the screen.
    pub(crate) fn fit(&mut self, length: usize, page: usize) {
        self.index = self.index.min(length.saturating_sub(1));
        let page = page.max(1);
        self.offset = self.offset.min(self.index).max((self.index + 1).saturating_sub(page));
        // No empty rows at the end while there are rows above.
        self.offset = self.offset.min(length.saturating_sub(page));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_selected_row_stays_in_the_list_and_on_the_screen() {
        let mut cursor = ListCursor::default();
        for (movement, index, offset) in [
            (Move::Lines(3), 3, 0),
            (Move::HalfPages(2), 13, 4),
            (Move::Last, 99, 90),
            (Move::Lines(1), 99, 90),
            (Move::HalfPages(-1), 94, 90),
            (Move::First, 0, 0),
            (Move::Lines(-1), 0, 0),
        ] {
            cursor.go(movement, 100, 10);
            cursor.fit(100, 10);
            assert_eq!((cursor.index, cursor.offset), (index, offset), "{movement:?}");
        }
        cursor.go(Move::Last, 100, 10);
        cursor.fit(5, 10);
        assert_eq!((cursor.index, cursor.offset), (4, 0));
        cursor.fit(0, 0);
        assert_eq!((cursor.index, cursor.offset), (0, 0));
    }
}
