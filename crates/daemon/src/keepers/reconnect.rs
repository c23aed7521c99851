//! A link that closed. That is no sign of the keeper's death: a send may have failed, or a message was no message. The
//! kernel says whether it is dead; one that lives is connected to again, and until then its process stays listed as it is.

use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use pinfold_model::facts::Fact;
use pinfold_model::link::{KeeperIdentity, ToKeeper};
use pinfold_os::socket;
use pinfold_store::record::read_record;

use crate::core::{Core, blocking};
use crate::keepers::pool::{self, lives};
use crate::registry::Entry;
use crate::registry::keeper_link::{Link, NoAnswer};

/// The pauses between two tries grow from the first to the last.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LAST_PAUSE: Duration = Duration::from_secs(1);
/// How long a keeper that took a connection may be silent before its process is listed with a note.
const HELLO: Duration = Duration::from_secs(2);

/// What came of a try to reach a keeper.
enum Reached {
    /// It has the process, or is connected and will say so when it goes on.
    Linked,
    /// It has no process: it ends.
    WithoutIt,
    /// It has another process.
    Disowned,
    Not,
}

impl Core {
    /// The link to the keeper of a process closed, or could not be made.
    pub(crate) async fn link_closed(self: &Arc<Self>, entry: Arc<Entry>) {
        let keeper = entry.state.borrow().history.intent.keeper.clone();
        if entry.status().is_over() {
            return;
        }
        if !lives(&keeper) {
            return self.keeper_went(entry).await;
        }
        tokio::spawn(reach_again(Arc::clone(self), entry, keeper));
    }

    /// Notes what the record tells of a process whose keeper could not; whether that is its end.
    async fn note_recorded_end(self: &Arc<Self>, entry: &Arc<Entry>) -> bool {
        let directory = self.home.process(&entry.id);
        let Ok(Ok(record)) = blocking(move || read_record(&directory)).await else { return false };
        if !record.is_over() {
            return false;
        }
        for fact in news(entry, record.facts) {
            self.note_fact(entry, fact).await;
        }
        entry.status().is_over()
    }

    async fn reach(self: &Arc<Self>, entry: &Arc<Entry>, keeper: &KeeperIdentity) -> Reached {
        if self.keeps_another(entry, keeper) {
            return Reached::Disowned;
        }
        let path = self.home.keepers().join(keeper.pid.to_string());
        let Ok(Ok(stream)) = blocking(move || socket::connect(&path)).await else { return Reached::Not };
        let Ok((link, incoming)) = Link::new(OwnedFd::from(stream)) else { return Reached::Not };
        tokio::spawn(pool::serve(Arc::clone(self), Arc::clone(&link), incoming));
        match link.greeted(HELLO).await {
            Ok(told) if told == *keeper => {}
            Err(NoAnswer::Gone) if link.is_newer() => {
                return self.bind(&link, entry, keeper, "is of a newer pinfold: upgrade this one");
            }
            Ok(_) | Err(NoAnswer::Gone) => return Reached::Not,
            // Stopped by a signal, perhaps: it says hello when it goes on.
            Err(NoAnswer::Silent) => return self.bind(&link, entry, keeper, "does not answer"),
        }
        match link.entry() {
            Some(kept) if kept.id == entry.id => Reached::Linked,
            Some(_) => Reached::Disowned,
            None => {
                let _ = link.tell(&ToKeeper::Retire).await;
                Reached::WithoutIt
            }
        }
    }

    /// Whether this very keeper is linked, and has told that it keeps another process.
    pub(crate) fn keeps_another(&self, entry: &Entry, keeper: &KeeperIdentity) -> bool {
        let is_linked = |other: &Arc<Entry>| {
            other.id != entry.id && other.link().is_some_and(|link| link.identity.get() == Some(keeper))
        };
        self.registry.live().iter().any(is_linked)
    }

    /// Binds a process to a link on which its keeper has not told that it keeps it.
    fn bind(&self, link: &Arc<Link>, entry: &Arc<Entry>, keeper: &KeeperIdentity, what: &str) -> Reached {
        link.keep(entry);
        note(entry, keeper, what);
        // Had its task ended before, nobody would notice that it is closed.
        if link.is_gone() && link.release().is_some() {
            return Reached::Not;
        }
        Reached::Linked
    }
}

/// Tries to reach a living keeper until its process is over, it is linked again, or it is dead. Boxed: what serves a link
/// comes back here when that closes.
pub(crate) fn reach_again(
    core: Arc<Core>,
    entry: Arc<Entry>,
    keeper: KeeperIdentity,
) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move {
        let mut pause = FIRST_PAUSE;
        loop {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LAST_PAUSE);
            // A newer keeper, or one whose link broke while it told the end.
            if entry.status().is_over() || core.note_recorded_end(&entry).await {
                return;
            }
            if !lives(&keeper) {
                return core.keeper_went(entry).await;
            }
            if entry.link().is_some() {
                return;
            }
            match core.reach(&entry, &keeper).await {
                Reached::Linked => return,
                Reached::WithoutIt => {}
                Reached::Disowned => {
                    entry.set_disowned();
                    return core.keeper_went(entry).await;
                }
                Reached::Not => note(&entry, &keeper, "cannot be reached"),
            }
        }
    })
}

/// Notes in lists and log, once, how it stands with a keeper.
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

/// Those of the facts that are not known yet.
pub(super) fn news(entry: &Entry, facts: Vec<Fact>) -> Vec<Fact> {
    let mut history = entry.snapshot().history;
    let mut is_news = |fact: &Fact| {
        let before = history.clone();
        history.add(fact.clone());
        history != before
    };
    facts.into_iter().filter(|fact| is_news(fact)).collect()
}
