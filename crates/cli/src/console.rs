//! Where text goes: stdout and stderr, as a terminal or not, as JSON or not.
//!
//! Every write to stdout is here, so that a reader that left (`| head`) ends a command quietly in one place, and so that no
//! text of a process or another owner steers the terminal: what is printed as text has no control characters but our own
//! colours. Output of processes, which may have any, is printed as bytes.

use std::io::{self, IsTerminal, Write};

use serde::Serialize;

use crate::failure::Failure;
use crate::render::paint::{self, Paint};
use pinfold_api::plain::{visible, visible_json};

/// The two output streams of this command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Screen {
    /// Whether `--json` was given.
    pub(crate) json: bool,
    /// Whether stdout is a terminal.
    terminal: bool,
}

impl Screen {
    pub(crate) fn new(json: bool) -> Self {
        Screen { json, terminal: io::stdout().is_terminal() }
    }

    /// Whether a person reads stdout.
    pub(crate) fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// How text for stdout is coloured.
    pub(crate) fn paint(&self) -> Paint {
        if self.terminal && wants_colour() { Paint::Colour } else { Paint::Plain }
    }

    /// The columns of the terminal; `None` when stdout is none, and nothing need be cut.
    pub(crate) fn width(&self) -> Option<usize> {
        if !self.terminal {
            return None;
        }
        let size = terminal_size::terminal_size_of(io::stdout());
        Some(size.map_or(80, |(width, _)| usize::from(width.0)))
    }

    /// Prints text; what would steer the terminal is written out.
    pub(crate) fn text(&mut self, text: &str) -> Result<(), Failure> {
        Ok(io::stdout().write_all(paint::guard(text, self.paint()).as_bytes())?)
    }

    /// Prints text at once.
    pub(crate) fn text_now(&mut self, text: &str) -> Result<(), Failure> {
        self.text(text)?;
        Ok(io::stdout().flush()?)
    }

    /// Prints bytes as they are, and at once.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let mut stdout = io::stdout();
        stdout.write_all(bytes)?;
        Ok(stdout.flush()?)
    }

    /// Prints one JSON document: indented for a terminal, else on one line.
    pub(crate) fn document<T: Serialize>(&mut self, value: &T) -> Result<(), Failure> {
        let text = if self.terminal { serde_json::to_string_pretty(value) } else { serde_json::to_string(value) };
        Ok(io::stdout().write_all(format!("{}\n", visible_json(&text?)).as_bytes())?)
    }

    /// Prints one JSON object of several, on its line, at once.
    pub(crate) fn json_line<T: Serialize>(&mut self, value: &T) -> Result<(), Failure> {
        self.bytes(format!("{}\n", visible_json(&serde_json::to_string(value)?)).as_bytes())
    }

    /// Tells a person something that is no output. A stderr that cannot be written to is no trouble of ours.
    pub(crate) fn note(&self, text: &str) {
        let _ = writeln!(io::stderr(), "pinfold: {}", visible(text));
    }

    /// Like `note`, but only where a person is looking.
    pub(crate) fn hint(&self, text: &str) {
        if io::stderr().is_terminal() && !self.json {
            self.note(text);
        }
    }

    /// Flushes what is left to print.
    pub(crate) fn finish(&mut self) -> Result<(), Failure> {
        Ok(io::stdout().flush()?)
    }

    /// Says why the command failed and gives its exit code.
    pub(crate) fn report(&mut self, failure: &Failure) -> u8 {
        // What was printed before the failure comes before it; if nobody reads it, that is no second failure.
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

/// <https://no-color.org>: any value but the empty one means no.
fn wants_colour() -> bool {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    set("NO_COLOR").is_none() && set("TERM").is_none_or(|terminal| terminal != "dumb")
}
