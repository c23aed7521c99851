//! Reconnecting after a link closed. That does not mean that the keeper is dead: a send may have failed, or a message
//! was malformed. The kernel is asked; a live keeper is reconnected to, and until then its process is listed as it was.

use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use pinfold_model::link::{KeeperIdentity, ToKeeper};
use pinfold_model::reach::{self, AfterClose, AfterTry, Backoff, BeforeTry, KeeperReply, Reconnected};
use pinfold_os::socket;
use pinfold_store::record::read_record;

use crate::core::{Core, blocking};
use crate::keepers::pool::{self, is_alive};
use crate::registry::Entry;
use crate::registry::keeper_link::{Link, NoAnswer};

/// How long a connected keeper may take to say hello before its process is listed with a note.
const HELLO_TIMEOUT: Duration = Duration::from_secs(2);

impl Core {
    /// The link to a process's keeper closed, or could not be opened.
    pub(crate) async fn link_closed(self: &Arc<Self>, entry: Arc<Entry>) {
        let keeper = entry.state.borrow().history.intent.keeper.clone();
        match reach::after_close(entry.status().is_over(), || is_alive(&keeper)) {
            AfterClose::Nothing => {}
            AfterClose::KeeperDied => self.keeper_died(entry).await,
            AfterClose::Reconnect => drop(tokio::spawn(reconnect(Arc::clone(self), entry, keeper))),
        }
    }

    /// If the record of the process already has its end, notes the facts from there, because the keeper cannot report them.
    /// Returns whether the process has ended.
    async fn note_recorded_end(self: &Arc<Self>, entry: &Arc<Entry>) -> bool {
        let directory = self.home.process(&entry.id);
        let Ok(Ok(record)) = blocking(move || read_record(&directory)).await else { return false };
        if !record.is_over() {
            return false;
        }
        let (news, _) = entry.snapshot().history.news(record.facts);
        for fact in news {
            self.note_fact(entry, fact).await;
        }
        entry.status().is_over()
    }

    async fn try_reconnect(self: &Arc<Self>, entry: &Arc<Entry>, keeper: &KeeperIdentity) -> Reconnected {
        if self.keeps_another(entry, keeper) {
            return Reconnected::KeepsAnother;
        }
        let path = self.home.keepers().join(keeper.pid.to_string());
        let Ok(Ok(stream)) = blocking(move || socket::connect(&path)).await else { return Reconnected::Failed };
        let Ok((link, incoming)) = Link::new(OwnedFd::from(stream)) else { return Reconnected::Failed };
        tokio::spawn(pool::serve(Arc::clone(self), Arc::clone(&link), incoming));
        let greeted = link.wait_hello(HELLO_TIMEOUT).await;
        let kept = link.entry();
        let reply = match &greeted {
            Ok(identity) => KeeperReply::Hello { keeper: identity, keeps: kept.as_ref().map(|kept| &kept.id) },
            Err(NoAnswer::Closed) if link.is_newer() => KeeperReply::Newer,
            Err(NoAnswer::Closed) => KeeperReply::Closed,
            Err(NoAnswer::TimedOut) => KeeperReply::Silent,
        };
        match reach::reconnected(keeper, &entry.id, reply) {
            Reconnected::Waiting(what) => self.bind(&link, entry, keeper, what),
            Reconnected::KeepsNothing => {
                let _ = link.send(&ToKeeper::Retire).await;
                Reconnected::KeepsNothing
            }
            reached => reached,
        }
    }

    /// Whether this keeper is linked and has said that it keeps another process.
    pub(crate) fn keeps_another(&self, entry: &Entry, keeper: &KeeperIdentity) -> bool {
        let is_linked = |other: &Arc<Entry>| {
            other.id != entry.id && other.link().is_some_and(|link| link.identity.get() == Some(keeper))
        };
        self.registry.live().iter().any(is_linked)
    }

    /// Binds a process to a link whose keeper has not said hello.
    fn bind(&self, link: &Arc<Link>, entry: &Arc<Entry>, keeper: &KeeperIdentity, what: &'static str) -> Reconnected {
        link.bind(entry);
        note(entry, keeper, what);
        // If the link's task has already ended, it would not report the close.
        if link.is_closed() && link.unbind().is_some() {
            return Reconnected::Failed;
        }
        Reconnected::Waiting(what)
    }
}

/// Reconnects to a live keeper until its process is over, it is linked, or it is dead. Boxed because it is recursive:
/// the task of the new link calls this when that link closes.
pub(crate) fn reconnect(
    core: Arc<Core>,
    entry: Arc<Entry>,
    keeper: KeeperIdentity,
) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move {
        let mut backoff = Backoff::default();
        loop {
            tokio::time::sleep(backoff.next_delay()).await;
            // The end may be in the record without having been reported: by a newer keeper, or one whose link broke
            // meanwhile.
            let is_over = entry.status().is_over() || core.note_recorded_end(&entry).await;
            match backoff.before_try(is_over, || is_alive(&keeper), || entry.link().is_some()) {
                BeforeTry::Done => return,
                BeforeTry::KeeperDied => return core.keeper_died(entry).await,
                BeforeTry::Try => {}
            }
            match backoff.after_try(core.try_reconnect(&entry, &keeper).await) {
                AfterTry::Done => return,
                AfterTry::Retry => {}
                AfterTry::RetryUnreachable => note(&entry, &keeper, "cannot be reached"),
                AfterTry::KeepsAnother => {
                    entry.set_disowned();
                    return core.keeper_died(entry).await;
                }
            }
        }
    })
}

/// Sets the note that lists show about a keeper; logs it when it changes.
fn note(entry: &Entry, keeper: &KeeperIdentity, what: &str) {
    let note = format!("its keeper (pid {}) {what}", keeper.pid);
    entry.state.send_if_modified(|state| {
        let changed = state.note.as_ref() != Some(&note);
        if changed {
            tracing::warn!(process = %entry.id, "{note}");
        }
        state.note = Some(note);
        changed
    });
}
