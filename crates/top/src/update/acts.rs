//! Actions that need a question first: stop, kill, and the answer to an agent.

use pinfold_api::types::{Ask, InboxKind, Record, Verdict};

use crate::describe::verdict_word;
use crate::message::{Action, Effect, Force};
use crate::processes::Row;
use crate::quantity::render_count;
use crate::state::{Confirm, Overlay, ProcessMembers, State, View, ViewKind, tree_rows};
use crate::text::one_line;

use super::commands::ask_input;

/// Processes of one question whose members are requested: of more, only the processes are listed.
const MAX_TREES: usize = 64;

/// Asks before a stop, and names what will be stopped.
pub(super) fn ask_stop(state: &mut State, force: Force) -> Vec<Effect> {
    let verb = if force == Force::Kill { "Kill" } else { "Stop" };
    if let (ViewKind::Processes, Some(Row::Owner { name, .. })) = (state.kind(), state.processes.selected_row()) {
        let name = name.clone();
        return ask_stop_owner(state, &name, verb, force);
    }
    if state.kind() == ViewKind::Agents
        && let Some(agent) = state.agent()
    {
        let named = agent.name.clone().unwrap_or_else(|| agent.id.clone());
        let turns = render_count(agent.turns as usize, "turn", "turns");
        let lines = vec![format!("{} agent {}, {turns} so far", agent.kind, agent.id)];
        let action = Action::StopAgent { id: agent.id.clone() };
        let processes: Vec<ProcessMembers> = agent.process.iter().map(|id| members_of(state, id, None)).collect();
        return confirm(state, format!("Stop the agent {}?", one_line(&named)), lines, processes, action);
    }
    let Some(id) = state.subject() else {
        state.say("select a process first");
        return Vec::new();
    };
    if state.record(&id).is_some_and(is_over) {
        let label = state.label(&id);
        state.say(format!("{label} has ended already"));
        return Vec::new();
    }
    let question = format!("{verb} {}?", one_line(&state.label(&id)));
    let processes = vec![members_of(state, &id, None)];
    confirm(state, question, Vec::new(), processes, Action::Stop { ids: vec![id], force })
}

fn ask_stop_owner(state: &mut State, owner: &str, verb: &str, force: Force) -> Vec<Effect> {
    let live = state.processes.live_below(owner);
    if live.is_empty() {
        state.say(format!("{owner} has no live process"));
        return Vec::new();
    }
    let ids: Vec<String> = live.iter().map(|record| record.id.clone()).collect();
    let with_heading = |record: &&Record| {
        let heading = format!("{} {}", record.id, state.processes.title(record));
        members_of(state, &record.id, Some(heading))
    };
    let processes = live.iter().map(with_heading).collect();
    let count = render_count(ids.len(), "process", "processes");
    let question = format!("{verb} {count} of {}?", one_line(owner));
    confirm(state, question, Vec::new(), processes, Action::Stop { ids, force })
}

/// Opens the question. What is known may be a second old, or without the tree: the members are requested now.
fn confirm(
    state: &mut State,
    title: String,
    lines: Vec<String>,
    processes: Vec<ProcessMembers>,
    action: Action,
) -> Vec<Effect> {
    let ids = processes.iter().take(MAX_TREES).map(|process| process.id.clone());
    let effects = ids.map(|id| Effect::Show { id }).collect();
    state.overlay = Some(Overlay::Confirm(Confirm { title, lines, processes, action, otherwise: None, offset: 0 }));
    effects
}

/// A process in a question, with the members that are known.
fn members_of(state: &State, id: &str, heading: Option<String>) -> ProcessMembers {
    let members = match (state.record(id), &heading) {
        (Some(record), Some(_)) if record.tree.is_empty() => Vec::new(),
        (Some(record), _) => member_lines(record),
        (None, _) => Vec::new(),
    };
    ProcessMembers { id: id.to_owned(), heading, members }
}

fn is_over(record: &Record) -> bool {
    record.status.is_over() && !record.awaits_restart()
}

/// The members of a process's tree, one in a line.
pub(super) fn member_lines(record: &Record) -> Vec<String> {
    let member = |(member, depth, _): (&pinfold_api::types::TreeMember, usize, bool)| {
        format!("{}{} {}", "  ".repeat(depth.min(8)), member.pid, one_line(&member.command))
    };
    let lines: Vec<String> = tree_rows(record).into_iter().map(member).collect();
    if lines.is_empty() { vec![one_line(&record.command)] } else { lines }
}

/// Answers what the selected row asks. A list shows only the beginning of a question, so there it is shown first.
pub(super) fn answer(state: &mut State, verdict: Verdict) -> Vec<Effect> {
    match state.kind() {
        ViewKind::Inbox => answer_item(state, verdict),
        ViewKind::Agents => match state.agent().and_then(|agent| Some((agent.id.clone(), agent.asks.first()?.clone())))
        {
            Some((agent, ask)) => vec![answer_effect(agent, &ask, verdict)],
            None => nothing(state),
        },
        ViewKind::Turns => {
            let View::Turns(turns) = state.view() else { return Vec::new() };
            let agent = state.agents.iter().find(|agent| agent.id == turns.agent);
            match agent.and_then(|agent| Some((agent.id.clone(), agent.asks.first()?.clone()))) {
                Some((agent, ask)) => show_question(state, agent, &ask),
                None => nothing(state),
            }
        }
        _ => {
            let Some(id) = state.subject() else { return nothing(state) };
            let asking =
                state.asking_agent(&id).and_then(|agent| Some((agent.id.clone(), agent.asks.first()?.clone())));
            if let Some((agent, ask)) = asking {
                return show_question(state, agent, &ask);
            }
            match state.record(&id).and_then(|record| record.waiting_for_input) {
                Some(true) => ask_input(state, id, letter(verdict)),
                _ => nothing(state),
            }
        }
    }
}

fn answer_item(state: &mut State, verdict: Verdict) -> Vec<Effect> {
    let Some(item) = state.inbox_item() else {
        state.say("select an item first");
        return Vec::new();
    };
    match (item.kind, &item.agent, &item.ask, &item.process) {
        (InboxKind::Permission, Some(agent), Some(ask), _) => vec![answer_effect(agent.clone(), ask, verdict)],
        // What the process expects is not known: the letter is typed, the person sends it.
        (InboxKind::WaitingForInput, _, _, Some(id)) => {
            let id = id.clone();
            ask_input(state, id, letter(verdict))
        }
        _ => nothing(state),
    }
}

fn nothing(state: &mut State) -> Vec<Effect> {
    state.say("nothing is asked here; ! goes to the next question");
    Vec::new()
}

fn letter(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Allow => "y",
        Verdict::Deny => "n",
    }
}

fn answer_effect(agent: String, ask: &Ask, verdict: Verdict) -> Effect {
    Effect::Act(answer_action(agent, ask, verdict))
}

fn answer_action(agent: String, ask: &Ask, verdict: Verdict) -> Action {
    let what = format!("{}: {}", verdict_word(verdict), one_line(&ask.what));
    Action::Answer { agent, ask: ask.id.clone(), verdict, what }
}

/// Shows the whole question; `y` and `n` answer it.
fn show_question(state: &mut State, agent: String, ask: &Ask) -> Vec<Effect> {
    let lines = question_lines(ask);
    let action = answer_action(agent.clone(), ask, Verdict::Allow);
    let otherwise = Some(answer_action(agent.clone(), ask, Verdict::Deny));
    let title = format!(
        "{} asks: allow?",
        one_line(
            &state.agents.iter().find(|known| known.id == agent).and_then(|known| known.name.clone()).unwrap_or(agent)
        )
    );
    state.overlay =
        Some(Overlay::Confirm(Confirm { title, lines, processes: Vec::new(), action, otherwise, offset: 0 }));
    Vec::new()
}

/// A question in full: what it wants, and the agent's own data.
pub(crate) fn question_lines(ask: &Ask) -> Vec<String> {
    let mut lines: Vec<String> = ask.what.lines().map(one_line).collect();
    if let Some(fields) = ask.detail.as_object() {
        lines.extend(fields.iter().map(|(name, value)| {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            one_line(&format!("{name}: {value}"))
        }));
    }
    lines
}
