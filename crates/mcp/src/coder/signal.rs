//! `process_signal`: `terminate` or `kill`, to the whole tree.

use pinfold_api::input::Span;
use pinfold_api::types::{SignalRequest, StopRequest};
use serde_json::json;

use super::result::Outcomes;
use super::{invalid, plain};
use crate::arguments::Arguments;
use crate::refusal::Refusal;
use crate::tools::{Answer, Desk};

pub(super) async fn call(desk: &Desk<'_>, arguments: &Arguments) -> Result<Answer, Refusal> {
    let id = arguments.text("process_id").map_err(invalid)?.unwrap_or_default();
    let signal = arguments.text("signal").map_err(invalid)?.unwrap_or_default();
    if id.is_empty() {
        return Err(plain("process_id is required"));
    }
    let sent = match signal.as_str() {
        "terminate" => desk.hold(&id, terminate(desk, &id)).await,
        "kill" => desk.hold(&id, kill(desk, &id)).await,
        _ => return Err(plain("signal must be \"terminate\" or \"kill\"")),
    };
    match sent {
        Ok(()) => {
            let mut answer = Answer::default();
            let message = format!("signal {signal:?} sent to process {id}");
            answer.facts.insert("success".into(), true.into());
            answer.facts.insert("message".into(), json!(message));
            Ok(answer)
        }
        Err(refusal) if refusal.code == "cancelled" => Err(refusal),
        Err(refusal) => Ok(Outcomes::failure(format!("signal process: {}", refusal.message)).answer()),
    }
}

/// Sends TERM once: a second time may mean something else.
async fn terminate(desk: &Desk<'_>, id: &str) -> Result<(), Refusal> {
    desk.reach.ask(|client| async move { client.show(id).await }).await?;
    let request = SignalRequest { signal: "TERM".to_owned(), by: Some(desk.caller.owner.clone()) };
    desk.reach.client().signal(id, &request).await?;
    Ok(())
}

/// Kills until the tree is empty.
async fn kill(desk: &Desk<'_>, id: &str) -> Result<(), Refusal> {
    let by = Some(desk.caller.owner.clone());
    let request = StopRequest { signal: Some("KILL".to_owned()), grace: Some(Span::Text("0s".to_owned())), by };
    let request = &request;
    let answer = desk.reach.ask(|client| async move { client.stop(id, request).await }).await?;
    match answer.survivors.first() {
        _ if answer.already_over => Err(Refusal::invalid(format!("Process {id:?} is not running."))),
        Some(survivor) => Err(Refusal::trouble(format!("{} (pid {})", survivor.reason, survivor.pid))),
        None => Ok(()),
    }
}
