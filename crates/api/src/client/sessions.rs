//! Sessions of agents, from the client's side.

use super::{Ask, Client, ClientError, get, post};
use crate::types::{AdoptAnswer, AdoptRequest, LeftBehindList, SessionAnswer, SessionRequest};

impl Client {
    /// `POST /v1/sessions`.
    pub async fn register_session(&self, request: &SessionRequest) -> Result<SessionAnswer, ClientError> {
        self.ask(Ask { repeatable: true, ..post("/v1/sessions", request)? }).await
    }

    /// `GET /v1/sessions/left_behind`.
    pub async fn left_behind(&self) -> Result<LeftBehindList, ClientError> {
        self.ask(get("/v1/sessions/left_behind", &())?).await
    }

    /// `POST /v1/sessions/adopt`. Safe to repeat: what is the caller's already counts as adopted.
    pub async fn adopt(&self, request: &AdoptRequest) -> Result<AdoptAnswer, ClientError> {
        self.ask(Ask { repeatable: true, ..post("/v1/sessions/adopt", request)? }).await
    }
}
