//! The command line: global options and the list of commands.
//!
//! The arguments of a command are defined in the command's own file.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::commands::connect::{hook, mcp, tools};
use crate::commands::daemon::{config, dashboard, doctor, upgrade};
use crate::commands::input::{attach, send};
use crate::commands::output::{events, logs, terminal, top};
use crate::commands::owner::{handover, token};
use crate::commands::process::{gc, pause, ps, rerun, restart, rm, sandbox, show, signal, stats, stop, up, wait};
use crate::commands::shell::{completions, man};
use crate::commands::{agent, connect, daemon, owner, run};
use crate::exit;
use crate::option_names::CommandLine;

/// The process manager for AI agents: nothing strays, nothing is lost, nothing is invented.
#[derive(Debug, Parser)]
#[command(name = "pinfold", version = crate::version::VERSION, propagate_version = false, max_term_width = 100)]
#[command(after_help = "Example:\n  pinfold run -d --name web 'npm run dev'   start a process in the background\n  \
                        pinfold logs -f web                       follow its output\n  \
                        pinfold stop web                          stop it and everything it started")]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Help heading of the options that every command takes.
const GLOBAL: &str = "Global options";

/// Options that every command takes.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Global {
    /// Print the API's objects as JSON: one document, or one object per line for several results
    #[arg(long, global = true, help_heading = GLOBAL)]
    pub(crate) json: bool,
    /// State directory with socket and configuration; overrides PINFOLD_HOME
    #[arg(long, global = true, value_name = "DIR", help_heading = GLOBAL)]
    pub(crate) home: Option<PathBuf>,
    /// Act as this owner: see and change only what it and its descendants own
    #[arg(long = "as", global = true, value_name = "OWNER", help_heading = GLOBAL)]
    pub(crate) acting_as: Option<String>,
}

impl Args {
    /// Parses the command line; prints the error or the requested help and exits if that fails.
    pub(crate) fn read() -> Self {
        let mut definition = Self::command();
        let is_named = |word: &OsString| definition.get_subcommands().any(|command| command.get_name() == word);
        // Defining all commands takes longer than running most of them, so it is done only for help and errors.
        if !std::env::args_os().nth(1).is_some_and(|word| is_named(&word)) {
            definition.build();
        }
        let parsed = definition.try_get_matches_from_mut(std::env::args_os()).and_then(|mut matches| {
            Self::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut Self::command()))
        });
        parsed.unwrap_or_else(|error| print_and_exit(&error, std::env::args_os().skip(1)))
    }
}

/// Prints an error in the command line, or the requested help, and exits.
fn print_and_exit(error: &clap::Error, words: impl Iterator<Item = OsString>) -> ! {
    let _ = error.print();
    let code = match error.use_stderr() {
        true if exits_with_another_code(words) => exit::PINFOLD_FAILED,
        true => exit::USAGE,
        false => 0,
    };
    std::process::exit(i32::from(code))
}

/// Whether the command exits with the code of the program it runs, so that 2 would be mistaken for that program's code.
fn exits_with_another_code(mut words: impl Iterator<Item = OsString>) -> bool {
    let takes_value = |word: &OsString| word == "--home" || word == "--as";
    loop {
        match words.next() {
            Some(word) if takes_value(&word) => drop(words.next()),
            Some(word) if word.to_string_lossy().starts_with('-') => {}
            Some(word) => return word == "run" || word == "rerun" || word == "wait",
            None => return false,
        }
    }
}

/// The words of a command line, and the options that its command has.
pub(crate) fn command_line(words: Vec<OsString>) -> CommandLine {
    let mut definition = Args::command();
    definition.build();
    let mut command = &definition;
    for word in &words {
        match command.find_subcommand(word) {
            Some(named) => command = named,
            None if command.has_subcommands() => {}
            None => break,
        }
    }
    let options = command.get_arguments().filter_map(|argument| argument.get_long()).map(str::to_owned);
    let text = |word: &OsString| word.to_string_lossy().into_owned();
    CommandLine { options: options.collect(), words: words.iter().map(text).collect() }
}

/// The commands. `defer`: clap builds only the one that is used.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub(crate) enum Command {
    Run(Box<run::RunArgs>),
    #[command(visible_aliases = ["ls", "list"])]
    Ps(ps::PsArgs),
    Top(top::TopArgs),
    Show(show::ShowArgs),
    Logs(logs::LogsArgs),
    Wait(wait::WaitArgs),
    Stop(stop::StopArgs),
    Rm(rm::RmArgs),
    Up(up::UpArgs),
    Down(up::DownArgs),
    Attach(attach::AttachArgs),
    Restart(restart::RestartArgs),
    Rerun(rerun::RerunArgs),
    Send(send::SendArgs),
    Screen(terminal::ScreenArgs),
    Resize(terminal::ResizeArgs),
    Signal(signal::SignalArgs),
    Pause(pause::PauseArgs),
    Resume(pause::ResumeArgs),
    Events(events::EventsArgs),
    Handover(handover::HandoverArgs),
    Agent(agent::AgentArgs),
    Owner(owner::OwnerArgs),
    Token(token::TokenArgs),
    Stats(stats::StatsArgs),
    Gc(gc::GcArgs),
    Mcp(mcp::McpArgs),
    Tools(tools::ToolsArgs),
    Daemon(daemon::DaemonArgs),
    Upgrade(upgrade::UpgradeArgs),
    Connect(connect::ConnectArgs),
    Hook(hook::HookArgs),
    Dashboard(dashboard::DashboardArgs),
    Doctor(doctor::DoctorArgs),
    Sandbox(sandbox::SandboxArgs),
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
    fn options_of_every_command_stand_under_one_heading() {
        let mut definition = Args::command();
        definition.build();
        let mut commands: Vec<&clap::Command> = definition.get_subcommands().collect();
        while let Some(command) = commands.pop() {
            commands.extend(command.get_subcommands());
            for argument in command.get_arguments() {
                let is_global = ["json", "home", "acting_as"].contains(&argument.get_id().as_str());
                let heading = argument.get_help_heading();
                assert_eq!(heading == Some(GLOBAL), is_global, "{} {}", command.get_name(), argument.get_id());
            }
        }
    }

    #[test]
    fn lists_are_found_under_every_usual_word() {
        for noun in ["", "owner ", "token ", "agent "] {
            for verb in ["ls", "ps", "list"] {
                let line = format!("pinfold {noun}{verb}");
                assert!(Args::try_parse_from(line.split(' ')).is_ok(), "{line}");
            }
        }
    }

    #[test]
    fn commands_that_exit_with_anothers_code_have_125_for_their_own() {
        let own = |line: &str| exits_with_another_code(line.split(' ').map(OsString::from));
        for line in
            ["run", "run --nonsense", "--home /x --json run", "--home=/x wait --until moon", "--as o run", "rerun"]
        {
            assert!(own(line), "{line}");
        }
        for line in ["ps", "show run", "--home run", "--nonsense", "agent run"] {
            assert!(!own(line), "{line}");
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
