//! `agent turn`: send an agent a prompt and show its answer.

use std::io::Read;

use clap::Args;
use pinfold_api::input::Span;
use pinfold_api::types::{
    AgentEvent, AgentEventKind, AgentEventsQuery, IfBusy, Turn, TurnQuery, TurnRequest, TurnStatus,
};

use super::environment_for_agent;
use crate::commands::run::fresh_key;
use crate::console::Console;
use crate::exit;
use crate::failure::Failure;
use crate::render::agent::{render_tool, render_turn_end};
use crate::session::Session;

/// How long one request waits for events; it is then repeated.
const POLL_WAIT: &str = "30s";

/// Send an agent a prompt and show its answer until the turn ends
///
/// With `-` the prompt is read from stdin. Exit code: 0 if the turn completed, 130 if it was interrupted, otherwise 1. If this
/// command is killed, the turn continues: see `pinfold agent logs`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  pinfold agent turn fixer 'make the tests pass'\n  \
                        pinfold agent turn fixer - < TASK.md\n  pinfold agent turn -d fixer 'and the lints'")]
pub(crate) struct TurnArgs {
    /// Agent: id, unique prefix of an id, or name
    pub(crate) agent: String,
    /// Prompt; `-` reads it from stdin
    pub(crate) text: String,
    /// Print the number of the turn and return without waiting
    #[arg(short, long)]
    pub(crate) detach: bool,
    /// Fail if another turn is running, instead of queueing this one
    #[arg(long)]
    pub(crate) refuse: bool,
    /// Idempotency key: if a turn with this key exists, show that one and run nothing
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<String>,
    /// Print only the final message
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// Sends the prompt and shows the turn.
pub(super) async fn run(session: &Session, args: &TurnArgs, console: &mut Console) -> Result<u8, Failure> {
    let request = TurnRequest {
        text: read_text(&args.text)?,
        idempotency_key: args.key.clone().or_else(fresh_key),
        if_busy: args.refuse.then_some(IfBusy::Refuse),
        wait: None,
        env: environment_for_agent(session)?,
    };
    let agent = &args.agent;
    let query = AgentEventsQuery { after: Some("latest".into()), ..AgentEventsQuery::default() };
    let before = session.ask(async |client| client.agent_events(agent, &query).await).await?.next;
    let turn = session.ask(async |client| client.give_turn(agent, &request).await).await?;
    if args.detach {
        match console.json {
            true => console.document(&turn)?,
            false => console.text(&format!("{}\n", turn.number))?,
        }
        return Ok(0);
    }
    let quiet = args.quiet || console.json;
    let (turn, was_shown) = follow(session, &turn, before, quiet, console).await?;
    if console.json {
        console.document(&turn)?;
        return Ok(code_of(&turn));
    }
    if let (false, Some(text)) = (was_shown, &turn.text) {
        console.text(&format!("{}\n", text.trim_end()))?;
    }
    if let Some(end) = render_turn_end(&turn) {
        console.note(&end);
    }
    Ok(code_of(&turn))
}

/// Shows the events of a turn until it ends; returns the turn, and whether its last message was shown.
pub(super) async fn follow(
    session: &Session,
    turn: &Turn,
    mut after: u64,
    quiet: bool,
    console: &mut Console,
) -> Result<(Turn, bool), Failure> {
    let (agent, number) = (&turn.agent, turn.number);
    let mut shown = Shown::default();
    loop {
        let query =
            AgentEventsQuery { after: Some(after.to_string()), limit: Some(1000), wait: Some(POLL_WAIT.into()) };
        let page = session.ask(async |client| client.agent_events(agent, &query).await).await?;
        for event in page.events.iter().filter(|event| event.turn == Some(number)) {
            if !quiet {
                shown.show(event, console)?;
            }
        }
        // After a crash of the daemon, event numbers may start again.
        after = if page.next < after && page.events.is_empty() { page.next } else { page.next.max(after) };
        if page.events.iter().any(|event| event.turn == Some(number) && event.kind == AgentEventKind::TurnEnded)
            || page.events.is_empty()
        {
            let now = session.ask(async |client| client.turn(agent, number, &TurnQuery::default()).await).await?;
            if now.status.is_over() {
                shown.end_line(console)?;
                return Ok((now, shown.message));
            }
        }
    }
}

/// What has been printed of a turn.
#[derive(Debug, Default)]
struct Shown {
    /// The last printed piece did not end its line.
    open: bool,
    /// Pieces of the current message were printed.
    pieces: bool,
    /// The last message was printed.
    message: bool,
}

impl Shown {
    fn show(&mut self, event: &AgentEvent, console: &mut Console) -> Result<(), Failure> {
        match (event.kind, &event.text, &event.tool) {
            (AgentEventKind::Delta, Some(text), _) => {
                console.text_now(text)?;
                (self.open, self.pieces, self.message) = (!text.ends_with('\n'), true, true);
            }
            (AgentEventKind::Message, Some(text), _) => {
                if !std::mem::take(&mut self.pieces) {
                    console.text_now(text)?;
                    self.open = !text.ends_with('\n');
                }
                self.message = true;
                self.end_line(console)?;
            }
            (AgentEventKind::Tool, _, Some(tool)) => {
                self.end_line(console)?;
                console.note(&render_tool(tool));
            }
            (AgentEventKind::Asked, ..) => {
                self.end_line(console)?;
                if let Some(ask) = &event.ask {
                    console.note(&format!("asks for permission: {}  ({})", ask.what, ask.id));
                }
            }
            (AgentEventKind::Notice | AgentEventKind::TurnRetried, Some(text), _) => {
                self.end_line(console)?;
                console.note(text);
            }
            _ => {}
        }
        Ok(())
    }

    fn end_line(&mut self, console: &mut Console) -> Result<(), Failure> {
        if std::mem::take(&mut self.open) { console.bytes(b"\n") } else { Ok(()) }
    }
}

/// The exit code of a turn.
pub(super) fn code_of(turn: &Turn) -> u8 {
    match turn.status {
        TurnStatus::Completed => 0,
        TurnStatus::Interrupted => exit::INTERRUPTED,
        _ => exit::FAILED,
    }
}

fn read_text(text: &str) -> Result<String, Failure> {
    if text != "-" {
        return Ok(text.to_owned());
    }
    let mut read = String::new();
    std::io::stdin()
        .read_to_string(&mut read)
        .map_err(|error| Failure::invalid(format!("cannot read the prompt from stdin: {error}")))?;
    Ok(read)
}

/// How long one request waits for the end of a turn.
pub(super) fn turn_wait() -> Option<Span> {
    Some(Span::from(POLL_WAIT))
}
