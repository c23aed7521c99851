//! Options of `run` about services: readiness, leased ports, restarts.

use clap::Args;
use clap::builder::PossibleValuesParser;
use pinfold_api::input::Span;
use pinfold_api::types::{Port, Ready, ReadyState, Record, Restart, RestartPolicy, StartRequest, WaitQuery};

use crate::commands::process::wait::wait_for_one;
use crate::console::Console;
use crate::exit;
use crate::failure::Failure;
use crate::session::Session;

/// Options about readiness, restarts and ports.
#[derive(Debug, Args)]
#[command(next_help_heading = "Service")]
pub(crate) struct ServiceArgs {
    /// Ready when a process of the tree listens on this TCP port: a number, the variable of a leased port, or `any`
    #[arg(long, value_name = "PORT")]
    pub(crate) ready_port: Option<String>,
    /// Ready when a GET request is answered: a path such as /health (on --ready-port), or an http URL on this machine
    #[arg(long, value_name = "PATH|URL")]
    pub(crate) ready_http: Option<String>,
    /// With --ready-http: the expected status [default: any below 400]
    #[arg(long, value_name = "N", requires = "ready_http")]
    pub(crate) ready_status: Option<u16>,
    /// Ready when a line of output matches
    #[arg(long, value_name = "REGEX")]
    pub(crate) ready_output: Option<String>,
    /// Ready when it connects to the Unix socket in $PINFOLD_READY_SOCKET
    #[arg(long)]
    pub(crate) ready_peer: bool,
    /// Time to become ready [default: 60s]
    #[arg(long, value_name = "DURATION")]
    pub(crate) ready_timeout: Option<String>,
    /// When to restart the process after it ends [default: never]
    #[arg(long, value_name = "WHEN", value_parser = PossibleValuesParser::new(["never", "on-failure", "always", "after-turn"]))]
    pub(crate) restart: Option<String>,
    /// Give up after this many restarts within 10 minutes; 30s of uptime clear the count [default: 5]
    #[arg(long, value_name = "N", requires = "restart")]
    pub(crate) restart_limit: Option<u32>,
    /// Delay before the first restart; doubles with each further one, up to a minute [default: 1s]
    #[arg(long, value_name = "DURATION", requires = "restart")]
    pub(crate) restart_delay: Option<String>,
    /// Reserve a free loopback port and set this variable to it (PORT, or PORT=3000 for a fixed one); may be repeated
    #[arg(long, value_name = "VAR[=N]")]
    pub(crate) lease: Vec<String>,
}

impl ServiceArgs {
    /// Sets the fields of a request.
    pub(super) fn apply(&self, request: &mut StartRequest) {
        let ready = Ready {
            port: self.ready_port.as_deref().map(Port::from),
            http: self.ready_http.clone(),
            status: self.ready_status,
            output: self.ready_output.clone(),
            peer: self.ready_peer.then_some(true),
            timeout: self.ready_timeout.as_deref().map(Span::from),
        };
        request.ready = (ready != Ready::default()).then_some(ready);
        request.restart = self.restart.as_ref().map(|when| {
            Restart::Policy(RestartPolicy {
                when: when.replace('-', "_"),
                limit: self.restart_limit,
                initial: self.restart_delay.as_deref().map(Span::from),
                ..RestartPolicy::default()
            })
        });
        request.ports = self.lease.iter().map(|text| lease_of(text)).collect();
    }
}

/// The variable and the port of a `--lease`.
pub(in crate::commands) fn lease_of(text: &str) -> (String, Port) {
    match text.split_once('=') {
        Some((name, port)) => (name.to_owned(), Port::from(port)),
        None => (text.to_owned(), Port::from("lease")),
    }
}

/// Waits until a process in the background is ready. Returns the exit code: 0 ready, 124 not ready in time, the command's own
/// code (at least 1) if it ended before.
pub(super) async fn until_ready(
    session: &Session,
    record: Record,
    console: &mut Console,
) -> Result<(Record, u8), Failure> {
    if record.ready.is_none() {
        return Ok((record, 0));
    }
    let query = WaitQuery { until: Some("ready".into()), ..WaitQuery::default() };
    let record = wait_for_one(session, &record.id, &query).await?.record;
    let Some(ready) = &record.ready else { return Ok((record, exit::PINFOLD_FAILED)) };
    let text = ready.text.as_deref().unwrap_or_default();
    let code = match ready.state {
        ReadyState::Ready => 0,
        ReadyState::TimedOut | ReadyState::Waiting => exit::TIMED_OUT,
        ReadyState::Exited => record.outcome.as_ref().map_or(exit::PINFOLD_FAILED, exit::code_of).max(exit::FAILED),
    };
    match ready.state {
        ReadyState::Ready => console.hint(&format!("{} is ready: {text}", record.id)),
        ReadyState::Exited => console.note(&format!("{} ended before it was ready: see `pinfold logs {0}`", record.id)),
        _ => console.note(&format!("{} is running but not ready: {text}: see `pinfold logs {0}`", record.id)),
    }
    Ok((record, code))
}
