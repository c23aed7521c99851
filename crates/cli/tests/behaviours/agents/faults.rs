//! Agents that cannot be hosted: each gives a clear error, and the process stays listed with its output.

use pinfold_api::error::ErrorCode;
use pinfold_api::types::{AgentFault, AgentRequest, AgentStatus, FaultCode, TurnRequest};
use pinfold_testkit::until;

use super::Host;

/// Long enough for a shell to start and print something, also on a busy machine.
const SILENCE: &str = "4s";

/// Hosts a fake agent that misbehaves, and returns its fault.
fn fault(host: &Host, how: &str) -> AgentFault {
    let env = [("FAKE".to_owned(), Some(how.to_owned()))].into();
    let ready_timeout = Some(if how == "silent" { SILENCE.into() } else { "60s".into() });
    let agent = host.host(&AgentRequest { env, ready_timeout, wait: Some("120s".into()), ..host.request() });
    assert_eq!(agent.status, AgentStatus::Failed, "{how}: {agent:?}");
    let process = agent.process.clone().expect("a process");
    assert!(agent.ended_at.is_some());
    // It does not run any more, and its output can be read.
    let record = host.pinfold.wait_finished(&process);
    assert!(record.output.bytes > 0, "{how}: {record:?}");
    let turn = TurnRequest { text: "say x".into(), ..TurnRequest::default() };
    let refusal = host.try_turn(&agent.id, &turn).expect_err("it takes no turn");
    assert_eq!(refusal.code, ErrorCode::AlreadyOver, "{how}: {refusal}");
    agent.fault.expect("a fault")
}

#[test]
fn an_agent_that_never_becomes_ready_is_reported() {
    let fault = fault(&Host::start(), "silent");
    assert_eq!(fault.code, FaultCode::NeverReady);
    assert!(fault.message.contains("within 4s") && fault.message.contains("it is the fake"), "{}", fault.message);
}

#[test]
fn an_agent_that_exits_before_it_is_ready_is_reported_with_its_last_output() {
    let fault = fault(&Host::start(), "gone");
    assert_eq!(fault.code, FaultCode::ExitedBeforeReady);
    assert!(fault.message.contains("code 3") && fault.message.contains("no such configuration"), "{}", fault.message);
}

#[test]
fn a_protocol_mismatch_is_reported() {
    let fault = fault(&Host::start(), "other");
    assert_eq!(fault.code, FaultCode::ProtocolMismatch, "{}", fault.message);
    assert!(fault.message.contains("codex"), "{}", fault.message);
}

#[test]
fn garbage_on_stdout_is_reported() {
    let fault = fault(&Host::start(), "garbage");
    assert_eq!(fault.code, FaultCode::Garbage);
    assert!(fault.message.contains("npm WARN"), "{}", fault.message);
}

#[test]
fn frames_too_large_are_reported() {
    let fault = fault(&Host::start(), "huge");
    assert_eq!(fault.code, FaultCode::FrameTooLarge);
    assert!(fault.message.contains("16 MiB"), "{}", fault.message);
}

#[test]
fn an_unknown_agent_and_a_missing_program_leave_nothing() {
    let host = Host::start();
    let unknown = host.try_host(&AgentRequest { kind: "hal".into(), ..host.request() }).expect_err("unknown");
    assert_eq!(unknown.code, ErrorCode::InvalidRequest);
    assert!(unknown.message.contains("hal") && unknown.message.contains("codex"), "{unknown}");
    let program = Some("/no/such/codex".to_owned());
    let missing = host.try_host(&AgentRequest { program, ..host.request() }).expect_err("missing");
    assert_eq!(missing.code, ErrorCode::NoProgram);
    assert!(missing.message.contains("/no/such/codex"), "{missing}");
    let nowhere = host.try_host(&AgentRequest { cwd: Some("/no/such".into()), ..host.request() }).expect_err("nowhere");
    assert_eq!(nowhere.code, ErrorCode::BadCwd);
    let all = pinfold_api::types::AgentListQuery { all: Some(true), owner: None };
    let list = host.pinfold.block(host.pinfold.client().agents(&all)).expect("a list");
    assert_eq!(list.agents, []);
    let run = host.pinfold.cli(&["agent", "run", "hal"]);
    assert_eq!(run.code, Some(2), "{run:?}");
}

#[test]
fn requests_that_make_no_sense_are_refused_with_the_way_out() {
    let host = Host::start();
    let agent = host.agent();
    let turn = |text: &str| TurnRequest { text: text.into(), ..TurnRequest::default() };
    for (id, request, code) in [
        (agent.id.as_str(), turn("  "), ErrorCode::InvalidRequest),
        (agent.id.as_str(), turn(&"x".repeat(2 << 20)), ErrorCode::InvalidRequest),
        ("nosuch", turn("x"), ErrorCode::NotFound),
    ] {
        let refusal = host.try_turn(id, &request).expect_err("refused");
        assert_eq!(refusal.code, code, "{refusal}");
    }
    let websocket = Some(pinfold_api::types::Transport::Websocket);
    let refusal = host.try_host(&AgentRequest { transport: websocket, ..host.request() }).expect_err("refused");
    assert!(refusal.message.contains("stdio"), "{refusal}");
}

#[test]
fn a_damaged_agent_is_reported_and_harms_no_other() {
    let host = Host::start();
    let (first, second) = (host.agent(), host.agent());
    host.pinfold.kill_daemon();
    let state = host.pinfold.home().join("agents").join(&first.id).join("state.json");
    std::fs::write(&state, r#"{"format":1,"cont"#).expect("damaged");
    host.pinfold.start_daemon();
    until("the damage is reported", || {
        host.show(&first.id).fault.is_some_and(|fault| fault.code == FaultCode::Damaged)
    });
    assert_eq!(std::fs::read_to_string(&state).expect("there"), r#"{"format":1,"cont"#, "it is left alone");
    super::assert_said(&host.turn(&second.id, "say fine"), "fine");
}
