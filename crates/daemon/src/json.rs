//! JSON responses.

use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::request_error::RequestError;

/// Like axum's `Json`, which writes byte by byte into a slower buffer: that took a third of the time to answer with 20
/// kB of text.
#[derive(Clone, Debug)]
pub(crate) struct Json<T>(pub(crate) T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.0) {
            Ok(body) => ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], body).into_response(),
            Err(error) => RequestError::internal(error).into_response(),
        }
    }
}
