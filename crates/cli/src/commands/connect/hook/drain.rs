//! `hook drain`: print a notice when the agent starts, gets a prompt or stops.

use std::time::Duration;

use serde_json::{Value, json};

use super::HookInput;
use super::inbox::Inbox;
use super::notice::render_notice;
use crate::console::Console;
use crate::failure::Failure;

/// How long the agent may be delayed; the notice then comes with a later hook.
const DEADLINE: Duration = Duration::from_secs(5);

/// Prints a notice of everything new, in the format of the hook.
pub(super) async fn run(inbox: &Inbox, said: &HookInput, console: &mut Console) -> Result<u8, Failure> {
    if !accepts_text(said) {
        return Ok(0);
    }
    let Ok(Ok(news)) = tokio::time::timeout(DEADLINE, inbox.take()).await else { return Ok(0) };
    if news.is_empty() {
        return Ok(0);
    }
    console.bytes(format!("{}\n", answer(said, &render_notice(&news))).as_bytes())?;
    // If this fails the notice is repeated, which is better than losing it.
    let _ = tokio::time::timeout(DEADLINE, inbox.ack(&news)).await;
    Ok(0)
}

/// Whether this hook takes a notice. A stop is blocked only once, otherwise the agent would never stop.
fn accepts_text(said: &HookInput) -> bool {
    match said.hook_event_name.as_str() {
        "SessionStart" | "UserPromptSubmit" => true,
        "Stop" => !said.stop_hook_active,
        _ => false,
    }
}

fn answer(said: &HookInput, notice: &str) -> Value {
    match said.hook_event_name.as_str() {
        "Stop" => json!({ "decision": "block", "reason": notice }),
        name => json!({ "hookSpecificOutput": { "hookEventName": name, "additionalContext": notice } }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(name: &str, active: bool) -> HookInput {
        HookInput { session_id: "s".into(), hook_event_name: name.into(), stop_hook_active: active }
    }

    #[test]
    fn every_hook_is_answered_in_its_format() {
        assert_eq!(answer(&said("Stop", false), "n"), json!({ "decision": "block", "reason": "n" }));
        let context = answer(&said("SessionStart", false), "n");
        assert_eq!(context["hookSpecificOutput"]["hookEventName"], "SessionStart");
        assert_eq!(context["hookSpecificOutput"]["additionalContext"], "n");
    }

    #[test]
    fn an_agent_is_kept_from_stopping_once() {
        assert!(accepts_text(&said("Stop", false)) && !accepts_text(&said("Stop", true)));
        assert!(!accepts_text(&said("PreToolUse", false)));
    }
}
