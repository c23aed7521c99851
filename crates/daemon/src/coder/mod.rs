//! coder's agent, as a drop-in: `/api/v0/processes` as its clients know it, on the processes that pinfold keeps.
//!
//! Paths, fields, messages, status codes and the order in which a request is judged are coder's; what differs is in
//! docs/from-coder.md, with its reason. A chat is an owner: [`chat`] says which, and the view of an owner holds here
//! as everywhere (D5). `wire` has the shapes, `body` reads requests as leniently as Go does, `ids` makes the UUIDs,
//! `buffer` the text of the output, `env` the environment; `start`, `list`, `output` and `signal` are the routes.

mod access;
mod body;
mod buffer;
mod chat;
mod env;
mod ids;
mod list;
mod output;
mod signal;
mod start;
mod wire;

use std::sync::Arc;

use axum::Router;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use pinfold_store::layout::Home;
use pinfold_store::secret::open_secret;

use self::chat::Chat;
use self::wire::Fault;
use crate::find::Found;
use crate::service::Core;

/// Where the routes are.
pub(crate) const MOUNT: &str = "/api/v0/processes";

/// The label that keeps whether a process was started in the background.
const BACKGROUND: &str = "coder.background";

/// What these routes keep between requests.
#[derive(Debug)]
pub(crate) struct Coder {
    ids: ids::Ids,
    hook: env::Hook,
}

impl Coder {
    pub(crate) fn open(home: &Home) -> std::io::Result<Self> {
        Ok(Self { ids: ids::Ids::new(open_secret(&home.coder_key())?), hook: env::Hook::default() })
    }
}

/// Whether a body starts something, without starting it; else what its sender is told.
pub(crate) fn try_start(body: &[u8]) -> Result<(), String> {
    let fields = body::Fields::parse(&String::from_utf8_lossy(body))?;
    start::Asked::parse(&fields).map(drop).map_err(|fault| format!("{fault:?}"))
}

/// How many variables the hook for the environment sets with this.
pub(crate) fn try_env(said: &[u8]) -> usize {
    env::parse(said).len()
}

/// The routes below `/api/v0/processes`.
pub(crate) fn routes(core: &Arc<Core>) -> Router<Arc<Core>> {
    Router::new()
        .route("/start", post(start::start))
        .route("/list", get(list::list))
        .route("/{id}/output", get(output::output))
        .route("/{id}/signal", post(signal::signal))
        .method_not_allowed_fallback(no_method)
        .fallback(no_route)
        .layer(from_fn_with_state(Arc::clone(core), access::log))
}

/// As the router of coder's agent says it.
async fn no_route() -> Response {
    (StatusCode::NOT_FOUND, "404 page not found\n").into_response()
}

async fn no_method() -> Response {
    StatusCode::METHOD_NOT_ALLOWED.into_response()
}

/// What an id in a path leads to.
enum Lead {
    Nowhere,
    /// To a process that this chat may not know of.
    Hidden,
    To(Box<Found>),
}

/// Looks for the process with this UUID. The word for a process is the UUID alone: pinfold's short ids can be guessed.
async fn follow(core: &Arc<Core>, chat: &Chat, uuid: &str) -> Result<Lead, Fault> {
    let Some(id) = core.coder.ids.parse(uuid) else { return Ok(Lead::Nowhere) };
    let found = match core.registry.get(&id) {
        Some(entry) => Some(Found::Here(entry)),
        None => {
            let found = core.query(move |queries| queries.get(&id)).await.map_err(|refusal| Fault::of(&refusal))?;
            found.map(|(history, _)| Found::Ended(Box::new(history)))
        }
    };
    Ok(match found {
        None => Lead::Nowhere,
        Some(found) if core.sees(&chat.caller.scope, &found.snapshot().history) => Lead::To(Box::new(found)),
        Some(_) => Lead::Hidden,
    })
}

/// The id in the path, as it was written.
type Uuid = Path<String>;
