//! Terminals: their size and their screen.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{PtySize, Status};

/// Whether to give the process a terminal: `true` for one with 24 rows and 80 columns, or a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected for `pty`: true, false, or an object with `rows` and `cols`")]
pub enum Pty {
    Wanted(bool),
    Sized(PtySize),
}

/// `POST /v1/processes/{id}/resize`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResizeRequest {
    pub rows: u16,
    pub cols: u16,
}

/// A position on the screen; rows and columns start at 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Position {
    pub row: u16,
    pub col: u16,
}

/// The screen of a terminal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Screen {
    pub id: String,
    pub size: PtySize,
    /// The rows from the top, without trailing spaces and without empty rows at the bottom.
    pub lines: Vec<String>,
    pub cursor: Position,
    pub cursor_visible: bool,
    /// The window title that the program has set.
    pub title: String,
    /// Whether the program uses the alternate screen, as editors and pagers do.
    pub alternate: bool,
    /// Cursor of the output that the screen reflects.
    pub output_cursor: u64,
    /// Whether the program waits for input; null if that is unknown.
    pub waiting_for_input: Option<bool>,
    pub status: Status,
}
