//! The processes of the campaign: what each does, prints and how it must end, all known beforehand.
//!
//! All output is 1, 2, 3 … one number per line, so that every byte is known by its offset.

use std::fmt::Write;
use std::time::Duration;

use pinfold_api::types::{Outcome, Pty, StartRequest, Stdin};

use super::random::Dice;

/// Maximum number of lines.
const MAX_LINES: u64 = 120_000;

/// One process.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) number: u64,
    pub(super) kind: &'static str,
    command: String,
    /// How many lines it prints; `None` if it prints until it is stopped.
    pub(super) lines: Option<u64>,
    /// Possible outcomes; several only if a stop races with the exit.
    pub(super) ends: Vec<Outcome>,
    pub(super) stop: Option<Stop>,
    /// Whether it copies its stdin to its output and exits at end of file.
    pub(super) fed: bool,
    /// Whether it has a terminal.
    on_terminal: bool,
    grace: &'static str,
}

/// When and how it is stopped after its start was acknowledged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stop {
    pub(super) after: Duration,
    pub(super) manner: Manner,
    /// Wait until it has printed something: by then its traps are set.
    pub(super) once_it_prints: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// A stop request.
    Stop,
    /// Paused, then KILL: its keeper must not reuse a frozen cgroup.
    PauseAndKill,
}

/// A mark in all processes of one run, to find those that escaped.
#[derive(Clone, Debug)]
pub(super) struct Mark(pub(super) String);

impl Part {
    /// The process with this number; the same for the same seed.
    pub(super) fn of(seed: u64, number: u64, mark: &Mark, cgroup: bool) -> Self {
        let dice = &mut Dice::new(seed, 1_000_000 + number);
        let code = dice.between(0, 100) as u8;
        let exits = vec![Outcome::Exited { code }];
        let part = |kind, command, lines, ends| Part {
            number,
            kind,
            command,
            lines,
            ends,
            stop: None,
            fed: false,
            on_terminal: false,
            grace: "30s",
        };
        // A shell reports on stderr that its sleep was terminated.
        let counting = "exec 2>/dev/null; i=0; while :; do i=$((i+1)); echo $i; sleep 0.1; done";
        match dice.between(0, 16) {
            0 | 1 => {
                let lines = dice.between(5, 40);
                let count = format!("i=0; while [ $i -lt {lines} ]; do i=$((i+1)); echo $i; sleep 0.1; done");
                part("counting", format!("{count}; exit {code}"), Some(lines), exits)
            }
            2 => {
                let lines = dice.between(2_000, 60_000);
                part("noisy", format!("seq 1 {lines}; exit {code}"), Some(lines), exits)
            }
            3 => {
                let time = dice.between(0, 30);
                part("silent", format!("sleep {}.{}; exit {code}", time / 10, time % 10), Some(0), exits)
            }
            4 => {
                let lines = dice.between(1, 500);
                let (number, name) =
                    *dice.pick(&[(10, "USR1"), (15, "TERM"), (9, "KILL"), (14, "ALRM")]).unwrap_or(&(9, "KILL"));
                let ends = vec![Outcome::Signaled { signal: number, name: name.to_owned(), core_dumped: false }];
                part("signalled", format!("seq 1 {lines}; kill -{name} $$; exit 99"), Some(lines), ends)
            }
            5 => {
                let (lines, time) = (dice.between(1, 300), dice.between(1, 15));
                let stray = format!("(sleep {}.{}; echo {}) &", time / 10, time % 10, lines + 1);
                part("stray", format!("seq 1 {lines}; {stray} exit {code}"), Some(lines + 1), exits)
            }
            6 => {
                let ends = vec![Outcome::Signaled { signal: 9, name: "KILL".to_owned(), core_dumped: false }];
                let stop = Some(Stop { after: dice.millis(300, 3000), manner: Manner::Stop, once_it_prints: true });
                Part { stop, grace: "300ms", ..part("deaf", format!("trap '' TERM; {counting}"), None, ends) }
            }
            7 => {
                let (children, lines) = (dice.between(2, 9), dice.between(1, 50));
                let fork = "sh -c 'sleep 0.5 & sleep 0.3 & wait' &";
                let forks = format!("i=0; while [ $i -lt {children} ]; do {fork} i=$((i+1)); done; wait");
                part("forking", format!("{forks}; seq 1 {lines}; exit {code}"), Some(lines), exits)
            }
            8 | 9 => {
                let lines = dice.between(1, 100);
                // Without a cgroup, one with a wiped environment whose keeper was killed cannot be found: a documented limit.
                let wiped = if cgroup && dice.between(0, 2) == 0 { "env -i PATH=\"$PATH\" " } else { "" };
                let away = format!("{wiped}setsid sh -c ': {}; sleep 600' </dev/null >/dev/null 2>&1 &", mark.0);
                let stop = Some(Stop { after: dice.millis(300, 4000), manner: Manner::Stop, once_it_prints: true });
                let kind = if wiped.is_empty() { "escapee" } else { "wiped escapee" };
                Part { stop, ..part(kind, format!("seq 1 {lines}; {away} exit {code}"), Some(lines), exits) }
            }
            10 => {
                let stop = Some(Stop { after: dice.millis(300, 6000), manner: Manner::Stop, once_it_prints: true });
                let ends = vec![Outcome::Exited { code: 9 }];
                Part { stop, ..part("patient", format!("trap 'exit 9' TERM; {counting}"), None, ends) }
            }
            11 | 12 => {
                let lines = dice.between(1, 80);
                Part { fed: true, ..part("fed", format!("cat; exit {code}"), Some(lines), exits) }
            }
            13 => {
                let lines = dice.between(5, 40);
                // No carriage returns in the output.
                let count =
                    format!("stty -onlcr; i=0; while [ $i -lt {lines} ]; do i=$((i+1)); echo $i; sleep 0.05; done");
                Part { on_terminal: true, ..part("on a terminal", format!("{count}; exit {code}"), Some(lines), exits) }
            }
            14 => {
                let ends = vec![Outcome::Signaled { signal: 9, name: "KILL".to_owned(), core_dumped: false }];
                let (after, manner) = (dice.millis(300, 3000), Manner::PauseAndKill);
                let stop = Some(Stop { after, manner, once_it_prints: true });
                Part { stop, ..part("killed while paused", counting.to_owned(), None, ends) }
            }
            _ => {
                let time = dice.between(100, 900);
                let term = Outcome::Signaled { signal: 15, name: "TERM".to_owned(), core_dumped: false };
                let stop =
                    Some(Stop { after: Duration::from_millis(time), manner: Manner::Stop, once_it_prints: false });
                let ends = vec![Outcome::Exited { code }, term];
                Part { stop, ..part("racing", format!("sleep 0.{time:03}; exit {code}"), Some(0), ends) }
            }
        }
    }

    /// A process of an agent: the command is unique, so that it is found even if the start was not answered.
    pub(super) fn of_agent(dice: &mut Dice, owner: &str, number: u64, mark: &Mark) -> Self {
        let (code, lines, time) = (dice.between(0, 100) as u8, dice.between(0, 200), dice.between(0, 25));
        let name = format!(": {owner} {number} {}", mark.0);
        let command = format!("{name}; seq 1 {lines}; sleep {}.{}; exit {code}", time / 10, time % 10);
        let ends = vec![Outcome::Exited { code }];
        let (fed, on_terminal) = (false, false);
        Self {
            number,
            kind: "an agent's",
            command,
            lines: Some(lines),
            ends,
            stop: None,
            fed,
            on_terminal,
            grace: "30s",
        }
    }

    pub(super) fn command(&self) -> &str {
        &self.command
    }

    pub(super) fn request(&self, mark: &Mark) -> StartRequest {
        StartRequest {
            command: Some(self.command.clone()),
            env: [("CHAOS".to_owned(), Some(mark.0.clone()))].into(),
            owner: Some(format!("owner-{}", self.number % 7)),
            grace: Some(self.grace.into()),
            stdin: self.fed.then_some(Stdin::Pipe),
            pty: self.on_terminal.then_some(Pty::Wanted(true)),
            idempotency_key: Some(format!("chaos-{}", self.number)),
            ..StartRequest::default()
        }
    }

    /// Number of bytes that it prints, if known.
    pub(super) fn bytes(&self, script: &Script) -> Option<u64> {
        self.lines.map(|lines| script.bytes_of(lines))
    }
}

/// The expected output: 1, 2, 3 …
#[derive(Debug)]
pub(super) struct Script {
    text: String,
    /// End offset of each line.
    ends: Vec<u64>,
}

impl Script {
    pub(super) fn new() -> Self {
        let (mut text, mut ends) = (String::new(), vec![0]);
        for line in 1..=MAX_LINES {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{line}");
            ends.push(text.len() as u64);
        }
        Self { text, ends }
    }

    fn bytes_of(&self, lines: u64) -> u64 {
        self.ends.get(lines as usize).copied().unwrap_or(self.text.len() as u64)
    }

    /// Whether these bytes are the expected output at this offset.
    pub(super) fn has_at(&self, offset: u64, bytes: &[u8]) -> bool {
        self.text.as_bytes().get(offset as usize..).is_some_and(|rest| rest.starts_with(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_known_by_its_offset() {
        let script = Script::new();
        assert_eq!((script.bytes_of(0), script.bytes_of(9), script.bytes_of(10)), (0, 18, 21));
        assert!(script.has_at(18, b"10\n11\n") && !script.has_at(17, b"10\n"));
        assert!(!script.has_at(u64::MAX, b"1"));
    }

    #[test]
    fn every_kind_is_cast_and_the_same_seed_casts_the_same() {
        let mark = Mark("m".to_owned());
        let kinds: std::collections::BTreeSet<_> =
            (0..300).map(|number| Part::of(1, number, &mark, true).kind).collect();
        assert_eq!(kinds.len(), 14, "{kinds:?}");
        assert_eq!(Part::of(3, 5, &mark, true).command, Part::of(3, 5, &mark, true).command);
        assert!((0..300).all(|number| Part::of(1, number, &mark, false).kind != "wiped escapee"));
    }
}
