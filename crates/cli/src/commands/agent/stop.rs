//! `agent stop`: stop agents and everything they started.

use clap::Args;
use pinfold_api::input::Span;
use pinfold_api::types::{AgentStatus, AgentStopRequest};

use crate::console::Console;
use crate::exit;
use crate::failure::Failure;
use crate::session::Session;

/// Stop agents and everything they started
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  pinfold agent stop fixer\n  pinfold agent stop --grace 10s fixer critic")]
pub(crate) struct StopArgs {
    /// Agents: ids, unique prefixes of ids, or names
    #[arg(required = true, value_name = "AGENT")]
    pub(crate) agents: Vec<String>,
    /// Time between TERM and KILL [default: that of the agent]
    #[arg(long, value_name = "DURATION")]
    pub(crate) grace: Option<String>,
}

/// Stops one after the other.
pub(super) async fn run(session: &Session, args: &StopArgs, console: &mut Console) -> Result<u8, Failure> {
    let request =
        AgentStopRequest { grace: args.grace.as_deref().map(Span::from), by: Some("pinfold agent stop".into()) };
    let mut code = 0;
    for id in &args.agents {
        let agent = session.ask(async |client| client.stop_agent(id, &request).await).await?;
        match console.json {
            true => console.json_line(&agent)?,
            false => console.text(&format!("{}  {}\n", agent.id, crate::render::agent::status_name(agent.status)))?,
        }
        if !matches!(agent.status, AgentStatus::Stopped | AgentStatus::Failed) {
            code = exit::FAILED;
        }
    }
    Ok(code)
}
