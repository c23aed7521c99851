//! The handler that every transport and every revision of the protocol speaks to.

use std::sync::Arc;

use axum::http::request::Parts;
use pinfold_api::client::Client;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::{Map, Value};

use crate::identity::Seat;
use crate::memory::Memory;
use crate::options::{Base, Options};
use crate::reach::{Ensure, Reach};
use crate::refusal::Refusal;
use crate::tools::{self, Answer, Call, Desk, Shape};
use crate::{duplicates, random, render};

/// What a model is told of the server as a whole.
const INSTRUCTIONS: &str = "pinfold runs shell commands and keeps them: output, exit code and every child process, also \
when this connection or the chat ends. Run everything with execute; it never hangs on `&`, which is never needed but \
harmless. What takes longer than its timeout runs on under an id that stays valid; ids survive restarts, process_list \
finds them again. Do not poll: how a process ended is told in `news` with your next result, and process_wait waits.";

/// One server, shared by all its connections.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    reach: Reach,
    seat: Seat,
    base: Base,
    memory: Memory,
    shape: Shape,
    /// What is offered, after restriction.
    offered: Vec<Tool>,
}

impl Server {
    pub(crate) fn new(client: Client, ensure: Option<Ensure>, seat: Seat, base: Base, options: &Options) -> Self {
        let offered = tools::definitions(options.shape)
            .into_iter()
            .filter_map(|definition| serde_json::from_value::<Tool>(definition).ok())
            .filter(|tool| options.tools.is_empty() || options.tools.iter().any(|name| *name == tool.name))
            .collect();
        let inner = Inner {
            reach: Reach::new(client, ensure),
            seat,
            base,
            memory: Memory::default(),
            shape: options.shape,
            offered,
        };
        Server { inner: Arc::new(inner) }
    }

    pub(crate) fn reach(&self) -> &Reach {
        &self.inner.reach
    }

    async fn answer(&self, request: CallToolRequestParams, context: &RequestContext<RoleServer>) -> CallToolResult {
        match self.call(request, context).await {
            Ok(answer) => result(answer.facts, false),
            Err(refusal) => match refusal.facts() {
                Value::Object(facts) => result(facts, true),
                _ => CallToolResult::default(),
            },
        }
    }

    async fn call(
        &self,
        request: CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<Answer, Refusal> {
        let inner = &self.inner;
        if !inner.offered.iter().any(|tool| tool.name == request.name) {
            let names: Vec<&str> = inner.offered.iter().map(|tool| &*tool.name).collect();
            return Err(Refusal::invalid(format!("there is no tool `{}`: there are {}", request.name, names.join(", "))));
        }
        let meta = &context.meta.0.0;
        let headers = context.extensions.get::<Parts>().map(|parts| &parts.headers);
        let caller = inner.seat.caller(meta, headers)?;
        let doubled = match meta.get(duplicates::META_KEY) {
            Some(Value::Array(keys)) => keys.iter().filter_map(|key| key.as_str().map(str::to_owned)).collect(),
            _ => Vec::new(),
        };
        let call =
            Call { tool: request.name.into_owned(), values: request.arguments.unwrap_or_default(), doubled };
        let desk =
            Desk { reach: inner.reach.acting_as(&caller), caller, memory: &inner.memory, base: &inner.base, context };
        tools::call(inner.shape, &desk, call).await
    }
}

/// A result: the facts, and the same facts as text.
fn result(facts: Map<String, Value>, is_error: bool) -> CallToolResult {
    let text = render::render(&facts, &random::hex(4));
    let mut result = CallToolResult::success(vec![ContentBlock::text(text)]);
    result.structured_content = Some(Value::Object(facts));
    result.is_error = Some(is_error);
    result
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("pinfold", env!("CARGO_PKG_VERSION")))
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult { tools: self.inner.offered.clone(), ..ListToolsResult::default() })
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.inner.offered.iter().find(|tool| tool.name == name).cloned()
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        Ok(self.answer(request, &context).await.into())
    }
}
