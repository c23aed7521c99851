//! `agent answer`: allow or deny a permission request of an agent.

use clap::{Args, ValueEnum};
use pinfold_api::types::{AnswerRequest, Verdict};

use crate::console::Console;
use crate::failure::Failure;
use crate::session::Session;

/// Answer a permission request of an agent (`agent run --approvals ask`)
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  pinfold agent answer fixer allow\n  pinfold agent answer fixer deny --ask ask-3")]
pub(crate) struct AnswerArgs {
    /// Agent: id, unique prefix of an id, or name
    pub(crate) agent: String,
    /// Answer
    pub(crate) verdict: Answer,
    /// Id of the request, if several are open; `pinfold agent show` lists them
    #[arg(long, value_name = "ID")]
    pub(crate) ask: Option<String>,
    /// Message for the agent, with deny
    #[arg(long)]
    pub(crate) message: Option<String>,
}

/// The possible answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Answer {
    Allow,
    Deny,
}

/// Sends the answer.
pub(super) async fn run(session: &Session, args: &AnswerArgs, console: &mut Console) -> Result<u8, Failure> {
    let ask = match &args.ask {
        Some(ask) => ask.clone(),
        None => {
            let agent = session.ask(async |client| client.agent(&args.agent).await).await?;
            match agent.asks.as_slice() {
                [ask] => ask.id.clone(),
                [] => {
                    let message = format!("agent {} has no open request: see `pinfold agent show {0}`", agent.id);
                    return Err(Failure::invalid(message));
                }
                asks => {
                    let ids: Vec<_> = asks.iter().map(|ask| ask.id.as_str()).collect();
                    let choices = ids.join(" or ");
                    return Err(Failure::invalid(format!(
                        "several requests are open: choose one with --ask {choices}"
                    )));
                }
            }
        }
    };
    let verdict = match args.verdict {
        Answer::Allow => Verdict::Allow,
        Answer::Deny => Verdict::Deny,
    };
    let request = AnswerRequest { ask, verdict, message: args.message.clone() };
    let agent = session.once().answer_agent(&args.agent, &request).await?;
    if console.json {
        console.document(&agent)?;
    }
    Ok(0)
}
