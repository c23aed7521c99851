//! `completions`: print a completion script for a shell, and answer the script with words.
//!
//! The script runs `pinfold` with [`VARIABLE`] set for each completion. Commands and options come from the definition of
//! the command line; ids, names, owners and agents come from a running daemon. None is started for it, and one that does
//! not answer within [`MAX_WAIT`] gives no words.

use std::time::Duration;

use clap::{Arg, Args, Command, CommandFactory};
use clap_complete::Shell;
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use clap_complete::env::{CompleteEnv, Shells};
use pinfold_api::client::{Client, ClientError};
use pinfold_api::plain::visible;
use pinfold_api::types::{AgentListQuery, ListQuery};

use crate::args::Global;
use crate::console::Console;
use crate::failure::Failure;
use crate::paths;
use crate::render::table::cut;

/// The variable that holds the name of the shell that asks for words.
const VARIABLE: &str = "PINFOLD_COMPLETE";
/// How long a person who pressed Tab waits at most.
const MAX_WAIT: Duration = Duration::from_millis(500);
/// Processes that are offered: live ones first, then the latest.
const MAX_PROCESSES: u32 = 200;
/// The length of a command beside its id.
const MAX_COMMAND: usize = 50;

/// Print the completion script for a shell
///
/// Completes commands and options, and the ids, names and owners of the processes that there are.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  pinfold completions bash > ~/.local/share/bash-completion/completions/pinfold\n  \
                        pinfold completions zsh > ~/.zfunc/_pinfold\n  \
                        pinfold completions fish > ~/.config/fish/completions/pinfold.fish")]
pub(crate) struct CompletionsArgs {
    /// Shell to print it for
    pub(crate) shell: Shell,
}

/// Prints the script; needs no daemon.
pub(crate) fn run(args: &CompletionsArgs, console: &mut Console) -> Result<u8, Failure> {
    let name = args.shell.to_string();
    let shells = Shells::builtins();
    let shell = shells.completer(&name).ok_or_else(|| Failure::invalid(format!("{name} has no completion script")))?;
    let mut script = Vec::new();
    shell.write_registration(VARIABLE, "pinfold", "pinfold", "pinfold", &mut script)?;
    console.bytes(&script)?;
    Ok(0)
}

/// Answers a completion script and exits, if one asks.
pub(crate) fn answer_script() {
    if std::env::var_os(VARIABLE).is_some() {
        CompleteEnv::with_factory(definition).var(VARIABLE).complete();
    }
}

/// The command line, with a source of words for every argument that names something.
fn definition() -> Command {
    let mut definition = crate::args::Args::command();
    // Subcommands have no arguments before that.
    definition.build();
    with_candidates(definition, "")
}

fn with_candidates(command: Command, parent: &str) -> Command {
    let name = command.get_name().to_owned();
    let command = command.mut_args(|argument| add_candidates(argument, parent));
    command.mut_subcommands(|command| with_candidates(command, &name))
}

/// `parent` is the command above the one that has this argument: ids of `token` are those of tokens.
fn add_candidates(argument: Arg, parent: &str) -> Arg {
    let is_value = argument.get_action().takes_values();
    let value_name = argument.get_value_names().and_then(|names| names.first()).map(|name| name.as_str().to_owned());
    match (argument.get_id().as_str(), value_name.as_deref()) {
        ("agent" | "agents", _) if parent == "agent" => argument.add(ArgValueCandidates::new(agents)),
        ("id" | "ids" | "process", _) if is_value && parent != "token" => {
            argument.add(ArgValueCandidates::new(processes))
        }
        ("owner" | "parent" | "to", _) | (_, Some("OWNER")) if is_value => {
            argument.add(ArgValueCandidates::new(owners))
        }
        _ => argument,
    }
}

fn processes() -> Vec<CompletionCandidate> {
    let query = ListQuery { limit: Some(MAX_PROCESSES), tree: Some(false), ..ListQuery::default() };
    let list = ask(async |client| client.list(&query).await);
    let mut candidates = Vec::new();
    for record in list.iter().flat_map(|list| &list.processes) {
        let command = cut(&visible(&record.command), MAX_COMMAND);
        candidates.extend(record.name.iter().map(|name| candidate(name, &command)));
        candidates.push(candidate(&record.id, &command));
    }
    candidates
}

fn owners() -> Vec<CompletionCandidate> {
    let list = ask(async |client| client.owners().await);
    let live = |live: u64| if live == 1 { "1 live process".to_owned() } else { format!("{live} live processes") };
    list.iter().flat_map(|list| &list.owners).map(|owner| candidate(&owner.owner, &live(owner.live))).collect()
}

fn agents() -> Vec<CompletionCandidate> {
    let query = AgentListQuery { all: Some(true), ..AgentListQuery::default() };
    let list = ask(async |client| client.agents(&query).await);
    let mut candidates = Vec::new();
    for agent in list.iter().flat_map(|list| &list.agents) {
        candidates.extend(agent.name.iter().map(|name| candidate(name, &agent.id)));
        candidates.push(candidate(&agent.id, agent.name.as_deref().unwrap_or("agent")));
    }
    candidates
}

fn candidate(word: &str, help: &str) -> CompletionCandidate {
    CompletionCandidate::new(visible(word).into_owned()).help(Some(help.to_owned().into()))
}

/// The answer of a running daemon; none if there is none or it does not answer in time.
fn ask<T>(request: impl AsyncFnOnce(&Client) -> Result<T, ClientError>) -> Option<T> {
    let paths = paths::resolve(&Global::default()).ok()?;
    let client = Client::new(paths.socket());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    let answer = runtime.block_on(async { tokio::time::timeout(MAX_WAIT, request(&client)).await });
    runtime.shutdown_background();
    answer.ok()?.ok()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn shells_are_named() {
        assert!(crate::args::Args::try_parse_from(["pinfold", "completions", "fish"]).is_ok());
        assert!(crate::args::Args::try_parse_from(["pinfold", "completions", "cmd.exe"]).is_err());
    }

    #[test]
    fn every_argument_that_names_a_process_an_owner_or_an_agent_has_candidates() {
        let definition = definition();
        let mut commands: Vec<&Command> = vec![&definition];
        let mut completed = 0;
        while let Some(command) = commands.pop() {
            commands.extend(command.get_subcommands());
            for argument in command.get_arguments() {
                let names = argument.get_value_names().unwrap_or_default();
                let is_named = names.iter().any(|name| matches!(name.as_str(), "ID" | "IDS" | "OWNER"));
                let has_candidates = argument.get::<ArgValueCandidates>().is_some();
                // Tokens, permission requests and sessions have ids too, which are typed rarely.
                let is_other =
                    command.get_name() == "revoke" || ["ask", "resume"].contains(&argument.get_id().as_str());
                assert!(has_candidates || !is_named || is_other, "{} {}", command.get_name(), argument.get_id());
                completed += usize::from(has_candidates);
            }
        }
        assert!(completed > 20, "{completed}");
    }
}
