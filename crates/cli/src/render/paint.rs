//! Colours for terminals.

use std::borrow::Cow;

use anstyle::{AnsiColor, Style};
use pinfold_api::plain::visible;

/// Whether text is coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paint {
    Plain,
    Colour,
}

/// The meaning of a text, which decides its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    Faint,
    Strong,
    Good,
    Busy,
    Bad,
}

impl Paint {
    /// The text in the colour of its tone.
    pub(crate) fn apply(self, tone: Tone, text: &str) -> String {
        let style = match tone {
            _ if self == Paint::Plain => return text.to_owned(),
            Tone::Plain => return text.to_owned(),
            Tone::Faint => Style::new().dimmed(),
            Tone::Strong => Style::new().bold(),
            Tone::Good => Style::new().fg_color(Some(AnsiColor::Green.into())),
            Tone::Busy => Style::new().fg_color(Some(AnsiColor::Cyan.into())),
            Tone::Bad => Style::new().fg_color(Some(AnsiColor::Red.into())),
        };
        format!("{style}{text}{style:#}")
    }
}

/// Colours that tell several processes apart; red is left for errors.
const LABELS: [AnsiColor; 6] =
    [AnsiColor::Cyan, AnsiColor::Yellow, AnsiColor::Green, AnsiColor::Magenta, AnsiColor::Blue, AnsiColor::BrightBlack];

impl Paint {
    /// The label of one of several processes, each in a colour of its own.
    pub(crate) fn label(self, place: usize, text: &str) -> String {
        if self == Paint::Plain {
            return text.to_owned();
        }
        let style = Style::new().fg_color(Some(LABELS[place % LABELS.len()].into()));
        format!("{style}{text}{style:#}")
    }
}

/// The escape sequences of [`Paint::apply`].
const OURS: [&str; 6] = ["\u{1b}[0m", "\u{1b}[1m", "\u{1b}[2m", "\u{1b}[31m", "\u{1b}[32m", "\u{1b}[36m"];

/// Escapes all control characters except our own colours.
pub(crate) fn guard(text: &str, paint: Paint) -> Cow<'_, str> {
    if paint == Paint::Plain || !text.contains('\u{1b}') {
        return visible(text);
    }
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\u{1b}') {
        shown.push_str(&visible(&rest[..at]));
        rest = &rest[at..];
        let ours = OURS.iter().find(|sequence| rest.starts_with(**sequence));
        let length = ours.map_or(1, |sequence| sequence.len());
        let (this, after) = rest.split_at(length);
        match ours {
            Some(_) => shown.push_str(this),
            None => shown.push_str(&visible(this)),
        }
        rest = after;
    }
    shown.push_str(&visible(rest));
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_colours_are_not_escaped() {
        let text = format!("{}\u{1b}[2J\u{1b}]0;t\u{7}", Paint::Colour.apply(Tone::Bad, "x"));
        assert_eq!(guard(&text, Paint::Colour), "\u{1b}[31mx\u{1b}[0m\\x1b[2J\\x1b]0;t\\x07");
        assert_eq!(guard("\u{1b}[31mx", Paint::Plain), "\\x1b[31mx");
    }

    #[test]
    fn plain_text_has_no_escape_sequences() {
        assert_eq!(Paint::Plain.apply(Tone::Bad, "x"), "x");
        assert_eq!(Paint::Colour.apply(Tone::Bad, "x"), "\u{1b}[31mx\u{1b}[0m");
    }
}
