//! Whose call it is. What a client says of itself is a claim, not a proof: it keeps chats apart, it guards nothing.
//!
//! In order: the explicit owner (flag or header), codex' thread in `_meta`, Claude's session in the environment,
//! then one owner per connection. A malformed one is an error, never a wider view.

use axum::http::HeaderMap;
use serde_json::{Map, Value};

use crate::claude;
use crate::refusal::Refusal;

/// The longest owner that the daemon takes.
const NAME_MOST: usize = 128;
/// The owner of HTTP calls that say nothing of themselves.
const NOBODY: &str = "mcp-http";

/// In whose name a call is made.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Caller {
    pub(crate) owner: String,
    pub(crate) parent: Option<String>,
    /// Whether every call of this owner comes from the same chat: an owner that somebody named, or a thread that each call
    /// names. A connection and a session of Claude Code may carry several chats (sub-agents, `opencode serve`) that nothing
    /// in a call tells apart.
    pub(crate) is_one_chat: bool,
}

/// What is known of the client before it calls.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seat {
    /// The explicit owner and its parent.
    pub(crate) owner: Option<String>,
    pub(crate) parent: Option<String>,
    /// Claude's session, as the environment has it.
    pub(crate) claude: Option<String>,
    /// Whether Claude is asked with each call which session it is in.
    pub(crate) follows_claude: bool,
    /// The owner of the managed process that the shim runs in.
    pub(crate) inside: Option<String>,
    /// One owner per connection; none over HTTP, where the session says it.
    pub(crate) connection: Option<String>,
}

impl Seat {
    /// The caller of one request.
    pub(crate) fn caller(&self, meta: &Map<String, Value>, headers: Option<&HeaderMap>) -> Result<Caller, Refusal> {
        let caller = self.unchecked(meta, headers)?;
        check("owner", &caller.owner)?;
        caller.parent.as_deref().map_or(Ok(()), |parent| check("parent", parent))?;
        Ok(caller)
    }

    fn unchecked(&self, meta: &Map<String, Value>, headers: Option<&HeaderMap>) -> Result<Caller, Refusal> {
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

fn header(headers: &HeaderMap, name: &str) -> Result<Option<String>, Refusal> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => match std::str::from_utf8(value.as_bytes()) {
            Ok(text) => Ok(Some(text.to_owned())),
            Err(_) => Err(Refusal::invalid(format!("the header {name} is not UTF-8"))),
        },
        (Some(_), Some(_)) => Err(Refusal::invalid(format!("the header {name} is there twice: say it once"))),
    }
}

fn text(meta: &Map<String, Value>, key: &str) -> Result<Option<String>, Refusal> {
    match meta.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if !text.is_empty() => Ok(Some(text.clone())),
        Some(_) => Err(Refusal::invalid(format!("_meta.{key} names nobody: whose call it is cannot be told"))),
    }
}

fn check(what: &str, name: &str) -> Result<(), Refusal> {
    let plain = |c: char| c.is_alphanumeric() || "._-:@/ ".contains(c);
    if !name.trim().is_empty() && name.len() <= NAME_MOST && name.chars().all(plain) {
        return Ok(());
    }
    let shown: String = name.chars().take(40).collect();
    Err(Refusal::invalid(format!(
        "the {what} `{}` is malformed: use 1 to {NAME_MOST} letters, digits or ._-:@/",
        shown.escape_debug()
    )))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn seat() -> Seat {
        Seat { connection: Some("mcp-1".into()), ..Seat::default() }
    }

    fn caller(seat: &Seat, meta: Value) -> Result<(String, Option<String>), Refusal> {
        let caller = seat.caller(meta.as_object().expect("an object"), None)?;
        Ok((caller.owner, caller.parent))
    }

    #[test]
    fn the_nearest_claim_wins() {
        let codex = json!({ "threadId": "t", "sessionId": "s" });
        assert_eq!(caller(&seat(), json!({})), Ok(("mcp-1".into(), None)));
        assert_eq!(caller(&seat(), codex.clone()), Ok(("codex-t".into(), Some("codex-s".into()))));
        assert_eq!(caller(&seat(), json!({ "threadId": "t", "sessionId": "t" })), Ok(("codex-t".into(), None)));
        let claude = Seat { claude: Some("c".into()), inside: Some("chat-7".into()), ..seat() };
        assert_eq!(caller(&claude, json!({})), Ok(("claude-c".into(), Some("chat-7".into()))));
        let said = Seat { owner: Some("me".into()), parent: Some("boss".into()), ..claude };
        assert_eq!(caller(&said, codex), Ok(("me".into(), Some("boss".into()))));
    }

    #[test]
    fn over_http_the_header_wins_then_the_session() {
        let mut headers = HeaderMap::new();
        let seat = Seat::default();
        let owner = |headers: &HeaderMap| seat.caller(&Map::new(), Some(headers)).map(|caller| caller.owner);
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
            assert!(caller(&seat(), meta.clone()).is_err(), "{meta}");
        }
        assert!(caller(&Seat { owner: Some(String::new()), ..seat() }, json!({})).is_err());
    }
}
