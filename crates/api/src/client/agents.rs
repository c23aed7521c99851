//! The client's methods for hosted agents.

use super::{Ask, Client, ClientError, get, post, query};
use crate::types::{
    Agent, AgentEventPage, AgentEventsQuery, AgentList, AgentListQuery, AgentRequest, AgentStopRequest, AnswerRequest,
    InterruptAnswer, InterruptRequest, Turn, TurnList, TurnQuery, TurnRequest, TurnsQuery,
};

impl Client {
    /// `POST /v1/agents`.
    pub async fn host_agent(&self, request: &AgentRequest) -> Result<Agent, ClientError> {
        self.ask(Ask { repeatable: request.idempotency_key.is_some(), ..post("/v1/agents", request)? }).await
    }

    /// `GET /v1/agents`.
    pub async fn agents(&self, query: &AgentListQuery) -> Result<AgentList, ClientError> {
        self.ask(get("/v1/agents", query)?).await
    }

    /// `GET /v1/agents/{id}`.
    pub async fn agent(&self, id: &str) -> Result<Agent, ClientError> {
        self.ask(get(&of_agent(id, ""), &())?).await
    }

    /// `POST /v1/agents/{id}/turns`.
    pub async fn give_turn(&self, id: &str, request: &TurnRequest) -> Result<Turn, ClientError> {
        let repeatable = request.idempotency_key.is_some();
        self.ask(Ask { repeatable, ..post(&of_agent(id, "/turns"), request)? }).await
    }

    /// `GET /v1/agents/{id}/turns`.
    pub async fn turns(&self, id: &str, query: &TurnsQuery) -> Result<TurnList, ClientError> {
        self.ask(get(&of_agent(id, "/turns"), query)?).await
    }

    /// `GET /v1/agents/{id}/turns/{number}`.
    pub async fn turn(&self, id: &str, number: u64, query: &TurnQuery) -> Result<Turn, ClientError> {
        self.ask(get(&of_agent(id, &format!("/turns/{number}")), query)?).await
    }

    /// `POST /v1/agents/{id}/interrupt`.
    pub async fn interrupt_agent(&self, id: &str, request: &InterruptRequest) -> Result<InterruptAnswer, ClientError> {
        self.ask(post(&of_agent(id, "/interrupt"), request)?).await
    }

    /// `POST /v1/agents/{id}/answer`.
    pub async fn answer_agent(&self, id: &str, request: &AnswerRequest) -> Result<Agent, ClientError> {
        self.ask(post(&of_agent(id, "/answer"), request)?).await
    }

    /// `POST /v1/agents/{id}/stop`.
    pub async fn stop_agent(&self, id: &str, request: &AgentStopRequest) -> Result<Agent, ClientError> {
        self.ask(Ask { repeatable: true, ..post(&of_agent(id, "/stop"), request)? }).await
    }

    /// `GET /v1/agents/{id}/events`.
    pub async fn agent_events(&self, id: &str, query: &AgentEventsQuery) -> Result<AgentEventPage, ClientError> {
        self.ask(get(&of_agent(id, "/events"), query)?).await
    }
}

fn of_agent(id: &str, verb: &str) -> String {
    format!("/v1/agents/{}{verb}", query::escape(id))
}
