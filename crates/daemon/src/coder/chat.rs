//! Which chat a request is of, and so which owner.
//!
//! A chat is the owner `coder-<uuid>`, its nearest ancestor that owner's parent. Without a chat the request is whoever
//! the connection is. A header that is no chat is an error: a view never widens (D5).

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::request::Parts;
use pinfold_api::client::OWNER_HEADER;
use pinfold_model::spec::DEFAULT_OWNER;

use super::ids::{parse_uuid, render_uuid};
use super::quote::quote;
use super::wire::Fault;
use crate::access::caller::{Caller, Proof};
use crate::core::Core;
use crate::registry::Scope;

const CHAT: &str = "coder-chat-id";
const ANCESTORS: &str = "coder-ancestor-chat-ids";
/// What the owner of a chat is called, before its UUID.
const OWNER: &str = "coder-";

/// Whoever made a request.
#[derive(Debug)]
pub(super) struct Chat {
    pub(super) caller: Caller,
    /// The owner's parent, as far as this request may name it.
    parent: Option<String>,
}

impl Chat {
    /// The chat, as processes see it.
    pub(super) fn id(&self) -> Option<String> {
        match &self.caller.scope {
            Scope::Operator => None,
            Scope::Owner(owner) => owner.strip_prefix(OWNER).and_then(parse_uuid).map(render_uuid),
        }
    }

    /// Whose a process is that this request starts.
    pub(super) fn owner(&self) -> String {
        match &self.caller.scope {
            Scope::Operator => DEFAULT_OWNER.to_owned(),
            Scope::Owner(owner) => owner.clone(),
        }
    }

    /// Who acts.
    pub(super) fn name(&self) -> String {
        match &self.caller.scope {
            Scope::Operator => "a coder client".to_owned(),
            Scope::Owner(owner) => owner.clone(),
        }
    }

    /// Takes up whose descendant the chat is. The first parent stands: a chat that names another later still starts
    /// its commands.
    pub(super) fn adopt(&self, core: &Core) {
        if let (Scope::Owner(owner), Some(parent)) = (&self.caller.scope, &self.parent)
            && let Err(bad) = core.owners.add_parent(owner, parent)
        {
            tracing::warn!(owner, parent, %bad, "a chat's ancestor is passed over");
        }
    }
}

/// What a request's headers say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) chat: Option<String>,
    /// The nearest first.
    pub(super) ancestors: Vec<String>,
}

impl Said {
    /// Reads them; the error is the header as it was.
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
        let proof = Proof::of(&parts.extensions).map_err(|refusal| Fault::of(&refusal))?;
        let said = Said::parse(&parts.headers).map_err(|text| {
            Fault::bad(format!("Coder-Chat-Id {} is not a chat.", quote(text.as_bytes())))
                .detail("send the UUID of the chat, once, or leave the header out to act as whoever the connection is")
        })?;
        let Some(chat) = said.chat else {
            let caller = Caller::from_request_parts(parts, core).await.map_err(|refusal| Fault::of(&refusal))?;
            return Ok(Self { caller, parent: None });
        };
        if parts.headers.contains_key(OWNER_HEADER) {
            let detail = "a chat is an owner of its own: send one of the two headers";
            return Err(Fault::bad("Coder-Chat-Id and Pinfold-Owner exclude each other.").detail(detail));
        }
        let owner = owner_of(&chat);
        let ancestor = said.ancestors.first().map(|ancestor| owner_of(ancestor));
        let parent = match &proof.scope {
            Scope::Operator => ancestor,
            Scope::Owner(bound) if core.owners.sees(bound, &owner) => None,
            // A chat that comes with a token is below whoever the token is bound to.
            Scope::Owner(bound) => Some(ancestor.filter(|one| core.owners.sees(bound, one)).unwrap_or(bound.clone())),
        };
        let bound = proof.scope != Scope::Operator;
        let named = parent.clone().filter(|_| bound);
        let caller = core.caller(proof, Some(owner), named).await.map_err(|refusal| Fault::of(&refusal))?;
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
        Said::parse(&headers).map(|said| (said.chat, said.ancestors))
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
        assert!(Said::parse(&twice).is_err());
    }
}
