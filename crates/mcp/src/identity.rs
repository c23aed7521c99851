//! Determines which owner a call acts as. Clients identify themselves to keep chats apart; this is not authentication.
//!
//! Order of precedence: the explicit owner (flag or header), the codex thread in `_meta`, the Claude Code session, then
//! one owner per connection. A malformed value is an error: ignoring it could show the call processes of another owner.

use axum::http::HeaderMap;
use serde_json::{Map, Value};

use crate::claude;
use crate::tool_error::ToolError;

/// Maximum length of an owner, as in the daemon.
const MAX_NAME: usize = 128;
/// Owner of HTTP calls that carry neither an owner nor a session.
const DEFAULT_HTTP_OWNER: &str = "mcp-http";

/// The owner that a call acts as.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Caller {
    pub(crate) owner: String,
    pub(crate) parent: Option<String>,
    /// Whether all calls of this owner come from one chat: true for an explicit owner and for a codex thread. A
    /// connection or a Claude Code session may carry several chats (sub-agents, `opencode serve`), which the server
    /// cannot tell apart.
    pub(crate) is_one_chat: bool,
}

/// What is known about a client before its first call.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientIdentity {
    /// The explicit owner and its parent.
    pub(crate) owner: Option<String>,
    pub(crate) parent: Option<String>,
    /// The Claude Code session from the environment.
    pub(crate) claude: Option<String>,
    /// Whether each call looks up the current Claude Code session.
    pub(crate) follows_claude: bool,
    /// The owner of the managed process that this server runs in, if any.
    pub(crate) outer_owner: Option<String>,
    /// The owner of this connection; `None` over HTTP, where the session header identifies the client.
    pub(crate) connection: Option<String>,
}

impl ClientIdentity {
    /// Returns the caller of one request.
    pub(crate) fn caller(&self, meta: &Map<String, Value>, headers: Option<&HeaderMap>) -> Result<Caller, ToolError> {
        let caller = self.resolve(meta, headers)?;
        check("owner", &caller.owner)?;
        caller.parent.as_deref().map_or(Ok(()), |parent| check("parent", parent))?;
        Ok(caller)
    }

    fn resolve(&self, meta: &Map<String, Value>, headers: Option<&HeaderMap>) -> Result<Caller, ToolError> {
        let from_header = |name| headers.map_or(Ok(None), |headers| header(headers, name));
        if let Some(owner) = self.owner.clone().or(from_header("pinfold-owner")?) {
            let parent = self.parent.clone().or(from_header("pinfold-parent")?).or(self.default_parent());
            return Ok(Caller { owner, parent, is_one_chat: true });
        }
        if let Some(thread) = meta_text(meta, "threadId")? {
            let session = meta_text(meta, "sessionId")?.filter(|session| *session != thread);
            let parent = session.map(|session| format!("codex-{session}")).or(self.default_parent());
            return Ok(Caller { owner: format!("codex-{thread}"), parent, is_one_chat: true });
        }
        if let Some(session) = &self.claude {
            let current = if self.follows_claude { claude::current_session() } else { None };
            let session = current.unwrap_or_else(|| session.clone());
            return Ok(Caller {
                owner: format!("claude-{session}"),
                parent: self.default_parent(),
                is_one_chat: false,
            });
        }
        let session = from_header("mcp-session-id")?.map(|session| format!("mcp-{session}"));
        let owner = self.connection.clone().or(session).unwrap_or_else(|| DEFAULT_HTTP_OWNER.to_owned());
        Ok(Caller { owner, parent: self.default_parent(), is_one_chat: false })
    }

    fn default_parent(&self) -> Option<String> {
        self.parent.clone().or_else(|| self.outer_owner.clone())
    }
}

fn header(headers: &HeaderMap, name: &str) -> Result<Option<String>, ToolError> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => match std::str::from_utf8(value.as_bytes()) {
            Ok(text) => Ok(Some(text.to_owned())),
            Err(_) => Err(ToolError::invalid(format!("header {name} is not UTF-8"))),
        },
        (Some(_), Some(_)) => Err(ToolError::invalid(format!("header {name} is given twice: send it once"))),
    }
}

fn meta_text(meta: &Map<String, Value>, key: &str) -> Result<Option<String>, ToolError> {
    match meta.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if !text.is_empty() => Ok(Some(text.clone())),
        Some(_) => Err(ToolError::invalid(format!("_meta.{key} must be a non-empty string"))),
    }
}

fn check(what: &str, name: &str) -> Result<(), ToolError> {
    let plain = |c: char| c.is_alphanumeric() || "._-:@/ ".contains(c);
    if !name.trim().is_empty() && name.len() <= MAX_NAME && name.chars().all(plain) {
        return Ok(());
    }
    let shown: String = name.chars().take(40).collect();
    Err(ToolError::invalid(format!(
        "the {what} `{}` is malformed: use 1 to {MAX_NAME} letters, digits or ._-:@/",
        shown.escape_debug()
    )))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn identity() -> ClientIdentity {
        ClientIdentity { connection: Some("mcp-1".into()), ..ClientIdentity::default() }
    }

    fn caller(identity: &ClientIdentity, meta: Value) -> Result<(String, Option<String>), ToolError> {
        let caller = identity.caller(meta.as_object().expect("an object"), None)?;
        Ok((caller.owner, caller.parent))
    }

    #[test]
    fn the_owner_is_resolved_in_order_of_precedence() {
        let codex = json!({ "threadId": "t", "sessionId": "s" });
        assert_eq!(caller(&identity(), json!({})), Ok(("mcp-1".into(), None)));
        assert_eq!(caller(&identity(), codex.clone()), Ok(("codex-t".into(), Some("codex-s".into()))));
        assert_eq!(caller(&identity(), json!({ "threadId": "t", "sessionId": "t" })), Ok(("codex-t".into(), None)));
        let claude = ClientIdentity { claude: Some("c".into()), outer_owner: Some("chat-7".into()), ..identity() };
        assert_eq!(caller(&claude, json!({})), Ok(("claude-c".into(), Some("chat-7".into()))));
        let explicit = ClientIdentity { owner: Some("me".into()), parent: Some("boss".into()), ..claude };
        assert_eq!(caller(&explicit, codex), Ok(("me".into(), Some("boss".into()))));
    }

    #[test]
    fn over_http_the_owner_header_precedes_the_session() {
        let mut headers = HeaderMap::new();
        let identity = ClientIdentity::default();
        let owner = |headers: &HeaderMap| identity.caller(&Map::new(), Some(headers)).map(|caller| caller.owner);
        assert_eq!(owner(&headers), Ok("mcp-http".into()));
        headers.insert("mcp-session-id", "abc".parse().expect("a value"));
        assert_eq!(owner(&headers), Ok("mcp-abc".into()));
        headers.insert("pinfold-owner", "chat-1".parse().expect("a value"));
        assert_eq!(owner(&headers), Ok("chat-1".into()));
    }

    #[test]
    fn a_malformed_owner_is_an_error() {
        for meta in [
            json!({ "threadId": 7 }),
            json!({ "threadId": "" }),
            json!({ "threadId": "a\nb" }),
            json!({ "threadId": "x".repeat(200) }),
        ] {
            assert!(caller(&identity(), meta.clone()).is_err(), "{meta}");
        }
        assert!(caller(&ClientIdentity { owner: Some(String::new()), ..identity() }, json!({})).is_err());
    }
}
