//! Colour, only where a terminal shows it.

use anstyle::{AnsiColor, Style};

/// Whether text is coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paint {
    Plain,
    Colour,
}

/// What a text says about itself.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_carries_no_escape() {
        assert_eq!(Paint::Plain.apply(Tone::Bad, "x"), "x");
        assert_eq!(Paint::Colour.apply(Tone::Bad, "x"), "\u{1b}[31mx\u{1b}[0m");
    }
}
