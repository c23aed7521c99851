//! The text of `agent` commands: hosted agents and their turns.

use jiff::Timestamp;
use pinfold_api::types::{Agent, AgentList, AgentStatus, InterruptAnswer, Rung, ToolCall, Turn, TurnStatus};

use super::outcome::cause_name;
use super::paint::{Paint, Tone};
use super::quantity::{between, render_duration, since};
use super::table::{Cell, Heading, Side, cell, cut, one_line, plain, render_table};

/// Maximum length of a command that an interrupt stopped.
const MAX_COMMAND: usize = 100;

const AGENTS: &[Heading] = &[
    ("ID", Side::Left),
    ("NAME", Side::Left),
    ("KIND", Side::Left),
    ("STATUS", Side::Left),
    ("TURNS", Side::Right),
    ("AGE", Side::Right),
    ("PROCESS", Side::Left),
    ("CWD", Side::Left),
];

/// The table of `agent ps`.
pub(crate) fn render_agents(list: &AgentList, now: Timestamp, width: Option<usize>, paint: Paint) -> String {
    if list.agents.is_empty() {
        return "no agents\n".to_owned();
    }
    let row = |agent: &Agent| -> Vec<Cell> {
        vec![
            cell(&agent.id, Tone::Strong),
            plain(agent.name.clone().unwrap_or_else(dash)),
            plain(&agent.kind),
            cell(status_name(agent.status), tone_of(agent.status)),
            plain(agent.turns.to_string()),
            plain(since(&agent.created_at, now).map_or_else(dash, render_duration)),
            plain(agent.process.clone().unwrap_or_else(dash)),
            plain(&agent.cwd),
        ]
    };
    let mut text = render_table(AGENTS, &list.agents.iter().map(row).collect::<Vec<_>>(), width, paint);
    if list.more > 0 {
        text.push_str(&format!("and {} more\n", list.more));
    }
    text
}

/// One agent, one line for each known fact.
pub(crate) fn render_agent(agent: &Agent, paint: Paint) -> String {
    let name = agent.name.as_ref().map(|name| format!("  {name}")).unwrap_or_default();
    let status = paint.apply(tone_of(agent.status), status_name(agent.status));
    let mut text = format!("{}{name}  {}  {status}\n", paint.apply(Tone::Strong, &agent.id), agent.kind);
    let known = [
        ("fault", agent.fault.as_ref().map(|fault| fault.message.clone())),
        ("cause", render_cause(agent)),
        ("process", agent.process.clone()),
        ("session", agent.session.clone()),
        ("version", agent.version.clone()),
        ("model", agent.model.clone()),
        ("cwd", Some(agent.cwd.clone())),
        ("owner", Some(agent.owner.clone())),
        ("turn", agent.turn.map(|turn| turn.to_string())),
        ("waiting", (agent.queued > 0).then(|| agent.queued.to_string())),
        ("turns", Some(agent.turns.to_string())),
    ];
    for (label, value) in known {
        if let Some(value) = value {
            text.push_str(&format!("  {label:<8} {}\n", value.replace('\n', "\n           ")));
        }
    }
    for ask in &agent.asks {
        let answer = format!("pinfold agent answer {} allow --ask {}", agent.id, ask.id);
        text.push_str(&format!("  {:<8} {}  (`{answer}`)\n", "asks for", ask.what));
    }
    for notice in &agent.notices {
        text.push_str(&format!("  {:<8} {notice}\n", "notice"));
    }
    text
}

/// Why the agent was stopped.
fn render_cause(agent: &Agent) -> Option<String> {
    let cause = cause_name(agent.cause?)?;
    Some(match &agent.stopped_by {
        Some(by) => format!("{cause} by {by}"),
        None => cause.to_owned(),
    })
}

/// Why an agent failed, and where to find its output.
pub(crate) fn render_fault(agent: &Agent) -> String {
    let fault = agent.fault.as_ref().map_or("it failed", |fault| fault.message.as_str());
    let look = agent.process.as_ref().map(|process| format!(": see `pinfold logs {process}`")).unwrap_or_default();
    format!("agent {}: {fault}{look}", agent.id)
}

/// One turn: prompt, tool calls, answer.
pub(crate) fn render_turn(turn: &Turn, paint: Paint) -> String {
    let head = format!("turn {}", turn.number);
    let took = turn.started_at.as_deref().zip(turn.ended_at.as_deref()).and_then(|(from, to)| between(from, to));
    let took = took.map(|took| format!(" in {}", render_duration(took))).unwrap_or_default();
    let tone = match turn.status {
        TurnStatus::Completed => Tone::Good,
        TurnStatus::Queued | TurnStatus::Running => Tone::Busy,
        _ => Tone::Bad,
    };
    let status = paint.apply(tone, turn_name(turn.status));
    let mut text = format!("{}  {status}{took}\n", paint.apply(Tone::Strong, &head));
    text.push_str(&indent("> ", &turn.prompt));
    for tool in &turn.tools {
        text.push_str(&format!("  {}\n", render_tool(tool)));
    }
    if turn.tools_left_out > 0 {
        text.push_str(&format!("  and {} more tool calls\n", turn.tools_left_out));
    }
    for line in [&turn.retried, &turn.cause].into_iter().flatten() {
        text.push_str(&format!("  {line}\n"));
    }
    if let Some(said) = &turn.text {
        text.push_str(&indent("", said));
    }
    text
}

/// The status of a turn, if it is worth a note besides the answer.
pub(crate) fn render_turn_end(turn: &Turn) -> Option<String> {
    let retried = turn.retried.as_ref().map(|why| format!("; {why}")).unwrap_or_default();
    let cause = turn.cause.as_ref().map(|cause| format!(": {cause}")).unwrap_or_default();
    match turn.status {
        TurnStatus::Completed if retried.is_empty() => None,
        status => Some(format!("turn {} {}{cause}{retried}", turn.number, turn_name(status))),
    }
}

/// A tool call on one line.
pub(crate) fn render_tool(tool: &ToolCall) -> String {
    let input: String = tool.input.lines().next().unwrap_or_default().chars().take(120).collect();
    let end = match (tool.failed, tool.exit_code) {
        (None, _) => " …".to_owned(),
        (Some(_), Some(code)) => format!(" → exit {code}"),
        (Some(true), None) => " → failed".to_owned(),
        (Some(false), None) => " → ok".to_owned(),
    };
    format!("{} {input}{end}", tool.name).trim_start().to_owned()
}

/// The result of an interrupt.
pub(crate) fn render_interrupt(answer: &InterruptAnswer) -> String {
    let Some(turn) = &answer.turn else { return "no turn was running\n".to_owned() };
    let mut text = match answer.rung {
        Some(rung) => format!("turn {} interrupted by {}\n", turn.number, rung_name(rung)),
        None => format!("turn {} {}\n", turn.number, turn_name(turn.status)),
    };
    for stopped in &answer.stopped {
        text.push_str(&format!("stopped {}\n", cut(&one_line(stopped), MAX_COMMAND)));
    }
    text
}

pub(crate) fn status_name(status: AgentStatus) -> &'static str {
    match status {
        AgentStatus::Starting => "starting",
        AgentStatus::Idle => "idle",
        AgentStatus::Busy => "busy",
        AgentStatus::Asking => "asking",
        AgentStatus::Resting => "resting",
        AgentStatus::Stopped => "stopped",
        AgentStatus::Failed => "failed",
    }
}

fn tone_of(status: AgentStatus) -> Tone {
    match status {
        AgentStatus::Starting | AgentStatus::Busy | AgentStatus::Asking => Tone::Busy,
        AgentStatus::Idle => Tone::Good,
        AgentStatus::Resting | AgentStatus::Stopped => Tone::Faint,
        AgentStatus::Failed => Tone::Bad,
    }
}

fn turn_name(status: TurnStatus) -> &'static str {
    match status {
        TurnStatus::Queued => "queued",
        TurnStatus::Running => "running",
        TurnStatus::Completed => "completed",
        TurnStatus::Interrupted => "interrupted",
        TurnStatus::Failed => "failed",
        TurnStatus::Lost => "lost",
    }
}

fn rung_name(rung: Rung) -> &'static str {
    match rung {
        Rung::Protocol => "its protocol",
        Rung::Int => "INT",
        Rung::Term => "TERM",
        Rung::Kill => "KILL",
    }
}

fn indent(mark: &str, text: &str) -> String {
    text.trim_end().lines().map(|line| format!("  {mark}{line}\n")).collect()
}

fn dash() -> String {
    "-".to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn agents_are_listed_in_columns() {
        let agent = Agent {
            id: "k3v9x2".into(),
            kind: "codex".into(),
            status: AgentStatus::Idle,
            cwd: "/p".into(),
            created_at: "2026-01-01T00:55:00Z".into(),
            ..Agent::default()
        };
        let text = render_agents(&AgentList { agents: vec![agent], more: 0 }, sample::now(), None, Paint::Plain);
        assert_eq!(
            text,
            "ID      NAME  KIND   STATUS  TURNS    AGE  PROCESS  CWD\nk3v9x2  -     codex  idle        0  5m00s  -        /p\n"
        );
    }

    #[test]
    fn a_turn_shows_prompt_tools_and_answer() {
        let tool = ToolCall {
            name: "command".into(),
            input: "ls".into(),
            failed: Some(true),
            exit_code: Some(3),
            ..ToolCall::default()
        };
        let turn = Turn {
            number: 2,
            status: TurnStatus::Failed,
            prompt: "do\nit".into(),
            text: Some("no".into()),
            cause: Some("why".into()),
            tools: vec![tool],
            ..Turn::default()
        };
        let expected = "turn 2  failed\n  > do\n  > it\n  command ls → exit 3\n  why\n  no\n";
        assert_eq!(render_turn(&turn, Paint::Plain), expected);
        assert_eq!(render_turn_end(&turn).as_deref(), Some("turn 2 failed: why"));
    }
}
