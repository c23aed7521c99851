//! The commands, the keys that run them, and their names in the palette.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use pinfold_api::types::Verdict;

use crate::list::Move;
use crate::message::{Direction, Force};
use crate::state::ViewKind;

/// What a person can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Go(Move),
    Sideways(i32),
    OpenProcesses,
    OpenInbox,
    OpenAgents,
    OpenEvents,
    OpenHelp,
    /// The next of the four lists.
    NextScreen,
    OpenLog,
    OpenTree,
    Attach,
    Input,
    Filter,
    Search,
    NextMatch(Direction),
    NextNeed,
    Answer(Verdict),
    Stop(Force),
    Pause,
    Restart,
    Owner,
    ToggleEnded,
    Follow,
    Wrap,
    Times,
    Select,
    Copy,
    MarkSeen,
    Palette,
    /// Closes or clears; where there is nothing to close, it leaves.
    Back,
    /// Closes or clears, and never leaves.
    Close,
    Quit,
}

/// A command that the palette lists.
pub(crate) struct Named {
    pub(crate) name: &'static str,
    pub(crate) key: &'static str,
    pub(crate) help: &'static str,
    pub(crate) command: Command,
}

const fn named(name: &'static str, key: &'static str, help: &'static str, command: Command) -> Named {
    Named { name, key, help, command }
}

/// The commands of the palette, in the order of the help screen.
pub(crate) const PALETTE: &[Named] = &[
    named("processes", "1", "everything that is kept, by owner", Command::OpenProcesses),
    named("inbox", "2", "what waits for you", Command::OpenInbox),
    named("agents", "3", "hosted agents and their turns", Command::OpenAgents),
    named("events", "4", "what happened", Command::OpenEvents),
    named("logs", "Enter", "the output of the process; on an owner's row: only that owner", Command::OpenLog),
    named("tree", "t", "its living processes, strays marked", Command::OpenTree),
    named("attach", "a", "its terminal, in place; ctrl+p ctrl+q leaves", Command::Attach),
    named("input", "i", "send it a line", Command::Input),
    named("needs", "!", "the next that needs you", Command::NextNeed),
    named("yes", "y", "allow what the agent asks for", Command::Answer(Verdict::Allow)),
    named("no", "n", "deny it", Command::Answer(Verdict::Deny)),
    named("stop", "x", "stop it and its whole tree", Command::Stop(Force::Stop)),
    named("kill", "X", "kill it and its whole tree at once", Command::Stop(Force::Kill)),
    named("pause", "p", "pause it, or let it go on", Command::Pause),
    named("restart", "R", "restart a service", Command::Restart),
    named("owner", "o", "only the owner of the selected row", Command::Owner),
    named("ended", "e", "show or hide ended processes", Command::ToggleEnded),
    named("filter", "/", "only rows with this text; in a log: search", Command::Filter),
    named("next match", "n", "in a log: the next match below", Command::NextMatch(Direction::Down)),
    named("previous match", "N", "in a log: the next match above", Command::NextMatch(Direction::Up)),
    named("follow", "f", "follow the end of a log", Command::Follow),
    named("wrap", "w", "wrap long lines of a log", Command::Wrap),
    named("times", "T", "times of log lines; start times in the list", Command::Times),
    named("select", "v", "select lines of a log", Command::Select),
    named("copy", "y", "copy the selection to the clipboard", Command::Copy),
    named("seen", "m", "mark the failures in the inbox as seen", Command::MarkSeen),
    named("help", "?", "this list", Command::OpenHelp),
    named("quit", "q", "back; on the unfiltered list of processes: leave", Command::Quit),
];

/// The commands whose name contains the text, those that start with it first; else those whose help does.
pub(crate) fn matching(text: &str) -> Vec<&'static Named> {
    let wanted = text.trim().to_lowercase();
    let mut found: Vec<&Named> = PALETTE.iter().filter(|named| named.name.contains(&wanted)).collect();
    found.sort_by_key(|named| !named.name.starts_with(&wanted));
    if found.is_empty() {
        found = PALETTE.iter().filter(|named| named.help.contains(&wanted)).collect();
    }
    found
}

/// The command of a key on a screen.
pub(crate) fn of_key(key: KeyEvent, view: ViewKind) -> Option<Command> {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return match key.code {
            KeyCode::Char('c') => Some(Command::Quit),
            KeyCode::Char('d') => Some(Command::Go(Move::HalfPages(1))),
            KeyCode::Char('u') => Some(Command::Go(Move::HalfPages(-1))),
            KeyCode::Char('f') => Some(Command::Go(Move::HalfPages(2))),
            KeyCode::Char('b') => Some(Command::Go(Move::HalfPages(-2))),
            _ => None,
        };
    }
    let is_log = view == ViewKind::Log;
    let answers = matches!(view, ViewKind::Processes | ViewKind::Inbox | ViewKind::Agents | ViewKind::Turns);
    Some(match key.code {
        KeyCode::Char('j') | KeyCode::Down => Command::Go(Move::Lines(1)),
        KeyCode::Char('k') | KeyCode::Up => Command::Go(Move::Lines(-1)),
        KeyCode::Char('g') | KeyCode::Home => Command::Go(Move::First),
        KeyCode::Char('G') | KeyCode::End => Command::Go(Move::Last),
        KeyCode::PageDown => Command::Go(Move::HalfPages(2)),
        KeyCode::Char(' ') if is_log => Command::Go(Move::HalfPages(2)),
        KeyCode::PageUp => Command::Go(Move::HalfPages(-2)),
        KeyCode::Left | KeyCode::Char('h') => Command::Sideways(-8),
        KeyCode::Right | KeyCode::Char('l') => Command::Sideways(8),
        KeyCode::Enter => Command::OpenLog,
        KeyCode::Tab => Command::NextScreen,
        KeyCode::Esc => Command::Close,
        KeyCode::Char('1') => Command::OpenProcesses,
        KeyCode::Char('2') => Command::OpenInbox,
        KeyCode::Char('3') => Command::OpenAgents,
        KeyCode::Char('4') => Command::OpenEvents,
        KeyCode::Char('?') | KeyCode::F(1) => Command::OpenHelp,
        KeyCode::Char('/') if is_log => Command::Search,
        KeyCode::Char('/') => Command::Filter,
        KeyCode::Char(':') => Command::Palette,
        KeyCode::Char('!') => Command::NextNeed,
        KeyCode::Char('t') => Command::OpenTree,
        KeyCode::Char('a') => Command::Attach,
        KeyCode::Char('i') => Command::Input,
        KeyCode::Char('y') if answers => Command::Answer(Verdict::Allow),
        KeyCode::Char('n') if answers => Command::Answer(Verdict::Deny),
        KeyCode::Char('y') => Command::Copy,
        KeyCode::Char('n') => Command::NextMatch(Direction::Down),
        KeyCode::Char('N') => Command::NextMatch(Direction::Up),
        KeyCode::Char('x') => Command::Stop(Force::Stop),
        KeyCode::Char('X') => Command::Stop(Force::Kill),
        KeyCode::Char('p') => Command::Pause,
        KeyCode::Char('R') => Command::Restart,
        KeyCode::Char('o') => Command::Owner,
        KeyCode::Char('e') => Command::ToggleEnded,
        KeyCode::Char('f') => Command::Follow,
        KeyCode::Char('w') => Command::Wrap,
        KeyCode::Char('T') => Command::Times,
        KeyCode::Char('v') => Command::Select,
        KeyCode::Char('m') => Command::MarkSeen,
        KeyCode::Char('q') => Command::Back,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_of_the_help_runs_its_command_on_some_screen() {
        let views = [ViewKind::Processes, ViewKind::Log];
        for named in PALETTE.iter().filter(|named| !matches!(named.name, "filter" | "quit")) {
            let code = match named.key {
                "Enter" => KeyCode::Enter,
                key => KeyCode::Char(key.chars().next().expect("a key")),
            };
            let commands = views.map(|view| of_key(KeyEvent::new(code, KeyModifiers::NONE), view));
            assert!(commands.contains(&Some(named.command)), "{}: {commands:?}", named.name);
        }
    }

    #[test]
    fn the_palette_finds_commands_by_name_first() {
        assert_eq!(matching("st")[0].name, "stop");
        assert_eq!(matching("log")[0].name, "logs");
        assert_eq!(matching("clipboard")[0].name, "copy");
        assert!(matching("nonsense").is_empty());
        assert_eq!(matching("").len(), PALETTE.len());
    }
}
