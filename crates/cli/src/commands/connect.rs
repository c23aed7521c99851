//! `connect`: tell an agent about pinfold, in the agent's own configuration.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use crate::agent_config::entry::Entry;
use crate::agent_config::file::{self, refused};
use crate::agent_config::place::{self, Surroundings};
use crate::agent_config::{Agent, Change, Refusal, Scope, hooks, server};
use crate::args::Global;
use crate::console::Screen;
use crate::failure::Failure;
use crate::paths;

/// The variables that move pinfold's home, and that an agent may not pass on to its servers.
const HOME_VARIABLES: [&str; 2] = ["XDG_STATE_HOME", "XDG_CONFIG_HOME"];
/// Longer names do not fit into the names of tools.
const NAME_MOST: usize = 32;

/// Connect an agent: write into its configuration that it runs `pinfold mcp`
///
/// Everything else in the file stays as it is, comments and layout too; a second time changes nothing, and --undo
/// takes out what was put in. A file that cannot be read as what it should be is left alone.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  pinfold connect codex\n  pinfold connect claude --hooks\n  \
                        pinfold connect vscode --scope project --print\n  pinfold connect claude --hooks --undo")]
pub(crate) struct ConnectArgs {
    /// The agent
    pub(crate) agent: Agent,
    /// Show what would be written, and write nothing
    #[arg(long, conflicts_with = "undo")]
    pub(crate) print: bool,
    /// Take out what was put in
    #[arg(long)]
    pub(crate) undo: bool,
    /// Whose configuration
    #[arg(long, value_enum, default_value_t, hide_possible_values = false)]
    pub(crate) scope: Scope,
    /// The server's name in the agent
    #[arg(long, default_value = "pinfold", value_parser = parse_name)]
    pub(crate) name: String,
    /// The file with the agent's servers, where it is not in its usual place
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Also the hooks that remind the agent of what ended, or wake it (claude, codex)
    #[arg(long)]
    pub(crate) hooks: bool,
}

/// What was done to one file.
#[derive(Debug, Serialize)]
struct Done {
    agent: &'static str,
    what: What,
    file: PathBuf,
    /// Absent if nothing was to be changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    change: Option<Change>,
    /// What would be written, where it was only to be shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum What {
    Server,
    Hooks,
}

/// Writes, shows or takes out.
pub(crate) fn run(args: &ConnectArgs, global: &Global, screen: &mut Screen) -> Result<u8, Failure> {
    let here = std::env::current_dir()?;
    let around = Surroundings { variable: &|name| std::env::var_os(name), here: &here };
    let place_of = |place: Result<PathBuf, Refusal>| place.map_err(|refusal| Failure::refused(refusal.what));
    let entry = entry(global)?;
    let file = match &args.config {
        Some(file) => std::path::absolute(file)?,
        None => place_of(place::servers(args.agent, args.scope, &around))?,
    };
    let mut work = vec![(What::Server, file)];
    if args.hooks {
        work.push((What::Hooks, place_of(hooks_place(args, &around))?));
    }
    for (what, file) in work {
        let done = if args.print { show(args, what, file, &entry)? } else { write(args, what, file, &entry)? };
        print(args, &done, screen)?;
    }
    Ok(0)
}

fn hooks_place(args: &ConnectArgs, around: &Surroundings<'_>) -> Result<PathBuf, Refusal> {
    match args.agent {
        Agent::Claude => place::claude_settings(args.scope, around),
        Agent::Codex => place::codex_hooks(args.scope, around),
        other => Err(Refusal::new(format!("{} has no hooks that pinfold knows: leave out --hooks", other.title()))),
    }
}

fn show(args: &ConnectArgs, what: What, file: PathBuf, entry: &Entry) -> Result<Done, Failure> {
    let text = match what {
        What::Server => server::snippet(args.agent, &args.name, entry),
        What::Hooks => hooks::snippet(args.agent, &args.name, entry),
    };
    let text = text.map_err(|refusal| refused(&file, &refusal))?;
    Ok(Done { agent: args.agent.word(), what, file, change: None, text: Some(text) })
}

fn write(args: &ConnectArgs, what: What, file: PathBuf, entry: &Entry) -> Result<Done, Failure> {
    let (agent, name) = (args.agent, args.name.as_str());
    let change = file::edit(&file, args.scope, |text| match (what, args.undo) {
        (What::Server, false) => server::connect(text, agent, name, entry).map(|(text, change)| (Some(text), change)),
        (What::Server, true) => server::disconnect(text, agent, name),
        (What::Hooks, false) => hooks::connect(text, agent, name, entry).map(|(text, change)| (Some(text), change)),
        (What::Hooks, true) => hooks::disconnect(text, agent),
    })?;
    Ok(Done { agent: agent.word(), what, file, change: Some(change), text: None })
}

fn print(args: &ConnectArgs, done: &Done, screen: &mut Screen) -> Result<(), Failure> {
    if screen.json {
        return screen.json_line(done);
    }
    match &done.text {
        Some(text) => {
            screen.note(&format!("for {}, where it would be merged with what is there:", done.file.display()));
            screen.text(text)
        }
        None => screen.text(&render(args, done)),
    }
}

/// What was written where, what to do next, and how to undo it.
fn render(args: &ConnectArgs, done: &Done) -> String {
    let (title, word, file) = (args.agent.title(), args.agent.word(), done.file.display());
    let (what, them) = match done.what {
        What::Server => (format!("server `{}`", args.name), "it"),
        What::Hooks => ("hooks of pinfold".to_owned(), "them"),
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
        (Agent::Codex, What::Hooks) => " Codex asks you to trust new hooks: see /hooks there.",
        _ => "",
    };
    let next = format!("restart {title} to use {them}.{trust} Undo: {undo} --undo");
    match done.change {
        Some(Change::Added) => format!("{title}: {what} written to {file}\n  {next}\n"),
        Some(Change::Updated) => format!("{title}: {what} brought up to date in {file}\n  {next}\n"),
        Some(Change::Unchanged) => format!("{title}: already connected, {what} in {file}\n"),
        Some(Change::Removed) => {
            format!("{title}: {what} taken out of {file}\n  restart {title} to let go of {them}\n")
        }
        Some(Change::Absent) | None => format!("{title}: not connected, no {what} in {file}\n"),
    }
}

/// The command that the agent is to run, with the home that was asked for.
fn entry(global: &Global) -> Result<Entry, Failure> {
    let paths = paths::resolve(global)?;
    let text = |path: OsString| {
        path.into_string().map_err(|path| Failure::refused(format!("{} is not UTF-8", path.display())))
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

/// This executable, by the name under which it is found on PATH if there is one: that name survives an upgrade.
fn executable() -> Result<PathBuf, Failure> {
    let own = std::env::current_exe().map_err(|error| Failure::trouble(format!("own executable: {error}")))?;
    let is_own = |path: &PathBuf| path.is_absolute() && path.canonicalize().is_ok_and(|path| path == own);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let named = std::env::split_paths(&path).map(|directory| directory.join("pinfold")).find(is_own);
    Ok(named.unwrap_or(own))
}

fn parse_name(name: &str) -> Result<String, String> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.is_empty() || name.len() > NAME_MOST || !name.chars().all(is_allowed) {
        return Err(format!("a name is 1 to {NAME_MOST} letters, digits, `_` or `-`"));
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
    fn what_is_said_names_the_file_the_next_step_and_the_way_back() {
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
            "Claude Code: server `pinfold` written to /p/.mcp.json\n  restart Claude Code to use it. \
             Undo: pinfold connect claude --scope project --hooks --undo\n"
        );
        assert!(render(&args, &done(What::Hooks, Change::Unchanged)).contains("already connected"));
        assert!(render(&args, &done(What::Hooks, Change::Absent)).contains("not connected"));
    }

    #[test]
    fn hooks_are_only_for_agents_that_have_them() {
        let around = Surroundings { variable: &|_| Some("/h".into()), here: Path::new("/w") };
        assert!(hooks_place(&parsed("pinfold connect cursor --hooks"), &around).is_err());
        let place = hooks_place(&parsed("pinfold connect codex --hooks"), &around).expect("a place");
        assert_eq!(place, Path::new("/h/hooks.json"));
    }
}
