//! pinfold used inside a chat of a real client: commands talk to the daemon that runs them, and what they start ends
//! with the chat.

use pinfold_api::types::{AgentStatus, Cause, Status};
use pinfold_testkit::{Pinfold, Setup, until};
use serde_json::json;

use crate::PINFOLD;
use crate::endurance::set_arguments;
use pinfold_clients::agents::{Agent, ServerAccess};
use pinfold_clients::chat::Chat;
use pinfold_clients::dialect::Act;
use pinfold_clients::model::Model;

/// A chat that lists its processes, starts a process and an agent with `--lifetime owner`, gives that agent a turn, and
/// ends.
fn ends_with_its_chat(agent: Agent) -> Option<()> {
    let (program, codex) = (agent.installed()?, Agent::Codex.installed()?);
    let pinfold = Pinfold::prepare(PINFOLD, Setup::default());
    let way = ServerAccess::of(&pinfold);
    let mut chat = Chat::start_changed(&program, &way, |_, scratch| {
        set_arguments(agent, scratch, &["--owner-grace", "2s"]);
    });
    let mut run = |command: String| {
        let seen = chat.call("execute", &json!({ "command": command, "timeout": "150s" }));
        assert_eq!(seen.get("exit_code"), "0", "{command}: {seen}");
        seen
    };
    let server = run(format!("{PINFOLD} run -d --name server --lifetime owner 'exec sleep 300'"));
    let listed = run(format!("{PINFOLD} ps"));
    assert!(listed.text.contains("server"), "{listed}");
    // The hosted agent has its own home, directory and model.
    let scratch = pinfold.home().join("hosted");
    let mut model = Model::listen();
    let hosted = codex.command(&scratch, model.address, &way);
    let variables: Vec<_> = hosted.get_envs().map(|(name, value)| (name, value.expect("a value"))).collect();
    let variables = variables.iter().map(|(name, value)| format!("{}={}", name.display(), value.display()));
    let variables = variables.collect::<Vec<_>>().join(" ");
    let (path, work) = (hosted.get_program().display(), scratch.join("work"));
    run(format!(
        "env {variables} {PINFOLD} agent run codex --name helper --program {path} --cwd {} --lifetime owner --ready-timeout 120s",
        work.display()
    ));
    let helper = || pinfold.block(pinfold.client().agent("helper")).expect("it is hosted");
    let turns = std::thread::spawn(move || {
        model.act(&Act::Say("found it".into())).expect("the hosted agent asks its model");
        model
    });
    let said = run(format!("{PINFOLD} agent turn helper 'look for it'"));
    assert!(said.text.contains("found it"), "{said}");
    drop(turns.join().expect("a model"));
    let records = pinfold.list(&Default::default()).processes;
    let record = records.iter().find(|record| record.name.as_deref() == Some("server")).expect("it is listed");
    assert!(server.text.contains(&record.id), "{server}");
    assert!(record.owner.starts_with(agent.owner_prefix()), "{record:?}");
    assert_eq!(helper().owner, record.owner);
    // After more than the grace both still run, because the chat is still connected.
    run("sleep 5".to_owned());
    assert_eq!((pinfold.show(&record.id).status, helper().status), (Status::Running, AgentStatus::Idle));
    chat.end();
    let ended = pinfold.wait_finished(&record.id);
    assert_eq!(ended.cause, Some(Cause::OwnerEnded), "{ended:?}");
    until("the agent ends with the chat", || helper().status == AgentStatus::Stopped);
    assert_eq!(helper().cause, Some(Cause::OwnerEnded));
    Some(())
}

#[test]
fn what_a_chat_of_codex_starts_by_the_command_line_ends_with_it() {
    ends_with_its_chat(Agent::Codex);
}

#[test]
fn what_a_chat_of_claude_starts_by_the_command_line_ends_with_it() {
    ends_with_its_chat(Agent::Claude);
}
