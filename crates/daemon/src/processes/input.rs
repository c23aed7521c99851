//! Input: from a request to the keeper, and how much of it was accepted.
//!
//! An input has a key, set by the client or generated. The keeper applies each key once (L5), so that a client may send
//! it again after any failure; the daemon remembers nothing.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use pinfold_api::error::ErrorCode;
use pinfold_api::types::{InputAnswer, InputRequest};
use pinfold_model::id::ProcessId;
use pinfold_model::input::{Input, InputResult, MAX_KEY, MAX_QUEUE, StdinState};
use pinfold_model::keyboard::{self, Keyboard};
use pinfold_model::link::{FromKeeper, ToKeeper};
use pinfold_model::units::parse_duration;
use pinfold_store::ids::random_mark;

use crate::core::Core;
use crate::registry::keeper_answers::{keeper_silent, over, unanswered};
use crate::registry::keeper_link::ANSWER_TIMEOUT;
use crate::registry::{Entry, FoundProcess};
use crate::request_error::RequestError;

/// Maximum time that an input is retried.
const MAX_WAIT: Duration = Duration::from_secs(60);
/// Minimum and maximum delay between two attempts.
const MIN_RETRY: Duration = Duration::from_millis(5);
const MAX_RETRY: Duration = Duration::from_millis(100);

impl Core {
    /// Sends input to a process.
    pub(crate) async fn input(
        self: &Arc<Self>,
        found: &FoundProcess,
        request: InputRequest,
    ) -> Result<InputAnswer, RequestError> {
        let wait = request.wait.as_ref().map(|wait| parse_duration(&wait.text())).transpose()?.unwrap_or_default();
        let history = found.snapshot().history;
        let spec = &history.intent.spec;
        if !spec.takes_input() {
            return Err(no_stdin(found.id()));
        }
        let keyboard = match (spec.pty, request.keys.is_empty()) {
            (Some(_), false) => self.keyboard(found).await?,
            _ => Keyboard { terminal: spec.pty.is_some(), ..Keyboard::default() },
        };
        let input = parse(request, keyboard)?;
        let FoundProcess::Here(entry) = found else { return Err(over(found.id())) };
        let cursor = self.output_end(entry).await?;
        let taken = self.offer(entry, &input, wait.min(MAX_WAIT)).await?;
        Ok(InputAnswer {
            record: self.record(found).await?,
            input_id: input.key,
            accepted: taken.accepted,
            complete: taken.complete,
            repeated: taken.repeated,
            queued: taken.queued,
            cursor,
        })
    }

    /// Offers input to the keeper until all is accepted or the time is over.
    pub(crate) async fn offer(
        &self,
        entry: &Entry,
        input: &Input,
        wait: Duration,
    ) -> Result<InputResult, RequestError> {
        let deadline = tokio::time::Instant::now() + wait;
        let mut pause = MIN_RETRY;
        loop {
            let taken = self.offer_once(entry, input).await?;
            let refused = match taken.stdin {
                StdinState::Absent => Some(no_stdin(&entry.id)),
                StdinState::KeyTaken => {
                    let message = "this input_id was used for other input: use a new one for each input";
                    Some(RequestError::new(ErrorCode::KeyReused, message).about(&entry.id))
                }
                _ if taken.complete => None,
                StdinState::Open => None,
                StdinState::Ending | StdinState::Ended => Some(ended(&entry.id)),
                StdinState::Broken => Some(broken(&entry.id)),
            };
            if let Some(error) = refused {
                return Err(error);
            }
            if taken.complete || tokio::time::Instant::now() + pause > deadline {
                return Ok(taken);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(MAX_RETRY);
        }
    }

    async fn offer_once(&self, entry: &Entry, input: &Input) -> Result<InputResult, RequestError> {
        self.start_decided(entry).await;
        if entry.status().is_over() {
            return Err(over(&entry.id));
        }
        let link = entry.link().ok_or_else(|| keeper_silent(entry))?;
        let (id, input) = (entry.id.clone(), input.clone());
        match link.request(ANSWER_TIMEOUT, |request| ToKeeper::Input { request, id, input }).await {
            Ok(FromKeeper::Input { taken, .. }) => Ok(taken),
            Ok(_) => Err(RequestError::internal("a keeper sent an answer of the wrong kind")),
            Err(error) => Err(unanswered(entry, error)),
        }
    }
}

/// The bytes of a request, in order.
fn parse(request: InputRequest, keyboard: Keyboard) -> Result<Input, RequestError> {
    let mut bytes = request.text.unwrap_or_default().into_bytes();
    if let Some(encoded) = &request.base64 {
        let decoded = STANDARD.decode(encoded.trim());
        bytes.extend(decoded.map_err(|error| RequestError::invalid(format!("`base64` is not base64: {error}")))?);
    }
    for key in &request.keys {
        bytes.extend(keyboard::encode(key, keyboard).map_err(|bad| RequestError::invalid(bad.to_string()))?);
    }
    if bytes.is_empty() && !request.eof {
        return Err(RequestError::invalid("there is nothing to send: give `text`, `base64`, `keys` or `eof`"));
    }
    if bytes.len() > MAX_QUEUE {
        let message = format!("an input of {} bytes is too long: send at most {MAX_QUEUE} at once", bytes.len());
        return Err(RequestError::invalid(message));
    }
    let key = match request.input_id {
        Some(key) if key.is_empty() || key.len() > MAX_KEY => {
            return Err(RequestError::invalid(format!("`input_id` must have 1 to {MAX_KEY} bytes")));
        }
        Some(key) => key,
        None => random_mark().map_err(RequestError::internal)?,
    };
    Ok(Input { key, bytes, eof: request.eof })
}

pub(super) fn no_stdin(id: &ProcessId) -> RequestError {
    let message = format!(
        "process {id} has no stdin: it was started with /dev/null. Start it again with `stdin: pipe` \
         or `pty` (`pinfold run --stdin` or `--pty`), or put its input into the command (`printf 'yes\\n' | ./setup`)"
    );
    RequestError::new(ErrorCode::NoStdin, message).about(id)
}

fn ended(id: &ProcessId) -> RequestError {
    let message = format!("the stdin of {id} was closed by an `eof`: start it again to send more");
    RequestError::new(ErrorCode::StdinClosed, message).about(id)
}

fn broken(id: &ProcessId) -> RequestError {
    let message = format!("process {id} closed its stdin: no process of its tree reads it any more");
    RequestError::new(ErrorCode::StdinClosed, message).about(id)
}
