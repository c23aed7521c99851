//! Agents that misbehave: garbage on stdout, other protocols, unsupported requests, messages of other turns.

use pinfold_agents::bounds::{MAX_ASKS_BYTES, MAX_GARBAGE, MAX_ID, MAX_NOTICES};
use pinfold_agents::{Conversation, Effect, Kind, Phase, Settings};
use pinfold_api::types::{Approvals, FaultCode, Turn, TurnStatus};

fn opened(kind: Kind, approvals: Approvals) -> Conversation {
    let mut conversation = Conversation::new(kind, Settings::default(), approvals, 0);
    conversation.open();
    conversation
}

/// A codex that is ready.
fn ready(approvals: Approvals) -> Conversation {
    let mut conversation = opened(Kind::Codex, approvals);
    conversation.line(br#"{"id":1,"result":{"userAgent":"pinfold/9.9.9 (x)"}}"#);
    conversation.line(br#"{"id":2,"result":{"thread":{"id":"t"}}}"#);
    assert!(conversation.is_free());
    conversation
}

fn fault(effects: &[Effect]) -> Option<FaultCode> {
    effects.iter().find_map(|effect| match effect {
        Effect::Fault(fault) => Some(fault.code),
        _ => None,
    })
}

fn lines(effects: &[Effect]) -> Vec<String> {
    let lines = effects.iter().filter_map(|effect| match effect {
        Effect::Send { line, .. } => Some(line.clone()),
        _ => None,
    });
    lines.collect()
}

#[test]
fn a_few_lines_of_garbage_are_tolerated_and_many_are_a_fault() {
    let mut conversation = ready(Approvals::Deny);
    for _ in 0..MAX_GARBAGE {
        assert_eq!(fault(&conversation.line(b"npm WARN deprecated")), None);
    }
    assert!(conversation.notices().len() <= MAX_NOTICES);
    assert!(conversation.is_free(), "warnings on stdout do not end the conversation");
    assert_eq!(fault(&conversation.line(b"\xff\xfe binary")), Some(FaultCode::Garbage));
    assert_eq!(conversation.phase(), Phase::Failed);
    assert_eq!(conversation.line(br#"{"id":3}"#), [], "later lines are ignored");
}

/// Unanswered permission requests are limited in bytes, too; one that would exceed it is denied at once.
#[test]
fn permission_requests_beyond_the_maximum_of_bytes_are_denied() {
    let mut conversation = ready(Approvals::Ask);
    let ask = |id: u32| {
        let command = "x".repeat(MAX_ASKS_BYTES / 3);
        let method = "item/commandExecution/requestApproval";
        format!(r#"{{"id":{id},"method":"{method}","params":{{"command":"{command}"}}}}"#)
    };
    let answered: Vec<bool> = (0..4)
        .map(|id| lines(&conversation.line(ask(100 + id).as_bytes())).iter().any(|line| line.contains("decline")))
        .collect();
    assert_eq!(conversation.asks().len() + answered.iter().filter(|denied| **denied).count(), 4);
    assert!(!answered[0] && answered[3], "{answered:?}");
}

#[test]
fn another_protocol_is_a_fault() {
    let mut codex = opened(Kind::Codex, Approvals::Deny);
    assert_eq!(
        fault(&codex.line(br#"{"id":1,"result":{"protocolVersion":"2025-11-25"}}"#)),
        Some(FaultCode::ProtocolMismatch)
    );
    let mut codex = opened(Kind::Codex, Approvals::Deny);
    let refused = codex.line(br#"{"id":1,"error":{"code":-32601,"message":"unknown method"}}"#);
    assert_eq!(fault(&refused), Some(FaultCode::ProtocolMismatch));
    let mut claude = opened(Kind::Claude, Approvals::Deny);
    assert_eq!(fault(&claude.line(br#"{"jsonrpc":"2.0"}"#)), Some(FaultCode::ProtocolMismatch));
}

#[test]
fn a_thread_that_cannot_be_resumed_is_a_fault() {
    let settings = Settings { resume: Some("gone".into()), ..Settings::default() };
    let mut conversation = Conversation::new(Kind::Codex, settings, Approvals::Deny, 0);
    conversation.open();
    let opening = conversation.line(br#"{"id":1,"result":{"userAgent":"pinfold/1 (x)"}}"#);
    assert!(lines(&opening)[1].contains("thread/resume"), "{opening:?}");
    let refused = conversation.line(br#"{"id":2,"error":{"code":-32600,"message":"no rollout found"}}"#);
    assert_eq!(fault(&refused), Some(FaultCode::ProtocolMismatch));
}

#[test]
fn unsupported_requests_are_rejected_and_questions_get_an_empty_answer() {
    let mut conversation = ready(Approvals::Allow);
    let effects = conversation.line(br#"{"id":7,"method":"attestation/generate","params":{}}"#);
    assert!(lines(&effects)[0].contains("-32601"), "{effects:?}");
    let effects = conversation.line(br#"{"id":8,"method":"item/tool/requestUserInput","params":{}}"#);
    assert!(lines(&effects)[0].contains(r#""answers":{}"#), "{effects:?}");
}

#[test]
fn messages_of_other_turns_are_ignored() {
    let mut conversation = ready(Approvals::Deny);
    conversation.begin(Turn { number: 1, prompt: "x".into(), ..Turn::default() });
    conversation.line(br#"{"id":3,"result":{"turn":{"id":"mine"}}}"#);
    let foreign =
        br#"{"method":"turn/completed","params":{"threadId":"t","turn":{"id":"other","status":"completed"}}}"#;
    assert_eq!(conversation.line(foreign), []);
    let child =
        br#"{"method":"turn/completed","params":{"threadId":"child","turn":{"id":"mine","status":"completed"}}}"#;
    assert_eq!(conversation.line(child), []);
    let ours = br#"{"method":"turn/completed","params":{"threadId":"t","turn":{"id":"mine","status":"failed","error":{"message":"no"}}}}"#;
    let effects = conversation.line(ours);
    let Some(Effect::Ended(turn)) = effects.iter().find(|effect| matches!(effect, Effect::Ended(_))) else {
        panic!("{effects:?}");
    };
    assert_eq!((turn.status, turn.cause.as_deref()), (TurnStatus::Failed, Some("no")));
}

#[test]
fn an_interrupt_before_the_turn_has_an_id_is_sent_when_it_has_one() {
    let mut conversation = ready(Approvals::Deny);
    conversation.begin(Turn { number: 1, prompt: "x".into(), ..Turn::default() });
    assert_eq!(lines(&conversation.interrupt()), [""; 0]);
    let sent = conversation.line(br#"{"id":3,"result":{"turn":{"id":"mine"}}}"#);
    assert!(lines(&sent)[0].contains("turn/interrupt"), "{sent:?}");
    // Too early for codex: it is sent again when the turn has started.
    assert_eq!(conversation.line(br#"{"id":4,"error":{"code":-32600,"message":"no active turn"}}"#), []);
    let started = conversation.line(br#"{"method":"turn/started","params":{"threadId":"t","turn":{"id":"mine"}}}"#);
    assert!(lines(&started)[0].contains("turn/interrupt"), "{started:?}");
}

#[test]
fn a_turn_whose_program_exited_keeps_the_text_so_far() {
    let mut conversation = ready(Approvals::Deny);
    conversation.begin(Turn { number: 1, prompt: "x".into(), ..Turn::default() });
    conversation.line(br#"{"id":3,"result":{"turn":{"id":"mine"}}}"#);
    conversation
        .line(br#"{"method":"item/agentMessage/delta","params":{"threadId":"t","turnId":"mine","delta":"half"}}"#);
    assert_eq!(conversation.abandon().and_then(|turn| turn.text).as_deref(), Some("half"));
    assert_eq!(conversation.abandon(), None);
}

/// Ids are repeated in answers, lists and files, so a long one would multiply.
#[test]
fn an_id_beyond_the_maximum_is_a_fault() {
    let long = "x".repeat(MAX_ID + 1);
    let request = format!(r#"{{"id":"{long}","method":"item/tool/requestUserInput","params":{{}}}}"#);
    assert_eq!(fault(&ready(Approvals::Deny).line(request.as_bytes())), Some(FaultCode::ProtocolMismatch));
    let mut claude = opened(Kind::Claude, Approvals::Allow);
    let request =
        format!(r#"{{"type":"control_request","request_id":"{long}","request":{{"subtype":"can_use_tool"}}}}"#);
    assert_eq!(fault(&claude.line(request.as_bytes())), Some(FaultCode::ProtocolMismatch));
    let mut claude = opened(Kind::Claude, Approvals::Allow);
    let init = format!(r#"{{"type":"system","subtype":"init","session_id":"{long}"}}"#);
    assert_eq!(fault(&claude.line(init.as_bytes())), Some(FaultCode::ProtocolMismatch));
    assert_eq!(claude.session(), None);
}
