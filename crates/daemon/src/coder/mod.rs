//! coder's agent, as a drop-in: `/api/v0/processes` as its clients know it, on the processes that pinfold keeps.
//!
//! Paths, fields, messages, status codes and the order of the checks are coder's; docs/from-coder.md lists what differs
//! and why. A chat is an owner ([`chat`]), and sees only what that owner may see (D5). `wire` has the shapes, `body` reads requests as leniently as Go does, `ids` makes the UUIDs,
//! `idempotency` finds what an idempotency key started, `buffer` makes the text of the output, `env` the environment;
//! `start`, `list`, `output` and `signal` are the routes.
//!
//! May use: registry, waits, access, processes.

mod access_log;
mod body;
mod buffer;
mod chat;
mod env;
mod idempotency;
mod ids;
mod list;
mod output;
mod path;
mod quote;
mod signal;
mod start;
mod wire;

use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use pinfold_store::layout::Home;
use pinfold_store::secret::open_secret;

use pinfold_model::id::ProcessId;

use self::chat::Chat;
use self::path::Id;
use self::wire::Fault;
use crate::core::Core;
use crate::registry::FoundProcess;

/// The path of the routes.
pub(crate) const MOUNT: &str = "/api/v0/processes";

/// The label that says whether a process was started in the background.
const BACKGROUND: &str = "coder.background";

/// What these routes keep between requests.
#[derive(Debug)]
pub(crate) struct Coder {
    ids: ids::Ids,
    hook: env::Hook,
    keys: idempotency::Keys,
}

impl Coder {
    pub(crate) fn open(home: &Home) -> std::io::Result<Self> {
        let ids = ids::Ids::new(open_secret(&home.coder_key())?);
        Ok(Self { ids, hook: env::Hook::default(), keys: idempotency::Keys::default() })
    }
}

/// Whether a body is a valid start request, or the error message. Starts nothing.
pub(crate) fn try_start(body: &[u8]) -> Result<(), String> {
    let fields = body::Fields::parse(body)?;
    start::Asked::parse(&fields).map(drop).map_err(|fault| format!("{fault:?}"))
}

/// How many variables this output of the environment hook sets.
pub(crate) fn try_env(said: &[u8]) -> usize {
    env::parse(said).len()
}

/// The routes below `/api/v0/processes`.
pub(crate) fn routes(core: &Arc<Core>) -> Router<Arc<Core>> {
    Router::new()
        .route("/start", post(start::start))
        // The router answers HEAD wherever it answers GET, and coder's does not.
        .route("/list", get(list::list).head(no_method))
        .route("/{id}/output", get(output::output).head(no_method))
        .route("/{id}/signal", post(signal::signal))
        .route("/signal-by-idempotency-key", post(signal::signal_by_key))
        .method_not_allowed_fallback(no_method)
        .fallback(no_route)
        .layer(from_fn_with_state(Arc::clone(core), access_log::log))
}

/// The answer of coder's own router.
async fn no_route() -> Response {
    (StatusCode::NOT_FOUND, "404 page not found\n").into_response()
}

async fn no_method() -> Response {
    StatusCode::METHOD_NOT_ALLOWED.into_response()
}

/// The process that an id in a path refers to.
enum Lookup {
    Nowhere,
    /// A process that this chat may not see.
    Hidden,
    To(Box<FoundProcess>),
}

/// Finds the process with this UUID. Only UUIDs are accepted, because pinfold's short ids can be guessed.
async fn follow(core: &Arc<Core>, chat: &Chat, id: &Id) -> Result<Lookup, Fault> {
    let Some(id) = id.text().and_then(|uuid| core.coder.ids.parse(uuid)) else { return Ok(Lookup::Nowhere) };
    Ok(match find(core, id).await? {
        None => Lookup::Nowhere,
        Some(found) if core.sees(&chat.caller.viewer, &found.snapshot().history) => Lookup::To(Box::new(found)),
        Some(_) => Lookup::Hidden,
    })
}

/// A process by its id, in memory or in the index.
async fn find(core: &Arc<Core>, id: ProcessId) -> Result<Option<FoundProcess>, Fault> {
    if let Some(entry) = core.registry.get(&id) {
        return Ok(Some(FoundProcess::Here(entry)));
    }
    let found = core.query(move |queries| queries.get(&id)).await.map_err(|error| Fault::of(&error))?;
    Ok(found.map(|(history, _)| FoundProcess::Ended(Box::new(history))))
}
