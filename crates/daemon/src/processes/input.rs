//! Input: from a request to the keeper that holds it, and how much of it was taken.
//!
//! An input has a key, of the client's or of our own. The keeper applies each once (L5), so that a client may send it
//! again after any failure; here nothing is remembered.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use pinfold_api::error::ErrorCode;
use pinfold_api::types::{InputAnswer, InputRequest};
use pinfold_model::id::ProcessId;
use pinfold_model::input::{Input, KEY_MOST, QUEUE_MOST, Standing, Taken};
use pinfold_model::keyboard::{self, Keyboard};
use pinfold_model::link::{FromKeeper, ToKeeper};
use pinfold_model::units::parse_duration;
use pinfold_store::ids::random_mark;

use crate::core::Core;
use crate::refusal::Refusal;
use crate::registry::keeper_answers::{keeper_silent, over, unanswered};
use crate::registry::keeper_link::ANSWER;
use crate::registry::{Entry, Found};

/// The longest that an input is tried.
const WAIT_MOST: Duration = Duration::from_secs(60);
/// How soon the keeper is asked again for room, at first and at most.
const AGAIN_LEAST: Duration = Duration::from_millis(5);
const AGAIN_MOST: Duration = Duration::from_millis(100);

impl Core {
    /// Sends input to a process.
    pub(crate) async fn input(self: &Arc<Self>, found: &Found, request: InputRequest) -> Result<InputAnswer, Refusal> {
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
        let Found::Here(entry) = found else { return Err(over(found.id())) };
        let cursor = self.output_end(entry).await?;
        let taken = self.offer(entry, &input, wait.min(WAIT_MOST)).await?;
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

    /// Offers it to the keeper until all is taken or the time is over.
    pub(crate) async fn offer(&self, entry: &Entry, input: &Input, wait: Duration) -> Result<Taken, Refusal> {
        let deadline = tokio::time::Instant::now() + wait;
        let mut pause = AGAIN_LEAST;
        loop {
            let taken = self.offer_once(entry, input).await?;
            let refused = match taken.stdin {
                Standing::Absent => Some(no_stdin(&entry.id)),
                Standing::KeyTaken => {
                    let message = "this input_id was used for other input: use a fresh one for each input";
                    Some(Refusal::new(ErrorCode::KeyReused, message).about(&entry.id))
                }
                _ if taken.complete => None,
                Standing::Open => None,
                Standing::Ending | Standing::Ended => Some(ended(&entry.id)),
                Standing::Broken => Some(broken(&entry.id)),
            };
            if let Some(refusal) = refused {
                return Err(refusal);
            }
            if taken.complete || tokio::time::Instant::now() + pause > deadline {
                return Ok(taken);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(AGAIN_MOST);
        }
    }

    async fn offer_once(&self, entry: &Entry, input: &Input) -> Result<Taken, Refusal> {
        self.settled_start(entry).await;
        if entry.status().is_over() {
            return Err(over(&entry.id));
        }
        let link = entry.link().ok_or_else(|| keeper_silent(entry))?;
        let (id, input) = (entry.id.clone(), input.clone());
        match link.ask(ANSWER, |request| ToKeeper::Input { request, id, input }).await {
            Ok(FromKeeper::Input { taken, .. }) => Ok(taken),
            Ok(_) => Err(Refusal::internal("a keeper gave the wrong answer")),
            Err(error) => Err(unanswered(entry, error)),
        }
    }
}

/// What is to be written, in its order.
fn parse(request: InputRequest, keyboard: Keyboard) -> Result<Input, Refusal> {
    let mut bytes = request.text.unwrap_or_default().into_bytes();
    if let Some(encoded) = &request.base64 {
        let decoded = STANDARD.decode(encoded.trim());
        bytes.extend(decoded.map_err(|error| Refusal::invalid(format!("`base64` is not base64: {error}")))?);
    }
    for key in &request.keys {
        bytes.extend(keyboard::encode(key, keyboard).map_err(|bad| Refusal::invalid(bad.to_string()))?);
    }
    if bytes.is_empty() && !request.eof {
        return Err(Refusal::invalid("there is nothing to send: give `text`, `base64`, `keys` or `eof`"));
    }
    if bytes.len() > QUEUE_MOST {
        let message = format!("an input of {} bytes is too long: send at most {QUEUE_MOST} at once", bytes.len());
        return Err(Refusal::invalid(message));
    }
    let key = match request.input_id {
        Some(key) if key.is_empty() || key.len() > KEY_MOST => {
            return Err(Refusal::invalid(format!("`input_id` must have 1 to {KEY_MOST} bytes")));
        }
        Some(key) => key,
        None => random_mark().map_err(Refusal::internal)?,
    };
    Ok(Input { key, bytes, eof: request.eof })
}

pub(super) fn no_stdin(id: &ProcessId) -> Refusal {
    let message = format!(
        "process {id} has no stdin to write to: it was started with /dev/null. Start it again with `stdin: pipe` \
         or `pty` (`pinfold run --stdin` or `--pty`), or give it its input in the command (`printf 'yes\\n' | ./setup`)"
    );
    Refusal::new(ErrorCode::NoStdin, message).about(id)
}

fn ended(id: &ProcessId) -> Refusal {
    let message = format!("the stdin of {id} was ended by an `eof`: nothing can follow; start it again to send more");
    Refusal::new(ErrorCode::StdinClosed, message).about(id)
}

fn broken(id: &ProcessId) -> Refusal {
    let message = format!("process {id} closed its stdin: nobody in its tree reads it any more");
    Refusal::new(ErrorCode::StdinClosed, message).about(id)
}
