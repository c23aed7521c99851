//! What was asked for with an agent: parsed once, written down, and never changed.

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

use crate::refusal::Refusal;

/// Turns that may wait, at most and unless asked otherwise.
pub(crate) const QUEUE_MOST: u32 = 256;
const QUEUE: u32 = 16;
/// What an agent is told in a turn, in bytes.
pub(crate) const PROMPT_MOST: usize = 1 << 20;
/// The longest idempotency key, in bytes.
const KEY_MOST: usize = 200;
/// How long an agent may take until it is ready.
const READY: Duration = Duration::from_secs(60);
const READY_MOST: Duration = Duration::from_secs(3600);
/// Arguments and settings of the user's, in bytes.
const WORDS_MOST: usize = 128 * 1024;
/// The label that says which agent a process is.
pub(crate) const LABEL: &str = "pinfold.agent";
/// The label that says which of its lives.
pub(crate) const LIFE: &str = "pinfold.life";

/// An agent as it was asked for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct AgentSpec {
    pub(crate) id: ProcessId,
    pub(crate) at: Moment,
    pub(crate) kind: Kind,
    pub(crate) program: String,
    pub(crate) args: Vec<String>,
    pub(crate) model: Option<String>,
    pub(crate) settings: Map<String, Value>,
    pub(crate) cwd: Option<String>,
    /// The names alone: values are never written.
    pub(crate) env_names: Vec<String>,
    pub(crate) inherit_env: bool,
    pub(crate) owner: String,
    pub(crate) name: Option<String>,
    pub(crate) lifetime: Option<Lifetime>,
    pub(crate) owner_grace: Option<Span>,
    pub(crate) strays: Option<Strays>,
    pub(crate) grace: Option<Span>,
    pub(crate) memory_limit: Option<Size>,
    pub(crate) approvals: Approvals,
    pub(crate) mode: AgentMode,
    pub(crate) resume: Option<String>,
    pub(crate) transport: Transport,
    pub(crate) ready_timeout: Duration,
    pub(crate) turn_limit: Option<Duration>,
    pub(crate) queue: u32,
    pub(crate) key: Option<String>,
}

/// The values of an agent's environment, as far as they are known.
pub(crate) type Env = BTreeMap<String, Option<String>>;

impl AgentSpec {
    /// Checks a request; the owner is found already.
    pub(crate) fn parse(request: AgentRequest, id: ProcessId, at: Moment, owner: String) -> Result<Self, Refusal> {
        let kind = Kind::parse(&request.kind).map_err(|unknown| Refusal::invalid(unknown.to_string()))?;
        let transport = request.transport.unwrap_or_default();
        if transport == Transport::Websocket && !kind.takes_websocket() {
            return Err(Refusal::invalid(format!("{} is spoken to by stdio only: leave `transport` out", kind.name())));
        }
        if let Some(name) = &request.name {
            check_name("name", name)?;
        }
        if kind != Kind::Codex && !request.settings.is_empty() {
            return Err(Refusal::invalid(format!("{} takes no `settings`: use `args`", kind.name())));
        }
        if let Some(name) = pinfold_agents::codex::reserved_in(&request.settings) {
            return Err(Refusal::invalid(format!("`settings.{name}` is pinfold's own: use `resume`")));
        }
        let words = request.args.iter().map(String::len).sum::<usize>()
            + Value::from(request.settings.clone()).to_string().len();
        if words > WORDS_MOST {
            return Err(Refusal::invalid(format!("`args` and `settings` may have {WORDS_MOST} bytes together")));
        }
        if request.program.as_deref().is_some_and(|program| program.trim().is_empty()) {
            return Err(Refusal::invalid("`program` is empty: leave it out, or name the agent's program"));
        }
        if request.idempotency_key.as_ref().is_some_and(|key| key.is_empty() || key.len() > KEY_MOST) {
            return Err(Refusal::invalid(format!("`idempotency_key` must have 1 to {KEY_MOST} bytes")));
        }
        let lifetime = request.lifetime.unwrap_or_default();
        if request.owner_grace.is_some() && lifetime == Lifetime::Keep {
            return Err(Refusal::invalid("`owner_grace` goes with `lifetime` `owner` or `parent`: say which"));
        }
        let duration = |span: &Option<Span>| span.as_ref().map(|span| parse_duration(&span.text())).transpose();
        let ready_timeout = duration(&request.ready_timeout)?.unwrap_or(READY).min(READY_MOST);
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
            queue: request.queue.unwrap_or(QUEUE).min(QUEUE_MOST),
            key: request.idempotency_key,
        })
    }

    /// Whether two requests asked for the same agent. Their environments are not compared, as for processes: the values
    /// are not kept.
    pub(crate) fn is_same_request(&self, other: &Self) -> bool {
        let asked = |spec: &Self| {
            let mut asked = serde_json::to_value(spec).unwrap_or_default();
            if let Value::Object(fields) = &mut asked {
                for of_its_own in ["id", "at", "env_names"] {
                    fields.remove(of_its_own);
                }
            }
            asked
        };
        asked(self) == asked(other)
    }

    /// How long its owner may be silent.
    pub(crate) fn grace(&self) -> Option<Duration> {
        self.owner_grace.as_ref().and_then(|grace| parse_duration(&grace.text()).ok())
    }

    /// What the adapter of a life is told.
    pub(crate) fn settings_of(&self, resume: Option<String>, cwd: &str, url: Option<String>) -> Settings {
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

    /// The process of a life, for the owner that the agent began with.
    pub(crate) fn start_request(&self, life: u64, settings: &Settings, env: Env) -> StartRequest {
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
            labels: BTreeMap::from([(LABEL.to_owned(), self.id.to_string()), (LIFE.to_owned(), life.to_string())]),
            streams: Some(Streams::Separate),
            stdin: Some(Stdin::Pipe),
            strays: self.strays,
            grace: self.grace.clone(),
            memory_limit: self.memory_limit.clone(),
            // Its owner is told of turns, not of the programs that they run in.
            notify: Some(Notify { on_complete: Some(false), ..Notify::default() }),
            idempotency_key: Some(format!("agent-{}-{life}", self.id)),
            ..StartRequest::default()
        }
    }
}
