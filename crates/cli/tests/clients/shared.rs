//! Several chats on one connection: news about a process of one chat shows none of its output to the others.

use pinfold_clients::agents::Agent;
use pinfold_clients::chat::Chat;
use pinfold_clients::dialect::Act;
use pinfold_clients::model::Turn;
use pinfold_testkit::{Pinfold, Setup};
use serde_json::json;

use crate::PINFOLD;

/// How many calls the sub-agent makes until the end is reported to it.
const CALLS: usize = 20;

/// The next request of the sub-agent. The main chat sends requests too; only its history contains the start of the
/// process.
fn of_sub_agent(chat: &mut Chat) -> Turn {
    loop {
        let turn = chat.model.wait().expect("the sub-agent asks its model");
        if !turn.history().contains("background") {
            return turn;
        }
        chat.model.answer(turn, &Act::Say("waiting".into()));
    }
}

#[test]
fn a_sub_agent_of_claude_is_shown_no_output_of_the_chats_processes() {
    let Some(program) = Agent::Claude.installed() else { return };
    let pinfold = Pinfold::prepare(PINFOLD, Setup::default());
    let mut chat = Chat::start(&program, &pinfold);
    let gate = pinfold.home().join("gate");
    // The text that it prints is not part of the command.
    let command = format!("until [ -e {} ]; do sleep 0.05; done; echo $((6 * 7))secret", gate.display());
    let id = chat.call("execute", &json!({ "command": command, "background": true })).get("id");
    let task = json!({ "description": "look", "prompt": "look around", "subagent_type": "general-purpose" });
    chat.model.act(&Act::own("Agent", task)).expect("the chat asks its model");
    let mut turn = of_sub_agent(&mut chat);
    std::fs::write(&gate, "").expect("an open gate");
    pinfold.wait_finished(&id);
    let mut history = None;
    for _ in 0..CALLS {
        chat.model.answer(turn, &Act::call("execute", json!({ "command": "true" })));
        turn = of_sub_agent(&mut chat);
        if turn.history().contains(&id) {
            history = Some(turn.history());
            break;
        }
    }
    let history = history.expect("the end is reported to the sub-agent");
    assert!(!history.contains("42secret"), "{history}");
}
