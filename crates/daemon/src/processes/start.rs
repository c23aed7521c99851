//! Starting a process: from a request to the first lines of its record.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pinfold_api::error::ErrorCode;
use pinfold_api::types::{OnWaitTimeout, OutputQuery, StartRequest, Started, WaitReason, Waited};
use pinfold_model::cached_json::CachedJson;
use pinfold_model::facts::{History, Intent};
use pinfold_model::id::ProcessId;
use pinfold_model::link::{Order, ToKeeper};
use pinfold_model::outcome::{Cause, Outcome};
use pinfold_model::ready::ReadyBy;
use pinfold_model::service::READY_SOCKET;
use pinfold_model::spec::{Defaults, HOME_ENV, Spec};
use pinfold_model::trace::TRACEPARENT_ENV;
use pinfold_model::units::parse_duration;
use pinfold_os::crash_point;
use pinfold_store::ids::random_mark;
use pinfold_store::record::RECORD_FORMAT;

use crate::access::caller::Caller;
use crate::clock::now;
use crate::core::Core;
use crate::events::watching::{self, PendingAnswer};
use crate::keepers::pool;
use crate::mutex::lock;
use crate::processes::{sandbox, start_request};
use crate::registry::records::{self, TreeDetail};
use crate::registry::{Entry, FoundProcess, Registered};
use crate::request_error::{RequestError, unwritable};
use crate::services::{self, ReadySocket, ports};
use crate::telemetry;
use crate::waits::{until_exit, until_ready};

/// The bounds of a `wait` inside a start; 0 does not wait.
const MIN_WAIT: Duration = Duration::from_millis(10);
const MAX_WAIT: Duration = Duration::from_secs(3600);
/// Text in the answer to a start that waited, unless asked otherwise.
const BUDGET: &str = "32k";

/// How a start waits for its process, and what it then reports.
#[derive(Debug)]
struct StartWait {
    limit: Option<Duration>,
    budget: Option<String>,
    on_timeout: OnWaitTimeout,
    news_after: Option<u64>,
}

impl Core {
    /// Starts a process, and waits for it if the request says so.
    pub(crate) async fn start(
        self: &Arc<Self>,
        caller: &Caller,
        mut request: StartRequest,
    ) -> Result<Started, RequestError> {
        let wait = StartWait {
            limit: request.wait.as_ref().map(|wait| parse_duration(&wait.text())).transpose()?,
            budget: request.budget.as_ref().map(|budget| budget.text()),
            on_timeout: request.on_wait_timeout.unwrap_or(OnWaitTimeout::Keep),
            news_after: request.news_after,
        };
        let sandbox = request.sandbox.take();
        let mut spec = self.parse(caller, request)?;
        spec.sandbox = self.sandbox_of(caller, sandbox, &spec).await?;
        crash_point!("daemon.request_parsed");
        if self.is_shutting_down() {
            return Err(RequestError::new(
                ErrorCode::ShuttingDown,
                "the daemon is shutting down: try again in a moment",
            ));
        }
        if let Some(existing) = self.holder_of_key(&spec).await? {
            if let FoundProcess::Here(entry) = &existing {
                self.decided(entry).await?;
            }
            return self.answer(existing, false, wait, vec![]).await;
        }
        self.index_writer.try_admit()?;
        self.try_admit(&spec)?;
        self.try_admit_store(&spec).await?;
        let hints = self.hints(&spec);
        let core = Arc::clone(self);
        // Goes on even if the client goes away: the process is then found by its key or in the list.
        let started = tokio::spawn(async move { core.start_spec(spec).await });
        let (found, created, _unanswered) = started.await.map_err(RequestError::internal)??;
        self.answer(found, created, wait, hints).await
    }

    fn parse(&self, caller: &Caller, request: StartRequest) -> Result<Spec, RequestError> {
        let owner = self.owner_of_start(caller, request.owner.clone(), request.parent.clone())?;
        let mut spec = start_request::parse(request, owner, &self.defaults())?;
        spec.lifetime = spec.lifetime.or_grace(self.grace_for(caller, &spec.owner));
        Ok(spec)
    }

    /// What a process gets that is started without these options.
    pub(crate) fn defaults(&self) -> Defaults {
        Defaults {
            cwd: self.user_home.clone(),
            home: self.user_home.clone(),
            grace: self.config.grace,
            output_limit: self.config.output_limit,
            limits: self.config.process_limits,
        }
    }

    /// Starts a process for the daemon itself, or finds the one that was started with the same key before.
    pub(crate) async fn start_own(self: &Arc<Self>, spec: Spec) -> Result<FoundProcess, RequestError> {
        let spec = spec.check()?;
        if let Some(existing) = self.holder_of_key(&spec).await? {
            return Ok(existing);
        }
        let core = Arc::clone(self);
        // Continues even if the daemon is shutting down: the next one finds the process by its key.
        let started = tokio::spawn(async move { core.start_spec(spec).await });
        let (found, _, _) = started.await.map_err(RequestError::internal)??;
        Ok(found)
    }

    /// The process that already has this request's key, if it is the same request.
    async fn holder_of_key(self: &Arc<Self>, spec: &Spec) -> Result<Option<FoundProcess>, RequestError> {
        let Some(key) = &spec.idempotency_key else { return Ok(None) };
        self.by_key(&spec.owner, key).await?.map(|holder| same_request(holder, spec)).transpose()
    }

    /// The process that was started under this key, whatever its request was.
    pub(crate) async fn by_key(self: &Arc<Self>, owner: &str, key: &str) -> Result<Option<FoundProcess>, RequestError> {
        if let Some(entry) = self.registry.by_key(owner, key) {
            return Ok(Some(FoundProcess::Here(entry)));
        }
        if !self.registry.may_have_key(owner, key) {
            return Ok(None);
        }
        let (owner, key) = (owner.to_owned(), key.to_owned());
        let found = self.query(move |queries| match queries.by_key(&owner, &key)? {
            Some(id) => queries.get(&id),
            None => Ok(None),
        });
        Ok(found.await?.map(|(history, _)| FoundProcess::Ended(Box::new(history))))
    }

    pub(crate) async fn start_spec(
        self: Arc<Self>,
        mut spec: Spec,
    ) -> Result<(FoundProcess, bool, Option<PendingAnswer>), RequestError> {
        let limit_places = self.limit_places(&spec).await?;
        if let Some(enforcement) = &spec.sandbox {
            // Decided again for a restart: the kernel may be another one by now.
            spec.sandbox = Some(enforcement.asked.enforcement(sandbox::kernel().await?)?);
        }
        if spec.lifetime.grace().is_some() && spec.service.life.is_none() {
            // The silence of its owner counts from here, also if no request has come from that owner yet. A restart is not a
            // sign of life of the owner.
            drop(self.owners.contact(&spec.owner)?);
        }
        // Idle again if the start is refused on any of the lines below.
        let keeper = pool::take(&self).await?;
        // Other starts may have been admitted meanwhile; from here to the registration none is.
        self.try_admit(&spec)?;
        let id = match keeper.prepared() {
            Some(id) => id,
            None => lock(&self.ids).next().map_err(|error| unwritable(&error.to_string()))?,
        };
        // Ports and socket are released if the start fails.
        let chain = spec.service.life.as_ref().map(|life| life.first.clone());
        let taken = self.leases.take(&mut spec.service, chain.as_ref())?;
        let socket = self.ready_socket(&spec, &id)?;
        let identity = keeper.link().identity.get().cloned();
        let identity = identity.ok_or_else(|| RequestError::internal("an idle keeper has not sent its identity"))?;
        let to_restart = spec.service.has_restart_policy().then(|| spec.clone());
        let mut env = environment(&mut spec, socket.as_ref(), self.home.root());
        let mark = random_mark().map_err(RequestError::internal)?;
        if let Some(context) = telemetry::run_context(self.telemetry.as_ref(), &spec, &mark) {
            env.entry(TRACEPARENT_ENV.to_owned()).or_insert_with(|| Some(context.to_string()));
        }
        let intent = Arc::new(CachedJson::from(Intent {
            format: RECORD_FORMAT,
            id: id.clone(),
            spec: spec.without_values(),
            mark,
            at: now(),
            boot_id: self.boot_id.clone(),
            keeper: identity,
        }));
        let entry = Entry::new(History::of(Arc::clone(&intent)));
        self.owners.note_owner(&entry.state.borrow().history);
        if let Registered::KeyTaken(holder) = self.registry.insert(&entry) {
            let found = same_request(FoundProcess::Here(Arc::clone(&holder)), &intent.spec)?;
            // The keeper need not wait for the other start.
            drop(keeper);
            self.decided(&holder).await?;
            return Ok((found, false, None));
        }
        if let Some(spec) = &to_restart
            && let Err(error) = self.begin_life(spec, &id)
        {
            self.undo_start(&entry);
            return Err(error);
        }
        self.leases.keep(&entry.state.borrow().history);
        drop(taken);
        let unanswered = PendingAnswer::new(&self, &entry);
        let link = keeper.into_link();
        link.bind(&entry);
        crash_point!("daemon.entry_registered");
        let next = pool::assign_next_id(&self, &link);
        let start = ToKeeper::Start(Box::new(Order { intent, env, limit_places, next }));
        if link.send(&start).await.is_err() {
            tracing::warn!(process = %id, "a keeper exited before it received the start request");
        }
        crash_point!("daemon.intent_sent");
        // Its task settles the entry, unless it had ended before the two were bound.
        if link.is_closed() {
            link.unbind();
            self.link_closed(Arc::clone(&entry)).await;
        }
        self.look_for_readiness(&entry, socket);
        self.started(&entry).await?;
        self.metrics.note_start();
        crash_point!("daemon.start_known");
        Ok((FoundProcess::Here(entry), true, Some(unanswered)))
    }

    /// The socket that it may connect to when it is ready, if that is how it is to be seen.
    fn ready_socket(&self, spec: &Spec, id: &ProcessId) -> Result<Option<ReadySocket>, RequestError> {
        let wanted = spec.service.ready.as_ref().is_some_and(|ready| ready.by == ReadyBy::Peer);
        let open = || {
            ReadySocket::open(&self.home, id).map_err(|error| match error.kind() {
                // The path is too long: neither space nor permissions are the problem.
                std::io::ErrorKind::InvalidInput => RequestError::invalid(error.to_string()),
                _ => unwritable(&error.to_string()),
            })
        };
        wanted.then(open).transpose()
    }

    /// As [`Core::decided`]; a start that failed is an error too.
    async fn started(&self, entry: &Entry) -> Result<(), RequestError> {
        self.decided(entry).await?;
        let outcome = entry.state.borrow().history.outcome();
        match outcome {
            Some(Outcome::FailedToStart { step, error }) => {
                Err(RequestError::failed_start(step, &error).about(&entry.id))
            }
            Some(Outcome::Lost { evidence }) => {
                Err(RequestError::new(ErrorCode::FailedToStart, evidence).about(&entry.id))
            }
            _ => Ok(()),
        }
    }

    async fn answer(
        self: &Arc<Self>,
        found: FoundProcess,
        created: bool,
        wait: StartWait,
        hints: Vec<String>,
    ) -> Result<Started, RequestError> {
        let StartWait { limit, budget, on_timeout, news_after } = wait;
        let Some(asked) = limit.filter(|wait| !wait.is_zero()) else {
            let record = records::record(&found.snapshot(), &self.home.process(found.id()), TreeDetail::Skip);
            return Ok(Started { record, created, waited: None, output_page: None, news: None, hints });
        };
        let limit = asked.clamp(MIN_WAIT, MAX_WAIT);
        let from = self.telemetry.as_ref().map(|_| now());
        let mut gate = self.owners.releasable_wait(found.snapshot().history.owner());
        let reason = match (&found, on_timeout) {
            (FoundProcess::Here(entry), OnWaitTimeout::Keep) => tokio::select! {
                reason = until_settled(entry, limit) => reason,
                () = gate.released() => WaitReason::Cancelled,
            },
            (FoundProcess::Here(entry), OnWaitTimeout::Stop) => {
                let (core, entry) = (Arc::clone(self), Arc::clone(entry));
                // Continues even if the client disconnects: the request was to stop the process.
                let wait = tokio::spawn(async move { core.exit_or_stop(&entry, limit).await });
                wait.await.map_err(RequestError::internal)??
            }
            (FoundProcess::Ended(_), _) => WaitReason::Exited,
        };
        // Before the record is read: what it does not show yet is then news for the next start.
        let last_change = self.index_writer.last_change();
        if let (Some(telemetry), Some(from)) = (&self.telemetry, from) {
            let history = &found.snapshot().history;
            let until = if history.intent.spec.service.ready.is_some() { "ready" } else { "exit" };
            telemetry.waited(history, from, (until, reason));
        }
        let query = OutputQuery { budget: Some(budget.unwrap_or_else(|| BUDGET.to_owned())), ..OutputQuery::default() };
        let page = self.read_page(&found, &query).await?;
        if let FoundProcess::Here(entry) = &found {
            watching::note_shown_page(entry, &page);
        }
        let record = self.record(&found).await?;
        let waited = Waited { reason, limit_ms: limit.as_millis() as u64, clamped: limit != asked };
        let news = news_after.map(|after| self.index_writer.news(after, last_change, found.id(), &record.owner));
        Ok(Started { record, created, waited: Some(waited), output_page: Some(page), news, hints })
    }

    /// Waits for the leader's end, and stops the tree if it does not come in time.
    async fn exit_or_stop(&self, entry: &Arc<Entry>, limit: Duration) -> Result<WaitReason, RequestError> {
        let reason = until_settled(entry, limit).await;
        if reason == WaitReason::Timeout {
            let manner = entry.state.borrow().history.intent.spec.stop;
            self.stop_entry(entry, Cause::TimeLimit, manner).await?;
        }
        Ok(reason)
    }

    /// What the caller may want to know before it wonders.
    fn hints(&self, spec: &Spec) -> Vec<String> {
        let mut hints = Vec::new();
        if let Some(name) = &spec.name {
            let mut others = self.registry.named(name);
            others.retain(|entry| entry.state.borrow().history.owner() == spec.owner);
            let ids: Vec<_> = others.iter().map(|entry| entry.id.as_str()).collect();
            if !ids.is_empty() {
                let (is, live) = if ids.len() == 1 { ("is", "lives") } else { ("are", "live") };
                let ids = ids.join(", ");
                hints.push(format!("{ids} {is} named `{name}` too and {live}: use ids, the name is no longer enough"));
            }
        }
        self.registry.live_before(None, |entry| {
            let state = entry.state.borrow();
            let other = &state.history.intent.spec;
            let same = other.program == spec.program && other.cwd == spec.cwd && other.owner == spec.owner;
            if same {
                hints.push(format!("the same command already runs in the same directory as {}", entry.id));
            }
            !same
        });
        if let Some(port) = spec.service.awaited_port() {
            hints.extend(services::readiness::held_by_another(port));
        }
        hints
    }
}

/// Waits for the leader's end, or until the process is ready if it has a readiness check.
async fn until_settled(entry: &Entry, limit: Duration) -> WaitReason {
    let has_ready = entry.state.borrow().history.intent.spec.service.ready.is_some();
    match has_ready {
        false => until_exit(entry, limit).await,
        true => match until_ready(entry, limit).await {
            WaitReason::EndedBefore => WaitReason::Exited,
            reason => reason,
        },
    }
}

/// The environment as the process gets it; the spec keeps only the names of what the request set.
fn environment(spec: &mut Spec, socket: Option<&ReadySocket>, home: &Path) -> BTreeMap<String, Option<String>> {
    spec.env.extend(ports::variables(&spec.service));
    if let Some(socket) = socket {
        spec.env.insert(READY_SOCKET.to_owned(), socket.path().to_str().map(str::to_owned));
    }
    let mut env = spec.env.clone();
    if let Some(home) = home.to_str() {
        env.entry(HOME_ENV.to_owned()).or_insert_with(|| Some(home.to_owned()));
    }
    env
}

/// The process with this key; an error if its request was a different one.
fn same_request(holder: FoundProcess, spec: &Spec) -> Result<FoundProcess, RequestError> {
    let intent = holder.snapshot().history.intent;
    let theirs = &intent.spec;
    let asked = |spec: &Spec| spec.sandbox.as_ref().map(|enforcement| enforcement.asked.clone());
    if theirs.program == spec.program && theirs.cwd == spec.cwd && asked(theirs) == asked(spec) {
        return Ok(holder);
    }
    let message = "this idempotency key was used for another command: use a fresh key for each command";
    Err(RequestError::new(ErrorCode::KeyReused, message).about(holder.id()))
}
