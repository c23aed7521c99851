//! Moments: now, and as text.

use std::time::SystemTime;

use pinfold_model::units::Moment;

/// This moment.
pub(crate) fn now() -> Moment {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Moment(since.as_micros() as u64)
}

/// RFC 3339, in UTC, to the microsecond.
pub(crate) fn rfc3339(moment: Moment) -> String {
    let micros = i64::try_from(moment.0).unwrap_or(i64::MAX);
    jiff::Timestamp::from_microsecond(micros).map(|time| format!("{time:.6}")).unwrap_or_default()
}
