//! Tool errors as the model reads them: what was wrong, and a correct call.

use pinfold_api::client::ClientError;
use pinfold_api::error::ErrorCode;
use serde_json::{Value, json};

/// A tool error. A failing command is not one: it is a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ToolError {
    /// For programs.
    pub(crate) code: String,
    /// What was wrong and what to do.
    pub(crate) message: String,
    /// A correct call.
    pub(crate) right_call: Option<String>,
}

impl ToolError {
    /// The arguments are invalid.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        ToolError { code: "invalid_arguments".into(), message: message.into(), right_call: None }
    }

    /// pinfold itself failed.
    pub(crate) fn trouble(message: impl Into<String>) -> Self {
        ToolError { code: "internal".into(), message: message.into(), right_call: None }
    }

    /// Adds a correct call.
    pub(crate) fn show(self, right_call: &str) -> Self {
        ToolError { right_call: Some(right_call.to_owned()), ..self }
    }

    /// As structured content.
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
                    // The daemon speaks to people at a terminal; what follows its colon is not for a model.
                    ErrorCode::NotFound => {
                        let fact = error.message.split(": ").next().unwrap_or_default();
                        format!("{fact}: process_list {{}} shows yours")
                    }
                    _ => error.message,
                };
                ToolError { code: code.unwrap_or_else(|| "internal".into()), message, right_call: None }
            }
            ClientError::Unreachable { .. } | ClientError::Protocol(_) => ToolError::trouble(error.to_string()),
        }
    }
}
