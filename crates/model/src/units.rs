//! Durations (`30s`, `1h30m`), sizes (`64k`) and timestamps: parsing and arithmetic.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A timestamp: microseconds since 1970 in UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Moment(pub u64);

impl Moment {
    /// The time since an earlier timestamp; zero if the clock was set back.
    pub fn since(self, earlier: Moment) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }

    /// The timestamp this much later.
    pub fn after(self, time: Duration) -> Moment {
        Moment(self.0.saturating_add(u64::try_from(time.as_micros()).unwrap_or(u64::MAX)))
    }
}

/// Why a text is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a duration: write seconds (30, 1.5) or units (500ms, 30s, 5m, 1h30m, 2d)")]
pub struct BadDuration(String);

/// Why a text is not a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a size: write bytes (65536) or units (64k, 64KiB, 8M, 1G)")]
pub struct BadSize(String);

/// The longest duration: about 31 years, so that sums cannot overflow.
const MAX_SECONDS: f64 = 1e9;

/// Parses `30`, `1.5`, `500ms`, `30s`, `5m`, `1h30m`, `2d`; negative values are refused.
pub fn parse_duration(text: &str) -> Result<Duration, BadDuration> {
    let bad = || BadDuration(text.chars().take(40).collect());
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(bad());
    }
    let mut seconds = 0.0;
    let mut first = true;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, tail) = rest.split_at(digits);
        let number: f64 = number.parse().map_err(|_| bad())?;
        let letters = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(letters);
        let scale = match unit.trim() {
            "" if first && tail.is_empty() => 1.0,
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" | "sec" | "secs" => 1.0,
            "m" | "min" | "mins" => 60.0,
            "h" | "hr" | "hrs" => 3600.0,
            "d" => 86_400.0,
            _ => return Err(bad()),
        };
        seconds += number * scale;
        first = false;
        rest = tail;
    }
    if seconds.is_finite() && seconds <= MAX_SECONDS { Ok(Duration::from_secs_f64(seconds)) } else { Err(bad()) }
}

/// Parses `65536`, `64k`, `64KiB`, `8MB`, `1G`; units are powers of 1024.
pub fn parse_size(text: &str) -> Result<u64, BadSize> {
    let bad = || BadSize(text.chars().take(40).collect());
    let lower = text.trim().to_ascii_lowercase();
    let digits = lower.find(|c: char| !c.is_ascii_digit()).unwrap_or(lower.len());
    let (number, unit) = lower.split_at(digits);
    let shift = match unit.trim() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(bad()),
    };
    let number: u64 = number.parse().map_err(|_| bad())?;
    number.checked_mul(1 << shift).ok_or_else(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed_in_every_usual_form() {
        let cases = [
            ("0", 0),
            ("30", 30_000),
            ("1.5", 1_500),
            ("250ms", 250),
            ("30s", 30_000),
            ("5m", 300_000),
            ("1h30m", 5_400_000),
            ("2d", 172_800_000),
            (" 7 s", 7_000),
        ];
        for (text, millis) in cases {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn invalid_durations_are_refused_with_an_example() {
        for text in ["", "-1", "-5s", "abc", "5x", "1h30", "s", "1..5s", "NaN", "inf", "1e99", "99999999999999"] {
            let refusal = parse_duration(text).expect_err(text).to_string();
            assert!(refusal.contains("30s"), "{refusal}");
        }
    }

    #[test]
    fn sizes_are_powers_of_1024_and_overflow_is_refused() {
        assert_eq!(parse_size("64k"), Ok(65_536));
        assert_eq!(parse_size("64 KiB"), Ok(65_536));
        assert_eq!(parse_size("1G"), Ok(1 << 30));
        for text in ["", "k", "-1", "1.5M", "99999999999T", "5 apples"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }
}
