//! Notifications about a process: settings, validation (which webhook URLs and patterns are accepted), and rate limiting of
//! pattern matches.
//!
//! [`Notify`] holds the settings. [`PatternWatch`] decides for each match: the first is announced, those within the
//! cooldown are counted, and too many end the watch. Time comes in as a value.

use std::net::Ipv6Addr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::output_view::{BadPattern, parse_pattern};
use crate::units::Moment;

/// The most patterns of one watch.
pub const MAX_PATTERNS: usize = 8;
/// The shortest heartbeat interval.
pub const MIN_HEARTBEAT: Duration = Duration::from_secs(1);
/// How many matches of one watch are announced: the default and the maximum.
pub const DEFAULT_MAX_EVENTS: u32 = 20;
pub const MAX_EVENTS: u32 = 1000;
/// The default time between two announced matches.
pub const DEFAULT_COOLDOWN: Duration = Duration::from_secs(5);
/// More matches than this within one cooldown end the watch.
pub const MAX_SUPPRESSED: u64 = 1000;
/// The longest webhook address or command.
const MAX_TARGET: usize = 4096;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Notify {
    /// Whether the end of the process is announced.
    pub on_complete: bool,
    /// Lines that match one of these are announced.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub patterns: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exclude: Option<String>,
    pub cooldown: Duration,
    pub max_events: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heartbeat: Option<Duration>,
    /// Where announcements are posted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub webhook: Option<String>,
    /// The command to run for each announcement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}

impl Default for Notify {
    fn default() -> Self {
        Self {
            on_complete: true,
            patterns: vec![],
            exclude: None,
            cooldown: DEFAULT_COOLDOWN,
            max_events: DEFAULT_MAX_EVENTS,
            heartbeat: None,
            webhook: None,
            command: None,
        }
    }
}

/// Why `notify` settings are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadNotify {
    #[error("notify.patterns has {count} entries: give at most {MAX_PATTERNS}, or join them with `|`")]
    TooManyPatterns { count: usize },
    #[error("notify: {0}")]
    Pattern(#[from] BadPattern),
    #[error("notify.max_events {given}: give 1 to {MAX_EVENTS}")]
    MaxEvents { given: u32 },
    #[error("notify.heartbeat is too short: give at least 1s")]
    Heartbeat,
    #[error("notify.webhook `{start}`: give an address such as https://example.org/hook, without user and password")]
    Webhook { start: String },
    #[error("notify.{field} is empty, too long or holds a NUL byte: give at most {MAX_TARGET} bytes")]
    Target { field: &'static str },
}

impl Notify {
    /// Validates the settings.
    pub fn check(&self) -> Result<(), BadNotify> {
        if self.patterns.len() > MAX_PATTERNS {
            return Err(BadNotify::TooManyPatterns { count: self.patterns.len() });
        }
        for pattern in self.patterns.iter().chain(&self.exclude) {
            parse_pattern(pattern)?;
        }
        if !(1..=MAX_EVENTS).contains(&self.max_events) {
            return Err(BadNotify::MaxEvents { given: self.max_events });
        }
        if self.heartbeat.is_some_and(|every| every < MIN_HEARTBEAT) {
            return Err(BadNotify::Heartbeat);
        }
        for (field, target) in [("webhook", &self.webhook), ("command", &self.command)] {
            let fits =
                |target: &String| !target.trim().is_empty() && target.len() <= MAX_TARGET && !target.contains('\0');
            if !target.as_ref().is_none_or(fits) {
                return Err(BadNotify::Target { field });
            }
        }
        match &self.webhook {
            Some(webhook) if webhook_host(webhook).is_none() => {
                Err(BadNotify::Webhook { start: webhook.chars().take(20).collect() })
            }
            _ => Ok(()),
        }
    }

    /// Whether a webhook or a command is set.
    pub fn has_targets(&self) -> bool {
        self.webhook.is_some() || self.command.is_some()
    }
}

/// Scheme and host of a webhook address, the part that may be shown; `None` if the address is not valid.
pub fn webhook_host(address: &str) -> Option<String> {
    let (scheme, rest) =
        ["https://", "http://"].iter().find_map(|scheme| Some((scheme, address.strip_prefix(scheme)?)))?;
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    // Characters allowed in an address unescaped.
    let written = |c: char| c.is_ascii_graphic() && !"\"<>\\^`{|}".contains(c);
    (is_host(host) && address.chars().all(written)).then(|| format!("{scheme}{host}"))
}

/// A host name, an IPv4 address or an IPv6 address in brackets, with an optional port.
fn is_host(host: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
    let (fits, port) = match host.strip_prefix('[').map(|rest| rest.split_once(']')) {
        Some(Some((address, port))) => (address.parse::<Ipv6Addr>().is_ok(), port),
        Some(None) => return false,
        None => {
            let (name, port) = host.split_at(host.find(':').unwrap_or(host.len()));
            (!name.is_empty() && name.chars().all(plain), port)
        }
    };
    let digits = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    let is_port = |port: &str| digits(port) && port.parse::<u16>().is_ok_and(|port| port > 0);
    fits && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port))
}

/// Rate limiter for the matches of one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatternWatch {
    cooldown: Duration,
    remaining: u32,
    last: Option<Moment>,
    suppressed: u64,
}

/// What to do about a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatchDecision {
    /// Announce it, with the number of matches suppressed before it.
    Announce { suppressed: u64 },
    /// Count it only.
    Suppress,
    /// Announce it and end the watch.
    AnnounceLast { suppressed: u64 },
    /// End the watch: too many matches.
    TooNoisy { suppressed: u64 },
}

impl PatternWatch {
    /// `announced`: matches announced before, by an earlier daemon.
    pub fn new(notify: &Notify, announced: u32) -> Self {
        let remaining = notify.max_events.saturating_sub(announced);
        Self { cooldown: notify.cooldown, remaining, last: None, suppressed: 0 }
    }

    /// Whether the watch has ended.
    pub fn is_over(&self) -> bool {
        self.remaining == 0
    }

    /// Matches suppressed since the last announced one.
    pub fn suppressed(&self) -> u64 {
        self.suppressed
    }

    pub fn matched(&mut self, now: Moment) -> MatchDecision {
        let early = self.last.is_some_and(|last| now.since(last) < self.cooldown);
        if early {
            self.suppressed += 1;
            if self.suppressed < MAX_SUPPRESSED {
                return MatchDecision::Suppress;
            }
            self.remaining = 0;
            return MatchDecision::TooNoisy { suppressed: self.suppressed };
        }
        let suppressed = std::mem::take(&mut self.suppressed);
        self.last = Some(now);
        self.remaining = self.remaining.saturating_sub(1);
        match self.remaining {
            0 => MatchDecision::AnnounceLast { suppressed },
            _ => MatchDecision::Announce { suppressed },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment(seconds * 1_000_000)
    }

    #[test]
    fn the_first_match_is_announced_and_those_within_the_cooldown_are_counted() {
        let mut watch = PatternWatch::new(&Notify::default(), 0);
        assert_eq!(watch.matched(at(0)), MatchDecision::Announce { suppressed: 0 });
        assert_eq!(watch.matched(at(1)), MatchDecision::Suppress);
        assert_eq!(watch.matched(at(4)), MatchDecision::Suppress);
        assert_eq!(watch.matched(at(5)), MatchDecision::Announce { suppressed: 2 });
        assert_eq!(watch.matched(at(11)), MatchDecision::Announce { suppressed: 0 });
    }

    #[test]
    fn the_last_allowed_announcement_ends_the_watch() {
        let notify = Notify { max_events: 2, cooldown: Duration::ZERO, ..Notify::default() };
        let mut watch = PatternWatch::new(&notify, 0);
        assert_eq!(watch.matched(at(0)), MatchDecision::Announce { suppressed: 0 });
        assert_eq!(watch.matched(at(0)), MatchDecision::AnnounceLast { suppressed: 0 });
        assert!(watch.is_over());
        assert!(PatternWatch::new(&notify, 2).is_over());
    }

    #[test]
    fn too_many_matches_end_the_watch_with_their_count() {
        let mut watch = PatternWatch::new(&Notify::default(), 0);
        watch.matched(at(0));
        let last = (0..MAX_SUPPRESSED).map(|_| watch.matched(at(1))).last();
        assert_eq!(last, Some(MatchDecision::TooNoisy { suppressed: MAX_SUPPRESSED }));
        assert!(watch.is_over());
    }

    #[test]
    fn invalid_settings_are_refused_by_name() {
        let refuse = |notify: Notify| notify.check().expect_err("refused").to_string();
        assert!(refuse(Notify { patterns: vec!["(".into()], ..Notify::default() }).contains("notify"));
        assert!(refuse(Notify { patterns: vec!["a".into(); 9], ..Notify::default() }).contains("at most 8"));
        assert!(refuse(Notify { max_events: 0, ..Notify::default() }).contains("max_events"));
        assert!(refuse(Notify { heartbeat: Some(Duration::ZERO), ..Notify::default() }).contains("1s"));
        assert!(refuse(Notify { command: Some(" ".into()), ..Notify::default() }).contains("command"));
        for webhook in [
            "ftp://x/",
            "file:///etc/passwd",
            "https://",
            "http://u:p@x/",
            "http://x y/",
            "x",
            "http://x:0/",
            "http://x:70000/",
            "http://x/ä",
        ] {
            assert!(
                refuse(Notify { webhook: Some(webhook.into()), ..Notify::default() }).contains("https://"),
                "{webhook}"
            );
        }
    }

    #[test]
    fn an_invalid_host_is_refused() {
        for host in
            ["", "[x", "[x]", "[::1", "[::1]80", "x]", "a:b:80", "x:", "x:+80", "x:0", "x:65536", "[::1]:x", "u@x"]
        {
            assert_eq!(webhook_host(&format!("http://{host}/")), None, "{host}");
        }
    }

    #[test]
    fn only_scheme_and_host_of_an_address_are_shown() {
        assert_eq!(
            webhook_host("https://hooks.example.org/T0/s3cret?x=1").as_deref(),
            Some("https://hooks.example.org")
        );
        assert_eq!(webhook_host("http://127.0.0.1:8080/").as_deref(), Some("http://127.0.0.1:8080"));
        assert_eq!(webhook_host("http://[::1]:80").as_deref(), Some("http://[::1]:80"));
    }
}
