//! Several calls in one turn of the model: what one call waits for is not repeated as news in the results of the
//! others.

use pinfold_clients::agents::Agent;
use pinfold_clients::chat::Chat;
use pinfold_clients::dialect::{Call, ToolSet};
use pinfold_clients::seen::Seen;
use pinfold_testkit::{Pinfold, Setup};
use serde_json::json;

use crate::PINFOLD;

/// How many calls are made in one turn.
const CALLS: usize = 10;

/// Commands that end at the same time: each end is known before the calls for the others have their results.
pub(crate) fn siblings() -> Vec<Call> {
    let command = |number| format!("sleep 1; echo check-{number}-passed");
    let call = |number| Call {
        from: ToolSet::Pinfold,
        tool: "execute".into(),
        arguments: json!({ "command": command(number) }),
    };
    (0..CALLS).map(call).collect()
}

/// Each result has the output of its own command, and does not mention the other commands.
pub(crate) fn told_once(results: &[Seen]) {
    let ids: Vec<String> = results.iter().map(|result| result.get("id")).collect();
    let all = results.iter().map(|result| result.text.as_str()).collect::<Vec<_>>().join("\n");
    for (number, result) in results.iter().enumerate() {
        let output = format!("check-{number}-passed");
        assert!(result.text.contains(&output) && result.is_over(), "{result}");
        assert_eq!(all.matches(&output).count(), 1, "{all}");
        assert_eq!(all.matches(&ids[number]).count(), 1, "{all}");
    }
}

fn parallel(agent: Agent) -> Option<()> {
    let program = agent.installed()?;
    let pinfold = Pinfold::prepare(PINFOLD, Setup::default());
    let mut chat = Chat::start(&program, &pinfold);
    told_once(&chat.call_all(siblings()));
    // They are not reported afterwards either.
    let later = chat.call("execute", &json!({ "command": "echo later" }));
    assert!(!later.text.contains("check-"), "{later}");
    chat.end();
    Some(())
}

#[test]
fn parallel_calls_read_each_end_once_codex() {
    parallel(Agent::Codex);
}

#[test]
fn parallel_calls_read_each_end_once_claude() {
    parallel(Agent::Claude);
}

#[test]
fn parallel_calls_read_each_end_once_gemini() {
    parallel(Agent::Gemini);
}

#[test]
fn parallel_calls_read_each_end_once_opencode() {
    parallel(Agent::Opencode);
}
