//! Sends spans and counters to the collector, from a thread with an event loop of its own: looking up its name, connecting and
//! encoding delay nothing else.
//!
//! Bounds: [`MAX_BATCH`] spans in a request, [`POST_TIMEOUT`] for a request, [`MAX_PAUSE`] between attempts. A request that may
//! succeed later is repeated; what the collector refuses is dropped and counted. At shutdown one last attempt has
//! [`LAST_ATTEMPT`], and none is made if the previous one failed.

use std::net::ToSocketAddrs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HOST, HeaderName, HeaderValue, USER_AGENT};
use hyper::{Method, Request, StatusCode};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_rustls::rustls::ClientConfig;

use super::Telemetry;
use super::otlp::{self, Metric, Resource};
use crate::clock::now;
use crate::core::Core;
use crate::http_client::{Destination, SendError, exchange, exchange_secure, tls};

/// Maximum number of spans in a request.
const MAX_BATCH: usize = 512;
/// How long spans wait for others to be sent with.
const BATCH_DELAY: Duration = Duration::from_millis(500);
/// Timeout of a request.
const POST_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause after a failure doubles from the first to the last.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(60);
/// How long a shutdown waits for the last attempt.
const LAST_ATTEMPT: Duration = Duration::from_millis(500);

/// The thread that sends.
#[derive(Debug)]
pub(crate) struct Exporter {
    finished: oneshot::Receiver<()>,
}

/// Why an export failed.
#[derive(Debug, thiserror::Error)]
enum ExportError {
    #[error(transparent)]
    Send(#[from] SendError),
    #[error("no answer within {}s", POST_TIMEOUT.as_secs())]
    TimedOut,
    #[error("it answered {0}")]
    Status(StatusCode),
}

impl ExportError {
    /// Whether the same request may succeed later: what OTLP calls retryable, and what never arrived.
    fn may_pass(&self) -> bool {
        match self {
            ExportError::Send(SendError::BadAddress) => false,
            ExportError::Send(SendError::Unreachable(_)) | ExportError::TimedOut => true,
            ExportError::Status(status) => matches!(status.as_u16(), 429 | 502 | 503 | 504),
        }
    }
}

impl Exporter {
    /// Starts the thread, if there is an endpoint.
    pub(crate) fn start(core: &Arc<Core>) -> std::io::Result<Option<Self>> {
        if core.telemetry.is_none() {
            return Ok(None);
        }
        let (done, finished) = oneshot::channel();
        let core = Arc::clone(core);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::Builder::new().name("telemetry".into()).spawn(move || {
            runtime.block_on(run(&core));
            let _ = done.send(());
        })?;
        Ok(Some(Self { finished }))
    }

    /// Waits for the last attempt, within its bound.
    pub(crate) async fn finish(self) {
        let _ = tokio::time::timeout(LAST_ATTEMPT, self.finished).await;
    }
}

/// Sends until shutdown.
async fn run(core: &Arc<Core>) {
    let Some(telemetry) = &core.telemetry else { return };
    let Some(mut sender) = Sender::new(core, telemetry) else { return };
    let mut shutdown = core.shutdown.subscribe();
    let interval = telemetry.settings.interval;
    let mut metrics_due = Instant::now() + interval;
    loop {
        // Spans that could not be sent are tried again after the pause, not when the next one comes.
        let next = async {
            match (sender.retry_at, telemetry.is_empty()) {
                (Some(at), _) => tokio::time::sleep_until(at).await,
                (None, false) => tokio::time::sleep(BATCH_DELAY).await,
                (None, true) => {
                    telemetry.queued.notified().await;
                    tokio::time::sleep(BATCH_DELAY).await;
                }
            }
        };
        tokio::select! {
            () = next => sender.send_spans().await,
            () = tokio::time::sleep_until(metrics_due), if sender.retry_at.is_none() => {
                metrics_due = Instant::now() + interval;
                sender.send_metrics().await;
            }
            _ = shutdown.wait_for(|shutdown| *shutdown) => break,
        }
    }
    if sender.retry_at.is_none() {
        while !telemetry.is_empty() && sender.retry_at.is_none() {
            sender.send_spans().await;
        }
        sender.send_metrics().await;
    }
}

/// The collector, and whether it answers.
struct Sender<'a> {
    core: &'a Arc<Core>,
    telemetry: &'a Telemetry,
    resource: Resource,
    destination: Destination,
    tls: Option<Arc<ClientConfig>>,
    pause: Duration,
    /// When to try again, after a failure.
    retry_at: Option<Instant>,
}

impl<'a> Sender<'a> {
    fn new(core: &'a Arc<Core>, telemetry: &'a Telemetry) -> Option<Self> {
        let endpoint = telemetry.settings.endpoint.as_ref()?;
        let destination = Destination::parse(endpoint).ok()?;
        let resource = Resource { instance: core.cgroup_name.clone() };
        Some(Self { core, telemetry, resource, destination, tls: None, pause: FIRST_PAUSE, retry_at: None })
    }

    async fn send_spans(&mut self) {
        let spans = self.telemetry.oldest(MAX_BATCH);
        if spans.is_empty() {
            return;
        }
        let body = otlp::traces(&self.resource, &spans);
        let count = spans.len() as u64;
        match self.post("/v1/traces", body.to_string()).await {
            Ok(()) => {
                self.telemetry.remove(spans.len());
                self.telemetry.sent.fetch_add(count, Ordering::Relaxed);
            }
            Err(error) if error.may_pass() => {}
            Err(_) => {
                self.telemetry.remove(spans.len());
                self.telemetry.dropped.fetch_add(count, Ordering::Relaxed);
            }
        }
    }

    async fn send_metrics(&mut self) {
        let body = otlp::metrics(&self.resource, &metrics(self.core, self.telemetry), (self.core.started_at, now()));
        // Counters are cumulative: the next request has what this one had.
        let _ = self.post("/v1/metrics", body.to_string()).await;
    }

    /// Posts a body; notes whether the collector answers, and logs when that changes.
    async fn post(&mut self, path: &str, body: String) -> Result<(), ExportError> {
        let sent = tokio::time::timeout(POST_TIMEOUT, self.exchange(path, body)).await;
        let result = match sent {
            Err(_) => Err(ExportError::TimedOut),
            Ok(Err(error)) => Err(error.into()),
            Ok(Ok(status)) if status.is_success() => Ok(()),
            Ok(Ok(status)) => Err(ExportError::Status(status)),
        };
        let host = &self.destination.authority;
        match &result {
            Ok(()) => {
                if self.pause > FIRST_PAUSE {
                    tracing::info!(collector = %host, "telemetry is sent again");
                }
                (self.pause, self.retry_at) = (FIRST_PAUSE, None);
            }
            Err(error) => {
                if self.pause == FIRST_PAUSE {
                    tracing::warn!(collector = %host, %error, "cannot send telemetry: check `telemetry.endpoint`");
                }
                self.telemetry.failed_exports.fetch_add(1, Ordering::Relaxed);
                self.retry_at = error.may_pass().then(|| Instant::now() + self.pause);
                self.pause = (self.pause * 2).min(MAX_PAUSE);
            }
        }
        result
    }

    async fn exchange(&mut self, path: &str, body: String) -> Result<StatusCode, SendError> {
        let Destination { secure, authority, host, port, target } = self.destination.clone();
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(format!("{}{path}", target.trim_end_matches('/')))
            .header(HOST, authority)
            .header(USER_AGENT, concat!("pinfold/", env!("CARGO_PKG_VERSION")))
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body)))
            .map_err(|_| SendError::BadAddress)?;
        for (name, value) in &self.telemetry.settings.headers {
            let (Ok(name), Ok(mut value)) = (HeaderName::try_from(name), HeaderValue::try_from(value.reveal())) else {
                return Err(SendError::BadAddress);
            };
            value.set_sensitive(true);
            request.headers_mut().insert(name, value);
        }
        // Blocks this thread only.
        let addresses: Vec<_> = (host.as_str(), port).to_socket_addrs()?.collect();
        let stream = TcpStream::connect(&addresses[..]).await?;
        if !secure {
            return exchange(stream, request).await;
        }
        if self.tls.is_none() {
            self.tls = Some(tls()?);
        }
        let Some(config) = &self.tls else { return Err(SendError::BadAddress) };
        exchange_secure(stream, config, host, request).await
    }
}

/// The daemon's counters.
fn metrics(core: &Core, telemetry: &Telemetry) -> Vec<Metric> {
    let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let counter = |name, unit, about, points| Metric { name, unit, about, counts_up: true, points };
    let gauge = |name, unit, about, value| Metric { name, unit, about, counts_up: false, points: vec![(None, value)] };
    let by = |outcome, counter| (Some(("pinfold.outcome", outcome)), read(counter));
    let counters = &core.metrics;
    let ended = vec![
        by("zero", &counters.exited_zero),
        by("nonzero", &counters.exited_other),
        by("signaled", &counters.signaled),
        by("failed_to_start", &counters.failed_to_start),
        by("lost", &counters.lost),
    ];
    let one = |counter: &AtomicU64| vec![(None, read(counter))];
    let live = core.registry.live_count() as u64;
    vec![
        gauge("pinfold.processes.live", "{process}", "Processes that are starting, running or lingering.", live),
        counter("pinfold.processes.started", "{process}", "Processes started.", one(&counters.started)),
        counter("pinfold.processes.ended", "{process}", "Processes that ended, by outcome.", ended),
        counter("pinfold.output", "By", "Bytes of output of ended processes.", one(&counters.output_bytes)),
        counter("pinfold.requests", "{request}", "Requests answered.", one(&counters.requests)),
        counter("pinfold.telemetry.spans_sent", "{span}", "Spans that the collector took.", one(&telemetry.sent)),
        counter("pinfold.telemetry.spans_dropped", "{span}", "Spans that were not sent.", one(&telemetry.dropped)),
    ]
}
