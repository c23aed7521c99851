//! `POST /start`.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use pinfold_api::error::ErrorCode;
use pinfold_api::types::{StartRequest, Started as StartedThere};
use pinfold_model::id::ProcessId;

use super::BACKGROUND;
use super::body::Fields;
use super::chat::Chat;
use super::env::{find_shell, layers};
use super::idempotency::{self, Fingerprint, KeyState, Place, WaitDeadline};
use super::list::started_at;
use super::wire::{self, Fault, Started};
use crate::core::Core;
use crate::extract;
use crate::registry::FoundProcess;
use crate::request_error::RequestError;

/// The text of Go's error, which coder's tools look for.
const NO_SHELL: &str = "exec: \"sh\": executable file not found in $PATH";

/// A parsed request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) command: String,
    pub(super) workdir: String,
    pub(super) env: BTreeMap<String, String>,
    pub(super) background: bool,
    /// Empty if the request names none.
    idempotency_key: String,
    /// Of the header; a repeated request may have another one.
    traceparent: Option<String>,
}

impl Asked {
    pub(super) fn parse(fields: &Fields) -> Result<Self, Fault> {
        let (command, workdir) = (fields.text("command")?, fields.text("workdir")?);
        let (env, background) = (fields.texts("env")?, fields.flag("background")?);
        let idempotency_key = fields.text("idempotency_key")?;
        match command.is_empty() {
            true => Err(Fault::bad("Command is required.")),
            false => Ok(Asked { command, workdir, env, background, idempotency_key, traceparent: None }),
        }
    }
}

pub(super) async fn start(State(core): State<Arc<Core>>, chat: Chat, request: Request) -> Result<Response, Fault> {
    let traceparent = extract::traceparent(request.headers());
    let asked = Asked { traceparent, ..Asked::parse(&Fields::of(request).await?)? };
    let idempotency_key = asked.idempotency_key.clone();
    let (found, attached) = match idempotency_key.is_empty() {
        true => (begin(&core, &chat, asked, None).await?, false),
        false => start_once(core.clone(), chat, asked).await?,
    };
    let history = found.snapshot().history;
    Ok(wire::ok(&Started {
        id: core.coder.ids.render(&history.intent.id),
        started: !attached,
        idempotency_key,
        attached,
        started_at: started_at(&history).0 / 1_000_000,
    }))
}

/// Starts the process, unless a request with this key has started it before. The flag is true if it had.
async fn start_once(core: Arc<Core>, chat: Chat, asked: Asked) -> Result<(FoundProcess, bool), Fault> {
    let place = Place::new(chat.owner(), &asked.idempotency_key);
    let fingerprint = Fingerprint::new(core.coder.ids.secret(), &asked);
    let deadline = WaitDeadline::new(&core);
    let ticket = idempotency::reserve(&core, &place, &fingerprint, deadline).await?;
    let key = match idempotency::holder(&core, &place, &fingerprint, deadline).await? {
        KeyState::Process(found) => return Ok((found, true)),
        KeyState::Free { key } => key,
    };
    ticket.begin(&fingerprint);
    // Continues even if the client disconnects: it can find the process by its key.
    let task = tokio::spawn(async move {
        let started = begin(&core, &chat, asked, Some((key, fingerprint))).await;
        drop(ticket);
        started
    });
    let found = task.await.map_err(|error| failed(&error.to_string()))??;
    Ok((found, false))
}

/// Starts a process, with an idempotency key if there is one.
async fn begin(
    core: &Arc<Core>,
    chat: &Chat,
    asked: Asked,
    key: Option<(String, Fingerprint)>,
) -> Result<FoundProcess, Fault> {
    let Asked { command, workdir, env: asked, background, traceparent, .. } = asked;
    let shell = find_shell(core).await.ok_or_else(|| failed(NO_SHELL))?;
    let env = layers(core, chat, asked).await;
    let path = env.get("PATH").and_then(|path| path.as_deref());
    // `sh` if that finds the same shell, because the shell prints its name in errors.
    let known = path.is_none_or(|path| shell.is_found_in(OsStr::new(path)));
    let shell = if known { "sh".to_owned() } else { shell.path.to_string_lossy().into_owned() };
    let (command, argv, shell) = match command.trim().is_empty() {
        // A shell accepts an empty command.
        true => (None, Some(vec![shell, "-c".to_owned(), command]), None),
        false => (Some(command), None, Some(shell)),
    };
    let (idempotency_key, fingerprint) = key.unzip();
    let mut labels: BTreeMap<_, _> = [(BACKGROUND.to_owned(), background.to_string())].into();
    labels.extend(fingerprint.map(|fingerprint| (idempotency::FINGERPRINT.to_owned(), fingerprint.text().to_owned())));
    let request =
        StartRequest { command, argv, shell, env, labels, idempotency_key, traceparent, ..StartRequest::default() };
    chat.adopt(core);
    let started = start_in(core, chat, workdir, request).await.map_err(|error| refused(&error))?;
    let id = ProcessId::parse(&started.record.id).map_err(|bad| failed(&bad.to_string()))?;
    super::find(core, id).await?.ok_or_else(|| failed("it is gone already"))
}

/// Starts it in the requested directory, else in the configured one if that is a directory, else in the home directory.
/// The start itself reports whether it is one: the daemon accesses no path of a request (D8).
async fn start_in(
    core: &Arc<Core>,
    chat: &Chat,
    asked: String,
    request: StartRequest,
) -> Result<StartedThere, RequestError> {
    let at = |cwd: &str| StartRequest { cwd: Some(cwd.to_owned()), ..request.clone() };
    if !asked.is_empty() {
        return core.start(&chat.caller, at(&asked)).await;
    }
    if let Some(set_up) = &core.config.coder.workdir {
        let started = core.start(&chat.caller, at(set_up)).await;
        let is_missing = |error: &RequestError| error.0.code == ErrorCode::BadCwd && error.0.id.is_none();
        if !started.as_ref().is_err_and(is_missing) {
            return started;
        }
    }
    core.start(&chat.caller, at(&core.user_home)).await
}

fn refused(error: &RequestError) -> Fault {
    match error.0.code {
        ErrorCode::ShuttingDown => closed(),
        _ => failed(&error.0.message),
    }
}

/// The error of a start while the daemon shuts down.
pub(super) fn closed() -> Fault {
    Fault::internal("Failed to start process.").detail("manager is closed")
}

fn failed(reason: &str) -> Fault {
    Fault::internal("Failed to start process.").detail(format!("start process: {reason}"))
}
