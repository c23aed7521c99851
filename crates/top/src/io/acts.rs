//! Carries out the user's requests, and reports the result.

use std::time::Duration;

use pinfold_api::client::{Client, ClientError};
use pinfold_api::types::{AgentStopRequest, AnswerRequest, InputRequest, StopAnswer, StopRequest, Survivor, Verdict};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::worker::{Shared, ask, reason};
use crate::describe::outcome_words;
use crate::message::{Action, Force, LineEnd, Message};
use crate::quantity::render_count;

/// Recorded as the requester of a stop.
const BY: &str = "pinfold top";
/// A stop takes as long as the process's grace; after this the screen says that it goes on.
const STOP_TIMEOUT: Duration = Duration::from_secs(120);
/// Processes that are stopped at once.
const AT_ONCE: usize = 8;

/// A fresh record of a process.
pub(super) async fn show(shared: Shared, id: String) {
    // If it fails, what was known before stays on the screen.
    if let Ok(record) = ask(shared.client.show(&id)).await {
        shared.send(Message::Shown(Box::new(record))).await;
    }
}

pub(super) async fn act(shared: Shared, action: Action) {
    let (text, failed) = match carry_out(&shared, action).await {
        Ok(text) => (text, false),
        Err(text) => (text, true),
    };
    shared.refresh.notify_one();
    shared.send(Message::Acted { text, failed }).await;
}

async fn carry_out(shared: &Shared, action: Action) -> Result<String, String> {
    let client = &shared.client;
    match action {
        Action::Stop { ids, force } => {
            let verb = if force == Force::Kill { "killing" } else { "stopping" };
            let count = ids.len();
            let what = if let [id] = ids.as_slice() { id.clone() } else { render_count(count, "process", "processes") };
            shared.send(Message::Acted { text: format!("{verb} {what} …"), failed: false }).await;
            stop(client, ids, force).await
        }
        Action::Pause { id } => {
            let answer = ask(client.pause(&id)).await?;
            said(
                format!("paused {id}: {}", render_count(answer.reached as usize, "process", "processes")),
                &answer.refused,
            )
        }
        Action::Resume { id } => {
            let answer = ask(client.resume(&id)).await?;
            said(format!("{id} goes on"), &answer.refused)
        }
        Action::Restart { id } => {
            let request = StopRequest { by: Some(BY.to_owned()), ..StopRequest::default() };
            let record = long(client.restart(&id, &request)).await?;
            Ok(format!("restarted {id} as {}", record.id))
        }
        Action::Send { id, text, line_end } => {
            let request = match line_end {
                LineEnd::Enter => {
                    InputRequest { text: Some(text), keys: vec!["enter".to_owned()], ..InputRequest::default() }
                }
                LineEnd::Newline => InputRequest { text: Some(text + "\n"), ..InputRequest::default() },
            };
            let answer = ask(client.input(&id, &InputRequest { input_id: fresh_id(), ..request })).await?;
            match answer.complete {
                true => Ok(format!("sent to {id}")),
                false => Err(format!("{id} does not read: only {} bytes were taken", answer.accepted)),
            }
        }
        Action::Answer { agent, ask: question, verdict, what } => {
            let message = (verdict == Verdict::Deny).then(|| "denied by the person at pinfold top".to_owned());
            let request = AnswerRequest { ask: question, verdict, message };
            ask(client.answer_agent(&agent, &request)).await?;
            Ok(what)
        }
        Action::StopAgent { id } => {
            let request = AgentStopRequest { by: Some(BY.to_owned()), ..AgentStopRequest::default() };
            long(client.stop_agent(&id, &request)).await?;
            Ok(format!("stopped the agent {id}"))
        }
        Action::MarkSeen { through } => {
            ask(client.inbox_seen(through)).await?;
            Ok("failures marked as seen".to_owned())
        }
    }
}

async fn stop(client: &Client, ids: Vec<String>, force: Force) -> Result<String, String> {
    let grace = (force == Force::Kill).then(|| pinfold_api::input::Span::from("0"));
    let request = StopRequest { grace, by: Some(BY.to_owned()), ..StopRequest::default() };
    let mut remaining = ids.into_iter();
    let mut tasks = JoinSet::new();
    let mut answers: Vec<Result<StopAnswer, String>> = Vec::new();
    loop {
        while tasks.len() < AT_ONCE {
            let Some(id) = remaining.next() else { break };
            let (client, request) = (client.clone(), request.clone());
            tasks.spawn(async move { long(client.stop(&id, &request)).await });
        }
        match tasks.join_next().await {
            Some(Ok(answer)) => answers.push(answer),
            Some(Err(error)) => answers.push(Err(error.to_string())),
            None => break,
        }
    }
    let mut stopped = Vec::new();
    let mut survivors = Vec::new();
    for answer in answers {
        let answer = answer?;
        survivors.extend(answer.survivors);
        stopped.push(answer.record);
    }
    let text = match stopped.as_slice() {
        [record] => {
            let outcome = record.outcome.as_ref().map(|outcome| outcome_words(outcome, record.cause));
            format!("stopped {}, its tree is empty: {}", record.id, outcome.unwrap_or_default())
        }
        records => format!("stopped {}, their trees are empty", render_count(records.len(), "process", "processes")),
    };
    said(text, &survivors)
}

/// The text, unless something could not be reached.
fn said(text: String, survivors: &[Survivor]) -> Result<String, String> {
    match survivors.first() {
        None => Ok(text),
        Some(first) => Err(format!(
            "{} could not be reached: pid {} {}: {}",
            render_count(survivors.len(), "process", "processes"),
            first.pid,
            first.command,
            first.reason
        )),
    }
}

async fn long<T>(request: impl Future<Output = Result<T, ClientError>>) -> Result<T, String> {
    match timeout(STOP_TIMEOUT, request).await {
        Ok(result) => result.map_err(|error| reason(&error)),
        Err(_) => Err("the daemon has not answered for two minutes; it may still do it".to_owned()),
    }
}

/// An id that makes sending again safe.
pub(super) fn fresh_id() -> Option<String> {
    let mut bytes = [0_u8; 16];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).ok()?;
    Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
