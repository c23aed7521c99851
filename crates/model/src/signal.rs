//! Signals by name and number. The numbers are the same on every Linux architecture except MIPS and SPARC.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A valid signal number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Signal(i32);

/// Why a text is not a signal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown signal `{0}`: use a name or number of {names}, or RTMIN to RTMAX", names = names())]
pub struct BadSignal(String);

const NAMES: [(i32, &str); 31] = [
    (1, "HUP"),
    (2, "INT"),
    (3, "QUIT"),
    (4, "ILL"),
    (5, "TRAP"),
    (6, "ABRT"),
    (7, "BUS"),
    (8, "FPE"),
    (9, "KILL"),
    (10, "USR1"),
    (11, "SEGV"),
    (12, "USR2"),
    (13, "PIPE"),
    (14, "ALRM"),
    (15, "TERM"),
    (16, "STKFLT"),
    (17, "CHLD"),
    (18, "CONT"),
    (19, "STOP"),
    (20, "TSTP"),
    (21, "TTIN"),
    (22, "TTOU"),
    (23, "URG"),
    (24, "XCPU"),
    (25, "XFSZ"),
    (26, "VTALRM"),
    (27, "PROF"),
    (28, "WINCH"),
    (29, "IO"),
    (30, "PWR"),
    (31, "SYS"),
];
/// Realtime signals; the C library reserves 32 and 33.
const RT_MIN: i32 = 34;
const RT_MAX: i32 = 64;

impl Signal {
    pub const HUP: Self = Self(1);
    pub const INT: Self = Self(2);
    pub const KILL: Self = Self(9);
    pub const TERM: Self = Self(15);
    pub const CONT: Self = Self(18);
    pub const STOP: Self = Self(19);

    /// Parses `TERM`, `sigterm`, `15` or `RTMIN+3`.
    pub fn parse(text: &str) -> Result<Self, BadSignal> {
        let bad = || BadSignal(text.chars().take(40).collect());
        let upper = text.trim().to_ascii_uppercase();
        let name = upper.strip_prefix("SIG").unwrap_or(&upper);
        if let Ok(number) = name.parse() {
            return Self::from_number(number).ok_or_else(bad);
        }
        if let Some((number, _)) = NAMES.iter().find(|(_, known)| *known == name) {
            return Ok(Self(*number));
        }
        Self::parse_realtime(name).ok_or_else(bad)
    }

    fn parse_realtime(name: &str) -> Option<Self> {
        let (base, rest) = match (name.strip_prefix("RTMIN"), name.strip_prefix("RTMAX")) {
            (Some(rest), _) => (RT_MIN, rest),
            (_, Some(rest)) => (RT_MAX, rest),
            _ => return None,
        };
        let offset: i32 = if rest.is_empty() { 0 } else { rest.parse().ok()? };
        Some(base.checked_add(offset)?).filter(|number| (RT_MIN..=RT_MAX).contains(number)).map(Self)
    }

    /// The signal with this number, if there is one.
    pub fn from_number(number: i32) -> Option<Self> {
        ((1..=31).contains(&number) || (RT_MIN..=RT_MAX).contains(&number)).then_some(Self(number))
    }

    pub fn number(self) -> i32 {
        self.0
    }

    /// The name without `SIG`: `TERM`, `RTMIN+3`.
    pub fn name(self) -> String {
        match NAMES.get(self.0 as usize - 1) {
            Some((_, name)) => (*name).to_owned(),
            None if self.0 == RT_MIN => "RTMIN".to_owned(),
            None => format!("RTMIN+{}", self.0 - RT_MIN),
        }
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SIG{}", self.name())
    }
}

fn names() -> String {
    NAMES.map(|(_, name)| name).join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_signal_is_found_by_its_name_and_number() {
        for number in (1..=31).chain(34..=64) {
            let signal = Signal::from_number(number).expect("a signal");
            assert_eq!(Signal::parse(&signal.name()), Ok(signal));
            assert_eq!(Signal::parse(&signal.to_string().to_lowercase()), Ok(signal));
            assert_eq!(Signal::parse(&number.to_string()), Ok(signal));
        }
    }

    #[test]
    fn an_unknown_signal_is_refused_with_the_list() {
        for text in ["", "FOO", "SIGFOO", "0", "-9", "32", "65", "RTMIN+99", "RTMAX+1", "9 9"] {
            let refusal = Signal::parse(text).expect_err(text).to_string();
            assert!(refusal.contains("TERM") && refusal.contains("USR1"), "{refusal}");
        }
    }
}
