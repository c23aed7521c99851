//! Idempotency keys of `POST /start`: a repeated request gets the process that the first one started.
//!
//! A key belongs to one owner, so two chats may use the same one. The process carries a digest of it as its own
//! idempotency key, which makes it durable (D2), and a fingerprint of the request in a label: the values of its
//! environment are not stored, so they are compared by a hash with the home's secret.
//!
//! From the moment a request is admitted until its process is registered, [`Keys`] holds the key in memory. Others that
//! come with it wait for that, at most [`DEADLINE`]: a client that gives up must not
//! assume that the process will never run.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pinfold_model::facts::Status;
use pinfold_model::outcome::Outcome;
use sha2::{Digest, Sha256};
use tokio::sync::watch;
use tokio::time::Instant;

use super::start::Asked;
use super::wire::Fault;
use crate::core::Core;
use crate::mutex::lock;
use crate::registry::{Entry, FoundProcess};
use crate::request_error::RequestError;

/// The label with the fingerprint of the request.
pub(super) const FINGERPRINT: &str = "coder.request";
/// How long a request waits for another that holds its key; coder's server gives up a request after 20 s.
const DEADLINE: Duration = Duration::from_secs(15);
/// How often a start that failed may be repeated with the same key.
const ATTEMPTS: u32 = 32;

/// An owner and its key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Place {
    owner: String,
    digest: String,
}

impl Place {
    pub(super) fn new(owner: String, key: &str) -> Self {
        Self { owner, digest: hex(&Sha256::digest(key)) }
    }

    /// The idempotency key of the process of this attempt.
    fn key(&self, attempt: u32) -> String {
        match attempt {
            0 => format!("coder-{}", self.digest),
            again => format!("coder-{}-{again}", self.digest),
        }
    }
}

/// A hash of everything in a request that decides what it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fingerprint(String);

impl Fingerprint {
    /// Of a request as it was sent: an empty directory is the same request even if the default directory changed.
    pub(super) fn new(secret: u128, asked: &Asked) -> Self {
        let mut hash = Sha256::new().chain_update(secret.to_be_bytes()).chain_update(b"request");
        let texts = [&asked.command, &asked.workdir].into_iter();
        for text in texts.chain(asked.env.iter().flat_map(|(name, value)| [name, value])) {
            // With its length, so that different requests never hash the same bytes.
            hash.update((text.len() as u64).to_be_bytes());
            hash.update(text);
        }
        hash.update([u8::from(asked.background)]);
        Self(hex(&hash.finalize()[..16]))
    }

    pub(super) fn text(&self) -> &str {
        &self.0
    }
}

/// Keys whose starts are under way.
#[derive(Debug, Default)]
pub(super) struct Keys {
    /// One for each request that holds a key; so bounded by the number of requests.
    held: Mutex<HashMap<Place, Held>>,
}

#[derive(Debug)]
struct Held {
    /// The request that is being started; `None` while its holder checks whether it was started before.
    fingerprint: Option<Fingerprint>,
    /// Closed when the key is free again.
    done: watch::Receiver<()>,
}

/// The exclusive right to start a process with a key, until it is dropped.
#[derive(Debug)]
pub(super) struct KeyLock {
    core: Arc<Core>,
    place: Place,
    _done: watch::Sender<()>,
}

impl Drop for KeyLock {
    fn drop(&mut self) {
        lock(&self.core.coder.keys.held).remove(&self.place);
    }
}

impl KeyLock {
    /// Records what is being started.
    pub(super) fn begin(&self, fingerprint: &Fingerprint) {
        if let Some(held) = lock(&self.core.coder.keys.held).get_mut(&self.place) {
            held.fingerprint = Some(fingerprint.clone());
        }
    }
}

/// Whether a process was started with a key.
pub(super) enum KeyState {
    /// No process has it; the next one gets this key.
    Free {
        key: String,
    },
    Process(FoundProcess),
}

/// How long this request may still wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaitDeadline(Instant);

impl WaitDeadline {
    pub(super) fn new(core: &Core) -> Self {
        Self(Instant::now() + DEADLINE.min(core.config.coder.wait_cap))
    }

    /// Waits until another request has released the key. False if it did not in time.
    async fn settled(self, mut done: watch::Receiver<()>) -> bool {
        // The sender never sends; it is dropped.
        tokio::time::timeout_at(self.0, done.changed()).await.is_ok()
    }

    /// Waits until the keeper has reported whether the start succeeded. False if it did not in time.
    async fn decided(self, entry: &Entry) -> bool {
        let mut state = entry.state.subscribe();
        let decided = state.wait_for(|state| state.history.status() != Status::Starting || state.refused.is_some());
        tokio::time::timeout_at(self.0, decided).await.is_ok()
    }
}

/// Locks the key as soon as no other request holds it.
pub(super) async fn reserve(
    core: &Arc<Core>,
    place: &Place,
    fingerprint: &Fingerprint,
    deadline: WaitDeadline,
) -> Result<KeyLock, Fault> {
    let mut shutdown = core.shutdown.subscribe();
    loop {
        let done = match try_reserve(core, place) {
            Ok(ticket) => return Ok(ticket),
            Err((Some(other), _)) if other != *fingerprint => return Err(mismatch()),
            Err((_, done)) => done,
        };
        tokio::select! {
            settled = deadline.settled(done) => if !settled { return Err(start_is_pending()) },
            _ = shutdown.wait_for(|down| *down) => return Err(super::start::closed()),
        }
    }
}

fn try_reserve(core: &Arc<Core>, place: &Place) -> Result<KeyLock, (Option<Fingerprint>, watch::Receiver<()>)> {
    let mut held = lock(&core.coder.keys.held);
    if let Some(other) = held.get(place) {
        return Err((other.fingerprint.clone(), other.done.clone()));
    }
    let (sender, done) = watch::channel(());
    held.insert(place.clone(), Held { fingerprint: None, done });
    Ok(KeyLock { core: Arc::clone(core), place: place.clone(), _done: sender })
}

/// The process that this request started before, once it runs; or the key for a new one.
pub(super) async fn holder(
    core: &Arc<Core>,
    place: &Place,
    fingerprint: &Fingerprint,
    deadline: WaitDeadline,
) -> Result<KeyState, Fault> {
    let holder = look(core, place, deadline).await.map_err(|error| error.fault(start_is_pending))?;
    if let KeyState::Process(found) = &holder
        && found.intent().spec.labels.get(FINGERPRINT).map(String::as_str) != Some(fingerprint.text())
    {
        return Err(mismatch());
    }
    Ok(holder)
}

/// The process that was started with a key, once it runs.
pub(super) async fn started_under(core: &Arc<Core>, place: &Place) -> Result<FoundProcess, Fault> {
    let not_spawned = || {
        let message = "The start holding this idempotency key has not spawned its process yet.";
        Fault::conflict("start_pending", message)
    };
    let deadline = WaitDeadline::new(core);
    loop {
        let held = lock(&core.coder.keys.held).get(place).map(|held| held.done.clone());
        let Some(done) = held else { break };
        if !deadline.settled(done).await {
            return Err(not_spawned());
        }
    }
    match look(core, place, deadline).await.map_err(|error| error.fault(not_spawned))? {
        KeyState::Process(found) => Ok(found),
        KeyState::Free { .. } => Err(Fault::no_such_key()),
    }
}

/// Why there is no answer about a key.
enum NoAnswer {
    /// Its process was not started in time.
    Pending,
    Refused(RequestError),
}

impl NoAnswer {
    fn fault(self, pending: impl FnOnce() -> Fault) -> Fault {
        match self {
            Self::Pending => pending(),
            Self::Refused(error) => Fault::of(&error),
        }
    }
}

/// Looks for the process of the last attempt.
async fn look(core: &Arc<Core>, place: &Place, deadline: WaitDeadline) -> Result<KeyState, NoAnswer> {
    let mut attempt = 0;
    loop {
        let key = place.key(attempt);
        let Some(found) = core.by_key(&place.owner, &key).await.map_err(NoAnswer::Refused)? else {
            return Ok(KeyState::Free { key });
        };
        if let FoundProcess::Here(entry) = &found
            && !deadline.decided(entry).await
        {
            return Err(NoAnswer::Pending);
        }
        let state = found.snapshot();
        if state.refused.is_some() {
            // It was never started, so its key is free.
            return Ok(KeyState::Free { key });
        }
        if !matches!(state.history.outcome(), Some(Outcome::FailedToStart { .. })) || attempt == ATTEMPTS {
            return Ok(KeyState::Process(found));
        }
        attempt += 1;
    }
}

fn mismatch() -> Fault {
    let message = "Idempotency key was already used to start a process with different parameters.";
    Fault::conflict("input_mismatch", message).detail("key was already reserved with a different input")
}

fn start_is_pending() -> Fault {
    let message = "Timed out waiting for the concurrent start that holds this idempotency key.";
    Fault::conflict("start_pending", message).detail("it may still start: send the request again")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::super::body::Fields;
    use super::*;

    fn print(secret: u128, body: &str) -> Fingerprint {
        let asked = Asked::parse(&Fields::parse(body.as_bytes()).expect("JSON")).expect("a request");
        Fingerprint::new(secret, &asked)
    }

    #[test]
    fn requests_are_the_same_if_all_that_decides_what_runs_is() {
        let one = r#"{"command":"a","env":{"A":"1","B":"2"}}"#;
        let same = [one, r#"{"env":{"B":"2","A":"1"},"workdir":"","idempotency_key":"k","command":"a"}"#];
        for body in same {
            assert_eq!(print(1, body), print(1, one), "{body}");
        }
        let others = [
            r#"{"command":"b","env":{"A":"1","B":"2"}}"#,
            r#"{"command":"a","env":{"A":"1","B":"3"}}"#,
            r#"{"command":"a","env":{"A":"1B","":"2"}}"#,
            r#"{"command":"a","env":{"A":"1","B":"2"},"background":true}"#,
            r#"{"command":"a","env":{"A":"1","B":"2"},"workdir":"/"}"#,
            r#"{"command":"a"}"#,
        ];
        for body in others {
            assert_ne!(print(1, body), print(1, one), "{body}");
        }
        assert_ne!(print(2, one), print(1, one), "another home's");
    }
}
