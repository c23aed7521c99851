//! `connect`: add pinfold to the configuration of an agent, or remove it.

pub(crate) mod hook;
pub(crate) mod mcp;
pub(crate) mod tools;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use crate::agent_config::entry::Entry;
use crate::agent_config::file::{self, refused};
use crate::agent_config::location::{self, Context};
use crate::agent_config::{Agent, Change, ConfigError, Scope, hooks, server};
use crate::args::Global;
use crate::console::Console;
use crate::daemon_on_demand::own_executable;
use crate::failure::Failure;
use crate::paths;

/// Variables that change pinfold's home. Agents may not pass them on to their MCP servers, so they are written to the entry.
const HOME_VARIABLES: [&str; 2] = ["XDG_STATE_HOME", "XDG_CONFIG_HOME"];
/// Longer names would make tool names too long for some agents.
const MAX_NAME: usize = 32;

/// Connect an agent: add `pinfold mcp` to its configuration as an MCP server
///
/// Everything else in the file stays unchanged, including comments and layout. Running it again changes nothing; --undo
/// removes what was added. A file that cannot be parsed is not touched.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  pinfold connect codex\n  pinfold connect claude --hooks\n  \
                        pinfold connect vscode --scope project --print\n  pinfold connect claude --hooks --undo")]
pub(crate) struct ConnectArgs {
    /// Agent to connect
    pub(crate) agent: Agent,
    /// Print what would be written, and write nothing
    #[arg(long, conflicts_with = "undo")]
    pub(crate) print: bool,
    /// Remove what was added
    #[arg(long)]
    pub(crate) undo: bool,
    /// Which configuration to edit
    #[arg(long, value_enum, default_value_t, hide_possible_values = false)]
    pub(crate) scope: Scope,
    /// Name of the MCP server in the agent
    #[arg(long, default_value = "pinfold", value_parser = parse_name)]
    pub(crate) name: String,
    /// Configuration file of the agent, if it is not in the usual place
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Also install hooks that notify the agent of ended processes, and wake it (claude, codex)
    #[arg(long)]
    pub(crate) hooks: bool,
}

/// What was done to one file, as printed with `--json`.
#[derive(Debug, Serialize)]
struct Done {
    agent: &'static str,
    what: What,
    file: PathBuf,
    /// Absent with `--print`.
    #[serde(skip_serializing_if = "Option::is_none")]
    change: Option<Change>,
    /// With `--print`: what would be written.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum What {
    Server,
    Hooks,
}

/// Writes, prints or removes the entry.
pub(crate) fn run(args: &ConnectArgs, global: &Global, console: &mut Console) -> Result<u8, Failure> {
    let here = std::env::current_dir()?;
    let context = Context { variable: &|name| std::env::var_os(name), here: &here };
    let place_of = |place: Result<PathBuf, ConfigError>| place.map_err(|error| Failure::invalid(error.what));
    let entry = entry(global)?;
    let file = match &args.config {
        Some(file) => std::path::absolute(file)?,
        None => place_of(location::servers(args.agent, args.scope, &context))?,
    };
    let mut work = vec![(What::Server, file)];
    if args.hooks {
        work.push((What::Hooks, place_of(hooks_place(args, &context))?));
    }
    for (what, file) in work {
        let done = if args.print { show(args, what, file, &entry)? } else { write(args, what, file, &entry)? };
        print(args, &done, console)?;
    }
    Ok(0)
}

fn hooks_place(args: &ConnectArgs, context: &Context<'_>) -> Result<PathBuf, ConfigError> {
    match args.agent {
        Agent::Claude => location::claude_settings(args.scope, context),
        Agent::Codex => location::codex_hooks(args.scope, context),
        other => Err(ConfigError::new(format!("pinfold has no hooks for {}: leave out --hooks", other.title()))),
    }
}

fn show(args: &ConnectArgs, what: What, file: PathBuf, entry: &Entry) -> Result<Done, Failure> {
    let text = match what {
        What::Server => server::snippet(args.agent, &args.name, entry),
        What::Hooks => hooks::snippet(args.agent, &args.name, entry),
    };
    let text = text.map_err(|error| refused(&file, &error))?;
    Ok(Done { agent: args.agent.name(), what, file, change: None, text: Some(text) })
}

fn write(args: &ConnectArgs, what: What, file: PathBuf, entry: &Entry) -> Result<Done, Failure> {
    let (agent, name) = (args.agent, args.name.as_str());
    let change = file::edit(&file, args.scope, |text| match (what, args.undo) {
        (What::Server, false) => server::connect(text, agent, name, entry).map(|(text, change)| (Some(text), change)),
        (What::Server, true) => server::disconnect(text, agent, name),
        (What::Hooks, false) => hooks::connect(text, agent, name, entry).map(|(text, change)| (Some(text), change)),
        (What::Hooks, true) => hooks::disconnect(text, agent),
    })?;
    Ok(Done { agent: agent.name(), what, file, change: Some(change), text: None })
}

fn print(args: &ConnectArgs, done: &Done, console: &mut Console) -> Result<(), Failure> {
    if console.json {
        return console.json_line(done);
    }
    match &done.text {
        Some(text) => {
            console.note(&format!("would be added to {}:", done.file.display()));
            console.text(text)
        }
        None => console.text(&render(args, done)),
    }
}

/// What was written, the next step, and how to undo it.
fn render(args: &ConnectArgs, done: &Done) -> String {
    let (title, word, file) = (args.agent.title(), args.agent.name(), done.file.display());
    let (what, them) = match done.what {
        What::Server => (format!("server `{}`", args.name), "it"),
        What::Hooks => ("pinfold's hooks".to_owned(), "them"),
    };
    let mut undo = format!("pinfold connect {word}");
    if args.scope == Scope::Project {
        undo.push_str(" --scope project");
    }
    if args.name != "pinfold" {
        undo.push_str(&format!(" --name {}", args.name));
    }
    if let Some(config) = &args.config {
        undo.push_str(&format!(" --config {}", config.display()));
    }
    if args.hooks {
        undo.push_str(" --hooks");
    }
    let trust = match (args.agent, done.what) {
        (Agent::Codex, What::Hooks) => " Codex asks you to trust new hooks: type /hooks there.",
        _ => "",
    };
    let next = format!("Restart {title} to use {them}.{trust} Undo: {undo} --undo");
    match done.change {
        Some(Change::Added) => format!("{title}: added {what} to {file}\n  {next}\n"),
        Some(Change::Updated) => format!("{title}: updated {what} in {file}\n  {next}\n"),
        Some(Change::Unchanged) => format!("{title}: already connected: {what} is in {file}\n"),
        Some(Change::Removed) => {
            format!("{title}: removed {what} from {file}\n  Restart {title} for this to take effect.\n")
        }
        Some(Change::Absent) | None => format!("{title}: not connected: no {what} in {file}\n"),
    }
}

/// The command that the agent runs, with the home of this call.
fn entry(global: &Global) -> Result<Entry, Failure> {
    let paths = paths::resolve(global)?;
    let text = |path: OsString| {
        path.into_string()
            .map_err(|path| Failure::invalid(format!("{} is not UTF-8: agents need a path that is", path.display())))
    };
    let mut args = Vec::new();
    let mut env = std::collections::BTreeMap::new();
    match paths.moved_home() {
        Some(home) => args.extend(["--home".to_owned(), text(home.into())?]),
        None => {
            for name in HOME_VARIABLES {
                if let Some(value) = std::env::var_os(name).filter(|value| !value.is_empty()) {
                    env.insert(name.to_owned(), text(value)?);
                }
            }
        }
    }
    args.push("mcp".to_owned());
    Ok(Entry { command: text(executable()?.into())?, args, env })
}

/// This executable, by its path on PATH if it is there: that path survives an upgrade.
fn executable() -> Result<PathBuf, Failure> {
    let own = own_executable()?;
    let is_own = |path: &PathBuf| path.is_absolute() && path.canonicalize().is_ok_and(|path| path == own);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let named = std::env::split_paths(&path).map(|directory| directory.join("pinfold")).find(is_own);
    Ok(named.unwrap_or(own))
}

fn parse_name(name: &str) -> Result<String, String> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(is_allowed) {
        return Err(format!("use 1 to {MAX_NAME} letters, digits, `_` or `-`"));
    }
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::Parser;

    use super::*;
    use crate::args::{Args, Command};

    fn parsed(line: &str) -> ConnectArgs {
        let Command::Connect(args) = Args::try_parse_from(line.split(' ')).expect(line).command else {
            panic!("not connect")
        };
        args
    }

    #[test]
    fn arguments_are_taken() {
        let args = parsed("pinfold connect vscode --scope project --name pen --config f --undo");
        assert_eq!((args.agent, args.scope, args.name.as_str()), (Agent::Vscode, Scope::Project, "pen"));
        assert!(args.undo && !args.print);
        for line in ["pinfold connect", "pinfold connect emacs", "pinfold connect codex --print --undo"] {
            assert!(Args::try_parse_from(line.split(' ')).is_err(), "{line}");
        }
        assert!(Args::try_parse_from(["pinfold", "connect", "codex", "--name", "a b"]).is_err());
    }

    #[test]
    fn the_result_names_the_file_the_next_step_and_the_undo() {
        let args = parsed("pinfold connect claude --scope project --hooks");
        let done = |what, change| Done {
            agent: "claude",
            what,
            file: "/p/.mcp.json".into(),
            change: Some(change),
            text: None,
        };
        let text = render(&args, &done(What::Server, Change::Added));
        assert_eq!(
            text,
            "Claude Code: added server `pinfold` to /p/.mcp.json\n  Restart Claude Code to use it. \
             Undo: pinfold connect claude --scope project --hooks --undo\n"
        );
        assert!(render(&args, &done(What::Hooks, Change::Unchanged)).contains("already connected"));
        assert!(render(&args, &done(What::Hooks, Change::Absent)).contains("not connected"));
    }

    #[test]
    fn hooks_are_only_for_agents_that_have_them() {
        let context = Context { variable: &|_| Some("/h".into()), here: Path::new("/w") };
        assert!(hooks_place(&parsed("pinfold connect cursor --hooks"), &context).is_err());
        let place = hooks_place(&parsed("pinfold connect codex --hooks"), &context).expect("a place");
        assert_eq!(place, Path::new("/h/hooks.json"));
    }
}
