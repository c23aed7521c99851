//! `agent answer`: allow or deny what an agent asks for.

use clap::{Args, ValueEnum};
use pinfold_api::types::{AnswerRequest, Verdict};

use crate::console::Screen;
use crate::failure::Failure;
use crate::session::Session;

/// Answer an agent that asks for permission (`--approvals ask`)
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  pinfold agent answer fixer allow\n  pinfold agent answer fixer deny --ask ask-3")]
pub(crate) struct AnswerArgs {
    /// An id, the beginning of one, or a name
    pub(crate) agent: String,
    pub(crate) verdict: Word,
    /// Which ask, if there is more than one
    #[arg(long, value_name = "ASK")]
    pub(crate) ask: Option<String>,
    /// What the agent is told with a deny
    #[arg(long)]
    pub(crate) message: Option<String>,
}

/// The two answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Word {
    Allow,
    Deny,
}

/// Answers.
pub(super) async fn run(session: &Session, args: &AnswerArgs, screen: &mut Screen) -> Result<u8, Failure> {
    let ask = match &args.ask {
        Some(ask) => ask.clone(),
        None => {
            let agent = session.ask(async |client| client.agent(&args.agent).await).await?;
            match agent.asks.as_slice() {
                [ask] => ask.id.clone(),
                [] => return Err(Failure::refused(format!("agent {} asks nothing", agent.id))),
                asks => {
                    let ids: Vec<_> = asks.iter().map(|ask| ask.id.as_str()).collect();
                    return Err(Failure::refused(format!("it asks more than one thing: --ask {}", ids.join(" or "))));
                }
            }
        }
    };
    let verdict = match args.verdict {
        Word::Allow => Verdict::Allow,
        Word::Deny => Verdict::Deny,
    };
    let request = AnswerRequest { ask, verdict, message: args.message.clone() };
    let agent = session.once().answer_agent(&args.agent, &request).await?;
    if screen.json {
        screen.document(&agent)?;
    }
    Ok(0)
}
