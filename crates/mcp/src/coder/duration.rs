//! Parses and formats durations as Go does: `"30s"`, `"1h30m"`, `"-5s"`; a bare number is an error.

use std::time::Duration;

/// A duration that may be negative.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Span(f64);

impl Span {
    /// Converts to a duration; a negative one becomes zero.
    pub(super) fn to_duration(self) -> Duration {
        Duration::try_from_secs_f64(self.0).unwrap_or(if self.0 > 0.0 { Duration::MAX } else { Duration::ZERO })
    }
}

/// Parses a duration; errors use Go's wording.
pub(super) fn parse(text: &str) -> Result<Span, String> {
    let invalid = || format!("time: invalid duration {text:?}");
    let (sign, mut rest) = match text.as_bytes().first() {
        Some(b'-') => (-1.0, &text[1..]),
        Some(b'+') => (1.0, &text[1..]),
        _ => (1.0, text),
    };
    if rest == "0" {
        return Ok(Span(0.0));
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, tail) = rest.split_at(digits);
        let number: f64 = number.parse().map_err(|_| invalid())?;
        let letters = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(letters);
        let scale = match unit {
            "" => return Err(format!("time: missing unit in duration {text:?}")),
            "ns" => 1e-9,
            "us" | "µs" | "μs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            other => return Err(format!("time: unknown unit {other:?} in duration {text:?}")),
        };
        seconds += number * scale;
        rest = tail;
    }
    // Go's maximum is 2^63 nanoseconds.
    if seconds > 9_223_372_036.0 { Err(invalid()) } else { Ok(Span(sign * seconds)) }
}

/// Formats a duration: `10s`, `1m30s`, `1h0m0s`, `50ms`, `1.5s`.
pub(super) fn render(duration: Duration) -> String {
    let (seconds, nanos) = (duration.as_secs(), duration.subsec_nanos());
    if seconds == 0 {
        let (scale, unit) = match nanos {
            0 => return "0s".to_owned(),
            1..1_000 => (1.0, "ns"),
            1_000..1_000_000 => (1e3, "µs"),
            _ => (1e6, "ms"),
        };
        return format!("{}{unit}", f64::from(nanos) / scale);
    }
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    let rest = format!("{}s", (seconds % 60) as f64 + f64::from(nanos) / 1e9);
    match (hours, minutes) {
        (0, 0) => rest,
        (0, minutes) => format!("{minutes}m{rest}"),
        (hours, minutes) => format!("{hours}h{minutes}m{rest}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed_as_in_go() {
        for (text, millis) in [("30s", 30_000), ("1h30m", 5_400_000), ("0s", 0), ("0", 0), ("-5s", 0), ("1.5s", 1_500)]
        {
            assert_eq!(parse(text).map(Span::to_duration), Ok(Duration::from_millis(millis)), "{text}");
        }
        for (text, error) in [
            ("30", "time: missing unit in duration \"30\""),
            ("soon", "time: invalid duration \"soon\""),
            ("", "time: invalid duration \"\""),
            ("-", "time: invalid duration \"-\""),
            ("5x", "time: unknown unit \"x\" in duration \"5x\""),
            ("9999999h", "time: invalid duration \"9999999h\""),
        ] {
            assert_eq!(parse(text), Err(error.to_owned()), "{text}");
        }
    }

    #[test]
    fn durations_are_formatted_as_in_go() {
        for (millis, text) in
            [(0, "0s"), (50, "50ms"), (10_000, "10s"), (1_500, "1.5s"), (90_000, "1m30s"), (3_600_000, "1h0m0s")]
        {
            assert_eq!(render(Duration::from_millis(millis)), text);
        }
        assert_eq!(render(Duration::from_micros(1_500)), "1.5ms");
    }
}
