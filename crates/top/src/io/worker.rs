//! The thread that talks to the daemon: it carries out effects and sends what comes of them.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use pinfold_api::client::{Client, ClientError};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::AbortHandle;

use super::{acts, attach, events, logs, own_terminal, poll};
use crate::message::{Effect, Interest, Message};

/// How long a request may take before the daemon counts as silent.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// The time between two ticks: ages are in seconds.
const TICK: Duration = Duration::from_secs(1);
/// How long the screen gets to end after a signal.
const SIGNAL_GRACE: Duration = Duration::from_secs(2);

/// What tasks share.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    pub(super) client: Client,
    pub(super) news: mpsc::Sender<Message>,
    /// Something happened: ask the daemon now, not at the next interval.
    pub(super) refresh: Arc<Notify>,
    /// A process ended, or this is the first round: read the ended ones again.
    pub(super) ended_changed: Arc<Notify>,
}

impl Shared {
    /// Sends a message; whether the screen is still there.
    pub(super) async fn send(&self, message: Message) -> bool {
        self.news.send(message).await.is_ok()
    }
}

/// The thread's runtime, with its signal handlers installed.
#[derive(Debug)]
pub(super) struct Worker {
    runtime: Runtime,
    signals: Vec<(SignalKind, Signal)>,
}

impl Worker {
    /// Installs the signal handlers. Call this before taking over the terminal: a signal without a handler would end the
    /// program and leave the terminal raw.
    pub(super) fn prepare() -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let context = runtime.enter();
        let kinds = [SignalKind::terminate(), SignalKind::hangup(), SignalKind::interrupt()];
        let signals = kinds.into_iter().map(|kind| Ok((kind, signal(kind)?))).collect::<io::Result<_>>()?;
        drop(context);
        Ok(Self { runtime, signals })
    }

    /// Starts the thread. It ends with the program.
    pub(super) fn start(
        self,
        client: Client,
        effects: mpsc::Receiver<Effect>,
        urgent: mpsc::Sender<Message>,
        news: mpsc::Sender<Message>,
    ) -> io::Result<()> {
        let shared = Shared { client, news, refresh: Arc::default(), ended_changed: Arc::default() };
        let Self { runtime, signals } = self;
        let work = move || runtime.block_on(work(shared, signals, effects, urgent));
        std::thread::Builder::new().name("daemon talk".into()).spawn(work).map(drop)
    }
}

async fn work(
    shared: Shared,
    signals: Vec<(SignalKind, Signal)>,
    mut effects: mpsc::Receiver<Effect>,
    urgent: mpsc::Sender<Message>,
) {
    let (interest, interest_receiver) = watch::channel(Interest::default());
    tokio::spawn(poll::run(shared.clone(), interest_receiver));
    tokio::spawn(events::run(shared.clone()));
    tokio::spawn(tick(urgent.clone()));
    for (kind, signals) in signals {
        tokio::spawn(on_signal(kind, signals, urgent.clone()));
    }
    let mut log_tasks: Vec<AbortHandle> = Vec::new();
    let mut search: Option<AbortHandle> = None;
    let mut attachment: Option<attach::Attachment> = None;
    while let Some(effect) = effects.recv().await {
        log_tasks.retain(|task| !task.is_finished());
        match effect {
            Effect::Look(wanted) => drop(interest.send_replace(wanted)),
            Effect::ReadLog { id, token, read, pause } => {
                log_tasks.push(tokio::spawn(logs::read(shared.clone(), id, token, read, pause)).abort_handle());
            }
            Effect::ReadTimes { id, token, from } => {
                log_tasks.push(tokio::spawn(logs::read_times(shared.clone(), id, token, from)).abort_handle());
            }
            Effect::SearchLog { token, request } => {
                let task = tokio::spawn(super::search::run(shared.clone(), token, request)).abort_handle();
                if let Some(earlier) = search.replace(task) {
                    earlier.abort();
                }
            }
            Effect::CloseLog => log_tasks.drain(..).chain(search.take()).for_each(|task| task.abort()),
            Effect::Show { id } => drop(tokio::spawn(acts::show(shared.clone(), id))),
            Effect::Act(action) => drop(tokio::spawn(acts::act(shared.clone(), action))),
            Effect::Attach { id, token, rows, columns } => {
                attachment = Some(attach::Attachment::start(shared.clone(), id, token, (rows, columns)));
            }
            Effect::AttachInput(bytes) => {
                if let Some(attachment) = &attachment {
                    attachment.send(attach::Typed::Bytes(bytes));
                }
            }
            Effect::AttachResize { rows, columns } => {
                if let Some(attachment) = &attachment {
                    attachment.send(attach::Typed::Resize { rows, columns });
                }
            }
            Effect::Detach => attachment = None,
            Effect::Copy(_) | Effect::CopyRegion(..) | Effect::Quit => {}
        }
    }
}

async fn tick(urgent: mpsc::Sender<Message>) {
    let mut interval = tokio::time::interval(TICK);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        interval.tick().await;
        if urgent.send(Message::Ticked(Timestamp::now())).await.is_err() {
            return;
        }
    }
}

/// Ends the program on a signal: through the screen, or without it if its terminal takes nothing any more.
async fn on_signal(kind: SignalKind, mut signals: Signal, urgent: mpsc::Sender<Message>) {
    if signals.recv().await.is_none() {
        return;
    }
    let number = kind.as_raw_value();
    let _ = tokio::time::timeout(SIGNAL_GRACE, urgent.send(Message::Signalled(number))).await;
    tokio::time::sleep(SIGNAL_GRACE).await;
    own_terminal::give_back_settings();
    std::process::exit(128 + number);
}

/// Why a request failed, for the person.
pub(super) fn reason(error: &ClientError) -> String {
    match error {
        ClientError::Unreachable { source, .. } => source.to_string(),
        ClientError::Api { error, .. } => error.message.clone(),
        ClientError::Protocol(_) => error.to_string(),
    }
}

/// A request with a timeout; its error for the person.
pub(super) async fn ask<T>(request: impl Future<Output = Result<T, ClientError>>) -> Result<T, String> {
    match tokio::time::timeout(REQUEST_TIMEOUT, request).await {
        Ok(result) => result.map_err(|error| reason(&error)),
        Err(_) => Err("the daemon does not answer".to_owned()),
    }
}
