//! Tool errors as the model reads them: what is wrong, and an example of a correct call.

use pinfold_api::client::ClientError;
use pinfold_api::error::ErrorCode;
use serde_json::{Value, json};

/// A tool error. A command that fails is not an error: its exit code is part of the result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ToolError {
    /// Stable error code for programs.
    pub(crate) code: String,
    /// What is wrong and what to do.
    pub(crate) message: String,
    /// An example of a correct call.
    pub(crate) right_call: Option<String>,
}

impl ToolError {
    /// The arguments are invalid.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        ToolError { code: "invalid_arguments".into(), message: message.into(), right_call: None }
    }

    /// pinfold failed, not the call.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        ToolError { code: "internal".into(), message: message.into(), right_call: None }
    }

    /// Adds an example of a correct call.
    pub(crate) fn with_example(self, right_call: &str) -> Self {
        ToolError { right_call: Some(right_call.to_owned()), ..self }
    }

    /// The error as structured content.
    pub(crate) fn facts(&self) -> Value {
        let mut facts = json!({ "error": self.message, "code": self.code });
        if let Some(call) = &self.right_call {
            facts["right_call"] = Value::String(call.clone());
        }
        facts
    }
}

impl From<ClientError> for ToolError {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Api { error, .. } => {
                let code = serde_json::to_value(error.code).ok().and_then(|code| code.as_str().map(str::to_owned));
                let message = match error.code {
                    // The daemon's advice after the colon names CLI commands; replace it with a tool call.
                    ErrorCode::NotFound => {
                        let fact = error.message.split(": ").next().unwrap_or_default();
                        format!("{fact}: process_list {{}} shows yours")
                    }
                    _ => error.message,
                };
                ToolError { code: code.unwrap_or_else(|| "internal".into()), message, right_call: None }
            }
            ClientError::Unreachable { .. } | ClientError::Protocol(_) => ToolError::internal(error.to_string()),
        }
    }
}
