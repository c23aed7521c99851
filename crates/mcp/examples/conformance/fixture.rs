//! The handler of the fixture server: every MCP method that the suite calls.

use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CompleteRequestParams, CompleteResult, ErrorCode, GetPromptRequestParams,
    GetPromptResponse, Implementation, ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult,
    ListToolsResult, LoggingLevel, LoggingMessageNotificationParam, PaginatedRequestParams, ProgressNotificationParam,
    ReadResourceRequestParams, ReadResourceResponse, ServerCapabilities, ServerConfig, SetLevelRequestParams,
    SubscribeRequestParams, SubscriptionFilter, Tool, UnsubscribeRequestParams,
};
use rmcp::service::{RequestContext, SubscriptionContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tokio::sync::broadcast;

use crate::content::{audio, image, prompt, resource, result, text, text_result};
use crate::input_required::{self, StateSigner, ToolInput};
use crate::{catalogue, server_requests};

/// Delay between two notifications of one call.
const PAUSE: Duration = Duration::from_millis(50);

/// The list that is announced as changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Changed {
    Tools,
    Prompts,
}

/// The fixture server. A clone serves another connection.
#[derive(Clone, Debug)]
pub(crate) struct Fixture {
    signer: StateSigner,
    changes: broadcast::Sender<Changed>,
}

impl Default for Fixture {
    fn default() -> Self {
        Fixture { signer: StateSigner::default(), changes: broadcast::channel(16).0 }
    }
}

impl Fixture {
    async fn plain(&self, name: &str, context: &RequestContext<RoleServer>) -> Result<Value, ErrorData> {
        Ok(match name {
            "test_simple_text" => text_result("This is a simple text response for testing."),
            "test_image_content" => result(&[image()]),
            "test_audio_content" => result(&[audio()]),
            "test_embedded_resource" => {
                result(&[resource("test://embedded-resource", "text/plain", "This is an embedded resource content.")])
            }
            "test_multiple_content_types" => {
                let data = json!({ "test": "data", "value": 123 }).to_string();
                let data = resource("test://mixed-content-resource", "application/json", &data);
                result(&[text("Multiple content types test:"), image(), data])
            }
            "test_error_handling" => {
                let words = "This tool intentionally returns an error for testing";
                json!({ "content": [text(words)], "isError": true })
            }
            "test_tool_with_logging" | "test_logging_tool" => {
                log(context).await;
                text_result("logged")
            }
            "test_tool_with_progress" => {
                report(context).await;
                text_result("progressed")
            }
            "test_reconnection" => {
                tokio::time::sleep(PAUSE * 2).await;
                text_result("still here")
            }
            "test_missing_capability" => return missing_capability(context),
            "test_trigger_tool_change" => self.announce(Changed::Tools),
            "test_trigger_prompt_change" => self.announce(Changed::Prompts),
            "test_mirrored_header" | "json_schema_2020_12_tool" => text_result("accepted"),
            _ => return Err(ErrorData::invalid_params(format!("there is no tool `{name}`"), None)),
        })
    }

    fn announce(&self, changed: Changed) -> Value {
        // Ignore the error if there is no listener.
        let _ = self.changes.send(changed);
        text_result("announced")
    }
}

fn missing_capability(context: &RequestContext<RoleServer>) -> Result<Value, ErrorData> {
    if capabilities(context).get("sampling").is_some_and(Value::is_object) {
        return Ok(text_result("the client can sample"));
    }
    let data = json!({ "requiredCapabilities": { "sampling": {} } });
    let code = ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY;
    Err(ErrorData::new(code, "this tool needs the client to sample", Some(data)))
}

/// Sends three log messages. In revisions where each request selects a log level, only if this one did.
async fn log(context: &RequestContext<RoleServer>) {
    if context.meta.protocol_version().is_some() && context.meta.log_level().is_none() {
        return;
    }
    for words in ["Tool execution started", "Tool processing data", "Tool execution completed"] {
        let _ = context
            .peer
            .notify_logging_message(LoggingMessageNotificationParam::new(LoggingLevel::Info, json!(words)))
            .await;
        tokio::time::sleep(PAUSE).await;
    }
}

async fn report(context: &RequestContext<RoleServer>) {
    for progress in [0.0, 50.0, 100.0] {
        if let Some(token) = context.meta.get_progress_token() {
            let _ =
                context.peer.notify_progress(ProgressNotificationParam::new(token, progress).with_total(100.0)).await;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// The capabilities of the client as JSON.
fn capabilities(context: &RequestContext<RoleServer>) -> Value {
    context.client_capabilities().and_then(|capabilities| serde_json::to_value(capabilities).ok()).unwrap_or_default()
}

fn read<T: DeserializeOwned>(value: Value) -> Result<T, ErrorData> {
    serde_json::from_value(value).map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

/// Marks a result as complete. The SDK removes the field for revisions that do not have it.
fn complete<T: DeserializeOwned>(mut value: Value) -> Result<T, ErrorData> {
    value["resultType"] = "complete".into();
    read(value)
}

fn asks_back(answer: &Value) -> bool {
    answer["resultType"] == "input_required"
}

impl ServerHandler for Fixture {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_resources()
            .enable_resources_subscribe()
            .enable_prompts()
            .enable_prompts_list_changed()
            .enable_completions()
            .enable_logging()
            .build();
        ServerConfig::new(capabilities).with_server_info(Implementation::new("pinfold-conformance", "0"))
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult { tools: read(catalogue::tools())?, ..ListToolsResult::default() })
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        let tools: Vec<Tool> = read(catalogue::tools()).ok()?;
        tools.into_iter().find(|tool| tool.name == name)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = request.arguments.unwrap_or_default();
        let responses: Map<String, Value> = request.input_responses.unwrap_or_default().into_iter().collect();
        let capabilities = capabilities(&context);
        let input =
            ToolInput { responses: &responses, state: request.request_state.as_deref(), capabilities: &capabilities };
        let answer = match input_required::call(&self.signer, &request.name, &input)? {
            Some(answer) => answer,
            None => match server_requests::call(&request.name, &arguments, &context).await? {
                Some(answer) => answer,
                None => self.plain(&request.name, &context).await?,
            },
        };
        match asks_back(&answer) {
            true => Ok(CallToolResponse::InputRequired(read(answer)?)),
            false => Ok(CallToolResponse::Complete(complete(answer)?)),
        }
    }

    async fn list_prompts(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Ok(ListPromptsResult { prompts: read(catalogue::prompts())?, ..ListPromptsResult::default() })
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let arguments = request.arguments.unwrap_or_default();
        let argument = |name: &str| {
            arguments.get(name).and_then(|value| json!(value).as_str().map(str::to_owned)).unwrap_or_default()
        };
        let answer = match request.name.as_str() {
            "test_simple_prompt" => prompt(&[text("This is a simple prompt for testing.")]),
            "test_prompt_with_arguments" => {
                let (first, second) = (argument("arg1"), argument("arg2"));
                prompt(&[text(&format!("Prompt with arguments: arg1='{first}', arg2='{second}'"))])
            }
            "test_prompt_with_embedded_resource" => {
                let embedded =
                    resource(&argument("resourceUri"), "text/plain", "Embedded resource content for testing.");
                prompt(&[embedded, text("Please process the embedded resource above.")])
            }
            "test_prompt_with_image" => prompt(&[image(), text("Please analyze the image above.")]),
            "test_input_required_result_prompt" => {
                let responses = request.input_responses.unwrap_or_default().into_iter().collect();
                let capabilities = capabilities(&context);
                input_required::prompt(&ToolInput { responses: &responses, state: None, capabilities: &capabilities })
            }
            name => return Err(ErrorData::invalid_params(format!("there is no prompt `{name}`"), None)),
        };
        match asks_back(&answer) {
            true => Ok(GetPromptResponse::InputRequired(read(answer)?)),
            false => Ok(GetPromptResponse::Complete(complete(answer)?)),
        }
    }

    async fn list_resources(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(ListResourcesResult { resources: read(catalogue::resources())?, ..ListResourcesResult::default() })
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let resource_templates = read(catalogue::templates())?;
        Ok(ListResourceTemplatesResult { resource_templates, ..ListResourceTemplatesResult::default() })
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let Some(contents) = catalogue::read(&request.uri) else {
            let data = json!({ "uri": request.uri });
            return Err(ErrorData::invalid_params("there is no such resource", Some(data)));
        };
        Ok(ReadResourceResponse::Complete(complete(contents)?))
    }

    async fn subscribe(
        &self,
        _request: SubscribeRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn unsubscribe(
        &self,
        _request: UnsubscribeRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut changes = self.changes.subscribe();
        loop {
            let changed = tokio::select! {
                changed = changes.recv() => changed,
                () = context.cancelled() => return Ok(()),
            };
            // The sink rejects what the listener did not subscribe to; the suite tests that.
            let _ = match changed {
                Ok(Changed::Tools) => context.sink().notify_tool_list_changed().await,
                Ok(Changed::Prompts) => context.sink().notify_prompt_list_changed().await,
                Err(broadcast::error::RecvError::Lagged(_)) => continue,
                Err(broadcast::error::RecvError::Closed) => return Ok(()),
            };
        }
    }

    async fn complete(
        &self,
        _request: CompleteRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        complete(json!({ "completion": { "values": ["paris", "park", "party"], "total": 3, "hasMore": false } }))
    }

    async fn set_level(
        &self,
        _request: SetLevelRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }
}
