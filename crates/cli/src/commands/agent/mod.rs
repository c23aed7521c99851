//! `agent`: host agent programs, and lead them through turns.

mod answer;
mod host;
mod logs;
mod round;
mod stop;
mod turn;

use std::collections::BTreeMap;
use std::ffi::OsString;

use clap::{Args, Subcommand};
use pinfold_api::input::Span;
use pinfold_api::types::{AgentListQuery, InterruptRequest};

use super::environment::Environment;
use crate::args::Global;
use crate::console::Screen;
use crate::failure::Failure;
use crate::paths;
use crate::render::agent::{render_agent, render_agents, render_interrupt};
use crate::session::Session;

/// Host an agent program (codex, Claude Code), give it turns, interrupt and stop it
///
/// The agent runs as a kept process and is spoken to in its own protocol. It outlives this command and the daemon.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  pinfold agent run codex --name fixer --approvals allow\n  \
                        pinfold agent turn fixer 'make the tests pass'\n  pinfold agent interrupt fixer\n  \
                        pinfold agent loop --task TASK.md --worker codex --reviewer claude --limit 5")]
pub(crate) struct AgentArgs {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    Run(Box<host::HostArgs>),
    Turn(turn::TurnArgs),
    /// Interrupt the running turn: its own protocol, then INT, TERM and KILL, each with its time
    Interrupt {
        /// An id, the beginning of one, or a name
        agent: String,
        /// How long its protocol has [default: 5s]
        #[arg(long, value_name = "D")]
        protocol_wait: Option<String>,
        /// How long INT has [default: 2s]
        #[arg(long, value_name = "D")]
        int_wait: Option<String>,
        /// How long TERM has [default: 3s]
        #[arg(long, value_name = "D")]
        term_wait: Option<String>,
    },
    /// List agents
    #[command(visible_aliases = ["ls", "list"])]
    Ps {
        /// Those that were stopped or failed, too
        #[arg(long, short)]
        all: bool,
        /// Those of this owner
        #[arg(long)]
        owner: Option<String>,
    },
    /// Show one agent: status, process, session, what it asks
    Show {
        /// An id, the beginning of one, or a name
        agent: String,
    },
    Logs(logs::LogsArgs),
    Answer(answer::AnswerArgs),
    Stop(stop::StopArgs),
    Loop(Box<round::LoopArgs>),
}

/// Does it.
pub(crate) async fn run(
    session: &Session,
    args: &AgentArgs,
    global: &Global,
    screen: &mut Screen,
) -> Result<u8, Failure> {
    match &args.verb {
        Verb::Run(args) => host::run(session, args, global, screen).await,
        Verb::Turn(args) => turn::run(session, args, screen).await,
        Verb::Interrupt { agent, protocol_wait, int_wait, term_wait } => {
            let span = |text: &Option<String>| text.as_deref().map(Span::from);
            let request = InterruptRequest {
                protocol_wait: span(protocol_wait),
                int_wait: span(int_wait),
                term_wait: span(term_wait),
                by: Some("pinfold agent interrupt".into()),
            };
            let answer = session.once().interrupt_agent(agent, &request).await?;
            match screen.json {
                true => screen.document(&answer)?,
                false => screen.text(&render_interrupt(&answer))?,
            }
            Ok(0)
        }
        Verb::Ps { all, owner } => {
            let query = AgentListQuery { owner: owner.clone(), all: Some(*all) };
            let list = session.ask(async |client| client.agents(&query).await).await?;
            match screen.json {
                true => screen.document(&list)?,
                false => screen.text(&render_agents(&list, jiff::Timestamp::now(), screen.width(), screen.paint()))?,
            }
            Ok(0)
        }
        Verb::Show { agent } => {
            let agent = session.ask(async |client| client.agent(agent).await).await?;
            match screen.json {
                true => screen.document(&agent)?,
                false => screen.text(&render_agent(&agent, screen.paint()))?,
            }
            Ok(0)
        }
        Verb::Logs(args) => logs::run(session, args, screen).await,
        Verb::Answer(args) => answer::run(session, args, screen).await,
        Verb::Stop(args) => stop::run(session, args, screen).await,
        Verb::Loop(args) => round::run(session, args, global, screen).await,
    }
}

/// The environment that an agent gets: this one, as far as the configuration passes it on.
fn surroundings(session: &Session) -> Result<BTreeMap<String, Option<String>>, Failure> {
    let config = paths::load_config(session.paths())?;
    let passes = |(name, _): &(OsString, OsString)| config.environment.passes(&name.to_string_lossy());
    let environment = Environment::read(std::env::vars_os().filter(passes));
    if let Some(warning) = environment.warning() {
        Screen::new(false).note(&warning);
    }
    Ok(environment.variables)
}
