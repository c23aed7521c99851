//! The routes of hosted agents in the OpenAPI document.

use super::{Content, Route, answer, get, inline, post, reference};
use crate::types::*;

pub(super) const ROUTES: &[Route] = &[
    Route {
        body: Some(reference::<AgentRequest>),
        answers: &[
            answer("201", "Hosted.", Content::Json(reference::<Agent>)),
            answer("200", "An agent with this idempotency key already exists.", Content::Json(reference::<Agent>)),
        ],
        ..post("/v1/agents", "host_agent", "Host an agent: run its program and control it through its protocol")
    },
    Route {
        query: Some(inline::<AgentListQuery>),
        answers: &[answer("200", "Agents, newest first.", Content::Json(reference::<AgentList>))],
        ..get("/v1/agents", "agents", "List hosted agents")
    },
    Route {
        answers: &[answer("200", "The agent.", Content::Json(reference::<Agent>))],
        ..get("/v1/agents/{id}", "agent", "Show one agent")
    },
    Route {
        body: Some(reference::<TurnRequest>),
        answers: &[answer("200", "The turn in its current state.", Content::Json(reference::<Turn>))],
        ..post("/v1/agents/{id}/turns", "give_turn", "Give an agent a turn; turns run one at a time")
    },
    Route {
        query: Some(inline::<TurnsQuery>),
        answers: &[answer("200", "Turns, oldest first.", Content::Json(reference::<TurnList>))],
        ..get("/v1/agents/{id}/turns", "turns", "List an agent's turns")
    },
    Route {
        query: Some(inline::<TurnQuery>),
        answers: &[answer("200", "The turn in its current state.", Content::Json(reference::<Turn>))],
        ..get("/v1/agents/{id}/turns/{number}", "turn", "Show one turn, or wait for its end")
    },
    Route {
        body: Some(reference::<InterruptRequest>),
        answers: &[answer(
            "200",
            "Which step ended the turn: the protocol, INT, TERM or KILL.",
            Content::Json(reference::<InterruptAnswer>),
        )],
        ..post("/v1/agents/{id}/interrupt", "interrupt_agent", "Interrupt the running turn, in escalating steps")
    },
    Route {
        body: Some(reference::<AnswerRequest>),
        answers: &[answer("200", "The agent in its current state.", Content::Json(reference::<Agent>))],
        ..post("/v1/agents/{id}/answer", "answer_agent", "Answer a permission request of an agent")
    },
    Route {
        body: Some(reference::<AgentStopRequest>),
        answers: &[answer("200", "The agent, stopped.", Content::Json(reference::<Agent>))],
        ..post("/v1/agents/{id}/stop", "stop_agent", "Stop an agent and its whole tree")
    },
    Route {
        query: Some(inline::<AgentEventsQuery>),
        answers: &[answer(
            "200",
            "Events of the agent. With `Accept: text/event-stream`, a live stream: `id` is the number, `event` the kind \
             or `gap`, `data` the event.",
            Content::JsonOr(reference::<AgentEventPage>, "text/event-stream"),
        )],
        ..get("/v1/agents/{id}/events", "agent_events", "Read or follow the events of an agent")
    },
    Route {
        query: Some(inline::<AgentAttachQuery>),
        answers: &[answer(
            "101",
            "A WebSocket. Every text frame is an unchanged message of the agent; messages of pinfold have the key `pinfold`.",
            Content::Text,
        )],
        ..get("/v1/agents/{id}/attach", "attach_agent", "Observe an agent's own messages")
    },
];
