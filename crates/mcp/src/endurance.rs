//! How long a call may take: what is known of when each client gives up on one.
//!
//! A call that would take longer is answered before that, with the id and the output so far. The facts are from the shipped
//! programs, and `tests/clients` asks the programs themselves. A server cannot see a timeout in a client's
//! configuration: whoever sets one says it here, too (`--longest-call`, or `longest_call` in the configuration).

use std::time::Duration;

/// No call takes longer, whatever the client bears.
const LONGEST: Duration = Duration::from_secs(12 * 3600);
/// A call is answered this much before its client gives up: a fifth of the time, and no more than this.
const MAX_MARGIN: Duration = Duration::from_secs(60);

/// When a client gives up on a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Endurance {
    /// How its name begins, as it gives it in `initialize`.
    name: &'static str,
    /// After this long.
    gives_up_after: Duration,
    /// Whether that counts from the last progress, and not from the beginning.
    progress_extends: bool,
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// The clients that are known, in the versions of docs/clients.md.
const KNOWN: &[Endurance] = &[
    // `tool_timeout_sec` of the server's entry.
    Endurance { name: "codex", gives_up_after: seconds(300), progress_extends: false },
    // CLAUDE_CODE_MCP_TOOL_IDLE_TIMEOUT for a server on stdio; over HTTP 300 s, which progress extends as well. Beside that
    // MCP_TOOL_TIMEOUT or `timeout` of the entry for the whole call, 27 hours without.
    Endurance { name: "claude-code", gives_up_after: seconds(300), progress_extends: true },
    // `timeout` of the server's entry. It sends a token for progress, and shows it, but does not wait longer for it.
    Endurance { name: "gemini-cli", gives_up_after: seconds(600), progress_extends: false },
    // `timeout` of the server's entry, else `experimental.mcp_timeout`, else that of the SDK.
    Endurance { name: "opencode", gives_up_after: seconds(60), progress_extends: true },
];

/// Any other: the default of the TypeScript SDK, which progress extends only if the client asks for that.
const UNKNOWN: Endurance = Endurance { name: "", gives_up_after: seconds(60), progress_extends: false };

/// What is known of one call and its client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Patience<'a> {
    /// The client's name.
    pub(crate) client: &'a str,
    /// Whether it wants to hear of progress.
    pub(crate) progress: bool,
    /// What was configured, which is taken as it is.
    pub(crate) configured: Option<Duration>,
    /// The client's own limit for the whole call, where the server can see it.
    pub(crate) told: Option<Duration>,
}

impl Patience<'_> {
    /// How long the call may take.
    pub(crate) fn longest(self) -> Duration {
        if let Some(configured) = self.configured {
            return configured.min(LONGEST);
        }
        let client = self.client.to_lowercase();
        let known = KNOWN.iter().find(|known| client.starts_with(known.name)).unwrap_or(&UNKNOWN);
        let own = match known.progress_extends && self.progress {
            true => LONGEST,
            false => before(known.gives_up_after),
        };
        own.min(self.told.map_or(LONGEST, before))
    }
}

/// A while before this.
fn before(limit: Duration) -> Duration {
    limit - (limit / 5).min(MAX_MARGIN)
}

/// The limit of Claude Code for a whole call, if the environment of a server that it started says it.
pub(crate) fn told_by_environment(client: &str) -> Option<Duration> {
    let is_claude = client.to_lowercase().starts_with("claude-code");
    let milliseconds = std::env::var("MCP_TOOL_TIMEOUT").ok().filter(|_| is_claude)?.trim().parse().ok()?;
    // It takes less than a second for a second.
    Some(Duration::from_millis(milliseconds).max(Duration::from_secs(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn longest(client: &str, progress: bool) -> u64 {
        Patience { client, progress, ..Patience::default() }.longest().as_secs()
    }

    #[test]
    fn a_call_is_over_before_its_client_gives_up() {
        for (client, without_progress, with_progress) in [
            ("codex-mcp-client", 240, 240),
            ("claude-code", 240, 12 * 3600),
            ("gemini-cli-mcp-client", 540, 540),
            ("opencode", 48, 12 * 3600),
            ("some-other", 48, 48),
            ("", 48, 48),
        ] {
            assert_eq!(longest(client, false), without_progress, "{client}");
            assert_eq!(longest(client, true), with_progress, "{client}");
        }
    }

    #[test]
    fn what_is_configured_wins_and_what_the_client_says_shortens() {
        let ten = Some(Duration::from_secs(10));
        let claude = Patience { client: "claude-code", progress: true, ..Patience::default() };
        assert_eq!(Patience { told: ten, ..claude }.longest(), Duration::from_secs(8));
        let configured = Some(Duration::from_secs(900));
        for client in ["codex-mcp-client", "gemini-cli-mcp-client", "some-other"] {
            for progress in [true, false] {
                let patience = Patience { client, progress, configured, told: None };
                assert_eq!(patience.longest(), Duration::from_secs(900), "{client}");
            }
        }
        let configured = Some(Duration::from_secs(30 * 3600));
        assert_eq!(Patience { configured, ..claude }.longest(), LONGEST);
    }
}
