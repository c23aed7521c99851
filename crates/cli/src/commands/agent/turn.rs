//! `agent turn`: tell an agent something, and show what it says until it is done.

use std::io::Read;

use clap::Args;
use pinfold_api::input::Span;
use pinfold_api::types::{
    AgentEvent, AgentEventKind, AgentEventsQuery, IfBusy, Turn, TurnQuery, TurnRequest, TurnStatus,
};

use super::super::run::fresh_key;
use super::surroundings;
use crate::console::Screen;
use crate::exit;
use crate::failure::Failure;
use crate::render::agent::{render_tool, render_turn_end};
use crate::session::Session;

/// How long one request waits for news.
const LOOK: &str = "30s";

/// Give an agent a turn, and show what it says until the turn is over
///
/// TEXT `-` is read from stdin. Exits with 0 if the turn completed, 130 if it was interrupted, else 1. If this command is
/// killed, the turn goes on: see `agent logs`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  pinfold agent turn fixer 'make the tests pass'\n  \
                        pinfold agent turn fixer - < TASK.md\n  pinfold agent turn -d fixer 'and the lints'")]
pub(crate) struct TurnArgs {
    /// An id, the beginning of one, or a name
    pub(crate) agent: String,
    /// What the agent is told
    pub(crate) text: String,
    /// Print the number of the turn and return at once
    #[arg(short, long)]
    pub(crate) detach: bool,
    /// Do not wait behind other turns: fail if one runs
    #[arg(long)]
    pub(crate) refuse: bool,
    /// Run nothing if a turn with this key exists: show that one
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<String>,
    /// Print the final message alone
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// Gives it the turn.
pub(super) async fn run(session: &Session, args: &TurnArgs, screen: &mut Screen) -> Result<u8, Failure> {
    let request = TurnRequest {
        text: read_text(&args.text)?,
        idempotency_key: args.key.clone().or_else(fresh_key),
        if_busy: args.refuse.then_some(IfBusy::Refuse),
        wait: None,
        env: surroundings(session)?,
    };
    let agent = &args.agent;
    let query = AgentEventsQuery { after: Some("latest".into()), ..AgentEventsQuery::default() };
    let before = session.ask(async |client| client.agent_events(agent, &query).await).await?.next;
    let turn = session.ask(async |client| client.give_turn(agent, &request).await).await?;
    if args.detach {
        match screen.json {
            true => screen.document(&turn)?,
            false => screen.text(&format!("{}\n", turn.number))?,
        }
        return Ok(0);
    }
    let quiet = args.quiet || screen.json;
    let (turn, said) = follow(session, &turn, before, quiet, screen).await?;
    if screen.json {
        screen.document(&turn)?;
        return Ok(code_of(&turn));
    }
    if let (false, Some(text)) = (said, &turn.text) {
        screen.text(&format!("{}\n", text.trim_end()))?;
    }
    if let Some(end) = render_turn_end(&turn) {
        screen.note(&end);
    }
    Ok(code_of(&turn))
}

/// Shows what is heard until the turn is over; gives it, and whether its last message was shown.
pub(super) async fn follow(
    session: &Session,
    turn: &Turn,
    mut after: u64,
    quiet: bool,
    screen: &mut Screen,
) -> Result<(Turn, bool), Failure> {
    let (agent, number) = (&turn.agent, turn.number);
    let mut shown = Shown::default();
    loop {
        let query = AgentEventsQuery { after: Some(after.to_string()), limit: Some(1000), wait: Some(LOOK.into()) };
        let page = session.ask(async |client| client.agent_events(agent, &query).await).await?;
        for event in page.events.iter().filter(|event| event.turn == Some(number)) {
            if !quiet {
                shown.show(event, screen)?;
            }
        }
        // After a crash of the daemon numbers may begin anew.
        after = if page.next < after && page.events.is_empty() { page.next } else { page.next.max(after) };
        if page.events.iter().any(|event| event.turn == Some(number) && event.kind == AgentEventKind::TurnEnded)
            || page.events.is_empty()
        {
            let now = session.ask(async |client| client.turn(agent, number, &TurnQuery::default()).await).await?;
            if now.status.is_over() {
                shown.end_line(screen)?;
                return Ok((now, shown.message));
            }
        }
    }
}

/// What of a turn a person has seen.
#[derive(Debug, Default)]
struct Shown {
    /// A piece was printed, and its line is not ended.
    open: bool,
    /// Pieces of the message that is under way were printed.
    pieces: bool,
    /// The latest message was printed.
    message: bool,
}

impl Shown {
    fn show(&mut self, event: &AgentEvent, screen: &mut Screen) -> Result<(), Failure> {
        match (event.kind, &event.text, &event.tool) {
            (AgentEventKind::Delta, Some(text), _) => {
                screen.text_now(text)?;
                (self.open, self.pieces, self.message) = (!text.ends_with('\n'), true, true);
            }
            (AgentEventKind::Message, Some(text), _) => {
                if !std::mem::take(&mut self.pieces) {
                    screen.text_now(text)?;
                    self.open = !text.ends_with('\n');
                }
                self.message = true;
                self.end_line(screen)?;
            }
            (AgentEventKind::Tool, _, Some(tool)) => {
                self.end_line(screen)?;
                screen.note(&render_tool(tool));
            }
            (AgentEventKind::Asked, ..) => {
                self.end_line(screen)?;
                if let Some(ask) = &event.ask {
                    screen.note(&format!("asks: {}  ({})", ask.what, ask.id));
                }
            }
            (AgentEventKind::Notice | AgentEventKind::TurnRetried, Some(text), _) => {
                self.end_line(screen)?;
                screen.note(text);
            }
            _ => {}
        }
        Ok(())
    }

    fn end_line(&mut self, screen: &mut Screen) -> Result<(), Failure> {
        if std::mem::take(&mut self.open) { screen.bytes(b"\n") } else { Ok(()) }
    }
}

/// The exit code of a turn.
pub(super) fn code_of(turn: &Turn) -> u8 {
    match turn.status {
        TurnStatus::Completed => 0,
        TurnStatus::Interrupted => exit::INTERRUPTED,
        _ => exit::TROUBLE,
    }
}

fn read_text(text: &str) -> Result<String, Failure> {
    if text != "-" {
        return Ok(text.to_owned());
    }
    let mut read = String::new();
    std::io::stdin().read_to_string(&mut read).map_err(|error| Failure::refused(format!("stdin: {error}")))?;
    Ok(read)
}

/// How long a request that waits for a turn waits.
pub(super) fn patience() -> Option<Span> {
    Some(Span::from(LOOK))
}
