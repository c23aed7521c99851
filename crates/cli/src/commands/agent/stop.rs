//! `agent stop`: end agents and everything they started.

use clap::Args;
use pinfold_api::input::Span;
use pinfold_api::types::{AgentStatus, AgentStopRequest};

use crate::console::Screen;
use crate::exit;
use crate::failure::Failure;
use crate::session::Session;

/// Stop agents with everything that descends from them: TERM, grace, KILL
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  pinfold agent stop fixer\n  pinfold agent stop --grace 10s fixer critic")]
pub(crate) struct StopArgs {
    /// Ids, beginnings of ids, or names
    #[arg(required = true, value_name = "AGENT")]
    pub(crate) agents: Vec<String>,
    /// How long to wait before KILL [default: the agent's own]
    #[arg(long, value_name = "D")]
    pub(crate) grace: Option<String>,
}

/// Stops them.
pub(super) async fn run(session: &Session, args: &StopArgs, screen: &mut Screen) -> Result<u8, Failure> {
    let request =
        AgentStopRequest { grace: args.grace.as_deref().map(Span::from), by: Some("pinfold agent stop".into()) };
    let mut code = 0;
    for id in &args.agents {
        let agent = session.ask(async |client| client.stop_agent(id, &request).await).await?;
        match screen.json {
            true => screen.json_line(&agent)?,
            false => screen.text(&format!("{}  {}\n", agent.id, crate::render::agent::status_name(agent.status)))?,
        }
        if !matches!(agent.status, AgentStatus::Stopped | AgentStatus::Failed) {
            code = exit::TROUBLE;
        }
    }
    Ok(code)
}
