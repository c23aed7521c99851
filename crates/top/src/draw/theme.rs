//! Colours and modifiers. Without colours, modifiers and words alone tell things apart.

use ratatui::style::{Color, Modifier, Style};

use crate::describe::Tone;

/// How things look.
#[derive(Clone, Copy, Debug)]
pub(super) struct Theme {
    colour: bool,
}

impl Theme {
    pub(super) fn new(colour: bool) -> Self {
        Theme { colour }
    }

    pub(super) fn tone(self, tone: Tone) -> Style {
        let plain = Style::default();
        match tone {
            Tone::Plain => plain,
            Tone::Faint => plain.add_modifier(Modifier::DIM),
            Tone::Good => self.coloured(plain, Color::Green),
            Tone::Busy => self.coloured(plain, Color::Cyan),
            Tone::Needs => self.coloured(plain, Color::Yellow).add_modifier(Modifier::BOLD),
            Tone::Bad => self.coloured(plain, Color::Red),
        }
    }

    pub(super) fn selected(self) -> Style {
        Style::default().add_modifier(Modifier::REVERSED)
    }

    pub(super) fn title(self) -> Style {
        Style::default().add_modifier(Modifier::BOLD)
    }

    pub(super) fn owner(self) -> Style {
        self.coloured(Style::default(), Color::Blue).add_modifier(Modifier::BOLD)
    }

    pub(super) fn found(self) -> Style {
        match self.colour {
            true => Style::default().bg(Color::Yellow).fg(Color::Black),
            false => Style::default().add_modifier(Modifier::REVERSED),
        }
    }

    pub(super) fn alarm(self) -> Style {
        match self.colour {
            true => Style::default().bg(Color::Red).fg(Color::White).add_modifier(Modifier::BOLD),
            false => Style::default().add_modifier(Modifier::REVERSED | Modifier::BOLD),
        }
    }

    /// A style of a process's own output: without colours only its modifiers stay.
    pub(super) fn foreign(self, style: Style) -> Style {
        match self.colour {
            true => style,
            false => Style { fg: None, bg: None, ..style },
        }
    }

    fn coloured(self, style: Style, color: Color) -> Style {
        if self.colour { style.fg(color) } else { style }
    }
}
