//! One tool call, from the request to its result.

use std::sync::Arc;
use std::time::Duration;

use axum::http::request::Parts;
use pinfold_api::client::Client;
use pinfold_api::types::{Lifetime, Record};
use rmcp::model::{CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Tool};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde_json::{Map, Value};

use crate::claims::Claims;
use crate::daemon_access::{DaemonAccess, Ensure};
use crate::identity::{Caller, ClientIdentity};
use crate::memory::Memory;
use crate::news::News;
use crate::options::{Base, Options};
use crate::presence::{self, Presence};
use crate::render::Explain;
use crate::resources::Followed;
use crate::sessions::Sessions;
use crate::tool_error::ToolError;
use crate::tools::{self, Answer, Call, CallContext, Shape};
use crate::{duplicates, tasks};

/// Clients known to show the server's instructions to their model (docs/clients.md), by prefix of their name.
const SHOW_INSTRUCTIONS: &[&str] = &["codex", "claude-code", "gemini-cli", "opencode"];

/// The server. Clones serve further connections and share everything except subscriptions.
#[derive(Debug)]
pub(crate) struct Server {
    inner: Arc<Inner>,
    pub(crate) followed: Followed,
}

#[derive(Debug)]
struct Inner {
    daemon: DaemonAccess,
    identity: ClientIdentity,
    base: Base,
    memory: Arc<Memory>,
    news: News,
    shape: Shape,
    longest_call: Option<Duration>,
    lifetime: Lifetime,
    owner_grace: Option<String>,
    presence: Presence,
    claims: Claims,
    sessions: Sessions,
    /// The tools that are offered.
    offered: Vec<Tool>,
}

impl Inner {
    /// How long after its last contact an owner counts as gone.
    fn grace(&self) -> &str {
        let default = if self.base.env.is_some() { presence::GRACE } else { presence::GRACE_OVER_HTTP };
        self.owner_grace.as_deref().unwrap_or(default)
    }
}

impl Clone for Server {
    fn clone(&self) -> Self {
        Server { inner: Arc::clone(&self.inner), followed: Followed::default() }
    }
}

impl Server {
    pub(crate) fn new(
        client: Client,
        ensure: Option<Ensure>,
        identity: ClientIdentity,
        base: Base,
        options: &Options,
    ) -> Self {
        let offered = tools::definitions(options.shape)
            .into_iter()
            .filter_map(|definition| serde_json::from_value::<Tool>(definition).ok())
            .filter(|tool| options.tools.is_empty() || options.tools.iter().any(|name| *name == tool.name))
            .collect();
        let inner = Inner {
            daemon: DaemonAccess::new(client, ensure),
            sessions: Sessions::new(&identity, &base),
            identity,
            base,
            memory: Arc::default(),
            news: News::default(),
            shape: options.shape,
            longest_call: options.longest_call,
            lifetime: options.lifetime,
            owner_grace: options.owner_grace.clone(),
            presence: Presence::default(),
            claims: Claims::default(),
            offered,
        };
        Server { inner: Arc::new(inner), followed: Followed::default() }
    }

    pub(crate) fn daemon(&self) -> &DaemonAccess {
        &self.inner.daemon
    }

    pub(crate) fn shape(&self) -> Shape {
        self.inner.shape
    }

    pub(crate) fn offered(&self) -> &[Tool] {
        &self.inner.offered
    }

    /// The caller of a request, and access to the daemon as that owner.
    pub(crate) fn caller(&self, context: &RequestContext<RoleServer>) -> Result<(Caller, DaemonAccess), ToolError> {
        let headers = context.extensions.get::<Parts>().map(|parts| &parts.headers);
        let caller = self.inner.identity.caller(&context.meta.0.0, headers)?;
        let daemon = self.inner.daemon.acting_as(&caller, self.inner.grace());
        if self.inner.base.env.is_some() {
            self.inner.presence.keep(&caller.owner, &daemon);
        }
        Ok((caller, daemon))
    }

    /// Keeps the owner in contact from the start, where it is known before the first call: a chat that goes on may not
    /// call anything for a while.
    pub(crate) fn keep_known_owner(&self) {
        let ClientIdentity { owner, claude, .. } = &self.inner.identity;
        if (owner.is_some() || claude.is_some())
            && let Ok(caller) = self.inner.identity.caller(&Map::new(), None)
        {
            self.inner.presence.keep(&caller.owner, &self.inner.daemon.acting_as(&caller, self.inner.grace()));
        }
    }

    /// Calls a tool. Invalid arguments give a tool error; only an unknown tool is a protocol error.
    pub(crate) async fn answer(
        &self,
        request: CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let offered = self.offered();
        if !offered.iter().any(|tool| tool.name == request.name) {
            let names: Vec<&str> = offered.iter().map(|tool| &*tool.name).collect();
            let message = format!("there is no tool `{}`: there are {}", request.name, names.join(", "));
            return Err(ErrorData::invalid_params(message, None));
        }
        let (caller, daemon) = match self.caller(context) {
            Ok(caller) => caller,
            Err(refusal) => return Ok(self.refused(&refusal).into()),
        };
        let inner = &self.inner;
        inner.sessions.register(context.client_info().map(|client| client.name), &caller, &daemon).await;
        inner.news.settle(&daemon, &caller.owner).await;
        let ctx = self.ctx(caller, daemon, context);
        let answer = match tools::call(inner.shape, &ctx, call(request, context)).await {
            Ok(answer) => answer,
            Err(refusal) => Answer::refused(&refusal),
        };
        if let Some((id, record)) = &answer.task {
            return Ok(CallToolResponse::Task(tasks::created(id, record)));
        }
        Ok(self.with_news(answer, &ctx).await.into())
    }

    /// The result with the news. A cancelled call has no reader and gets none.
    async fn with_news(&self, answer: Answer, ctx: &CallContext<'_>) -> CallToolResult {
        let Inner { news, memory, .. } = &*self.inner;
        let CallContext { daemon, caller, context, .. } = ctx;
        let mut facts = answer.facts;
        // An error is text alone, and short: the news come with the next result.
        if !answer.is_error && !context.ct.is_cancelled() {
            let delivery = news.collect(ctx, &answer.shown).await;
            delivery.tell(&mut facts);
            match context.ct.is_cancelled() {
                true => news.take_back(&caller.owner, delivery).await,
                false => news.hand_over(delivery, daemon, caller, memory).await,
            }
        }
        self.result(facts, answer.is_error, self.explain(ctx))
    }

    /// Whether this result says what the marks around output mean: once to an owner whose client may not show the
    /// server's instructions.
    fn explain(&self, ctx: &CallContext<'_>) -> Explain {
        let client = ctx.context.client_info().map(|client| client.name).unwrap_or_default();
        let is_told = SHOW_INSTRUCTIONS.iter().any(|name| client.starts_with(name));
        match !is_told && self.inner.memory.is_first(&ctx.caller.owner, "marks") {
            true => Explain::Marks,
            false => Explain::Nothing,
        }
    }

    /// A result: the facts, and the same facts as text. An error is text alone: a client that shows both would show it twice.
    fn result(&self, facts: Map<String, Value>, is_error: bool, explain: Explain) -> CallToolResult {
        let shape = self.inner.shape;
        let text = tools::text(shape, &facts, is_error, explain);
        let mut result = CallToolResult::success(vec![ContentBlock::text(text)]);
        result.structured_content = Some(Value::Object(facts)).filter(|_| !is_error || shape == Shape::Coder);
        result.is_error = Some(is_error);
        result
    }

    fn refused(&self, refusal: &ToolError) -> CallToolResult {
        self.result(Answer::refused(refusal).facts, true, Explain::Nothing)
    }

    /// Acknowledges delivered news before a clean exit.
    pub(crate) async fn settle(&self) {
        for owner in self.inner.news.owners() {
            let daemon = self
                .inner
                .daemon
                .acting_as(&Caller { owner: owner.clone(), parent: None, is_one_chat: false }, self.inner.grace());
            self.inner.news.settle(&daemon, &owner).await;
        }
    }

    /// The result of an `execute` whose task has ended.
    pub(crate) async fn outcome(&self, record: &Record, context: &RequestContext<RoleServer>) -> CallToolResult {
        let (caller, daemon) = match self.caller(context) {
            Ok(caller) => caller,
            Err(refusal) => return self.refused(&refusal),
        };
        match tools::outcome(&self.ctx(caller.clone(), daemon, context), record).await {
            Ok(answer) => {
                self.inner.news.showed(&caller.owner, &answer.shown).await;
                self.result(answer.facts, false, Explain::Nothing)
            }
            Err(refusal) => self.refused(&refusal),
        }
    }

    fn ctx<'a>(
        &'a self,
        caller: Caller,
        daemon: DaemonAccess,
        context: &'a RequestContext<RoleServer>,
    ) -> CallContext<'a> {
        let Inner { memory, base, longest_call, lifetime, owner_grace, presence, claims, sessions, news, .. } =
            &*self.inner;
        let (longest_call, lifetime) = (*longest_call, *lifetime);
        let owner_grace = owner_grace.as_deref();
        let claim = claims.begin(&caller.owner);
        CallContext {
            daemon,
            caller,
            memory,
            base,
            context,
            longest_call,
            lifetime,
            owner_grace,
            presence,
            claim,
            sessions,
            news,
        }
    }
}

fn call(request: CallToolRequestParams, context: &RequestContext<RoleServer>) -> Call {
    let doubled = match context.meta.0.0.get(duplicates::META_KEY) {
        Some(Value::Array(keys)) => keys.iter().filter_map(|key| key.as_str().map(str::to_owned)).collect(),
        _ => Vec::new(),
    };
    Call { tool: request.name.into_owned(), values: request.arguments.unwrap_or_default(), doubled }
}
