//! `agent logs`: the turns of an agent.

use clap::Args;
use pinfold_api::types::TurnsQuery;

use crate::console::Console;
use crate::failure::Failure;
use crate::render::agent::render_turn;
use crate::session::Session;

/// Show the turns of an agent: prompts, tool calls and answers
///
/// For the raw output of its program use `pinfold logs PROCESS`; `pinfold agent show` prints the id of the process.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  pinfold agent logs fixer\n  pinfold agent logs fixer --after 3 --json")]
pub(crate) struct LogsArgs {
    /// Agent: id, unique prefix of an id, or name
    pub(crate) agent: String,
    /// Only turns after this number
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) after: u64,
}

/// Prints the turns, page by page.
pub(super) async fn run(session: &Session, args: &LogsArgs, console: &mut Console) -> Result<u8, Failure> {
    let mut after = args.after;
    loop {
        let query = TurnsQuery { after: Some(after), limit: None };
        let list = session.ask(async |client| client.turns(&args.agent, &query).await).await?;
        for turn in &list.turns {
            match console.json {
                true => console.json_line(turn)?,
                false => console.text(&render_turn(turn, console.paint()))?,
            }
            after = turn.number;
        }
        if !list.more {
            return Ok(0);
        }
    }
}
