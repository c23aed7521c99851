//! The server: handles one tool call from the request to its result.

use std::sync::Arc;
use std::time::Duration;

use axum::http::request::Parts;
use pinfold_api::client::Client;
use pinfold_api::types::{Lifetime, Record};
use rmcp::model::{CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Tool};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde_json::{Map, Value};

use crate::daemon_access::{DaemonAccess, Ensure};
use crate::identity::{Caller, ClientIdentity};
use crate::news::News;
use crate::options::{CommandDefaults, Options};
use crate::owner_keepalive::{self, OwnerKeepalive};
use crate::read_positions::ReadPositions;
use crate::report_claims::ReportClaims;
use crate::resources::Subscriptions;
use crate::sessions::Sessions;
use crate::tool_error::ToolError;
use crate::tools::{self, Answer, Call, CallContext, Shape};
use crate::{duplicates, tasks};

/// Name prefixes of clients that show the server's instructions to their model (docs/clients.md).
const SHOW_INSTRUCTIONS: &[&str] = &["codex", "claude-code", "gemini-cli", "opencode"];

/// The MCP server. A clone serves another connection and shares everything except the resource subscriptions.
#[derive(Debug)]
pub(crate) struct Server {
    inner: Arc<Inner>,
    pub(crate) subscriptions: Subscriptions,
}

#[derive(Debug)]
struct Inner {
    daemon: DaemonAccess,
    identity: ClientIdentity,
    command_defaults: CommandDefaults,
    read_positions: Arc<ReadPositions>,
    news: News,
    shape: Shape,
    longest_call: Option<Duration>,
    lifetime: Lifetime,
    owner_grace: Option<String>,
    owner_keepalive: OwnerKeepalive,
    claims: ReportClaims,
    sessions: Sessions,
    /// The tools offered to clients.
    offered: Vec<Tool>,
}

impl Inner {
    /// The grace period after an owner's last request, before the owner counts as disconnected.
    fn grace(&self) -> &str {
        let default = if self.command_defaults.env.is_some() {
            owner_keepalive::DEFAULT_GRACE
        } else {
            owner_keepalive::DEFAULT_HTTP_GRACE
        };
        self.owner_grace.as_deref().unwrap_or(default)
    }
}

impl Clone for Server {
    fn clone(&self) -> Self {
        Server { inner: Arc::clone(&self.inner), subscriptions: Subscriptions::default() }
    }
}

impl Server {
    pub(crate) fn new(
        client: Client,
        ensure: Option<Ensure>,
        identity: ClientIdentity,
        command_defaults: CommandDefaults,
        options: &Options,
    ) -> Self {
        let offered = tools::definitions(options.shape)
            .into_iter()
            .filter_map(|definition| serde_json::from_value::<Tool>(definition).ok())
            .filter(|tool| options.tools.is_empty() || options.tools.iter().any(|name| *name == tool.name))
            .collect();
        let inner = Inner {
            daemon: DaemonAccess::new(client, ensure),
            sessions: Sessions::new(&identity, &command_defaults),
            identity,
            command_defaults,
            read_positions: Arc::default(),
            news: News::default(),
            shape: options.shape,
            longest_call: options.longest_call,
            lifetime: options.lifetime,
            owner_grace: options.owner_grace.clone(),
            owner_keepalive: OwnerKeepalive::default(),
            claims: ReportClaims::default(),
            offered,
        };
        Server { inner: Arc::new(inner), subscriptions: Subscriptions::default() }
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

    /// Returns the caller of a request, and a daemon client that acts as this caller.
    pub(crate) fn caller(&self, context: &RequestContext<RoleServer>) -> Result<(Caller, DaemonAccess), ToolError> {
        let headers = context.extensions.get::<Parts>().map(|parts| &parts.headers);
        let caller = self.inner.identity.caller(&context.meta.0.0, headers)?;
        let daemon = self.inner.daemon.acting_as(&caller, self.inner.grace());
        if self.inner.command_defaults.env.is_some() {
            self.inner.owner_keepalive.keep_alive(&caller.owner, &daemon);
        }
        Ok((caller, daemon))
    }

    /// Keeps the owner connected from the start if it is known before the first call: an active chat may not call a
    /// tool for a while.
    pub(crate) fn keep_known_owner_alive(&self) {
        let ClientIdentity { owner, claude, .. } = &self.inner.identity;
        if (owner.is_some() || claude.is_some())
            && let Ok(caller) = self.inner.identity.caller(&Map::new(), None)
        {
            self.inner
                .owner_keepalive
                .keep_alive(&caller.owner, &self.inner.daemon.acting_as(&caller, self.inner.grace()));
        }
    }

    /// Calls a tool. Invalid arguments produce a tool error; only an unknown tool is a protocol error.
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
            Err(error) => return Ok(self.error(&error).into()),
        };
        let inner = &self.inner;
        inner.sessions.register(context.client_info().map(|client| client.name), &caller, &daemon).await;
        inner.news.acknowledge_sent(&daemon, &caller.owner).await;
        let ctx = self.call_context(caller, daemon, context);
        let answer = match tools::call(inner.shape, &ctx, call(request, context)).await {
            Ok(answer) => answer,
            Err(error) => Answer::error(&error),
        };
        if let Some((id, record)) = &answer.task {
            return Ok(CallToolResponse::Task(tasks::created(id, record)));
        }
        Ok(self.with_news(answer, &ctx).await.into())
    }

    /// Builds the result and adds the news. A cancelled call gets no news, because its result is not read.
    async fn with_news(&self, answer: Answer, ctx: &CallContext<'_>) -> CallToolResult {
        let Inner { news, read_positions, .. } = &*self.inner;
        let CallContext { daemon, caller, context, .. } = ctx;
        let mut facts = answer.facts;
        // An error result has no news: they are added to the next result.
        if !answer.is_error && !context.ct.is_cancelled() {
            let delivery = news.collect(ctx, &answer.shown, answer.news).await;
            delivery.add_to(&mut facts);
            match context.ct.is_cancelled() {
                true => news.put_back(&caller.owner, delivery).await,
                false => news.mark_sent(delivery, daemon, caller, read_positions).await,
            }
        }
        self.result(facts, answer.is_error, &|| self.should_explain_marks(ctx))
    }

    /// Whether this result explains the marks around output: once per owner, if the client may not show the server's
    /// instructions. Called only for a result that contains marks, so that the one explanation is not spent on a result
    /// without marks.
    fn should_explain_marks(&self, ctx: &CallContext<'_>) -> bool {
        let client = ctx.context.client_info().map(|client| client.name).unwrap_or_default();
        let shows_instructions = SHOW_INSTRUCTIONS.iter().any(|name| client.starts_with(name));
        !shows_instructions && self.inner.read_positions.mark_explained(&ctx.caller.owner, "marks")
    }

    /// Builds a result with the facts as structured content and as text. An error has only text: some clients show
    /// both.
    fn result(&self, facts: Map<String, Value>, is_error: bool, explain: &dyn Fn() -> bool) -> CallToolResult {
        let shape = self.inner.shape;
        let text = tools::text(shape, &facts, is_error, explain);
        let mut result = CallToolResult::success(vec![ContentBlock::text(text)]);
        result.structured_content = Some(Value::Object(facts)).filter(|_| !is_error || shape == Shape::Coder);
        result.is_error = Some(is_error);
        result
    }

    fn error(&self, error: &ToolError) -> CallToolResult {
        self.result(Answer::error(error).facts, true, &|| false)
    }

    /// Acknowledges the news that were sent, before a clean exit.
    pub(crate) async fn acknowledge_sent(&self) {
        for owner in self.inner.news.owners() {
            let daemon = self
                .inner
                .daemon
                .acting_as(&Caller { owner: owner.clone(), parent: None, is_one_chat: false }, self.inner.grace());
            self.inner.news.acknowledge_sent(&daemon, &owner).await;
        }
    }

    /// Returns the result of an `execute` that became a task, after its process has ended.
    pub(crate) async fn outcome(&self, record: &Record, context: &RequestContext<RoleServer>) -> CallToolResult {
        let (caller, daemon) = match self.caller(context) {
            Ok(caller) => caller,
            Err(error) => return self.error(&error),
        };
        match tools::outcome(&self.call_context(caller.clone(), daemon, context), record).await {
            Ok(answer) => {
                self.inner.news.note_shown(&caller.owner, &answer.shown).await;
                self.result(answer.facts, false, &|| false)
            }
            Err(error) => self.error(&error),
        }
    }

    fn call_context<'a>(
        &'a self,
        caller: Caller,
        daemon: DaemonAccess,
        context: &'a RequestContext<RoleServer>,
    ) -> CallContext<'a> {
        let Inner { read_positions, command_defaults, longest_call, lifetime, claims, sessions, news, .. } =
            &*self.inner;
        let (longest_call, lifetime) = (*longest_call, *lifetime);
        let owner_grace = self.inner.grace();
        let claim = claims.begin(&caller.owner);
        CallContext {
            daemon,
            caller,
            read_positions,
            command_defaults,
            context,
            longest_call,
            lifetime,
            owner_grace,
            claim,
            sessions,
            news,
        }
    }
}

fn call(request: CallToolRequestParams, context: &RequestContext<RoleServer>) -> Call {
    let duplicate_keys = match context.meta.0.0.get(duplicates::META_KEY) {
        Some(Value::Array(keys)) => keys.iter().filter_map(|key| key.as_str().map(str::to_owned)).collect(),
        _ => Vec::new(),
    };
    Call { tool: request.name.into_owned(), values: request.arguments.unwrap_or_default(), duplicate_keys }
}
