//! `POST /start`.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use pinfold_api::error::ErrorCode;
use pinfold_api::types::StartRequest;

use super::BACKGROUND;
use super::body::Fields;
use super::chat::Chat;
use super::env::{find_shell, layers, shell_in};
use super::wire::{self, Fault, Started};
use crate::refusal::Refusal;
use crate::service::Core;

/// As Go says it; coder's tools look for these words.
const NO_SHELL: &str = "exec: \"sh\": executable file not found in $PATH";

/// What a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    command: String,
    workdir: String,
    env: BTreeMap<String, String>,
    background: bool,
}

impl Asked {
    pub(super) fn parse(fields: &Fields) -> Result<Self, Fault> {
        let (command, workdir) = (fields.text("command")?, fields.text("workdir")?);
        let (env, background) = (fields.texts("env")?, fields.flag("background")?);
        match command.is_empty() {
            true => Err(Fault::bad("Command is required.")),
            false => Ok(Asked { command, workdir, env, background }),
        }
    }
}

pub(super) async fn start(State(core): State<Arc<Core>>, chat: Chat, request: Request) -> Result<Response, Fault> {
    let Asked { command, workdir, env: asked, background } = Asked::parse(&Fields::of(request).await?)?;
    let shell = find_shell().ok_or_else(|| failed(NO_SHELL))?;
    let env = layers(&core, &chat, asked).await;
    let path = env.get("PATH").and_then(|path| path.as_deref());
    // Named as people name it where that finds the same one, since it says its name in errors.
    let known = path.is_none_or(|path| shell_in(OsStr::new(path)).as_ref() == Some(&shell));
    let shell = if known { "sh".to_owned() } else { shell.to_string_lossy().into_owned() };
    let (command, argv, shell) = match command.trim().is_empty() {
        // A shell has no objection to nothing.
        true => (None, Some(vec![shell, "-c".to_owned(), command]), None),
        false => (Some(command), None, Some(shell)),
    };
    let request = StartRequest {
        command,
        argv,
        shell,
        cwd: Some(directory(&core, workdir)),
        env,
        labels: [(BACKGROUND.to_owned(), background.to_string())].into(),
        ..StartRequest::default()
    };
    chat.adopt(&core);
    let started = core.start(&chat.caller, request).await.map_err(|refusal| refused(&refusal))?;
    let id = pinfold_model::id::ProcessId::parse(&started.record.id).map_err(|bad| failed(&bad.to_string()))?;
    Ok(wire::ok(&Started { id: core.coder.ids.render(&id), started: true }))
}

/// What is asked for, else what is set up if it is a directory, else the home directory.
fn directory(core: &Core, asked: String) -> String {
    if !asked.is_empty() {
        return asked;
    }
    let set_up = core.config.coder.workdir.clone().filter(|workdir| Path::new(workdir).is_dir());
    set_up.unwrap_or_else(|| core.user_home.clone())
}

fn refused(refusal: &Refusal) -> Fault {
    match refusal.0.code {
        ErrorCode::ShuttingDown => Fault::internal("Failed to start process.").detail("manager is closed"),
        _ => failed(&refusal.0.message),
    }
}

fn failed(reason: &str) -> Fault {
    Fault::internal("Failed to start process.").detail(format!("start process: {reason}"))
}
