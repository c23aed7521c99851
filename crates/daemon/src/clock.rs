//! The wall clock, and timestamps as text.

use std::time::SystemTime;

use pinfold_model::units::{Moment, parse_duration};

use crate::request_error::RequestError;

/// The current wall-clock time.
pub(crate) fn now() -> Moment {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Moment(since.as_micros() as u64)
}

/// RFC 3339, in UTC, to the microsecond.
pub(crate) fn rfc3339(moment: Moment) -> String {
    let micros = i64::try_from(moment.0).unwrap_or(i64::MAX);
    jiff::Timestamp::from_microsecond(micros).map(|time| format!("{time:.6}")).unwrap_or_default()
}

/// A moment in a query: RFC 3339, or a duration for that long ago.
pub(crate) fn parse_moment(field: &str, text: &str) -> Result<Moment, RequestError> {
    if let Ok(ago) = parse_duration(text) {
        return Ok(Moment(now().0.saturating_sub(u64::try_from(ago.as_micros()).unwrap_or(u64::MAX))));
    }
    let bad = || {
        RequestError::invalid(format!(
            "{field} `{}`: write a time such as 2026-01-31T12:00:00Z, or a duration such as 10m for that long ago",
            text.chars().take(60).collect::<String>()
        ))
    };
    let time: jiff::Timestamp = text.trim().parse().map_err(|_| bad())?;
    u64::try_from(time.as_microsecond()).map(Moment).map_err(|_| bad())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_a_time_or_a_duration_ago() {
        let parsed = |text: &str| parse_moment("created_after", text);
        assert_eq!(parsed("1970-01-01T00:00:01.5Z"), Ok(Moment(1_500_000)));
        assert_eq!(parsed("1970-01-01T02:00:00+02:00"), Ok(Moment(0)));
        assert_eq!(parsed(&rfc3339(Moment(1_234_567_890))), Ok(Moment(1_234_567_890)));
        let ago = now().since(parsed("10m").expect("a moment"));
        assert!((599..601).contains(&ago.as_secs()), "{ago:?}");
        for bad in ["", "yesterday", "2026-13-01T00:00:00Z", "1960-01-01T00:00:00Z"] {
            let message = parsed(bad).expect_err(bad).0.message;
            assert!(message.starts_with(&format!("created_after `{bad}`: write a time")), "{message}");
        }
    }
}
