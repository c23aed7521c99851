//! Tokens: who may speak over TCP, and as whom. Kept as hashes, compared in constant time, shown never.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use pinfold_api::error::ErrorCode;
use pinfold_api::types::{Token, TokenAnswer, TokenList, TokenRequest};
use pinfold_model::spec::check_name;
use pinfold_model::units::{Moment, parse_duration};
use pinfold_store::tokens::{KeptToken, TokenFile, random_token};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::access::closable::Line;
use crate::clock::{now, rfc3339};
use crate::core::Core;
use crate::lock::lock;
use crate::refusal::Refusal;
use crate::refusal::way_out;
use crate::registry::Scope;

/// Tokens at most.
const MOST: usize = 1000;
const LABEL_MOST: usize = 200;
/// Characters of a token's hash that name it.
const ID_LENGTH: usize = 8;
/// How often an open connection looks at the clock, which may have been set, for the expiry of its token.
const LOOK: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) struct Tokens {
    file: Mutex<TokenFile>,
    /// The connections that tokens were shown on.
    lines: Mutex<Vec<Weak<Line>>>,
}

impl Tokens {
    pub(crate) fn new(file: TokenFile) -> Self {
        Self { file: Mutex::new(file), lines: Mutex::default() }
    }

    /// Why no token is accepted, if the file cannot be understood.
    pub(crate) fn trouble(&self) -> Option<String> {
        lock(&self.file).damage()
    }

    /// Writes the tokens into a home that was made anew.
    pub(crate) fn rewrite(&self) -> std::io::Result<()> {
        lock(&self.file).rewrite()
    }

    /// Whom a token makes its bearer; nobody, if it is unknown, revoked or expired. Looks at every token, so that
    /// the time taken tells nothing. From here on the connection is closed when the token is revoked or expires.
    pub(crate) fn bearer(&self, text: &str, line: &Arc<Line>) -> Option<Scope> {
        let hash = hash(text);
        // Held until the connection is noted: a revocation comes before, and refuses, or after, and closes.
        let file = lock(&self.file);
        let mut found = None;
        for token in file.tokens() {
            let same = bool::from(token.hash.as_bytes().ct_eq(hash.as_bytes()));
            if same && token.expires.is_none_or(|expires| now() < expires) {
                found = Some(token);
            }
        }
        let token = found?;
        let had_expiry = line.expires().is_some();
        line.hold(&token.id, token.expires);
        let mut lines = lock(&self.lines);
        if !lines.iter().any(|known| std::ptr::eq(known.as_ptr(), Arc::as_ptr(line))) {
            lines.retain(|line| line.strong_count() > 0);
            lines.push(Arc::downgrade(line));
        }
        if token.expires.is_some() && !had_expiry {
            tokio::spawn(cut_when_expired(Arc::downgrade(line)));
        }
        Some(token.owner.clone().map_or(Scope::Operator, Scope::Owner))
    }

    /// Closes every connection on which this token was shown last, but the one by which it is revoked: that has an
    /// answer to come, and its next request is refused.
    fn cut(&self, id: &str, revoking: Option<&Line>) {
        for line in lock(&self.lines).iter().filter_map(Weak::upgrade) {
            let own = revoking.is_some_and(|own| std::ptr::eq(own, &*line));
            if !own && line.is_held_by(id) {
                line.cut();
            }
        }
    }

    /// Whether a token acts as this owner, or did until it expired.
    pub(super) fn binds(&self, owner: &str) -> bool {
        lock(&self.file).tokens().iter().any(|token| token.owner.as_deref() == Some(owner))
    }
}

impl Core {
    pub(crate) fn add_token(&self, request: TokenRequest) -> Result<TokenAnswer, Refusal> {
        if let Some(owner) = &request.owner {
            check_name("owner", owner)?;
        }
        if request.label.as_ref().is_some_and(|label| label.chars().count() > LABEL_MOST) {
            return Err(Refusal::invalid(format!("`label` is longer than {LABEL_MOST} characters")));
        }
        let created = now();
        let expires = request.expires.map(|span| parse_duration(&span.text())).transpose()?;
        let expires = expires.map(|span| Moment(created.0.saturating_add(span.as_micros() as u64)));
        let mut file = lock(&self.tokens.file);
        if file.tokens().len() >= MOST {
            let message = format!("there are {MOST} tokens already: revoke one with `pinfold token revoke`");
            return Err(Refusal::new(ErrorCode::LimitReached, message));
        }
        let token = random_token().map_err(Refusal::internal)?;
        let hash = hash(&token);
        let id = hash.chars().take(ID_LENGTH).collect();
        let kept = KeptToken { id, hash, owner: request.owner, label: request.label, created, expires };
        file.add(kept.clone()).map_err(unwritable)?;
        tracing::info!(token = %kept.id, owner = kept.owner.as_deref(), "a token was made");
        Ok(TokenAnswer { token, shown: show(&kept) })
    }

    pub(crate) fn list_tokens(&self) -> TokenList {
        TokenList { tokens: lock(&self.tokens.file).tokens().iter().map(show).collect() }
    }

    /// Revokes a token, and closes what it has opened. `line` is the connection that asks for it.
    pub(crate) fn revoke_token(&self, id: &str, line: Option<&Line>) -> Result<Token, Refusal> {
        let removed = lock(&self.tokens.file).remove(id).map_err(unwritable)?;
        let none = || Refusal::new(ErrorCode::NotFound, format!("no token `{id}`: `pinfold token ls` lists them"));
        let removed = removed.ok_or_else(none)?;
        self.tokens.cut(&removed.id, line);
        tracing::info!(token = %removed.id, "a token was revoked");
        Ok(show(&removed))
    }
}

/// Cuts a line when the token of its current request expires, by the clock.
async fn cut_when_expired(line: Weak<Line>) {
    while let Some(expires) = line.upgrade().and_then(|line| line.expires()) {
        let left = Duration::from_micros(expires.0.saturating_sub(now().0));
        if left.is_zero() {
            return line.upgrade().iter().for_each(|line| line.cut());
        }
        tokio::time::sleep(left.min(LOOK)).await;
    }
}

fn hash(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unwritable(error: std::io::Error) -> Refusal {
    let message = format!("the tokens cannot be written: {error}: {}", way_out(&error.to_string()));
    Refusal::new(ErrorCode::StoreUnwritable, message)
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
