//! Printing: stdout and stderr, for a terminal or not, as text or JSON.
//!
//! Every write to stdout is here, so that a closed pipe (`| head`) is handled in one place, and so that no text of a process or
//! another owner controls the terminal: text is printed without control characters except our own colours. Only the output
//! of processes is printed as raw bytes.

use std::io::{self, IsTerminal, Write};

use serde::Serialize;

use crate::failure::Failure;
use crate::progress_line;
use crate::render::paint::{self, Paint};
use pinfold_api::plain::{visible, visible_json};

/// The two output streams of this command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Console {
    /// Whether `--json` was given.
    pub(crate) json: bool,
    /// Whether stdout is a terminal.
    terminal: bool,
}

impl Console {
    pub(crate) fn new(json: bool) -> Self {
        Console { json, terminal: io::stdout().is_terminal() }
    }

    /// Whether stdout is a terminal.
    pub(crate) fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// Whether text for stdout is coloured.
    pub(crate) fn paint(&self) -> Paint {
        if self.terminal && wants_colour() { Paint::Colour } else { Paint::Plain }
    }

    /// Columns of the terminal; `None` if stdout is not one, so lines are not cut.
    pub(crate) fn width(&self) -> Option<usize> {
        if !self.terminal {
            return None;
        }
        let size = terminal_size::terminal_size_of(io::stdout());
        Some(size.map_or(80, |(width, _)| usize::from(width.0)))
    }

    /// Lines of the terminal; unlimited if stdout is not one.
    pub(crate) fn height(&self) -> usize {
        let size = self.terminal.then(|| terminal_size::terminal_size_of(io::stdout())).flatten();
        size.map_or(usize::MAX, |(_, height)| usize::from(height.0))
    }

    /// Prints text; control characters are escaped.
    pub(crate) fn text(&mut self, text: &str) -> Result<(), Failure> {
        Ok(io::stdout().write_all(paint::guard(text, self.paint()).as_bytes())?)
    }

    /// Prints text and flushes.
    pub(crate) fn text_now(&mut self, text: &str) -> Result<(), Failure> {
        self.text(text)?;
        Ok(io::stdout().flush()?)
    }

    /// Prints bytes unchanged and flushes.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let mut stdout = io::stdout();
        stdout.write_all(bytes)?;
        Ok(stdout.flush()?)
    }

    /// Prints one JSON document: indented on a terminal, otherwise on one line.
    pub(crate) fn document<T: Serialize>(&mut self, value: &T) -> Result<(), Failure> {
        let text = if self.terminal { serde_json::to_string_pretty(value) } else { serde_json::to_string(value) };
        Ok(io::stdout().write_all(format!("{}\n", visible_json(&text?)).as_bytes())?)
    }

    /// Prints one of several JSON objects on a line of its own and flushes.
    pub(crate) fn json_line<T: Serialize>(&mut self, value: &T) -> Result<(), Failure> {
        self.bytes(format!("{}\n", visible_json(&serde_json::to_string(value)?)).as_bytes())
    }

    /// Prints a message to stderr. Errors of that write are ignored.
    pub(crate) fn note(&self, text: &str) {
        progress_line::erase();
        let _ = writeln!(io::stderr(), "pinfold: {}", visible(text));
    }

    /// Like `note`, but only if stderr is a terminal, and not with `--json`.
    pub(crate) fn hint(&self, text: &str) {
        if io::stderr().is_terminal() && !self.json {
            self.note(text);
        }
    }

    /// Flushes stdout.
    pub(crate) fn finish(&mut self) -> Result<(), Failure> {
        Ok(io::stdout().flush()?)
    }

    /// Prints why the command failed; returns its exit code.
    pub(crate) fn report(&mut self, failure: &Failure) -> u8 {
        progress_line::end();
        // Earlier output comes before the error; a closed stdout is not a second error.
        let _ = self.finish();
        if failure.quiet {
            return failure.exit;
        }
        match serde_json::to_string(&failure.error) {
            Ok(json) if self.json => {
                let _ = writeln!(io::stderr(), "{}", visible_json(&json));
            }
            _ => self.note(&failure.error.message.replace('\n', "\n  ")),
        }
        failure.exit
    }
}

/// <https://no-color.org>: any non-empty NO_COLOR disables colours.
pub(crate) fn wants_colour() -> bool {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    set("NO_COLOR").is_none() && set("TERM").is_none_or(|terminal| terminal != "dumb")
}
