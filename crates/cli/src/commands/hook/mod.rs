//! `hook`: run by an agent's hooks, not by people. Reminds the agent of what ended, or wakes it.
//!
//! A hook never stands in an agent's way: trouble of ours is silence, and no daemon is started for one.

mod drain;
mod mail;
mod notice;
mod wake;

use std::io::{IsTerminal, Read};

use clap::{Args, Subcommand};
use serde::Deserialize;

use super::block_on;
use crate::agent_config::Agent;
use crate::args::Global;
use crate::console::Screen;
use crate::failure::Failure;
use crate::paths;

/// The most that is read of what an agent says. Longer is cut, and then not understood.
const SAID_MOST: u64 = 16 << 20;

/// For the hooks of agents: remind one of what ended, or wake it (see `connect --hooks`)
///
/// Reads what the agent says on stdin, as JSON, and answers in the agent's own form. Says nothing if there is nothing
/// to tell or no daemon, and never fails.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  echo '{\"session_id\": \"5e1f\", \"hook_event_name\": \"UserPromptSubmit\"}' | pinfold hook \
                        claude drain"
)]
pub(crate) struct HookArgs {
    /// The agent that runs the hook: claude or codex
    pub(crate) agent: Agent,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Subcommand)]
pub(crate) enum Verb {
    /// Tell what has not been told
    Drain,
    /// Wait until there is something to tell, tell it on stderr and exit with 2
    Wake,
}

/// What an agent says to its hooks; all else is ignored.
#[derive(Clone, Debug, Default, Deserialize)]
struct Said {
    session_id: String,
    #[serde(default)]
    hook_event_name: String,
    /// Whether the agent goes on only because a hook asked it to.
    #[serde(default)]
    stop_hook_active: bool,
}

/// Does it.
pub(crate) fn run(args: &HookArgs, global: &Global, screen: &mut Screen) -> Result<u8, Failure> {
    if !matches!(args.agent, Agent::Claude | Agent::Codex) {
        return Err(Failure::refused(format!("{} has no hooks that pinfold knows", args.agent.title())));
    }
    if std::io::stdin().is_terminal() {
        return Err(Failure::refused("hooks are run by agents: connect one with `pinfold connect claude --hooks`"));
    }
    let paths = paths::resolve(global)?;
    let Some(said) = listen() else { return Ok(0) };
    let mail = mail::Mail::new(&paths, &format!("{}-{}", args.agent.word(), said.session_id));
    block_on(async {
        match args.verb {
            Verb::Drain => drain::run(&mail, &said, screen).await,
            Verb::Wake => wake::run(&mail, &paths).await,
        }
    })
}

/// What the agent says; nothing if that cannot be understood.
fn listen() -> Option<Said> {
    let mut text = Vec::new();
    std::io::stdin().take(SAID_MOST).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok().filter(|said: &Said| !said.session_id.is_empty())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn arguments_are_taken() {
        for line in ["pinfold hook claude drain", "pinfold hook claude wake", "pinfold hook codex drain"] {
            assert!(crate::args::Args::try_parse_from(line.split(' ')).is_ok(), "{line}");
        }
        assert!(crate::args::Args::try_parse_from(["pinfold", "hook", "claude"]).is_err());
    }

    #[test]
    fn what_an_agent_says_is_understood_whatever_else_is_in_it() {
        let text = r#"{"session_id": "s", "hook_event_name": "Stop", "stop_hook_active": true, "tool_response": [1]}"#;
        let said: Said = serde_json::from_str(text).expect("understood");
        assert!(said.session_id == "s" && said.hook_event_name == "Stop" && said.stop_hook_active);
    }
}
