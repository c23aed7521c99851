//! What the owner of a process is told of it beyond its end, and how often.
//!
//! [`Notify`] is what was asked for. [`Watch`] decides, match by match, which is announced: the first at once, those
//! within the cooldown counted, and an end to it all when there are too many. Time comes in as an input.

use std::net::Ipv6Addr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::output_view::{BadPattern, parse_pattern};
use crate::units::Moment;

/// Patterns of one watch.
pub const PATTERNS_MOST: usize = 8;
/// A heartbeat comes no more often.
pub const HEARTBEAT_LEAST: Duration = Duration::from_secs(1);
/// Announced matches of one watch, unless asked otherwise, and at most.
pub const EVENTS: u32 = 20;
pub const EVENTS_MOST: u32 = 1000;
/// Between two announced matches, unless asked otherwise.
pub const COOLDOWN: Duration = Duration::from_secs(5);
/// So many matches between two announced ones are no news but noise, and end the watch.
pub const NOISE: u64 = 1000;
/// Longest address or command.
const TARGET_MOST: usize = 4096;

/// What the owner is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Notify {
    /// Whether the end is announced.
    pub on_complete: bool,
    /// A line that matches one of these is announced.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub patterns: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exclude: Option<String>,
    pub cooldown: Duration,
    pub max_events: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heartbeat: Option<Duration>,
    /// Where each announcement is posted to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub webhook: Option<String>,
    /// What is run for each announcement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}

impl Default for Notify {
    fn default() -> Self {
        Self {
            on_complete: true,
            patterns: vec![],
            exclude: None,
            cooldown: COOLDOWN,
            max_events: EVENTS,
            heartbeat: None,
            webhook: None,
            command: None,
        }
    }
}

/// Why a `notify` is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadNotify {
    #[error("notify.patterns has {count} entries: give at most {PATTERNS_MOST}, or join them with `|`")]
    TooManyPatterns { count: usize },
    #[error("notify: {0}")]
    Pattern(#[from] BadPattern),
    #[error("notify.max_events {given}: give 1 to {EVENTS_MOST}")]
    MaxEvents { given: u32 },
    #[error("notify.heartbeat is too short: give at least 1s")]
    Heartbeat,
    #[error("notify.webhook `{start}`: give an address such as https://example.org/hook, without user and password")]
    Webhook { start: String },
    #[error("notify.{field} is empty, too long or holds a NUL byte: give at most {TARGET_MOST} bytes")]
    Target { field: &'static str },
}

impl Notify {
    /// Whether all of it can be done.
    pub fn check(&self) -> Result<(), BadNotify> {
        if self.patterns.len() > PATTERNS_MOST {
            return Err(BadNotify::TooManyPatterns { count: self.patterns.len() });
        }
        for pattern in self.patterns.iter().chain(&self.exclude) {
            parse_pattern(pattern)?;
        }
        if !(1..=EVENTS_MOST).contains(&self.max_events) {
            return Err(BadNotify::MaxEvents { given: self.max_events });
        }
        if self.heartbeat.is_some_and(|every| every < HEARTBEAT_LEAST) {
            return Err(BadNotify::Heartbeat);
        }
        for (field, target) in [("webhook", &self.webhook), ("command", &self.command)] {
            let fits =
                |target: &String| !target.trim().is_empty() && target.len() <= TARGET_MOST && !target.contains('\0');
            if !target.as_ref().is_none_or(fits) {
                return Err(BadNotify::Target { field });
            }
        }
        match &self.webhook {
            Some(webhook) if host_of(webhook).is_none() => {
                Err(BadNotify::Webhook { start: webhook.chars().take(20).collect() })
            }
            _ => Ok(()),
        }
    }

    /// Whether something beyond the log is told of its events.
    pub fn has_targets(&self) -> bool {
        self.webhook.is_some() || self.command.is_some()
    }
}

/// Scheme and host of a webhook's address: what may be shown of it. `None` if it is no address to post to.
pub fn host_of(address: &str) -> Option<String> {
    let (scheme, rest) =
        ["https://", "http://"].iter().find_map(|scheme| Some((scheme, address.strip_prefix(scheme)?)))?;
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    // What may stand in an address as it is; the rest is to be written as %XX.
    let written = |c: char| c.is_ascii_graphic() && !"\"<>\\^`{|}".contains(c);
    (is_host(host) && address.chars().all(written)).then(|| format!("{scheme}{host}"))
}

/// A name or an address, an IPv6 one in brackets, and a port if there is one.
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

/// The watch over one process's output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watch {
    cooldown: Duration,
    left: u32,
    last: Option<Moment>,
    suppressed: u64,
}

/// What is done about a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Announce it, with the count of those that were not.
    Announce { suppressed: u64 },
    /// Count it.
    Suppress,
    /// Announce it, and end the watch.
    AnnounceLast { suppressed: u64 },
    /// End the watch: too much noise.
    TooNoisy { suppressed: u64 },
}

impl Watch {
    /// A watch that has announced nothing, or so many matches before.
    pub fn new(notify: &Notify, announced: u32) -> Self {
        let left = notify.max_events.saturating_sub(announced);
        Self { cooldown: notify.cooldown, left, last: None, suppressed: 0 }
    }

    /// Whether nothing more will be announced.
    pub fn is_over(&self) -> bool {
        self.left == 0
    }

    /// Matches that were counted since the last one announced.
    pub fn suppressed(&self) -> u64 {
        self.suppressed
    }

    /// A line matched.
    pub fn matched(&mut self, now: Moment) -> Verdict {
        let early = self.last.is_some_and(|last| now.since(last) < self.cooldown);
        if early {
            self.suppressed += 1;
            if self.suppressed < NOISE {
                return Verdict::Suppress;
            }
            self.left = 0;
            return Verdict::TooNoisy { suppressed: self.suppressed };
        }
        let suppressed = std::mem::take(&mut self.suppressed);
        self.last = Some(now);
        self.left = self.left.saturating_sub(1);
        match self.left {
            0 => Verdict::AnnounceLast { suppressed },
            _ => Verdict::Announce { suppressed },
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
        let mut watch = Watch::new(&Notify::default(), 0);
        assert_eq!(watch.matched(at(0)), Verdict::Announce { suppressed: 0 });
        assert_eq!(watch.matched(at(1)), Verdict::Suppress);
        assert_eq!(watch.matched(at(4)), Verdict::Suppress);
        assert_eq!(watch.matched(at(5)), Verdict::Announce { suppressed: 2 });
        assert_eq!(watch.matched(at(11)), Verdict::Announce { suppressed: 0 });
    }

    #[test]
    fn the_last_one_allowed_ends_the_watch() {
        let notify = Notify { max_events: 2, cooldown: Duration::ZERO, ..Notify::default() };
        let mut watch = Watch::new(&notify, 0);
        assert_eq!(watch.matched(at(0)), Verdict::Announce { suppressed: 0 });
        assert_eq!(watch.matched(at(0)), Verdict::AnnounceLast { suppressed: 0 });
        assert!(watch.is_over());
        assert!(Watch::new(&notify, 2).is_over());
    }

    #[test]
    fn noise_ends_the_watch_with_its_count() {
        let mut watch = Watch::new(&Notify::default(), 0);
        watch.matched(at(0));
        let last = (0..NOISE).map(|_| watch.matched(at(1))).last();
        assert_eq!(last, Some(Verdict::TooNoisy { suppressed: NOISE }));
        assert!(watch.is_over());
    }

    #[test]
    fn what_cannot_be_done_is_refused_by_name() {
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
    fn what_cannot_be_posted_to_is_no_address() {
        for host in
            ["", "[x", "[x]", "[::1", "[::1]80", "x]", "a:b:80", "x:", "x:+80", "x:0", "x:65536", "[::1]:x", "u@x"]
        {
            assert_eq!(host_of(&format!("http://{host}/")), None, "{host}");
        }
    }

    #[test]
    fn of_an_address_only_scheme_and_host_are_shown() {
        assert_eq!(host_of("https://hooks.example.org/T0/s3cret?x=1").as_deref(), Some("https://hooks.example.org"));
        assert_eq!(host_of("http://127.0.0.1:8080/").as_deref(), Some("http://127.0.0.1:8080"));
        assert_eq!(host_of("http://[::1]:80").as_deref(), Some("http://[::1]:80"));
    }
}
