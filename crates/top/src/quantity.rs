//! Prints durations, sizes and times in few columns.

use std::time::Duration;

use jiff::Timestamp;

/// `0s`, `59s`, `4m12s`, `1h05m`, `3d04h`: at most six columns below a thousand days.
pub(crate) fn render_age(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// `812B`, `3.0K`, `64M`, `1.2G`.
pub(crate) fn render_bytes(bytes: u64) -> String {
    const UNITS: [char; 4] = ['K', 'M', 'G', 'T'];
    if bytes < 1024 {
        return format!("{bytes}B");
    }
    let mut amount = bytes as f64 / 1024.0;
    let mut unit = 0;
    // 1023.95 would be shown as 1024.
    while amount >= 1023.5 && unit + 1 < UNITS.len() {
        amount /= 1024.0;
        unit += 1;
    }
    let unit = UNITS[unit];
    if amount < 9.95 { format!("{amount:.1}{unit}") } else { format!("{amount:.0}{unit}") }
}

/// The time since an RFC 3339 time; zero if the clock was set back.
pub(crate) fn since(earlier: &str, now: Timestamp) -> Option<Duration> {
    let earlier: Timestamp = earlier.parse().ok()?;
    Some(elapsed(earlier, now))
}

/// The time between two points; zero if the clock was set back.
pub(crate) fn elapsed(earlier: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(earlier)).unwrap_or(Duration::ZERO)
}

/// `12:03:04`, in UTC.
pub(crate) fn render_clock(time: Timestamp) -> String {
    let seconds = time.as_second().rem_euclid(86_400);
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// The same of an RFC 3339 time; empty if it is unreadable.
pub(crate) fn clock_of(time: &str) -> String {
    time.parse().map(render_clock).unwrap_or_default()
}

/// `1 process`, `2 processes`.
pub(crate) fn render_count(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// Bars for values, each as a part of the largest.
pub(crate) fn sparkline(values: impl IntoIterator<Item = u64>, largest: u64) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let largest = largest.max(1);
    values.into_iter().map(|value| BARS[(value.min(largest) * 7).div_ceil(largest) as usize]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_short_at_every_scale() {
        let ages = [(0, "0s"), (59, "59s"), (252, "4m12s"), (3900, "1h05m"), (273_600, "3d04h")];
        for (seconds, text) in ages {
            assert_eq!(render_age(Duration::from_secs(seconds)), text);
        }
        let sizes = [(0, "0B"), (1023, "1023B"), (3072, "3.0K"), (64 << 20, "64M"), (5 << 40, "5.0T")];
        for (bytes, text) in sizes {
            assert_eq!(render_bytes(bytes), text);
        }
    }

    #[test]
    fn a_clock_set_back_gives_no_negative_age() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
        assert_eq!(since("2026-01-01T00:00:09Z", now), Some(Duration::ZERO));
        assert_eq!(since("nonsense", now), None);
        assert_eq!((render_clock(now), clock_of("2026-01-01T23:59:58.9Z")), ("00:00:00".into(), "23:59:58".into()));
    }

    #[test]
    fn bars_are_relative_to_the_largest_and_never_out_of_range() {
        assert_eq!(sparkline([0, 1, 50, 100, 900], 100), "▁▂▅██");
        assert_eq!(sparkline([0, u64::MAX / 8], 0), "▁█");
    }
}
