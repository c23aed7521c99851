//! One-time keys and signed-in browsers. Both are in memory only: when the daemon ends, every browser is signed out, so a program that
//! takes over the port afterwards learns nothing of use.

use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use pinfold_store::tokens::random_token;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio::sync::Notify;

use crate::access::closable::ConnectionHandle;
use crate::mutex::lock;
use crate::registry::Viewer;

/// How long a one-time key can be used.
pub(crate) const KEY_LIFE: Duration = Duration::from_secs(120);
/// A browser that sent nothing for this long is signed out.
const SESSION_IDLE: Duration = Duration::from_secs(12 * 3600);
/// Keys and sessions at once; when there are more, the oldest is dropped.
const MAX_KEYS: usize = 16;
const MAX_SESSIONS: usize = 32;

/// What a signed-in browser may see and do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) viewer: Viewer,
    pub(crate) read_only: bool,
}

/// What a browser gets for a one-time key. Its requests need both the cookie and the secret.
#[derive(Debug)]
pub(super) struct SignedIn {
    pub(super) cookie: String,
    /// The page keeps it in its web storage, which belongs to one port; a cookie is sent to every port of the host.
    pub(super) secret: String,
    pub(super) grant: Grant,
}

/// The dashboard's part of the daemon's state.
#[derive(Debug, Default)]
pub(crate) struct Dashboard {
    state: Mutex<State>,
    /// The open port; 0 if there is none. Held while it is opened, so that it is opened once.
    pub(crate) port: tokio::sync::Mutex<Option<u16>>,
    /// Wakes the listener, which closes if nothing is left to serve.
    pub(crate) emptied: Notify,
}

#[derive(Debug, Default)]
struct State {
    keys: Vec<Key>,
    sessions: Vec<Session>,
}

type Hash = [u8; 32];

#[derive(Debug)]
struct Key {
    hash: Hash,
    made: Instant,
    grant: Grant,
}

#[derive(Debug)]
struct Session {
    cookie: Hash,
    secret: Hash,
    grant: Grant,
    used: Instant,
    /// Its open connections, closed when it ends.
    connections: Vec<Weak<ConnectionHandle>>,
}

impl Session {
    fn end(&self) {
        self.connections.iter().filter_map(Weak::upgrade).for_each(|handle| handle.close());
    }
}

impl State {
    fn drop_expired(&mut self) {
        self.keys.retain(|key| key.made.elapsed() < KEY_LIFE);
        self.sessions.retain(|session| {
            let expired = session.used.elapsed() >= SESSION_IDLE;
            if expired {
                session.end();
            }
            !expired
        });
    }
}

impl Dashboard {
    /// Makes a one-time key.
    pub(crate) fn add_key(&self, grant: Grant) -> std::io::Result<String> {
        let text = random_token()?;
        let mut state = lock(&self.state);
        state.drop_expired();
        if state.keys.len() >= MAX_KEYS {
            state.keys.remove(0);
        }
        state.keys.push(Key { hash: hash(&text), made: Instant::now(), grant });
        Ok(text)
    }

    /// Exchanges a one-time key; `None` if it is unknown, used or expired.
    pub(super) fn sign_in(&self, key: &str) -> std::io::Result<Option<SignedIn>> {
        let (cookie, secret) = (random_token()?, random_token()?);
        let mut state = lock(&self.state);
        state.drop_expired();
        let wanted = hash(key);
        let Some(at) = position(state.keys.iter().map(|key| &key.hash), &wanted) else { return Ok(None) };
        let Key { grant, .. } = state.keys.remove(at);
        if state.sessions.len() >= MAX_SESSIONS {
            state.sessions.remove(0).end();
        }
        state.sessions.push(Session {
            cookie: hash(&cookie),
            secret: hash(&secret),
            grant: grant.clone(),
            used: Instant::now(),
            connections: Vec::new(),
        });
        Ok(Some(SignedIn { cookie, secret, grant }))
    }

    /// What a request with this cookie and page secret may do. From here on its connection is closed when the session ends.
    pub(super) fn find(&self, cookie: &str, secret: &str, handle: &Arc<ConnectionHandle>) -> Option<Grant> {
        let mut state = lock(&self.state);
        state.drop_expired();
        let at = find(&state.sessions, cookie, secret)?;
        let session = state.sessions.get_mut(at)?;
        session.used = Instant::now();
        if !session.connections.iter().any(|known| std::ptr::eq(known.as_ptr(), Arc::as_ptr(handle))) {
            session.connections.retain(|handle| handle.strong_count() > 0);
            session.connections.push(Arc::downgrade(handle));
        }
        Some(session.grant.clone())
    }

    /// Signs one browser out. The connection of the request itself has an answer to send.
    pub(super) fn sign_out(&self, cookie: &str, secret: &str, own: &Arc<ConnectionHandle>) {
        let mut state = lock(&self.state);
        if let Some(at) = find(&state.sessions, cookie, secret) {
            let mut session = state.sessions.remove(at);
            session.connections.retain(|handle| !std::ptr::eq(handle.as_ptr(), Arc::as_ptr(own)));
            session.end();
        }
        drop(state);
        self.emptied.notify_one();
    }

    /// Signs every browser out and forgets every key; says how many browsers that were.
    pub(crate) fn sign_out_all(&self) -> usize {
        let mut state = lock(&self.state);
        state.keys.clear();
        let sessions = std::mem::take(&mut state.sessions);
        drop(state);
        sessions.iter().for_each(Session::end);
        self.emptied.notify_one();
        sessions.len()
    }

    /// Whether no browser is signed in and no key can be used.
    pub(crate) fn is_unused(&self) -> bool {
        let mut state = lock(&self.state);
        state.drop_expired();
        state.keys.is_empty() && state.sessions.is_empty()
    }
}

fn find(sessions: &[Session], cookie: &str, secret: &str) -> Option<usize> {
    let (cookie, secret) = (hash(cookie), hash(secret));
    let at = position(sessions.iter().map(|session| &session.cookie), &cookie)?;
    bool::from(sessions.get(at)?.secret.ct_eq(&secret)).then_some(at)
}

/// Compares every hash, so that the time taken says nothing.
fn position<'a>(hashes: impl Iterator<Item = &'a Hash>, wanted: &Hash) -> Option<usize> {
    let mut found = None;
    for (at, hash) in hashes.enumerate() {
        if bool::from(hash.ct_eq(wanted)) {
            found = Some(at);
        }
    }
    found
}

fn hash(text: &str) -> Hash {
    Sha256::digest(text.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(read_only: bool) -> Grant {
        Grant { viewer: Viewer::Operator, read_only }
    }

    #[test]
    fn a_key_signs_in_one_browser_once() {
        let dashboard = Dashboard::default();
        let key = dashboard.add_key(grant(true)).expect("random");
        let signed_in = dashboard.sign_in(&key).expect("random").expect("a session");
        assert!(signed_in.grant.read_only);
        assert!(dashboard.sign_in(&key).expect("random").is_none(), "a key was used twice");
        assert!(dashboard.sign_in("guess").expect("random").is_none());
    }

    #[test]
    fn a_session_needs_its_own_cookie_and_its_own_secret() {
        let dashboard = Dashboard::default();
        let sign_in = || {
            let key = dashboard.add_key(grant(false)).expect("random");
            dashboard.sign_in(&key).expect("random").expect("a session")
        };
        let (one, other) = (sign_in(), sign_in());
        let handle = Arc::<ConnectionHandle>::default();
        assert_eq!(dashboard.find(&one.cookie, &one.secret, &handle), Some(grant(false)));
        assert_eq!(dashboard.find(&one.cookie, &other.secret, &handle), None);
        assert_eq!(dashboard.find(&one.cookie, "", &handle), None);
        dashboard.sign_out(&one.cookie, &one.secret, &handle);
        assert_eq!(dashboard.find(&one.cookie, &one.secret, &handle), None);
        assert_eq!(dashboard.sign_out_all(), 1);
        assert!(dashboard.is_unused());
    }

    #[test]
    fn keys_and_sessions_are_bounded_and_the_oldest_goes() {
        let dashboard = Dashboard::default();
        let first = dashboard.add_key(grant(false)).expect("random");
        for _ in 0..MAX_KEYS {
            dashboard.add_key(grant(false)).expect("random");
        }
        assert!(dashboard.sign_in(&first).expect("random").is_none());
        let mut oldest = None;
        for _ in 0..=MAX_SESSIONS {
            let key = dashboard.add_key(grant(false)).expect("random");
            let signed_in = dashboard.sign_in(&key).expect("random").expect("a session");
            oldest.get_or_insert(signed_in);
        }
        let oldest = oldest.expect("one");
        assert_eq!(dashboard.find(&oldest.cookie, &oldest.secret, &Arc::default()), None);
    }
}
