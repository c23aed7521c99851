//! The command line as a whole: the options of every command, and the list of commands.
//!
//! Each command's own arguments stand in its file.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::commands::{
    agent, attach, completions, config, connect, daemon, doctor, events, gc, handover, hook, logs, man, mcp, owner,
    pause, ps, restart, run, send, show, show_screen, signal, stop, token, tools, wait,
};

/// The process manager for AI agents: nothing strays, nothing is lost, nothing is invented.
#[derive(Debug, Parser)]
#[command(name = "pinfold", version, propagate_version = false, max_term_width = 100)]
#[command(after_help = "Example:\n  pinfold run -d --name web 'npm run dev'   start it and return at once\n  \
                        pinfold logs -f web                       follow its output\n  \
                        pinfold stop web                          end it and everything it started")]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options that every command takes.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Global {
    /// Print the API's own objects as JSON: one document, or one a line where there are several
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// The state directory, with socket and configuration; overrides PINFOLD_HOME
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) home: Option<PathBuf>,
    /// Act as this owner: see and touch only what it and its descendants own
    #[arg(long = "as", global = true, value_name = "OWNER")]
    pub(crate) acting_as: Option<String>,
}

impl Args {
    /// What the command line says; where it says nothing that makes sense, says so and exits.
    pub(crate) fn read() -> Self {
        let mut definition = Self::command();
        let is_named = |word: &OsString| definition.get_subcommands().any(|command| command.get_name() == word);
        // All the commands together take longer to define than most of them to run: only help speaks of all.
        if !std::env::args_os().nth(1).is_some_and(|word| is_named(&word)) {
            definition.build();
        }
        let mut matches = definition.get_matches();
        Self::from_arg_matches_mut(&mut matches).unwrap_or_else(|error| error.format(&mut Self::command()).exit())
    }
}

/// The commands. Each is defined when it is named.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub(crate) enum Command {
    Run(Box<run::RunArgs>),
    Ps(ps::PsArgs),
    Show(show::ShowArgs),
    Logs(logs::LogsArgs),
    Wait(wait::WaitArgs),
    Stop(stop::StopArgs),
    Attach(attach::AttachArgs),
    Restart(restart::RestartArgs),
    Send(send::SendArgs),
    Screen(show_screen::ScreenArgs),
    Resize(show_screen::ResizeArgs),
    Signal(signal::SignalArgs),
    Pause(pause::PauseArgs),
    Resume(pause::ResumeArgs),
    Events(events::EventsArgs),
    Handover(handover::HandoverArgs),
    Agent(agent::AgentArgs),
    Owner(owner::OwnerArgs),
    Token(token::TokenArgs),
    Gc(gc::GcArgs),
    Mcp(mcp::McpArgs),
    Tools(tools::ToolsArgs),
    Daemon(daemon::DaemonArgs),
    Connect(connect::ConnectArgs),
    Hook(hook::HookArgs),
    Doctor(doctor::DoctorArgs),
    Config(config::ConfigArgs),
    Completions(completions::CompletionsArgs),
    Man(man::ManArgs),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_sound_and_every_command_shows_an_example() {
        Args::command().debug_assert();
        let mut definition = Args::command();
        definition.build();
        for command in definition.get_subcommands().filter(|command| command.get_name() != "help") {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.starts_with("Example"), "{} has no example", command.get_name());
        }
    }

    #[test]
    fn global_options_are_taken_before_and_after_the_command() {
        for line in ["pinfold --json --home /x --as o ps", "pinfold ps --json --home /x --as o"] {
            let args = Args::try_parse_from(line.split(' ')).expect(line);
            assert!(args.global.json);
            assert_eq!(args.global.home, Some(PathBuf::from("/x")));
            assert_eq!(args.global.acting_as.as_deref(), Some("o"));
        }
    }
}
