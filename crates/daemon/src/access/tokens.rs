//! Tokens: who may use TCP, and as which owner. Stored as hashes, compared in constant time, never shown again.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use pinfold_api::error::ErrorCode;
use pinfold_api::types::{Token, TokenAnswer, TokenList, TokenRequest};
use pinfold_model::spec::check_name;
use pinfold_model::units::{Moment, parse_duration};
use pinfold_store::tokens::{KeptToken, TokenFile, random_token};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::access::closable::ConnectionHandle;
use crate::clock::{now, rfc3339};
use crate::core::Core;
use crate::mutex::lock;
use crate::registry::Viewer;
use crate::request_error::RequestError;
use crate::request_error::disk_remedy;

/// Maximum number of tokens; one more is refused.
const MAX_TOKENS: usize = 1000;
const MAX_LABEL: usize = 200;
/// Characters of a token's hash that serve as its id.
const ID_LENGTH: usize = 8;
/// How often an open connection checks the expiry of its token: the wall clock may have been set.
const EXPIRY_CHECK: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) struct Tokens {
    file: Mutex<TokenFile>,
    /// Connections that used a token.
    handles: Mutex<Vec<Weak<ConnectionHandle>>>,
}

impl Tokens {
    pub(crate) fn new(file: TokenFile) -> Self {
        Self { file: Mutex::new(file), handles: Mutex::default() }
    }

    /// Why no token is accepted, if the file is damaged.
    pub(crate) fn damage(&self) -> Option<String> {
        lock(&self.file).damage()
    }

    /// Writes the tokens into a recreated home.
    pub(crate) fn rewrite(&self) -> std::io::Result<()> {
        lock(&self.file).rewrite()
    }

    /// The view that a token grants; `None` if it is unknown, revoked or expired. Compares every token, so that the
    /// time taken reveals nothing. From here on the connection is closed when the token is revoked or expires.
    pub(crate) fn authenticate(&self, text: &str, handle: &Arc<ConnectionHandle>) -> Option<Viewer> {
        let hash = hash(text);
        // Locked until the connection is registered: a revocation either comes before and refuses it, or after and
        // closes it.
        let file = lock(&self.file);
        let mut found = None;
        for token in file.tokens() {
            let same = bool::from(token.hash.as_bytes().ct_eq(hash.as_bytes()));
            if same && token.expires.is_none_or(|expires| now() < expires) {
                found = Some(token);
            }
        }
        let token = found?;
        let had_expiry = handle.expires().is_some();
        handle.set_token(&token.id, token.expires);
        let mut handles = lock(&self.handles);
        if !handles.iter().any(|known| std::ptr::eq(known.as_ptr(), Arc::as_ptr(handle))) {
            handles.retain(|handle| handle.strong_count() > 0);
            handles.push(Arc::downgrade(handle));
        }
        if token.expires.is_some() && !had_expiry {
            tokio::spawn(close_when_expired(Arc::downgrade(handle)));
        }
        Some(token.owner.clone().map_or(Viewer::Operator, Viewer::Owner))
    }

    /// Closes every connection that last used this token, except the one that revokes it: that one still gets its
    /// answer, and its next request is refused.
    fn close(&self, id: &str, revoking: Option<&ConnectionHandle>) {
        for handle in lock(&self.handles).iter().filter_map(Weak::upgrade) {
            let own = revoking.is_some_and(|own| std::ptr::eq(own, &*handle));
            if !own && handle.uses_token(id) {
                handle.close();
            }
        }
    }

    /// Whether a token acts as this owner, or did until it expired.
    pub(super) fn is_bound_to(&self, owner: &str) -> bool {
        lock(&self.file).tokens().iter().any(|token| token.owner.as_deref() == Some(owner))
    }
}

impl Core {
    pub(crate) fn add_token(&self, request: TokenRequest) -> Result<TokenAnswer, RequestError> {
        if let Some(owner) = &request.owner {
            check_name("owner", owner)?;
        }
        if request.label.as_ref().is_some_and(|label| label.chars().count() > MAX_LABEL) {
            return Err(RequestError::invalid(format!("`label` is longer than {MAX_LABEL} characters")));
        }
        let created = now();
        let expires = request.expires.map(|span| parse_duration(&span.text())).transpose()?;
        let expires = expires.map(|span| Moment(created.0.saturating_add(span.as_micros() as u64)));
        let mut file = lock(&self.tokens.file);
        if file.tokens().len() >= MAX_TOKENS {
            let message = format!("there are {MAX_TOKENS} tokens already: revoke one with `pinfold token revoke`");
            return Err(RequestError::new(ErrorCode::LimitReached, message));
        }
        let token = random_token().map_err(RequestError::internal)?;
        let hash = hash(&token);
        let id = hash.chars().take(ID_LENGTH).collect();
        let stored = KeptToken { id, hash, owner: request.owner, label: request.label, created, expires };
        file.add(stored.clone()).map_err(unwritable)?;
        tracing::info!(token = %stored.id, owner = stored.owner.as_deref(), "token created");
        Ok(TokenAnswer { token, shown: show(&stored) })
    }

    pub(crate) fn list_tokens(&self) -> TokenList {
        TokenList { tokens: lock(&self.tokens.file).tokens().iter().map(show).collect() }
    }

    /// Revokes a token and closes its connections. `handle` is the connection of this request.
    pub(crate) fn revoke_token(&self, id: &str, handle: Option<&ConnectionHandle>) -> Result<Token, RequestError> {
        let removed = lock(&self.tokens.file).remove(id).map_err(unwritable)?;
        let none = || RequestError::new(ErrorCode::NotFound, format!("no token `{id}`: `pinfold token ls` lists them"));
        let removed = removed.ok_or_else(none)?;
        self.tokens.close(&removed.id, handle);
        tracing::info!(token = %removed.id, "token revoked");
        Ok(show(&removed))
    }
}

/// Closes a connection when the token of its current request expires.
async fn close_when_expired(handle: Weak<ConnectionHandle>) {
    while let Some(expires) = handle.upgrade().and_then(|handle| handle.expires()) {
        let left = Duration::from_micros(expires.0.saturating_sub(now().0));
        if left.is_zero() {
            return handle.upgrade().iter().for_each(|handle| handle.close());
        }
        tokio::time::sleep(left.min(EXPIRY_CHECK)).await;
    }
}

fn hash(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unwritable(error: std::io::Error) -> RequestError {
    let message = format!("cannot write the tokens: {error}: {}", disk_remedy(&error.to_string()));
    RequestError::new(ErrorCode::StoreUnwritable, message)
}

fn show(token: &KeptToken) -> Token {
    Token {
        id: token.id.clone(),
        owner: token.owner.clone(),
        label: token.label.clone(),
        created_at: rfc3339(token.created),
        expires_at: token.expires.map(rfc3339),
    }
}
