//! The core: everything the daemon has, shared by all its tasks. What it does with it is in the modules around.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use pinfold_api::error::ErrorCode;
use pinfold_api::types::{Record, Unreadable};
use pinfold_model::units::Moment;
use pinfold_os::cgroup::Base;
use pinfold_os::controllers::Place;
use pinfold_store::Durability;
use pinfold_store::ids::IdSource;
use pinfold_store::index::IndexError;
use pinfold_store::layout::Home;
use pinfold_store::queries::Queries;
use tokio::sync::watch;

use crate::access::origin::Peers;
use crate::access::tokens::Tokens;
use crate::agents::Agents;
use crate::coder::Coder;
use crate::config::Config;
use crate::events::index_writer::Ledger;
use crate::events::webhook::Webhooks;
use crate::keepers::pool::Keepers;
use crate::lock::lock;
use crate::metrics::Metrics;
use crate::owners::sessions::SessionBook;
use crate::processes::retention::ClockWatch;
use crate::refusal::Refusal;
use crate::registry::records;
use crate::registry::recovery_progress::Progress;
use crate::registry::{Found, OwnerBook, Registry};
use crate::services::ports::Leases;
use crate::services::restarts::Chains;
pub(crate) use crate::threads::blocking;

/// How soon an index that was locked is asked again.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Everything the daemon has. Shared by all its tasks.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) config: Config,
    pub(crate) home: Home,
    pub(crate) registry: Registry,
    pub(crate) keepers: Keepers,
    pub(crate) ledger: Ledger,
    pub(crate) owners: OwnerBook,
    pub(crate) sessions: SessionBook,
    pub(crate) tokens: Tokens,
    pub(crate) peers: Peers,
    pub(crate) webhooks: Webhooks,
    /// The ports that processes are lent.
    pub(crate) leases: Leases,
    /// What lives again when it ends.
    pub(crate) chains: Chains,
    /// Where it listens for TCP, once it does.
    pub(crate) tcp_address: OnceLock<SocketAddr>,
    /// Numbers for new processes.
    pub(crate) ids: Mutex<IdSource>,
    /// The index, for reading; used from blocking threads only.
    pub(crate) queries: Mutex<Queries>,
    /// When a question to the index was last refused because another program has locked it, and why.
    pub(crate) unreadable_index: Mutex<Option<(Instant, String)>>,
    pub(crate) metrics: Metrics,
    pub(crate) coder: Coder,
    /// Agents that are hosted.
    pub(crate) agents: Agents,
    pub(crate) boot_id: String,
    pub(crate) user_home: String,
    pub(crate) started_at: Moment,
    /// Where keepers make their cgroups, or why they cannot.
    pub(crate) cgroups: Result<Base, String>,
    /// What the name of every cgroup begins with that is made for this home.
    pub(crate) cgroup_name: String,
    /// The name of the cgroups that limit processes, and where they can be made once that was needed.
    pub(crate) limit_name: String,
    pub(crate) limit_places: OnceLock<Vec<Place>>,
    /// How far recovery is.
    pub(crate) recovery: Progress,
    /// Whether the wall clock was set forward while this daemon ran.
    pub(crate) clock_watch: Mutex<ClockWatch>,
    /// What became of the home, if it was moved or removed.
    pub(crate) home_trouble: Mutex<Option<String>>,
    /// Directories that recovery could not read.
    pub(crate) unreadable: Mutex<Vec<Unreadable>>,
    pub(crate) shutdown: watch::Sender<bool>,
}

impl Core {
    pub(crate) fn is_shutting_down(&self) -> bool {
        *self.shutdown.borrow()
    }

    pub(crate) fn durability(&self) -> Durability {
        match self.config.durability {
            crate::config::Durability::Programs => Durability::Programs,
            crate::config::Durability::Power => Durability::Power,
        }
    }

    /// Runs a question to the index on a thread that may block; what was told before is committed first, if that can be
    /// done soon. What the index does not have yet is in the registry.
    pub(crate) async fn query<T: Send + 'static>(
        self: &Arc<Self>,
        ask: impl FnOnce(&Queries) -> Result<T, IndexError> + Send + 'static,
    ) -> Result<T, Refusal> {
        self.ledger.flush().await;
        // While another program has locked the index, not every question waits for it anew.
        if let Some(why) = self.locked_index() {
            return Err(Refusal::new(ErrorCode::StoreUnwritable, why));
        }
        let core = Arc::clone(self);
        let answer = blocking(move || ask(&lock(&core.queries))).await?;
        let locked = answer.as_ref().err().filter(|error| error.is_locked()).map(|_| {
            let path = self.home.index();
            (Instant::now(), format!("another program has locked {}: close it, and ask again", path.display()))
        });
        *lock(&self.unreadable_index) = locked.clone();
        match locked {
            Some((_, why)) => Err(Refusal::new(ErrorCode::StoreUnwritable, why)),
            None => answer.map_err(Refusal::from),
        }
    }

    /// Why the index cannot be read, if that was found out a moment ago.
    pub(crate) fn locked_index(&self) -> Option<String> {
        lock(&self.unreadable_index).clone().filter(|(at, _)| at.elapsed() < ASK_AGAIN).map(|(_, why)| why)
    }

    /// The record of a process, with a look at its living tree.
    pub(crate) async fn record(self: &Arc<Self>, found: &Found) -> Result<Record, Refusal> {
        let (state, directory) = (found.snapshot(), self.home.process(found.id()));
        if state.history.status().is_over() {
            let record = records::record(&state, &directory, records::Look::Away);
            return Ok(self.with_life(record, &state.history).await);
        }
        blocking(move || records::record(&state, &directory, records::Look::Closely)).await
    }
}
