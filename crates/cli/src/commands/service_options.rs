//! What `run` asks for of a service: when it is ready, the ports it is lent, and what follows its end.

use clap::Args;
use clap::builder::PossibleValuesParser;
use pinfold_api::input::Span;
use pinfold_api::types::{Port, Ready, ReadyState, Record, Restart, RestartPolicy, StartRequest, WaitQuery};

use super::wait::patiently;
use crate::console::Screen;
use crate::exit;
use crate::failure::Failure;
use crate::session::Session;

/// Options about a process that serves.
#[derive(Debug, Args)]
#[command(next_help_heading = "Service")]
pub(crate) struct ServiceArgs {
    /// Ready when a process of its tree listens on this TCP port: a number, a leased port's variable, or `any`
    #[arg(long, value_name = "PORT")]
    pub(crate) ready_port: Option<String>,
    /// Ready when a GET is answered: a path such as /health (on --ready-port), or an http address on this machine
    #[arg(long, value_name = "PATH|URL")]
    pub(crate) ready_http: Option<String>,
    /// With --ready-http: the status of the answer [default: any below 400]
    #[arg(long, value_name = "N", requires = "ready_http")]
    pub(crate) ready_status: Option<u16>,
    /// Ready when a line of its output matches this regular expression
    #[arg(long, value_name = "RE")]
    pub(crate) ready_output: Option<String>,
    /// Ready when it connects to the Unix socket in $PINFOLD_READY_SOCKET
    #[arg(long)]
    pub(crate) ready_peer: bool,
    /// How long it may take to be ready [default: 60s]
    #[arg(long, value_name = "D")]
    pub(crate) ready_timeout: Option<String>,
    /// When to restart it after its end [default: never]
    #[arg(long, value_name = "WHEN", value_parser = PossibleValuesParser::new(["never", "on-failure", "always", "after-turn"]))]
    pub(crate) restart: Option<String>,
    /// Give up after this many restarts within 10 minutes; 30s of uptime clear the count [default: 5]
    #[arg(long, value_name = "N", requires = "restart")]
    pub(crate) restart_limit: Option<u32>,
    /// The wait before the first restart; each further one is twice as long, up to a minute [default: 1s]
    #[arg(long, value_name = "D", requires = "restart")]
    pub(crate) restart_delay: Option<String>,
    /// Reserve a free loopback port and set this variable to it (PORT, or PORT=3000 for that one); may be repeated
    #[arg(long, value_name = "VAR[=N]")]
    pub(crate) lease: Vec<String>,
}

impl ServiceArgs {
    /// Puts all of it into a request.
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
        let lease = |text: &String| match text.split_once('=') {
            Some((name, port)) => (name.to_owned(), Port::from(port)),
            None => (text.clone(), Port::from("lease")),
        };
        request.ports = self.lease.iter().map(lease).collect();
    }
}

/// Waits for the readiness of what was started in the background, and gives the exit code that tells what came of it:
/// 0 ready, 124 not in time, the command's own code if it ended before (1 if that is 0).
pub(super) async fn until_ready(
    session: &Session,
    record: Record,
    screen: &mut Screen,
) -> Result<(Record, u8), Failure> {
    if record.ready.is_none() {
        return Ok((record, 0));
    }
    let query = WaitQuery { until: Some("ready".into()), ..WaitQuery::default() };
    let record = patiently(session, &record.id, &query).await?.record;
    let Some(ready) = &record.ready else { return Ok((record, exit::PINFOLD_FAILED)) };
    let text = ready.text.as_deref().unwrap_or_default();
    let code = match ready.state {
        ReadyState::Ready => 0,
        ReadyState::TimedOut | ReadyState::Waiting => exit::TIMED_OUT,
        ReadyState::Exited => record.outcome.as_ref().map_or(exit::PINFOLD_FAILED, exit::code_of).max(exit::TROUBLE),
    };
    match ready.state {
        ReadyState::Ready => screen.hint(&format!("{} is ready: {text}", record.id)),
        ReadyState::Exited => screen.note(&format!("{} ended before it was ready  (pinfold logs {0})", record.id)),
        _ => screen.note(&format!("{} still runs and is not ready: {text}  (pinfold logs {0})", record.id)),
    }
    Ok((record, code))
}
