//! The routes for screens and dashboards: samples, search, the inbox; and removing a process.

use super::{Content, Route, answer, delete, get, inline, post, reference};
use crate::types::*;

/// These routes.
pub(super) const ROUTES: &[Route] = &[
    Route {
        answers: &[answer("200", "What was removed.", Content::Json(reference::<Removed>))],
        ..delete("/v1/processes/{id}", "remove", "Remove an ended process and its output")
    },
    Route {
        query: Some(inline::<SamplesQuery>),
        answers: &[answer("200", "The latest samples.", Content::Json(reference::<Samples>))],
        ..get("/v1/processes/{id}/samples", "samples", "Sample the CPU and memory use of a live process")
    },
    Route {
        query: Some(inline::<SearchQuery>),
        answers: &[answer("200", "One page of lines that match.", Content::Json(reference::<SearchPage>))],
        ..get("/v1/search", "search", "Search the output of many processes, live and ended")
    },
    Route {
        query: Some(inline::<InboxQuery>),
        answers: &[answer("200", "What needs attention.", Content::Json(reference::<Inbox>))],
        ..get("/v1/inbox", "inbox", "List questions of processes and agents, and failures not seen yet")
    },
    Route {
        body: Some(reference::<SeenRequest>),
        answers: &[answer("200", "The caller's mark.", Content::Json(reference::<SeenAnswer>))],
        ..post("/v1/inbox/seen", "inbox_seen", "Mark failures as seen, up to an event")
    },
];
