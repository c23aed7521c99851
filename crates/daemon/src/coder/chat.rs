//! The chat that a request belongs to, and its owner.
//!
//! A chat is the owner `coder-<uuid>`, its nearest ancestor that owner's parent. A request without a chat
//! acts as its connection does. An invalid header is an error, because ignoring it would widen the view (D5).

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::request::Parts;
use pinfold_api::client::OWNER_HEADER;
use pinfold_model::spec::DEFAULT_OWNER;

use super::ids::{parse_uuid, render_uuid};
use super::quote::quote;
use super::wire::Fault;
use crate::access::caller::{Caller, Principal};
use crate::core::Core;
use crate::registry::Viewer;

const CHAT: &str = "coder-chat-id";
const ANCESTORS: &str = "coder-ancestor-chat-ids";
/// The prefix of the owner of a chat; its UUID follows.
const OWNER: &str = "coder-";

/// The caller of a request.
#[derive(Debug)]
pub(super) struct Chat {
    pub(super) caller: Caller,
    /// The owner's parent, as far as this request may name it.
    parent: Option<String>,
}

impl Chat {
    /// The chat, as processes see it.
    pub(super) fn id(&self) -> Option<String> {
        match &self.caller.viewer {
            Viewer::Operator => None,
            Viewer::Owner(owner) => owner.strip_prefix(OWNER).and_then(parse_uuid).map(render_uuid),
        }
    }

    /// The owner of a process that this request starts.
    pub(super) fn owner(&self) -> String {
        match &self.caller.viewer {
            Viewer::Operator => DEFAULT_OWNER.to_owned(),
            Viewer::Owner(owner) => owner.clone(),
        }
    }

    /// Who acts.
    pub(super) fn name(&self) -> String {
        match &self.caller.viewer {
            Viewer::Operator => "a coder client".to_owned(),
            Viewer::Owner(owner) => owner.clone(),
        }
    }

    /// Records the parent of the chat. The first parent counts; a chat that names another one later is not refused.
    pub(super) fn adopt(&self, core: &Core) {
        if let (Viewer::Owner(owner), Some(parent)) = (&self.caller.viewer, &self.parent)
            && let Err(bad) = core.owners.add_parent(owner, parent)
        {
            tracing::warn!(owner, parent, %bad, "a chat's ancestor is passed over");
        }
    }
}

/// The chat headers of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ChatHeaders {
    pub(super) chat: Option<String>,
    /// The nearest first.
    pub(super) ancestors: Vec<String>,
}

impl ChatHeaders {
    /// Parses them; the error is the value of the invalid header.
    pub(super) fn parse(headers: &HeaderMap) -> Result<Self, String> {
        let mut values = headers.get_all(CHAT).iter();
        let Some(value) = values.next() else { return Ok(Self::default()) };
        let text = String::from_utf8_lossy(value.as_bytes()).trim().to_owned();
        let bits = parse_uuid(&text).filter(|bits| *bits != 0 && values.next().is_none()).ok_or(text)?;
        let list = headers.get(ANCESTORS).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
        let list: Vec<serde_json::Value> = list.and_then(|list| serde_json::from_str(&list).ok()).unwrap_or_default();
        let ancestors = list.iter().filter_map(|item| parse_uuid(item.as_str()?)).filter(|bits| *bits != 0);
        Ok(Self { chat: Some(render_uuid(bits)), ancestors: ancestors.map(render_uuid).collect() })
    }
}

fn owner_of(chat: &str) -> String {
    format!("{OWNER}{chat}")
}

impl FromRequestParts<Arc<Core>> for Chat {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, core: &Arc<Core>) -> Result<Self, Fault> {
        let principal = Principal::of(&parts.extensions).map_err(|error| Fault::of(&error))?;
        let said = ChatHeaders::parse(&parts.headers).map_err(|text| {
            Fault::bad(format!("Coder-Chat-Id {} is not a chat.", quote(text.as_bytes())))
                .detail("send one chat UUID, or leave the header out to act as the owner that the connection is authenticated as")
        })?;
        let Some(chat) = said.chat else {
            let caller = Caller::from_request_parts(parts, core).await.map_err(|error| Fault::of(&error))?;
            return Ok(Self { caller, parent: None });
        };
        if parts.headers.contains_key(OWNER_HEADER) {
            let detail = "a chat is an owner of its own: send one of the two headers";
            return Err(Fault::bad("Coder-Chat-Id and Pinfold-Owner exclude each other.").detail(detail));
        }
        let owner = owner_of(&chat);
        let ancestor = said.ancestors.first().map(|ancestor| owner_of(ancestor));
        let parent = match &principal.viewer {
            Viewer::Operator => ancestor,
            Viewer::Owner(bound) if core.owners.sees(bound, &owner) => None,
            // A chat that uses a token is a child of the token's owner.
            Viewer::Owner(bound) => Some(ancestor.filter(|one| core.owners.sees(bound, one)).unwrap_or(bound.clone())),
        };
        let bound = principal.viewer != Viewer::Operator;
        let named = parent.clone().filter(|_| bound);
        let caller = core.caller(principal, Some(owner), named).await.map_err(|error| Fault::of(&error))?;
        Ok(Self { caller, parent: parent.filter(|_| !bound) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "6ba7b810-9dad-11d1-80b4-00c04fd430c8";
    const OTHER: &str = "0f8fad5b-d9cb-469f-a165-70867728950e";

    fn said(chat: Option<&str>, ancestors: Option<&str>) -> Result<(Option<String>, Vec<String>), String> {
        let mut headers = HeaderMap::new();
        for (name, value) in [(CHAT, chat), (ANCESTORS, ancestors)] {
            if let Some(value) = value {
                headers.insert(name, value.parse().expect("a header"));
            }
        }
        ChatHeaders::parse(&headers).map(|said| (said.chat, said.ancestors))
    }

    #[test]
    fn a_chat_and_its_ancestors_are_read_and_what_is_no_chat_is_refused() {
        let one = || Some(ONE.to_owned());
        assert_eq!(said(None, Some("[]")), Ok((None, vec![])));
        assert_eq!(said(Some(&ONE.to_uppercase()), None), Ok((one(), vec![])));
        assert_eq!(said(Some(ONE), Some(&format!("[\"x\",7,\"{OTHER}\"]"))), Ok((one(), vec![OTHER.into()])));
        assert_eq!(said(Some(ONE), Some("{bad")), Ok((one(), vec![])));
        for bad in ["", "not-a-uuid", "00000000-0000-0000-0000-000000000000"] {
            assert_eq!(said(Some(bad), None), Err(bad.to_owned()));
        }
        let mut twice = HeaderMap::new();
        twice.append(CHAT, ONE.parse().expect("a header"));
        twice.append(CHAT, OTHER.parse().expect("a header"));
        assert!(ChatHeaders::parse(&twice).is_err());
    }
}
