//! Claude Code on a terminal, as a person runs it: only then does it announce that it supports tasks.

use pinfold_clients::agents::Agent;
use pinfold_clients::dialect::{Call, ToolSet};
use pinfold_clients::interactive::Interactive;
use pinfold_testkit::{Pinfold, Setup};
use serde_json::json;

use crate::PINFOLD;
use crate::parallel::{siblings, told_once};

fn execute(command: &str) -> Call {
    Call { from: ToolSet::Pinfold, tool: "execute".into(), arguments: json!({ "command": command }) }
}

#[test]
fn interactive_claude_reads_each_end_of_parallel_calls_once() {
    let Some(program) = Agent::Claude.installed() else { return };
    let pinfold = Pinfold::prepare(PINFOLD, Setup::default());
    let mut chat = Interactive::start(&program, &pinfold);
    chat.prompt("go");
    let results = chat.model.call_all(siblings());
    told_once(&results.unwrap_or_else(|| panic!("no request came: {}", chat.screen())));
}

#[test]
fn interactive_claude_runs_five_commands_of_a_second_in_six_requests_and_2000_bytes() {
    let Some(program) = Agent::Claude.installed() else { return };
    let pinfold = Pinfold::prepare(PINFOLD, Setup::default());
    let mut chat = Interactive::start(&program, &pinfold);
    chat.prompt("go");
    for number in 1..=5 {
        let results = chat.model.call_all(vec![execute(&format!("sleep 1; echo step-{number}"))]);
        let result = results.unwrap_or_else(|| panic!("no request came: {}", chat.screen())).remove(0);
        assert_eq!((result.is_over(), result.get("exit_code")), (true, "0".into()), "{result}");
        assert!(result.text.contains(&format!("step-{number}")), "{result}");
    }
    let cost = chat.model.cost();
    assert_eq!(cost.requests, 6, "{cost:?}");
    assert!(cost.bytes <= 2000, "{cost:?}");
}
