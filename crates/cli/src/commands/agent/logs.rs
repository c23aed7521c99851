//! `agent logs`: what an agent was told, and what came of it.

use clap::Args;
use pinfold_api::types::TurnsQuery;

use crate::console::Screen;
use crate::failure::Failure;
use crate::render::agent::render_turn;
use crate::session::Session;

/// Show an agent's turns: what it was told, did and said
///
/// What its program printed, byte for byte, is the output of its process: `pinfold logs PROCESS`, see `agent show`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  pinfold agent logs fixer\n  pinfold agent logs fixer --after 3 --json")]
pub(crate) struct LogsArgs {
    /// An id, the beginning of one, or a name
    pub(crate) agent: String,
    /// Turns after this number
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) after: u64,
}

/// Shows them.
pub(super) async fn run(session: &Session, args: &LogsArgs, screen: &mut Screen) -> Result<u8, Failure> {
    let mut after = args.after;
    loop {
        let query = TurnsQuery { after: Some(after), limit: None };
        let list = session.ask(async |client| client.turns(&args.agent, &query).await).await?;
        for turn in &list.turns {
            match screen.json {
                true => screen.json_line(turn)?,
                false => screen.text(&render_turn(turn, screen.paint()))?,
            }
            after = turn.number;
        }
        if !list.more {
            return Ok(0);
        }
    }
}
