//! The request for an agent: validated once, stored, and never changed.

use std::collections::BTreeMap;
use std::time::Duration;

use pinfold_agents::{Kind, Settings};
use pinfold_api::input::{Size, Span};
use pinfold_api::types::{
    AgentMode, AgentRequest, Approvals, Lifetime, Notify, StartRequest, Stdin, Strays, Streams, Transport,
};
use pinfold_model::id::ProcessId;
use pinfold_model::spec::check_name;
use pinfold_model::units::{Moment, parse_duration};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::request_error::RequestError;

/// The longest queue of turns, and its length unless the request says otherwise.
pub(super) const MAX_QUEUE: u32 = 256;
const QUEUE: u32 = 16;
/// The longest prompt, in bytes.
pub(super) const MAX_PROMPT: usize = 1 << 20;
/// The longest idempotency key, in bytes.
const MAX_KEY: usize = 200;
/// How long an agent may take to become ready unless the request says otherwise, and at most.
const READY: Duration = Duration::from_secs(60);
const MAX_READY: Duration = Duration::from_secs(3600);
/// Arguments and settings of a request together, in bytes.
const MAX_ARGUMENTS: usize = 128 * 1024;
/// The label of a process that holds the id of its agent.
pub(super) const AGENT_LABEL: &str = "pinfold.agent";
/// The label of a process that holds its run number: 1 for the first process of an agent.
pub(super) const RUN_LABEL: &str = "pinfold.life";

/// A validated request for an agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct AgentSpec {
    pub(super) id: ProcessId,
    pub(super) at: Moment,
    pub(super) kind: Kind,
    pub(super) program: String,
    pub(super) args: Vec<String>,
    pub(super) model: Option<String>,
    pub(super) settings: Map<String, Value>,
    pub(super) cwd: Option<String>,
    /// Only the names: values are never stored.
    pub(super) env_names: Vec<String>,
    pub(super) inherit_env: bool,
    pub(super) owner: String,
    pub(super) name: Option<String>,
    pub(super) lifetime: Option<Lifetime>,
    pub(super) owner_grace: Option<Span>,
    pub(super) strays: Option<Strays>,
    pub(super) grace: Option<Span>,
    pub(super) memory_limit: Option<Size>,
    pub(super) approvals: Approvals,
    pub(super) mode: AgentMode,
    pub(super) resume: Option<String>,
    pub(super) transport: Transport,
    pub(super) ready_timeout: Duration,
    pub(super) turn_limit: Option<Duration>,
    pub(super) queue: u32,
    pub(super) key: Option<String>,
}

/// Environment variables; `None` removes an inherited one.
pub(super) type Env = BTreeMap<String, Option<String>>;

impl AgentSpec {
    /// Validates a request for an agent of this owner.
    pub(super) fn parse(request: AgentRequest, id: ProcessId, at: Moment, owner: String) -> Result<Self, RequestError> {
        let kind = Kind::parse(&request.kind).map_err(|unknown| RequestError::invalid(unknown.to_string()))?;
        let transport = request.transport.unwrap_or_default();
        if transport == Transport::Websocket && !kind.takes_websocket() {
            return Err(RequestError::invalid(format!("{} supports only stdio: leave out `transport`", kind.name())));
        }
        if let Some(name) = &request.name {
            check_name("name", name)?;
        }
        if kind != Kind::Codex && !request.settings.is_empty() {
            return Err(RequestError::invalid(format!("{} takes no `settings`: use `args`", kind.name())));
        }
        if let Some(name) = pinfold_agents::codex::reserved_in(&request.settings) {
            return Err(RequestError::invalid(format!("`settings.{name}` is set by pinfold: use `resume` instead")));
        }
        let length = request.args.iter().map(String::len).sum::<usize>()
            + Value::from(request.settings.clone()).to_string().len();
        if length > MAX_ARGUMENTS {
            return Err(RequestError::invalid(format!(
                "`args` and `settings` together are longer than {MAX_ARGUMENTS} bytes"
            )));
        }
        if request.program.as_deref().is_some_and(|program| program.trim().is_empty()) {
            return Err(RequestError::invalid(
                "`program` is empty: leave it out, or set it to the path of the agent's program",
            ));
        }
        if request.idempotency_key.as_ref().is_some_and(|key| key.is_empty() || key.len() > MAX_KEY) {
            return Err(RequestError::invalid(format!("`idempotency_key` must have 1 to {MAX_KEY} bytes")));
        }
        let lifetime = request.lifetime.unwrap_or_default();
        if request.owner_grace.is_some() && lifetime == Lifetime::Keep {
            return Err(RequestError::invalid("`owner_grace` requires `lifetime` `owner` or `parent`"));
        }
        let duration = |span: &Option<Span>| span.as_ref().map(|span| parse_duration(&span.text())).transpose();
        let ready_timeout = duration(&request.ready_timeout)?.unwrap_or(READY).min(MAX_READY);
        let turn_limit = duration(&request.turn_limit)?.filter(|limit| !limit.is_zero());
        duration(&request.grace)?;
        duration(&request.owner_grace)?;
        Ok(Self {
            id,
            at,
            kind,
            program: request.program.unwrap_or_else(|| kind.name().to_owned()),
            args: request.args,
            model: request.model,
            settings: request.settings,
            cwd: request.cwd,
            env_names: request.env.keys().cloned().collect(),
            inherit_env: request.inherit_env.unwrap_or(true),
            owner,
            name: request.name,
            lifetime: request.lifetime,
            owner_grace: request.owner_grace,
            strays: request.strays,
            grace: request.grace,
            memory_limit: request.memory_limit,
            approvals: request.approvals.unwrap_or_default(),
            mode: request.mode.unwrap_or_default(),
            resume: request.resume,
            transport,
            ready_timeout,
            turn_limit,
            queue: request.queue.unwrap_or(QUEUE).min(MAX_QUEUE),
            key: request.idempotency_key,
        })
    }

    /// Whether two requests are the same. As for processes, environments are not compared: their values are not stored.
    pub(super) fn is_same_request(&self, other: &Self) -> bool {
        let request = |spec: &Self| {
            let mut request = serde_json::to_value(spec).unwrap_or_default();
            if let Value::Object(fields) = &mut request {
                for field in ["id", "at", "env_names"] {
                    fields.remove(field);
                }
            }
            request
        };
        request(self) == request(other)
    }

    /// How long its owner may be without contact.
    pub(super) fn owner_grace(&self) -> Option<Duration> {
        self.owner_grace.as_ref().and_then(|grace| parse_duration(&grace.text()).ok())
    }

    /// The settings of the adapter for one process.
    pub(super) fn adapter_settings(&self, resume: Option<String>, cwd: &str, url: Option<String>) -> Settings {
        Settings {
            cwd: cwd.to_owned(),
            model: self.model.clone(),
            resume,
            extra: self.settings.clone(),
            args: self.args.clone(),
            url,
            client_version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    /// The idempotency key of the process with this run number.
    pub(super) fn start_key(&self, run: u64) -> String {
        format!("agent-{}-{run}", self.id)
    }

    /// The request that starts the process with this run number, for the owner that created the agent.
    pub(super) fn start_request(&self, run: u64, settings: &Settings, env: Env) -> StartRequest {
        let mut argv = vec![self.program.clone()];
        argv.extend(self.kind.arguments(settings));
        StartRequest {
            argv: Some(argv),
            cwd: self.cwd.clone(),
            env,
            inherit_env: Some(self.inherit_env),
            owner: Some(self.owner.clone()),
            lifetime: self.lifetime,
            owner_grace: self.owner_grace.clone(),
            intent: Some(format!("{} agent {}", self.kind.name(), self.id)),
            labels: BTreeMap::from([
                (AGENT_LABEL.to_owned(), self.id.to_string()),
                (RUN_LABEL.to_owned(), run.to_string()),
            ]),
            streams: Some(Streams::Separate),
            stdin: Some(Stdin::Pipe),
            strays: self.strays,
            grace: self.grace.clone(),
            memory_limit: self.memory_limit.clone(),
            // Its owner is notified of turns, not of the processes that they run in.
            notify: Some(Notify { on_complete: Some(false), ..Notify::default() }),
            idempotency_key: Some(self.start_key(run)),
            ..StartRequest::default()
        }
    }
}
