//! Interrupts and stops of agents: step by step with a time limit, until nothing runs.

use pinfold_api::input::Span;
use pinfold_api::types::{AgentEventKind, AgentRequest, AgentStatus, InterruptRequest, Rung, TurnStatus};
use pinfold_testkit::{alive, until, until_some};

use super::{Host, assert_said, exists};

#[test]
fn interrupt_ladder_reports_which_step_worked() {
    let host = Host::start();
    let cases = [
        ("hang", Rung::Protocol),
        ("deaf to nothing", Rung::Int),
        ("deaf to INT", Rung::Term),
        ("deaf to TERM", Rung::Kill),
    ];
    for (number, (prompt, rung)) in cases.into_iter().enumerate() {
        let agent = host.agent();
        let turn = host.begin(&agent.id, prompt);
        host.until_asked(2 * number + 1);
        let short = |text: &str| Some(Span::from(text));
        let protocol_wait = if rung == Rung::Protocol { short("60s") } else { short("200ms") };
        let int_wait = if rung == Rung::Int { short("60s") } else { short("200ms") };
        let term_wait = if rung == Rung::Term { short("60s") } else { short("200ms") };
        let request = InterruptRequest { protocol_wait, int_wait, term_wait, by: Some("the test".into()) };
        let answer = host.interrupt(&agent.id, &request);
        assert_eq!(answer.rung, Some(rung), "{prompt}: {answer:?}");
        let tried: Vec<_> = answer.tried.iter().map(|tried| tried.rung).collect();
        let all = [Rung::Protocol, Rung::Int, Rung::Term, Rung::Kill];
        assert_eq!(tried, all[..=number], "{prompt}");
        let turn = host.finish(&agent.id, turn.number);
        assert_eq!((turn.status, turn.rung), (TurnStatus::Interrupted, Some(rung)), "{turn:?}");
        // Whichever step worked, the agent takes the next turn; if its program exited, in the same session.
        let next = host.turn(&agent.id, "say on");
        assert_said(&next, "on");
        assert_eq!(next.process == turn.process, rung == Rung::Protocol, "{prompt}");
        host.stop(&agent.id);
    }
}

/// The commands of a turn are recognised by a variable that the agent sets for them; its servers do not have it.
#[test]
fn an_interrupt_stops_the_commands_of_the_turn_and_nothing_else() {
    let host = Host::start();
    let agent = host.agent();
    let running = || -> Vec<String> {
        let process = host.show(&agent.id).process.expect("a process");
        host.pinfold.show(&process).tree.into_iter().map(|member| member.command).collect()
    };
    host.begin(&agent.id, "commands");
    let all = ["sleep 3101", "sleep 3102", "sleep 3103", "sleep 3104"];
    until("its commands run", || all.iter().all(|command| running().iter().any(|known| known == command)));
    let answer = host.interrupt(&agent.id, &InterruptRequest::default());
    assert_eq!(answer.rung, Some(Rung::Protocol), "{answer:?}");
    let left = running();
    let sleeping: Vec<_> = left.iter().filter(|command| command.starts_with("sleep 31")).collect();
    assert_eq!(sleeping, ["sleep 3101"], "{left:?}");
    for command in &all[1..] {
        assert!(answer.stopped.iter().any(|stopped| stopped == command), "{answer:?}");
    }
    // Commands of an earlier turn do not belong to the next one.
    host.begin(&agent.id, "hang");
    host.until_asked(2);
    let answer = host.interrupt(&agent.id, &InterruptRequest::default());
    assert_eq!((answer.rung, answer.stopped.len()), (Some(Rung::Protocol), 0), "{answer:?}");
    assert_said(&host.turn(&agent.id, "say on"), "on");
}

#[test]
fn an_interrupt_without_a_turn_does_nothing_and_says_so() {
    let host = Host::start();
    let agent = host.agent();
    let answer = host.interrupt(&agent.id, &InterruptRequest::default());
    assert_eq!((answer.turn, answer.rung, answer.tried.len()), (None, None, 0));
    assert_said(&host.turn(&agent.id, "say on"), "on");
}

#[test]
fn runtime_and_idle_limits_a_turn_that_takes_too_long_is_interrupted() {
    let host = Host::start();
    let agent = host.host(&AgentRequest { turn_limit: Some("300ms".into()), ..host.request() });
    let turn = host.turn(&agent.id, "hang");
    assert_eq!(turn.status, TurnStatus::Interrupted);
    assert!(turn.cause.as_deref().is_some_and(|cause| cause.contains("turn limit")), "{turn:?}");
}

#[test]
fn stop_grace_honoured_an_agents_own_cleanup_gets_its_second_and_nothing_is_left() {
    let host = Host::start();
    let agent = host.agent();
    assert_said(&host.turn(&agent.id, "stray"), "left one");
    assert_said(&host.turn(&agent.id, "tidy up"), "ready to tidy");
    let process = agent.process.expect("a process");
    let tree = host.pinfold.tree(&process);
    assert!(tree.len() >= 2, "{tree:?}");
    let stopped = host.stop(&agent.id);
    assert_eq!(stopped.status, AgentStatus::Stopped);
    assert!(exists(&host.work.join("cleaned")), "its cleanup was cut off");
    assert!(tree.iter().all(|pid| !alive(*pid)), "something of its tree lives: {tree:?}");
    assert!(host.pinfold.show(&process).tree.is_empty());
}

#[test]
fn exited_vs_closed_the_end_of_an_agent_and_of_its_tree_are_two_events() {
    let host = Host::start();
    let agent = host.agent();
    assert_said(&host.turn(&agent.id, "stray"), "left one");
    let process = agent.process.expect("a process");
    let stray = until_some("a stray", || {
        let tree = host.pinfold.show(&process).tree;
        tree.iter().find(|member| member.command.contains("sleep 300")).map(|member| member.pid)
    });
    let leader = host.pinfold.show(&process).pid.expect("a leader");
    pinfold_testkit::Pidfd::open(leader).expect("it lives").kill();
    until("its exit is reported", || host.events(&agent.id).iter().any(|event| event.kind == AgentEventKind::Exited));
    assert!(host.events(&agent.id).iter().all(|event| event.kind != AgentEventKind::Emptied));
    assert_eq!(host.show(&agent.id).status, AgentStatus::Resting);
    pinfold_testkit::Pidfd::open(stray).expect("it lives").kill();
    until("its end is reported", || host.events(&agent.id).iter().any(|event| event.kind == AgentEventKind::Emptied));
}
