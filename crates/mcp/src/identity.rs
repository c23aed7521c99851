//! Which owner a call acts as. What a client says about itself separates chats; it is not authentication.
//!
//! In order: the explicit owner (flag or header), codex' thread in `_meta`, Claude's session in the environment,
//! then one owner per connection. A malformed value is an error: ignoring it could widen the view.

use axum::http::HeaderMap;
use serde_json::{Map, Value};

use crate::claude;
use crate::tool_error::ToolError;

/// Maximum length of an owner, as in the daemon.
const MAX_NAME: usize = 128;
/// The owner of HTTP calls that carry neither an owner nor a session.
const NOBODY: &str = "mcp-http";

/// The owner that a call acts as.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Caller {
    pub(crate) owner: String,
    pub(crate) parent: Option<String>,
    /// Whether every call of this owner comes from the same chat: an owner that somebody named, or a thread that each call
    /// names. A connection and a session of Claude Code may carry several chats (sub-agents, `opencode serve`) that nothing
    /// in a call tells apart.
    pub(crate) is_one_chat: bool,
}

/// What identifies a client before its first call.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientIdentity {
    /// The explicit owner and its parent.
    pub(crate) owner: Option<String>,
    pub(crate) parent: Option<String>,
    /// Claude's session, as the environment has it.
    pub(crate) claude: Option<String>,
    /// Whether each call looks up Claude's current session.
    pub(crate) follows_claude: bool,
    /// The owner of the managed process that the shim runs in.
    pub(crate) inside: Option<String>,
    /// The owner of this connection; none over HTTP, where the session identifies it.
    pub(crate) connection: Option<String>,
}

impl ClientIdentity {
    /// The caller of one request.
    pub(crate) fn caller(&self, meta: &Map<String, Value>, headers: Option<&HeaderMap>) -> Result<Caller, ToolError> {
        let caller = self.unchecked(meta, headers)?;
        check("owner", &caller.owner)?;
        caller.parent.as_deref().map_or(Ok(()), |parent| check("parent", parent))?;
        Ok(caller)
    }

    fn unchecked(&self, meta: &Map<String, Value>, headers: Option<&HeaderMap>) -> Result<Caller, ToolError> {
        let said = |name| headers.map_or(Ok(None), |headers| header(headers, name));
        if let Some(owner) = self.owner.clone().or(said("pinfold-owner")?) {
            let parent = self.parent.clone().or(said("pinfold-parent")?).or(self.above());
            return Ok(Caller { owner, parent, is_one_chat: true });
        }
        if let Some(thread) = text(meta, "threadId")? {
            let session = text(meta, "sessionId")?.filter(|session| *session != thread);
            let parent = session.map(|session| format!("codex-{session}")).or(self.above());
            return Ok(Caller { owner: format!("codex-{thread}"), parent, is_one_chat: true });
        }
        if let Some(session) = &self.claude {
            let current = if self.follows_claude { claude::current_session() } else { None };
            let session = current.unwrap_or_else(|| session.clone());
            return Ok(Caller { owner: format!("claude-{session}"), parent: self.above(), is_one_chat: false });
        }
        let session = said("mcp-session-id")?.map(|session| format!("mcp-{session}"));
        let owner = self.connection.clone().or(session).unwrap_or_else(|| NOBODY.to_owned());
        Ok(Caller { owner, parent: self.above(), is_one_chat: false })
    }

    fn above(&self) -> Option<String> {
        self.parent.clone().or_else(|| self.inside.clone())
    }
}

fn header(headers: &HeaderMap, name: &str) -> Result<Option<String>, ToolError> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => match std::str::from_utf8(value.as_bytes()) {
            Ok(text) => Ok(Some(text.to_owned())),
            Err(_) => Err(ToolError::invalid(format!("the header {name} is not UTF-8"))),
        },
        (Some(_), Some(_)) => Err(ToolError::invalid(format!("the header {name} is there twice: say it once"))),
    }
}

fn text(meta: &Map<String, Value>, key: &str) -> Result<Option<String>, ToolError> {
    match meta.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if !text.is_empty() => Ok(Some(text.clone())),
        Some(_) => Err(ToolError::invalid(format!("_meta.{key} names nobody: whose call it is cannot be told"))),
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
    fn the_nearest_claim_wins() {
        let codex = json!({ "threadId": "t", "sessionId": "s" });
        assert_eq!(caller(&identity(), json!({})), Ok(("mcp-1".into(), None)));
        assert_eq!(caller(&identity(), codex.clone()), Ok(("codex-t".into(), Some("codex-s".into()))));
        assert_eq!(caller(&identity(), json!({ "threadId": "t", "sessionId": "t" })), Ok(("codex-t".into(), None)));
        let claude = ClientIdentity { claude: Some("c".into()), inside: Some("chat-7".into()), ..identity() };
        assert_eq!(caller(&claude, json!({})), Ok(("claude-c".into(), Some("chat-7".into()))));
        let said = ClientIdentity { owner: Some("me".into()), parent: Some("boss".into()), ..claude };
        assert_eq!(caller(&said, codex), Ok(("me".into(), Some("boss".into()))));
    }

    #[test]
    fn over_http_the_header_wins_then_the_session() {
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
