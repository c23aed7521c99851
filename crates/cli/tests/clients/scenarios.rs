//! A few of the scenarios of `cargo xtask scenarios`: with pinfold's tools the goal is reached, in no more requests than
//! with the client's own shell.

use std::path::Path;

use pinfold_clients::agents::Agent;
use pinfold_clients::dialect::ToolSet;
use pinfold_clients::play::play;
use pinfold_clients::scenarios::Scenario;

use crate::PINFOLD;

/// Short scenarios, one of each kind.
const SHORT: [&str; 4] = ["build", "server", "crash", "question"];

fn compare(agent: Agent) -> Option<()> {
    let program = agent.installed()?;
    for name in SHORT {
        let scenario = Scenario::named(name).expect("a scenario");
        let [with, own] =
            [ToolSet::Pinfold, ToolSet::Own].map(|from| play(Path::new(PINFOLD), &program, scenario, from));
        let (with, own) = match (with.outcome, own.outcome) {
            (Ok(with_cost), Ok(own_cost)) => ((with_cost, with.log), (own_cost, own.log)),
            (with_outcome, own_outcome) => {
                panic!("{name}: {with_outcome:?} after\n{}\nand {own_outcome:?} after\n{}", with.log, own.log)
            }
        };
        assert!(with.0.requests <= own.0.requests, "{name}: {with:?}, but {own:?}");
    }
    Some(())
}

#[test]
fn scenarios_take_no_more_requests_than_with_the_shell_of_codex() {
    compare(Agent::Codex);
}

#[test]
fn scenarios_take_no_more_requests_than_with_the_shell_of_claude() {
    compare(Agent::Claude);
}

#[test]
fn scenarios_take_no_more_requests_than_with_the_shell_of_gemini() {
    compare(Agent::Gemini);
}

#[test]
fn scenarios_take_no_more_requests_than_with_the_shell_of_opencode() {
    compare(Agent::Opencode);
}
