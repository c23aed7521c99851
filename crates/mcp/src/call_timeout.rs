//! Limits how long a call may take, from the known timeout of each client.
//!
//! A longer call returns before its client's timeout, with the process id and the output so far. The timeouts are those
//! of the released clients; `tests/clients` checks them against the real programs. A server cannot see a timeout in the
//! client's configuration: if you change it there, set it here too (`--longest-call`, or `longest_call` in the
//! configuration).

use std::time::Duration;

/// Maximum duration of any call.
const MAX_CALL: Duration = Duration::from_secs(12 * 3600);
/// A call returns this long before the client's timeout: a fifth of the timeout, and at most this.
const MAX_MARGIN: Duration = Duration::from_secs(60);

/// The timeout that a client applies to a tool call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ClientTimeout {
    /// Prefix of the client's name in `initialize`.
    name: &'static str,
    /// The timeout.
    timeout: Duration,
    /// Whether a progress notification restarts the timeout.
    progress_extends: bool,
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Known clients, in the versions listed in docs/clients.md.
const KNOWN_CLIENTS: &[ClientTimeout] = &[
    // Configured as `tool_timeout_sec` of the server's entry.
    ClientTimeout { name: "codex", timeout: seconds(300), progress_extends: false },
    // CLAUDE_CODE_MCP_TOOL_IDLE_TIMEOUT on stdio, 300 s over HTTP; progress extends both. The whole call is limited by
    // MCP_TOOL_TIMEOUT or `timeout` of the server's entry; the default is 27 hours.
    ClientTimeout { name: "claude-code", timeout: seconds(300), progress_extends: true },
    // Configured as `timeout` of the server's entry. It requests progress and shows it, but progress does not extend
    // the timeout.
    ClientTimeout { name: "gemini-cli", timeout: seconds(600), progress_extends: false },
    // `timeout` of the server's entry, else `experimental.mcp_timeout`, else the default of the SDK.
    ClientTimeout { name: "opencode", timeout: seconds(60), progress_extends: true },
];

/// Any other client: the default of the TypeScript SDK, which progress extends only if the client enables that.
const UNKNOWN_CLIENT: ClientTimeout = ClientTimeout { name: "", timeout: seconds(60), progress_extends: false };

/// The limits that apply to one call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CallLimits<'a> {
    /// The client's name.
    pub(crate) client: &'a str,
    /// Whether the client requested progress notifications.
    pub(crate) progress: bool,
    /// The configured limit, which overrides everything else.
    pub(crate) configured: Option<Duration>,
    /// The client's limit for the whole call, if the server can see it.
    pub(crate) client_limit: Option<Duration>,
}

impl CallLimits<'_> {
    /// The maximum duration of the call.
    pub(crate) fn max_duration(self) -> Duration {
        if let Some(configured) = self.configured {
            return configured.min(MAX_CALL);
        }
        let client = self.client.to_lowercase();
        let known = KNOWN_CLIENTS.iter().find(|known| client.starts_with(known.name)).unwrap_or(&UNKNOWN_CLIENT);
        let own = match known.progress_extends && self.progress {
            true => MAX_CALL,
            false => with_margin(known.timeout),
        };
        own.min(self.client_limit.map_or(MAX_CALL, with_margin))
    }
}

/// Subtracts the safety margin from a client's timeout.
fn with_margin(limit: Duration) -> Duration {
    limit - (limit / 5).min(MAX_MARGIN)
}

/// Claude Code's limit for a whole call, from the environment that it passes to its servers.
pub(crate) fn client_limit_from_environment(client: &str) -> Option<Duration> {
    let is_claude = client.to_lowercase().starts_with("claude-code");
    let milliseconds = std::env::var("MCP_TOOL_TIMEOUT").ok().filter(|_| is_claude)?.trim().parse().ok()?;
    // Claude Code raises smaller values to one second.
    Some(Duration::from_millis(milliseconds).max(Duration::from_secs(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn max_duration(client: &str, progress: bool) -> u64 {
        CallLimits { client, progress, ..CallLimits::default() }.max_duration().as_secs()
    }

    #[test]
    fn a_call_returns_before_the_client_times_out() {
        for (client, without_progress, with_progress) in [
            ("codex-mcp-client", 240, 240),
            ("claude-code", 240, 12 * 3600),
            ("gemini-cli-mcp-client", 540, 540),
            ("opencode", 48, 12 * 3600),
            ("some-other", 48, 48),
            ("", 48, 48),
        ] {
            assert_eq!(max_duration(client, false), without_progress, "{client}");
            assert_eq!(max_duration(client, true), with_progress, "{client}");
        }
    }

    #[test]
    fn a_configured_limit_wins_and_a_client_limit_shortens() {
        let ten = Some(Duration::from_secs(10));
        let claude = CallLimits { client: "claude-code", progress: true, ..CallLimits::default() };
        assert_eq!(CallLimits { client_limit: ten, ..claude }.max_duration(), Duration::from_secs(8));
        let configured = Some(Duration::from_secs(900));
        for client in ["codex-mcp-client", "gemini-cli-mcp-client", "some-other"] {
            for progress in [true, false] {
                let limits = CallLimits { client, progress, configured, client_limit: None };
                assert_eq!(limits.max_duration(), Duration::from_secs(900), "{client}");
            }
        }
        let configured = Some(Duration::from_secs(30 * 3600));
        assert_eq!(CallLimits { configured, ..claude }.max_duration(), MAX_CALL);
    }
}
