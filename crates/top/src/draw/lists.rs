//! Inbox, agents, turns, events, and the tree of a process.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use pinfold_api::types::{Agent, Ask, Event, InboxKind, Status, Turn};

use super::theme::Theme;
use super::{put, span};
use crate::describe::{
    Tone, agent_standing, event_word, inbox_text, inbox_word, outcome_tone, outcome_words, turn_standing,
};
use crate::list::ListCursor;
use crate::quantity::{clock_of, render_age, render_bytes, render_count, since};
use crate::state::{NARROW, State, TreeView, TurnsView, tree_rows};
use crate::text::{cut, fit, fit_right, one_line, width, wrap};
use crate::update::question_lines;

type Row = Vec<(String, Tone)>;

/// Draws the rows that are on the screen; the selected one is marked.
fn draw_rows(
    rows: impl Iterator<Item = Row>,
    cursor: ListCursor,
    marks: bool,
    theme: Theme,
    area: Rect,
    buffer: &mut Buffer,
) {
    for ((index, row), y) in rows.enumerate().skip(cursor.offset).zip(area.y..area.y + area.height) {
        let mut room = usize::from(area.width);
        let spans = row.into_iter().map(|(text, tone)| {
            let shown = cut(&text, room);
            room -= width(&shown).min(room);
            span(shown, theme.tone(tone))
        });
        put(buffer, area.x, y, area.width, spans.collect::<Vec<_>>());
        if marks && index == cursor.index {
            buffer.set_style(Rect { y, height: 1, ..area }, theme.selected());
        }
    }
}

fn say(text: &str, theme: Theme, area: Rect, buffer: &mut Buffer) {
    put(buffer, area.x, area.y, area.width, [span(format!(" {text}"), theme.tone(Tone::Faint))]);
}

/// The part for the list and the part for the description of its selected item.
fn split(state: &State, area: Rect) -> (Rect, Rect) {
    let upper = (state.upper_rows() as u16).min(area.height);
    let below = Rect { y: area.y + upper, height: area.height - upper, ..area };
    (Rect { height: upper, ..area }, below)
}

/// Draws a horizontal rule, and below it as much of the description as fits.
fn draw_detail(lines: &[(String, Tone)], theme: Theme, area: Rect, buffer: &mut Buffer) {
    if area.height == 0 {
        return;
    }
    let rule = "─".repeat(usize::from(area.width));
    put(buffer, area.x, area.y, area.width, [span(rule, theme.tone(Tone::Faint))]);
    let columns = usize::from(area.width).saturating_sub(2);
    let wrapped = lines.iter().flat_map(|(text, tone)| wrap(text, columns).into_iter().map(|line| (line, *tone)));
    let all: Vec<(String, Tone)> = wrapped.collect();
    let room = usize::from(area.height) - 1;
    for (index, ((line, tone), y)) in all.iter().zip(area.y + 1..area.y + area.height).enumerate() {
        let is_cut = index + 1 == room && all.len() > room;
        let text = if is_cut { format!(" {} …", cut(line, columns.saturating_sub(2))) } else { format!(" {line}") };
        put(buffer, area.x, y, area.width, [span(text, theme.tone(*tone))]);
    }
}

pub(super) fn draw_inbox(state: &State, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let items = &state.inbox.items;
    if items.is_empty() {
        say("nothing waits for you", theme, area, buffer);
        return;
    }
    let (list, below) = split(state, area);
    let rows = items.iter().map(|item| {
        let (word, tone) = inbox_word(item);
        let age = item.at.as_deref().and_then(|at| since(at, state.now)).map(render_age).unwrap_or_default();
        let named = item.name.as_deref().or(item.agent.as_deref()).or(item.process.as_deref()).unwrap_or_default();
        vec![
            (format!(" {} ", fit(word, 6)), tone),
            (format!("{} ", fit_right(&age, 6)), Tone::Faint),
            (format!("{} ", fit(&one_line(named), (usize::from(area.width) / 5).clamp(6, 20))), Tone::Plain),
            (inbox_text(item), Tone::Plain),
        ]
    });
    draw_rows(rows, state.inbox_cursor, state.inbox_selected.is_some(), theme, list, buffer);
    let Some(item) = state.inbox_item() else {
        let text = "the selected item is gone: j selects another";
        draw_detail(&[(text.to_owned(), Tone::Faint)], theme, below, buffer);
        return;
    };
    let mut lines = Vec::new();
    match (&item.ask, item.kind) {
        (Some(ask), _) => lines.extend(ask_lines(ask, "y allows it, n denies it")),
        (None, InboxKind::WaitingForInput) => {
            lines.push((item.text.clone().unwrap_or_default(), Tone::Needs));
            lines.push(("i sends it a line, a attaches to its terminal".to_owned(), Tone::Faint));
        }
        (None, _) => {
            lines.push((inbox_text(item), Tone::Bad));
            lines.push(("Enter shows its log, m marks all failures as seen".to_owned(), Tone::Faint));
        }
    }
    lines.push((format!("owner {}", item.owner), Tone::Faint));
    lines.extend(item.command.as_ref().map(|command| (command.clone(), Tone::Faint)));
    draw_detail(&lines, theme, below, buffer);
}

fn ask_lines(ask: &Ask, advice: &str) -> Vec<(String, Tone)> {
    let mut lines = vec![(advice.to_owned(), Tone::Faint)];
    lines.extend(question_lines(ask).into_iter().map(|line| (line, Tone::Needs)));
    lines
}

pub(super) fn draw_agents(state: &State, theme: Theme, area: Rect, buffer: &mut Buffer) {
    if state.agents.is_empty() {
        say("no hosted agents: `pinfold agent run` hosts one", theme, area, buffer);
        return;
    }
    let (list, below) = split(state, area);
    let rows = state.agents.iter().map(|agent| {
        let (word, tone) = agent_standing(agent);
        let named = agent.name.as_deref().unwrap_or(&agent.id);
        let turn = agent.turn.map(|turn| format!("turn {turn}")).unwrap_or_default();
        let asks = agent.asks.first().map(|ask| format!("asks: {}", one_line(&ask.what)));
        vec![
            (format!(" {} ", fit(&one_line(named), 16)), Tone::Plain),
            (format!("{} ", fit(word, 9)), tone),
            (format!("{} ", fit(&agent.kind, 7)), Tone::Faint),
            (format!("{} ", fit(&turn, 8)), Tone::Plain),
            match asks {
                Some(asks) => (asks, Tone::Needs),
                None => {
                    let turns = render_count(agent.turns as usize, "turn", "turns");
                    (format!("{turns}, {} queued  {}", agent.queued, one_line(&agent.owner)), Tone::Faint)
                }
            },
        ]
    });
    draw_rows(rows, state.agents_cursor, true, theme, list, buffer);
    if let Some(agent) = state.agent() {
        draw_detail(&agent_lines(agent), theme, below, buffer);
    }
}

fn agent_lines(agent: &Agent) -> Vec<(String, Tone)> {
    let mut lines = Vec::new();
    if let Some(ask) = agent.asks.first() {
        lines.extend(ask_lines(ask, "it asks; y allows it, n denies it"));
        if agent.asks.len() > 1 {
            lines.push((format!("and {} more", agent.asks.len() - 1), Tone::Needs));
        }
    }
    if let Some(fault) = &agent.fault {
        lines.push((fault.message.clone(), Tone::Bad));
    }
    let model = agent.model.as_deref().map(|model| format!("  model {model}")).unwrap_or_default();
    lines.push((format!("{} {}  owner {}{model}", agent.kind, agent.id, agent.owner), Tone::Plain));
    lines.push((agent.cwd.clone(), Tone::Faint));
    lines.extend(agent.notices.last().map(|notice| (notice.clone(), Tone::Faint)));
    lines
}

pub(super) fn draw_turns(view: &TurnsView, state: &State, theme: Theme, area: Rect, buffer: &mut Buffer) {
    if view.turns.is_empty() {
        say("no turns yet: `pinfold agent turn` gives it one", theme, area, buffer);
        return;
    }
    let (list, below) = split(state, area);
    let rows = view.turns.iter().map(|turn| {
        let (word, tone) = turn_standing(turn.status);
        let took = turn.started_at.as_deref().and_then(|start| match turn.ended_at.as_deref() {
            Some(end) => since(start, end.parse().ok()?),
            None => since(start, state.now),
        });
        vec![
            (format!(" {} ", fit_right(&turn.number.to_string(), 4)), Tone::Plain),
            (format!("{} ", fit(word, 11)), tone),
            (format!("{} ", fit_right(&took.map(render_age).unwrap_or_default(), 6)), Tone::Faint),
            (one_line(&turn.prompt), Tone::Plain),
        ]
    });
    draw_rows(rows, view.cursor, true, theme, list, buffer);
    if let Some(turn) = view.turns.get(view.cursor.index) {
        let agent = state.agents.iter().find(|agent| agent.id == view.agent);
        let ask = agent.and_then(|agent| agent.asks.first()).filter(|ask| ask.turn == Some(turn.number));
        draw_detail(&turn_lines(turn, ask), theme, below, buffer);
    }
}

fn turn_lines(turn: &Turn, ask: Option<&Ask>) -> Vec<(String, Tone)> {
    let mut lines = Vec::new();
    if let Some(ask) = ask {
        lines.extend(ask_lines(ask, "it asks; y or n shows the question and answers it"));
    }
    lines.extend(turn.cause.as_ref().map(|cause| (cause.clone(), Tone::Bad)));
    lines.extend(turn.text.as_ref().map(|text| (text.clone(), Tone::Plain)));
    for tool in turn.tools.iter().rev().take(8) {
        let tone = if tool.failed == Some(true) { Tone::Bad } else { Tone::Faint };
        lines.push((format!("{} {}", tool.name, tool.input.lines().next().unwrap_or_default()), tone));
    }
    if let Some(usage) = &turn.usage {
        lines.push((format!("{} tokens in, {} out", usage.input_tokens, usage.output_tokens), Tone::Faint));
    }
    lines
}

pub(super) fn draw_events(state: &State, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let events = state.shown_events();
    if events.is_empty() {
        say("no events", theme, area, buffer);
        return;
    }
    let is_narrow = area.width < NARROW;
    let (kind_columns, label_columns) = if is_narrow { (8, 9) } else { (11, 12) };
    let (list, below) = if is_narrow { split(state, area) } else { (area, Rect { height: 0, ..area }) };
    let rows = events.iter().map(|event| {
        let outcome = event.outcome.as_ref().map(|outcome| outcome_words(outcome, event.cause));
        let tone = event.outcome.as_ref().map_or(Tone::Busy, |outcome| outcome_tone(outcome, event.cause));
        let text = event.text.as_deref().unwrap_or(&event.command);
        let label = state.record(&event.process).and_then(|record| state.processes.name(record));
        let label = label.unwrap_or(&event.process);
        vec![
            (format!(" {} ", clock_of(&event.at)), Tone::Faint),
            (format!("{} ", fit(event_word(event.kind), kind_columns)), tone),
            (format!("{} ", fit(&one_line(label), label_columns)), Tone::Plain),
            (outcome.map(|outcome| format!("{outcome}  ")).unwrap_or_default(), tone),
            (one_line(text), Tone::Plain),
        ]
    });
    draw_rows(rows, state.events_cursor, true, theme, list, buffer);
    if let Some(event) = events.get(state.events_cursor.index) {
        draw_detail(&event_lines(state, event), theme, below, buffer);
    }
}

/// An event in full.
fn event_lines(state: &State, event: &Event) -> Vec<(String, Tone)> {
    let outcome = event.outcome.as_ref().map(|outcome| format!(": {}", outcome_words(outcome, event.cause)));
    let what = format!("{}{}", event_word(event.kind), outcome.unwrap_or_default());
    let mut lines = vec![(format!("{} {what}", state.label(&event.process)), Tone::Plain)];
    lines.extend(event.text.clone().map(|text| (text, Tone::Plain)));
    lines.push((event.command.clone(), Tone::Faint));
    lines.push((format!("owner {}", event.owner), Tone::Faint));
    lines
}

pub(super) fn draw_tree(view: &TreeView, theme: Theme, area: Rect, buffer: &mut Buffer) {
    if let Some(error) = &view.error {
        say(error, theme, area, buffer);
        return;
    }
    let Some(record) = &view.record else {
        say("looking …", theme, area, buffer);
        return;
    };
    let members = tree_rows(record);
    if members.is_empty() {
        let text = match &record.outcome {
            Some(outcome) => format!("the tree is empty: {}", outcome_words(outcome, record.cause)),
            None => "the tree is empty".to_owned(),
        };
        say(&text, theme, area, buffer);
        return;
    }
    let leader_is_gone = record.status == Status::Lingering;
    let rows = members.into_iter().map(|(member, depth, is_root)| {
        let is_leader = Some(member.pid) == record.pid && !leader_is_gone;
        let mark = match (leader_is_gone, is_leader, is_root) {
            (true, ..) => ("stray ", Tone::Needs),
            (false, true, _) => ("leader", Tone::Good),
            // Its parent exited or it left on purpose: it is still in the tree, and is stopped with it.
            (false, false, true) => ("detached", Tone::Needs),
            (false, false, false) => ("", Tone::Plain),
        };
        let ports: Vec<String> = member.ports.iter().map(|port| format!(" :{port}")).collect();
        let state_tone = if member.state == "D" || member.state == "T" { Tone::Needs } else { Tone::Faint };
        vec![
            (format!(" {} ", fit_right(&member.pid.to_string(), 7)), Tone::Plain),
            (format!("{} ", fit(mark.0, 8)), mark.1),
            (format!("{} ", member.state), state_tone),
            (format!("{} ", fit_right(&render_age(std::time::Duration::from_millis(member.cpu_ms)), 6)), Tone::Faint),
            (format!("{} ", fit_right(&render_bytes(member.rss_bytes), 6)), Tone::Faint),
            (format!("{}{}", "  ".repeat(depth.min(12)), one_line(&member.command)), Tone::Plain),
            (ports.concat(), Tone::Busy),
        ]
    });
    draw_rows(rows, view.cursor, true, theme, area, buffer);
}
