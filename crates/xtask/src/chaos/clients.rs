//! The clients of the campaign: they start, stop, read and follow processes during the faults. A failed request is repeated:
//! only acknowledged requests count.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use pinfold_api::client::{Client, ClientError};
use pinfold_api::error::ErrorCode;
use pinfold_api::types::{Event, EventsQuery, ListQuery, OutputQuery, SignalRequest, StopRequest};
use tokio::runtime::Runtime;

use super::agents::Chat;
use super::campaign_home::CampaignHome;
use super::random::Dice;
use super::workloads::{Manner, Mark, Part, Script};

/// Timeout of a request: a paused daemon answers late or never.
const REQUEST: Duration = Duration::from_secs(10);
/// Time after the last fault for all requests to succeed.
const AFTERWARDS: Duration = Duration::from_secs(90);

/// Number of clients that start processes.
pub(super) const STARTERS: usize = 3;

/// State that all clients share.
#[derive(Debug)]
pub(super) struct Campaign {
    pub(super) scene: CampaignHome,
    pub(super) script: Script,
    pub(super) mark: Mark,
    pub(super) seed: u64,
    pub(super) cgroup: bool,
    /// Maximum number of live processes.
    max_live: u64,
    next: AtomicU64,
    /// Starting clients that have not finished.
    starters: AtomicU64,
    live: AtomicU64,
    /// Set when no more processes are started.
    pub(super) last_call: AtomicBool,
    /// Set when all clients must end.
    pub(super) over: AtomicBool,
    pub(super) actors: Mutex<Vec<Actor>>,
    stops: Mutex<Vec<(Instant, usize)>>,
    /// Events as they were read, by number.
    pub(super) followed: Mutex<BTreeMap<u64, Event>>,
    /// Number of pauses.
    pub(super) paused: AtomicU64,
    /// Number of repeated requests.
    pub(super) repeated: AtomicU64,
    /// Pids of MCP servers that are not reaped yet. None is started while the lock is held.
    pub(super) servers: Mutex<Vec<u32>>,
    /// Records of the agents.
    pub(super) chats: Mutex<Vec<Chat>>,
    pub(super) violations: Mutex<Vec<String>>,
}

/// A process whose start was acknowledged.
#[derive(Clone, Debug)]
pub(super) struct Actor {
    pub(super) part: Part,
    pub(super) id: String,
    /// Output up to here was read.
    pub(super) read: u64,
    pub(super) stopped: bool,
}

impl Campaign {
    pub(super) fn new(scene: CampaignHome, seed: u64, max_live: u64, cgroup: bool) -> Self {
        let mark = Mark(format!("chaos-{}-{seed}", std::process::id()));
        Self {
            scene,
            script: Script::new(),
            mark,
            seed,
            cgroup,
            max_live,
            next: AtomicU64::new(0),
            starters: AtomicU64::new(STARTERS as u64),
            live: AtomicU64::new(0),
            last_call: AtomicBool::new(false),
            over: AtomicBool::new(false),
            actors: Mutex::default(),
            stops: Mutex::default(),
            followed: Mutex::default(),
            paused: AtomicU64::new(0),
            repeated: AtomicU64::new(0),
            servers: Mutex::default(),
            chats: Mutex::default(),
            violations: Mutex::default(),
        }
    }

    pub(super) fn violation(&self, what: String) {
        eprintln!("chaos: LOST: {what}");
        lock(&self.violations).push(what);
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    pub(super) fn has_stopped_starting(&self) -> bool {
        self.last_call.load(Ordering::Relaxed)
    }

    /// Starts process after process until the end; repeats each start until it is acknowledged.
    pub(super) fn start_processes(&self) -> anyhow::Result<()> {
        let started = self.start_until_the_campaign_ends();
        self.starters.fetch_sub(1, Ordering::Release);
        started
    }

    fn start_until_the_campaign_ends(&self) -> anyhow::Result<()> {
        let voice = RetryingClient::new(self)?;
        while !self.has_stopped_starting() {
            if self.live.load(Ordering::Relaxed) >= self.max_live {
                std::thread::sleep(Duration::from_millis(50));
                continue;
            }
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            self.live.fetch_add(1, Ordering::Relaxed);
            let part = Part::of(self.seed, number, &self.mark, self.cgroup);
            let request = part.request(&self.mark);
            match voice.until_done(|client| async move { client.start(&request).await }) {
                Ok(started) => {
                    let mut actors = lock(&self.actors);
                    let stop = part.stop.map(|stop| (Instant::now() + stop.after, actors.len()));
                    actors.push(Actor { part, id: started.record.id, read: 0, stopped: false });
                    drop(actors);
                    lock(&self.stops).extend(stop);
                }
                Err(error) => self.violation(format!("process {number} ({}) cannot be started: {error}", part.kind)),
            }
        }
        Ok(())
    }

    /// Whether no more processes will be started.
    pub(super) fn is_all_started(&self) -> bool {
        self.starters.load(Ordering::Acquire) == 0
    }

    /// Stops processes that are due, until the campaign is over and none is left.
    pub(super) fn stop_processes(&self) -> anyhow::Result<()> {
        let voice = RetryingClient::new(self)?;
        loop {
            let due = {
                let mut stops = lock(&self.stops);
                let place = stops.iter().position(|(at, _)| *at <= Instant::now());
                place.map(|place| stops.swap_remove(place).1)
            };
            match due {
                Some(actor) => self.stop(&voice, actor),
                None if self.is_over() => return Ok(()),
                None if self.has_stopped_starting() && lock(&self.stops).is_empty() => return Ok(()),
                None => std::thread::sleep(Duration::from_millis(10)),
            }
        }
    }

    fn stop(&self, voice: &RetryingClient<'_>, place: usize) {
        let actor = lock(&self.actors)[place].clone();
        let id = actor.id.as_str();
        if actor.part.stop.is_some_and(|stop| stop.once_it_prints) {
            match voice.until_done(|client| async move { client.show(id).await }) {
                Ok(record) if record.output.bytes > 0 || record.outcome.is_some() => {}
                _ => return lock(&self.stops).push((Instant::now() + Duration::from_millis(200), place)),
            }
        }
        if actor.part.stop.is_some_and(|stop| stop.manner == Manner::PauseAndKill) {
            match voice.until_done(|client| async move { pause_and_kill(&client, id).await }) {
                Ok(()) => lock(&self.actors)[place].stopped = true,
                Err(error) => self.violation(format!("{id} ({}) cannot be killed: {error}", actor.part.kind)),
            }
            return;
        }
        let request = &StopRequest { by: Some("the campaign".to_owned()), ..StopRequest::default() };
        match voice.until_done(|client| async move { client.stop(id, request).await }) {
            Ok(answer) if answer.survivors.is_empty() => lock(&self.actors)[place].stopped = true,
            Ok(answer) => self.violation(format!("{id} ({}): survivors {:?}", actor.part.kind, answer.survivors)),
            Err(error) => self.violation(format!("{id} ({}) cannot be stopped: {error}", actor.part.kind)),
        }
    }

    /// Pauses and resumes one process after the other.
    pub(super) fn pause_processes(&self) -> anyhow::Result<()> {
        let voice = RetryingClient::new(self)?;
        let mut dice = Dice::new(self.seed, 5);
        while !self.has_stopped_starting() {
            std::thread::sleep(dice.millis(100, 600));
            let recent: Vec<String> = lock(&self.actors).iter().rev().take(40).map(|actor| actor.id.clone()).collect();
            let living: Vec<_> = recent.into_iter().filter(|id| !self.scene.is_over(id)).collect();
            let Some(id) = dice.pick(&living).map(String::as_str) else { continue };
            if voice.once(|client| async move { client.pause(id).await }).is_none() {
                // It may be paused anyway: the answer was lost with the daemon.
                self.repeated.fetch_add(1, Ordering::Relaxed);
            }
            self.paused.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(dice.millis(0, 700));
            let resumed = voice.until_done(|client| async move { unless_over(client.resume(id).await.map(drop)) });
            if let Err(error) = resumed {
                self.violation(format!("{id} cannot be resumed: {error}"));
            }
        }
        Ok(())
    }

    /// Reads output at random, and counts live processes.
    pub(super) fn read_output(&self) -> anyhow::Result<()> {
        let voice = RetryingClient::new(self)?;
        let mut dice = Dice::new(self.seed, 3);
        while !self.is_over() {
            let count = lock(&self.actors).len();
            if count > 0 {
                // Mostly of recent ones.
                let back = dice.between(0, 2 * self.max_live).min(count as u64 - 1) as usize;
                self.read_some(&voice, count - 1 - back);
            }
            let query = ListQuery { status: Some("live".to_owned()), limit: Some(1), ..ListQuery::default() };
            if let Some(list) = voice.once(|client| async move { client.list(&query).await }) {
                self.live.store(list.total, Ordering::Relaxed);
            }
            std::thread::sleep(Duration::from_millis(30));
        }
        Ok(())
    }

    fn read_some(&self, voice: &RetryingClient<'_>, place: usize) {
        let actor = lock(&self.actors)[place].clone();
        let query = OutputQuery { cursor: Some(actor.read), max_bytes: Some("64k".into()), ..OutputQuery::default() };
        let id = actor.id.as_str();
        let Some(page) = voice.once(|client| async move { client.output_raw(id, &query).await }) else { return };
        if !self.script.has_at(page.cursor, &page.bytes) {
            self.violation(format!("{id} ({}): at {} it did not print what was read", actor.part.kind, page.cursor));
        }
        // A gap alone does not count as read: gaps are known only to the keeper until the end is written, and are lost if it is
        // killed.
        if !page.bytes.is_empty() {
            lock(&self.actors)[place].read = page.next_cursor;
        }
    }

    /// Reads every event, in order.
    pub(super) fn follow_events(&self) -> anyhow::Result<()> {
        let voice = RetryingClient::new(self)?;
        let mut after = 0;
        while !self.is_over() {
            let query = EventsQuery {
                after: Some(u64::to_string(&after)),
                limit: Some(1000),
                wait: Some("1s".to_owned()),
                ..EventsQuery::default()
            };
            let Some(page) = voice.once(|client| async move { client.events(&query).await }) else {
                std::thread::sleep(Duration::from_millis(50));
                continue;
            };
            let mut followed = lock(&self.followed);
            for event in page.events {
                if event.seq <= after {
                    self.violation(format!("event {} came after {after}", event.seq));
                }
                after = event.seq;
                followed.insert(event.seq, event);
            }
        }
        Ok(())
    }
}

/// Pauses a process and kills it while it is paused.
async fn pause_and_kill(client: &Client, id: &str) -> Result<(), ClientError> {
    unless_over(client.pause(id).await.map(drop))?;
    let request = SignalRequest { signal: "KILL".to_owned(), by: Some("the campaign".to_owned()) };
    unless_over(client.signal(id, &request).await.map(drop))
}

/// It is not an error to signal a process that has ended.
fn unless_over(answer: Result<(), ClientError>) -> Result<(), ClientError> {
    match answer {
        Err(ClientError::Api { error, .. }) if error.code == ErrorCode::AlreadyOver => Ok(()),
        other => other,
    }
}

/// A client that repeats requests.
pub(super) struct RetryingClient<'a> {
    play: &'a Campaign,
    runtime: Runtime,
    client: Client,
}

impl<'a> RetryingClient<'a> {
    pub(super) fn new(play: &'a Campaign) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Self { play, runtime, client: play.scene.client() })
    }

    /// One attempt.
    pub(super) fn once<T, F: Future<Output = Result<T, ClientError>>>(
        &self,
        ask: impl FnOnce(Client) -> F,
    ) -> Option<T> {
        self.try_once(ask).ok()
    }

    fn try_once<T, F: Future<Output = Result<T, ClientError>>>(
        &self,
        ask: impl FnOnce(Client) -> F,
    ) -> Result<T, String> {
        let limited = async { tokio::time::timeout(REQUEST, ask(self.client.clone())).await };
        match self.runtime.block_on(limited) {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("no answer in time".to_owned()),
        }
    }

    /// Repeats a request until it succeeds or the time after the campaign has passed.
    fn until_done<T, F: Future<Output = Result<T, ClientError>>>(
        &self,
        ask: impl FnOnce(Client) -> F + Clone,
    ) -> Result<T, String> {
        let mut given_up = None;
        loop {
            let error = match self.try_once(ask.clone()) {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            self.play.repeated.fetch_add(1, Ordering::Relaxed);
            if self.play.has_stopped_starting() {
                let deadline = *given_up.get_or_insert_with(|| Instant::now() + AFTERWARDS);
                if Instant::now() > deadline || self.play.is_over() {
                    return Err(error);
                }
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// Locks a mutex, also after a panic.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
