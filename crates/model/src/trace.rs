//! The trace context of a start: `traceparent` as in W3C Trace Context.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The variable that hands a trace on to a program.
pub const TRACEPARENT_ENV: &str = "TRACEPARENT";
/// The bit of the flags that says that the caller records its spans.
const SAMPLED: u8 = 1;
/// The length of version 00: `00-<32>-<16>-<2>`.
const LENGTH: usize = 55;
/// A later version may be longer; more than this is refused.
const MAX_LENGTH: usize = 512;

/// A `traceparent`: the trace, and the span that the process was started from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TraceParent {
    pub trace_id: [u8; 16],
    pub span_id: [u8; 8],
    flags: u8,
}

/// Why a text is not a `traceparent`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "traceparent `{text}` is not usable: {problem}: write `00-<trace id: 32 hex digits>-<span id: 16 hex digits>-<flags: 2 hex \
     digits>` in lower case"
)]
pub struct BadTraceparent {
    text: String,
    problem: &'static str,
}

impl TraceParent {
    /// A span of pinfold's own, which is recorded.
    pub fn new(trace_id: [u8; 16], span_id: [u8; 8]) -> Self {
        Self { trace_id, span_id, flags: SAMPLED }
    }

    /// Parses version 00, and of a later version the part that version 00 has, as the standard says.
    pub fn parse(text: &str) -> Result<Self, BadTraceparent> {
        let bad = |problem| BadTraceparent { text: text.chars().take(60).collect(), problem };
        let bytes = text.as_bytes();
        if !text.is_ascii() || bytes.len() < LENGTH || bytes.len() > MAX_LENGTH {
            return Err(bad("it has another length"));
        }
        if [2, 35, 52].iter().any(|at| bytes[*at] != b'-') {
            return Err(bad("its parts are not separated by `-`"));
        }
        let hex = || bad("it has a character that is no hex digit in lower case");
        let [version] = decode(&bytes[..2]).ok_or_else(hex)?;
        let trace_id = decode(&bytes[3..35]).ok_or_else(hex)?;
        let span_id = decode(&bytes[36..52]).ok_or_else(hex)?;
        let [flags] = decode(&bytes[53..LENGTH]).ok_or_else(hex)?;
        match version {
            0xff => return Err(bad("version ff does not exist")),
            0 if bytes.len() != LENGTH => return Err(bad("it has another length")),
            _ if bytes.get(LENGTH).is_some_and(|next| *next != b'-') => {
                return Err(bad("its parts are not separated by `-`"));
            }
            _ => {}
        }
        if trace_id == [0; 16] || span_id == [0; 8] {
            return Err(bad("an id of zeros only does not exist"));
        }
        Ok(Self { trace_id, span_id, flags })
    }

    /// Whether the caller records its spans.
    pub fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }
}

fn decode<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let digit = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

/// Bytes as hex digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl fmt::Display for TraceParent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "00-{}-{}-{:02x}", hex(&self.trace_id), hex(&self.span_id), self.flags)
    }
}

impl From<TraceParent> for String {
    fn from(parent: TraceParent) -> Self {
        parent.to_string()
    }
}

impl TryFrom<String> for TraceParent {
    type Error = BadTraceparent;

    fn try_from(text: String) -> Result<Self, BadTraceparent> {
        Self::parse(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_traceparent_is_taken_apart_and_written_again() {
        let parent = TraceParent::parse(GOOD).expect("valid");
        assert!(parent.is_sampled());
        assert_eq!((hex(&parent.trace_id).as_str(), hex(&parent.span_id).as_str()), (&GOOD[3..35], &GOOD[36..52]));
        assert_eq!(parent.to_string(), GOOD);
        assert!(!TraceParent::parse(&GOOD.replace("-01", "-00")).expect("valid").is_sampled());
        let json = serde_json::to_string(&parent).expect("serialises");
        assert_eq!(serde_json::from_str::<TraceParent>(&json).expect("valid"), parent);
    }

    #[test]
    fn of_a_later_version_the_known_part_is_used() {
        let later = GOOD.replacen("00", "01", 1);
        assert_eq!(TraceParent::parse(&later).expect("valid").to_string(), GOOD);
        assert_eq!(TraceParent::parse(&format!("{later}-more")).expect("valid").to_string(), GOOD);
        assert!(TraceParent::parse(&format!("{later}more")).is_err());
    }

    #[test]
    fn what_the_standard_forbids_is_refused_with_the_form() {
        let zeros = (GOOD.replace(&GOOD[3..35], &"0".repeat(32)), GOOD.replace(&GOOD[36..52], &"0".repeat(16)));
        let long = format!("00{}", "0".repeat(1000));
        for bad in [
            "",
            "00",
            &GOOD.to_uppercase(),
            &GOOD.replace('-', "_"),
            &format!("{GOOD}-more"),
            &GOOD.replacen("00", "ff", 1),
            &GOOD.replace("4bf9", "4bg9"),
            &GOOD.replace("4bf9", "é9"),
            &zeros.0,
            &zeros.1,
            &long,
        ] {
            let error = TraceParent::parse(bad).expect_err(bad).to_string();
            assert!(error.contains("32 hex digits") && error.len() < 400, "{error}");
        }
    }
}
