//! A link that closed. That is no sign of the keeper's death: a send may have failed, or a message was no message. The
//! kernel says whether it is dead; one that lives is connected to again, and until then its process stays listed as it is.

use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use pinfold_model::link::{KeeperIdentity, ToKeeper};
use pinfold_model::reach::{self, AfterClose, AfterTry, BeforeTry, Heard, Reached, Reaching};
use pinfold_os::socket;
use pinfold_store::record::read_record;

use crate::core::{Core, blocking};
use crate::keepers::pool::{self, lives};
use crate::registry::Entry;
use crate::registry::keeper_link::{Link, NoAnswer};

/// How long a keeper that took a connection may be silent before its process is listed with a note.
const HELLO: Duration = Duration::from_secs(2);

impl Core {
    /// The link to the keeper of a process closed, or could not be made.
    pub(crate) async fn link_closed(self: &Arc<Self>, entry: Arc<Entry>) {
        let keeper = entry.state.borrow().history.intent.keeper.clone();
        match reach::after_close(entry.status().is_over(), || lives(&keeper)) {
            AfterClose::Nothing => {}
            AfterClose::Settle => self.keeper_went(entry).await,
            AfterClose::Reach => drop(tokio::spawn(reach_again(Arc::clone(self), entry, keeper))),
        }
    }

    /// Notes what the record tells of a process whose keeper could not; whether that is its end.
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

    async fn reach(self: &Arc<Self>, entry: &Arc<Entry>, keeper: &KeeperIdentity) -> Reached {
        if self.keeps_another(entry, keeper) {
            return Reached::Disowned;
        }
        let path = self.home.keepers().join(keeper.pid.to_string());
        let Ok(Ok(stream)) = blocking(move || socket::connect(&path)).await else { return Reached::Not };
        let Ok((link, incoming)) = Link::new(OwnedFd::from(stream)) else { return Reached::Not };
        tokio::spawn(pool::serve(Arc::clone(self), Arc::clone(&link), incoming));
        let greeted = link.greeted(HELLO).await;
        let kept = link.entry();
        let heard = match &greeted {
            Ok(told) => Heard::Hello { keeper: told, keeps: kept.as_ref().map(|kept| &kept.id) },
            Err(NoAnswer::Gone) if link.is_newer() => Heard::Newer,
            Err(NoAnswer::Gone) => Heard::Closed,
            Err(NoAnswer::Silent) => Heard::Silent,
        };
        match reach::reached(keeper, &entry.id, heard) {
            Reached::Bound(what) => self.bind(&link, entry, keeper, what),
            Reached::WithoutIt => {
                let _ = link.tell(&ToKeeper::Retire).await;
                Reached::WithoutIt
            }
            reached => reached,
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
    fn bind(&self, link: &Arc<Link>, entry: &Arc<Entry>, keeper: &KeeperIdentity, what: &'static str) -> Reached {
        link.keep(entry);
        note(entry, keeper, what);
        // Had its task ended before, nobody would notice that it is closed.
        if link.is_gone() && link.release().is_some() {
            return Reached::Not;
        }
        Reached::Bound(what)
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
        let mut reaching = Reaching::default();
        loop {
            tokio::time::sleep(reaching.pause()).await;
            // Over by its record: a newer keeper, or one whose link broke while it told the end.
            let is_over = entry.status().is_over() || core.note_recorded_end(&entry).await;
            match reaching.before_try(is_over, || lives(&keeper), || entry.link().is_some()) {
                BeforeTry::Done => return,
                BeforeTry::Settle => return core.keeper_went(entry).await,
                BeforeTry::Try => {}
            }
            match reaching.after_try(core.reach(&entry, &keeper).await) {
                AfterTry::Done => return,
                AfterTry::Again => {}
                AfterTry::AgainUnreachable => note(&entry, &keeper, "cannot be reached"),
                AfterTry::SettleDisowned => {
                    entry.set_disowned();
                    return core.keeper_went(entry).await;
                }
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
