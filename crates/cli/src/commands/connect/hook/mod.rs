//! `hook`: run by the hooks of an agent. Notifies the agent of what happened to its processes, or wakes it.
//!
//! A hook must not disturb the agent: errors are silent, and no daemon is started.

mod drain;
mod inbox;
mod notice;
mod wake;

use std::io::{IsTerminal, Read};

use clap::{Args, Subcommand};
use serde::Deserialize;

use crate::agent_config::Agent;
use crate::args::Global;
use crate::commands::block_on;
use crate::console::Console;
use crate::failure::Failure;
use crate::paths;

/// Maximum size of the hook's input. Longer input is cut, does not parse and is ignored.
const MAX_INPUT: u64 = 16 << 20;

/// Notify an agent of what happened to its processes; run by hooks (see `connect --hooks`)
///
/// Reads the hook's input as JSON from stdin and answers in the agent's format. Prints nothing if there is no news or no
/// daemon, and never fails.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  echo '{\"session_id\": \"5e1f\", \"hook_event_name\": \"UserPromptSubmit\"}' | pinfold hook \
                        claude drain"
)]
pub(crate) struct HookArgs {
    /// Agent that runs the hook: claude or codex
    pub(crate) agent: Agent,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Subcommand)]
pub(crate) enum Verb {
    /// Print a notice of everything new
    Drain,
    /// Wait for news, print the notice to stderr and exit with 2
    Wake,
}

/// The fields of the hook's input that are used.
#[derive(Clone, Debug, Default, Deserialize)]
struct HookInput {
    session_id: String,
    #[serde(default)]
    hook_event_name: String,
    /// Whether the agent continues only because a hook asked it to.
    #[serde(default)]
    stop_hook_active: bool,
}

/// Runs the command.
pub(crate) fn run(args: &HookArgs, global: &Global, console: &mut Console) -> Result<u8, Failure> {
    if !matches!(args.agent, Agent::Claude | Agent::Codex) {
        return Err(Failure::invalid(format!("pinfold has no hooks for {}: use claude or codex", args.agent.title())));
    }
    if std::io::stdin().is_terminal() {
        return Err(Failure::invalid(
            "`hook` is run by agents, with JSON on stdin: install it with `pinfold connect claude --hooks`",
        ));
    }
    let paths = paths::resolve(global)?;
    let Some(said) = read_input() else { return Ok(0) };
    let inbox = inbox::Inbox::new(&paths, &format!("{}-{}", args.agent.name(), said.session_id));
    block_on(async {
        match args.verb {
            Verb::Drain => drain::run(&inbox, &said, console).await,
            Verb::Wake => wake::run(&inbox, &paths).await,
        }
    })
}

/// The hook's input; `None` if it cannot be parsed.
fn read_input() -> Option<HookInput> {
    let mut text = Vec::new();
    std::io::stdin().take(MAX_INPUT).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok().filter(|said: &HookInput| !said.session_id.is_empty())
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
    fn unknown_fields_of_the_input_are_ignored() {
        let text = r#"{"session_id": "s", "hook_event_name": "Stop", "stop_hook_active": true, "tool_response": [1]}"#;
        let said: HookInput = serde_json::from_str(text).expect("understood");
        assert!(said.session_id == "s" && said.hook_event_name == "Stop" && said.stop_hook_active);
    }
}
