//! `drain`: a reminder at the moments when an agent listens anyway.

use std::time::Duration;

use serde_json::{Value, json};

use super::Said;
use super::mail::Mail;
use super::notice::render_notice;
use crate::console::Screen;
use crate::failure::Failure;

/// How long an agent waits for us; beyond, it is told another time.
const PATIENCE: Duration = Duration::from_secs(5);

/// Tells what has not been told, in the form of the hook that asks.
pub(super) async fn run(mail: &Mail, said: &Said, screen: &mut Screen) -> Result<u8, Failure> {
    if !listens(said) {
        return Ok(0);
    }
    let Ok(Ok(news)) = tokio::time::timeout(PATIENCE, mail.take()).await else { return Ok(0) };
    if news.is_empty() {
        return Ok(0);
    }
    screen.bytes(format!("{}\n", answer(said, &render_notice(&news))).as_bytes())?;
    // What cannot be acknowledged is told again, which is better than never.
    let _ = tokio::time::timeout(PATIENCE, mail.ack(&news)).await;
    Ok(0)
}

/// Whether this hook can be told anything. One that made the agent go on does not do so twice.
fn listens(said: &Said) -> bool {
    match said.hook_event_name.as_str() {
        "SessionStart" | "UserPromptSubmit" => true,
        "Stop" => !said.stop_hook_active,
        _ => false,
    }
}

fn answer(said: &Said, notice: &str) -> Value {
    match said.hook_event_name.as_str() {
        "Stop" => json!({ "decision": "block", "reason": notice }),
        name => json!({ "hookSpecificOutput": { "hookEventName": name, "additionalContext": notice } }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(name: &str, active: bool) -> Said {
        Said { session_id: "s".into(), hook_event_name: name.into(), stop_hook_active: active }
    }

    #[test]
    fn every_hook_is_answered_in_its_form() {
        assert_eq!(answer(&said("Stop", false), "n"), json!({ "decision": "block", "reason": "n" }));
        let context = answer(&said("SessionStart", false), "n");
        assert_eq!(context["hookSpecificOutput"]["hookEventName"], "SessionStart");
        assert_eq!(context["hookSpecificOutput"]["additionalContext"], "n");
    }

    #[test]
    fn an_agent_is_kept_from_stopping_once() {
        assert!(listens(&said("Stop", false)) && !listens(&said("Stop", true)));
        assert!(!listens(&said("PreToolUse", false)));
    }
}
