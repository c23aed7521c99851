//! `agent`: host agent programs and give them turns.

mod answer;
mod host;
mod logs;
mod review_loop;
mod stop;
mod turn;

use std::collections::BTreeMap;
use std::ffi::OsString;

use clap::{Args, Subcommand};
use pinfold_api::input::Span;
use pinfold_api::types::{AgentListQuery, InterruptRequest};

use crate::args::Global;
use crate::commands::run::environment::Environment;
use crate::console::Console;
use crate::failure::Failure;
use crate::paths;
use crate::render::agent::{render_agent, render_agents, render_interrupt};
use crate::session::Session;

/// Host an agent program (codex, Claude Code), give it turns, interrupt and stop it
///
/// The agent runs as a pinfold process; pinfold talks to it in its own protocol. It survives this command and the daemon.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  pinfold agent run codex --name fixer --approvals allow\n  \
                        pinfold agent turn fixer 'make the tests pass'\n  pinfold agent interrupt fixer\n  \
                        pinfold agent loop --task TASK.md --worker codex --reviewer claude --limit 5")]
pub(crate) struct AgentArgs {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// What to do with agents.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    Run(Box<host::HostArgs>),
    Turn(turn::TurnArgs),
    /// Interrupt the running turn: by its protocol, then INT, TERM and KILL
    Interrupt {
        /// Agent: id, unique prefix of an id, or name
        agent: String,
        /// Time for the protocol's own interrupt [default: 5s]
        #[arg(long, value_name = "DURATION")]
        protocol_wait: Option<String>,
        /// Time after INT [default: 2s]
        #[arg(long, value_name = "DURATION")]
        int_wait: Option<String>,
        /// Time after TERM [default: 3s]
        #[arg(long, value_name = "DURATION")]
        term_wait: Option<String>,
    },
    /// List agents
    #[command(visible_aliases = ["ls", "list"])]
    Ps {
        /// Include agents that were stopped or failed
        #[arg(long, short)]
        all: bool,
        /// Only agents of this owner
        #[arg(long)]
        owner: Option<String>,
    },
    /// Show details of an agent: status, process, session, open permission requests
    Show {
        /// Agent: id, unique prefix of an id, or name
        agent: String,
    },
    Logs(logs::LogsArgs),
    Answer(answer::AnswerArgs),
    Stop(stop::StopArgs),
    Loop(Box<review_loop::LoopArgs>),
}

/// Runs the command.
pub(crate) async fn run(
    session: &Session,
    args: &AgentArgs,
    global: &Global,
    console: &mut Console,
) -> Result<u8, Failure> {
    match &args.verb {
        Verb::Run(args) => host::run(session, args, global, console).await,
        Verb::Turn(args) => turn::run(session, args, console).await,
        Verb::Interrupt { agent, protocol_wait, int_wait, term_wait } => {
            let span = |text: &Option<String>| text.as_deref().map(Span::from);
            let request = InterruptRequest {
                protocol_wait: span(protocol_wait),
                int_wait: span(int_wait),
                term_wait: span(term_wait),
                by: Some("pinfold agent interrupt".into()),
            };
            let answer = session.once().interrupt_agent(agent, &request).await?;
            match console.json {
                true => console.document(&answer)?,
                false => console.text(&render_interrupt(&answer))?,
            }
            Ok(0)
        }
        Verb::Ps { all, owner } => {
            let query = AgentListQuery { owner: owner.clone(), all: Some(*all) };
            let list = session.ask(async |client| client.agents(&query).await).await?;
            match console.json {
                true => console.document(&list)?,
                false => {
                    console.text(&render_agents(&list, jiff::Timestamp::now(), console.width(), console.paint()))?
                }
            }
            Ok(0)
        }
        Verb::Show { agent } => {
            let agent = session.ask(async |client| client.agent(agent).await).await?;
            match console.json {
                true => console.document(&agent)?,
                false => console.text(&render_agent(&agent, console.paint()))?,
            }
            Ok(0)
        }
        Verb::Logs(args) => logs::run(session, args, console).await,
        Verb::Answer(args) => answer::run(session, args, console).await,
        Verb::Stop(args) => stop::run(session, args, console).await,
        Verb::Loop(args) => review_loop::run(session, args, global, console).await,
    }
}

/// The environment of an agent: ours, without the variables that the configuration withholds.
fn environment_for_agent(session: &Session) -> Result<BTreeMap<String, Option<String>>, Failure> {
    let config = paths::load_config(session.paths())?;
    let passes = |(name, _): &(OsString, OsString)| config.environment.passes(&name.to_string_lossy());
    let environment = Environment::read(std::env::vars_os().filter(passes));
    if let Some(warning) = environment.warning() {
        Console::new(false).note(&warning);
    }
    Ok(environment.variables)
}
