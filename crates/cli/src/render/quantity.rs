//! Prints durations, sizes and times for people.

use std::time::Duration;

use jiff::Timestamp;

/// `412ms`, `3.2s`, `4m12s`, `1h05m`, `3d04h`.
pub(crate) fn render_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 => format!("{}ms", duration.as_millis()),
        1..60 => {
            let tenths = duration.subsec_millis() / 100;
            if tenths == 0 { format!("{seconds}s") } else { format!("{seconds}.{tenths}s") }
        }
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// `0 B`, `812 B`, `3.0 KiB`, `64 MiB`.
pub(crate) fn render_size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut amount = bytes as f64 / 1024.0;
    let mut unit = 0;
    // From 1023.5 on, it would be rounded to 1024.
    while amount >= 1023.5 && unit + 1 < UNITS.len() {
        amount /= 1024.0;
        unit += 1;
    }
    let unit = UNITS[unit];
    if amount < 9.95 { format!("{amount:.1} {unit}") } else { format!("{amount:.0} {unit}") }
}

/// The time between two RFC 3339 times; `None` if one cannot be parsed, zero if the clock was set back.
pub(crate) fn between(earlier: &str, later: &str) -> Option<Duration> {
    since(earlier, later.parse().ok()?)
}

/// The time from an RFC 3339 time until now.
pub(crate) fn since(earlier: &str, now: Timestamp) -> Option<Duration> {
    let earlier: Timestamp = earlier.parse().ok()?;
    Some(Duration::try_from(now.duration_since(earlier)).unwrap_or(Duration::ZERO))
}

/// `1 process`, `2 processes`.
pub(crate) fn render_count(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_short_at_every_scale() {
        let cases = [
            (0, "0ms"),
            (412, "412ms"),
            (1_000, "1s"),
            (3_250, "3.2s"),
            (59_999, "59.9s"),
            (252_000, "4m12s"),
            (3_900_000, "1h05m"),
            (273_600_000, "3d04h"),
        ];
        for (millis, text) in cases {
            assert_eq!(render_duration(Duration::from_millis(millis)), text);
        }
    }

    #[test]
    fn sizes_are_powers_of_1024() {
        let cases = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (3120, "3.0 KiB"),
            (10_240, "10 KiB"),
            (64 << 20, "64 MiB"),
            ((1 << 20) - 1, "1.0 MiB"),
            (5 << 40, "5.0 TiB"),
        ];
        for (bytes, text) in cases {
            assert_eq!(render_size(bytes), text);
        }
    }

    #[test]
    fn a_clock_set_back_gives_zero_and_invalid_text_none() {
        assert_eq!(between("2026-01-01T00:00:00Z", "2026-01-01T00:00:02.5Z"), Some(Duration::from_millis(2500)));
        assert_eq!(between("2026-01-01T00:00:09Z", "2026-01-01T00:00:00Z"), Some(Duration::ZERO));
        assert_eq!(between("soon", "2026-01-01T00:00:00Z"), None);
    }
}
