//! Recorded conversations with the real programs, replayed.
//!
//! In `fixtures/`, lines from the agent start with `<` and lines to it with `>`. Long texts are cut and paths replaced.

use pinfold_agents::{Conversation, Effect, Kind, Phase, Settings};
use pinfold_api::types::{AgentEventKind, Approvals, Turn, TurnStatus, TurnUsage, Verdict};
use serde_json::{Map, Value, json};

const CODEX: &str = include_str!("../fixtures/codex-0.166.0.jsonl");
const CLAUDE: &str = include_str!("../fixtures/claude-2.1.325.jsonl");

fn settings(kind: Kind) -> Settings {
    let extra = match kind {
        Kind::Codex => json!({ "approvalPolicy": "untrusted", "sandbox": "danger-full-access" }),
        Kind::Claude => json!({}),
    };
    Settings {
        cwd: "/home/me/project".into(),
        extra: extra.as_object().cloned().unwrap_or_else(Map::new),
        client_version: "0.1.0".into(),
        ..Settings::default()
    }
}

/// Replays a conversation and checks every message to the agent. `between` is called before each line.
fn replay(kind: Kind, transcript: &str, mut between: impl FnMut(Conversation) -> Conversation) -> Vec<Effect> {
    let mut conversation = Conversation::new(kind, settings(kind), Approvals::Ask, 0);
    let mut all = conversation.open();
    let (mut checked, mut turns) = (0, 0);
    for line in transcript.lines() {
        conversation = between(conversation);
        if let Some(said) = line.strip_prefix("< ") {
            all.extend(conversation.line(said.as_bytes()));
            continue;
        }
        let expected: Value = serde_json::from_str(line.strip_prefix("> ").expect("a direction")).expect("JSON");
        if sent(&all).nth(checked).is_none() {
            all.extend(act(&mut conversation, &expected, &mut turns));
        }
        assert_eq!(sent(&all).nth(checked), Some(expected), "message {checked}");
        checked += 1;
    }
    assert_eq!(sent(&all).count(), checked, "no further message is sent");
    assert_eq!(conversation.phase(), Phase::Open);
    all
}

fn sent(effects: &[Effect]) -> impl Iterator<Item = Value> + '_ {
    effects.iter().filter_map(|effect| match effect {
        Effect::Send { line, .. } => Some(serde_json::from_str(line).expect("JSON")),
        _ => None,
    })
}

/// Makes the request that leads to this message.
fn act(conversation: &mut Conversation, message: &Value, turns: &mut u64) -> Vec<Effect> {
    let prompt = message["params"]["input"][0]["text"].as_str().or_else(|| message["message"]["content"].as_str());
    if let Some(prompt) = prompt {
        *turns += 1;
        assert!(conversation.is_free(), "turn {turns} starts before the previous one has ended");
        return conversation.begin(Turn { number: *turns, prompt: prompt.into(), ..Turn::default() });
    }
    if message["method"] == "turn/interrupt" || message["request"]["subtype"] == "interrupt" {
        return conversation.interrupt();
    }
    let yes = message["result"]["decision"] == "accept" || message["response"]["response"]["behavior"] == "allow";
    let ask = conversation.asks().first().expect("an ask").id.clone();
    let verdict = if yes { Verdict::Allow } else { Verdict::Deny };
    conversation.answer(&ask, verdict, None).expect("it is asked")
}

fn turns(effects: &[Effect]) -> Vec<Turn> {
    let ended = effects.iter().filter_map(|effect| match effect {
        Effect::Ended(turn) => Some((**turn).clone()),
        _ => None,
    });
    ended.collect()
}

fn deltas(effects: &[Effect], number: u64) -> String {
    let pieces = effects.iter().filter_map(|effect| match effect {
        Effect::Show(event) if event.kind == AgentEventKind::Delta && event.turn == Some(number) => event.text.clone(),
        _ => None,
    });
    pieces.collect()
}

#[test]
fn codex_turns_replay_with_the_same_messages_and_results() {
    let effects = replay(Kind::Codex, CODEX, |conversation| conversation);
    let turns = turns(&effects);
    let statuses: Vec<_> = turns.iter().map(|turn| turn.status).collect();
    use TurnStatus::{Completed, Interrupted};
    assert_eq!(statuses, [Completed, Completed, Completed, Interrupted]);
    assert_eq!(turns[0].text.as_deref(), Some("you said: hello"));
    assert_eq!(deltas(&effects, 1), "you said: hello ");
    let usage = TurnUsage { input_tokens: 11, cached_input_tokens: 0, output_tokens: 7 };
    assert_eq!(turns[0].usage, Some(usage));
    // The first turn that used a tool asked the model twice.
    assert_eq!(turns[1].usage.map(|usage| usage.output_tokens), Some(14));
    let tool = &turns[1].tools[0];
    assert_eq!((tool.name.as_str(), tool.exit_code, tool.failed), ("command", Some(3), Some(true)));
    assert!(tool.input.contains("touch made"), "{tool:?}");
    assert_eq!(turns[2].tools.first().and_then(|tool| tool.failed), Some(true), "{:?}", turns[2].tools);
    assert_eq!(turns[3].text.as_deref(), Some("begun "));
}

#[test]
fn claude_turns_replay_with_the_same_messages_and_results() {
    let effects = replay(Kind::Claude, CLAUDE, |conversation| conversation);
    let turns = turns(&effects);
    let statuses: Vec<_> = turns.iter().map(|turn| turn.status).collect();
    use TurnStatus::{Completed, Interrupted};
    assert_eq!(statuses, [Completed, Completed, Completed, Interrupted]);
    assert_eq!(turns[0].text.as_deref(), Some("you said: hello "));
    assert_eq!(deltas(&effects, 1), "you said: hello ");
    assert_eq!(turns[1].usage.map(|usage| (usage.input_tokens, usage.output_tokens)), Some((22, 14)));
    let tool = &turns[1].tools[0];
    assert_eq!((tool.name.as_str(), tool.failed), ("Bash", Some(true)));
    assert!(tool.input.contains("touch made"), "{tool:?}");
    assert!(turns[2].tools[0].output.as_deref().is_some_and(|said| said.contains("denied")), "{:?}", turns[2].tools);
}

#[test]
fn g1_a_conversation_that_is_saved_and_restored_behaves_like_one_that_was_not() {
    for (kind, transcript) in [(Kind::Codex, CODEX), (Kind::Claude, CLAUDE)] {
        let plain = replay(kind, transcript, |conversation| conversation);
        let crashing = replay(kind, transcript, |conversation| {
            Conversation::restore(conversation.save()).expect("it can be restored")
        });
        assert_eq!(plain, crashing);
    }
}

#[test]
fn messages_processed_again_after_a_restore_have_the_same_effects() {
    let effects = replay(Kind::Codex, CODEX, |conversation| conversation);
    let mut conversation = Conversation::new(Kind::Codex, settings(Kind::Codex), Approvals::Allow, 0);
    let saved = {
        conversation.open();
        conversation.save()
    };
    let hear = |conversation: &mut Conversation| -> Vec<Effect> {
        let said = CODEX.lines().filter_map(|line| line.strip_prefix("< ")).take(6);
        said.flat_map(|line| conversation.line(line.as_bytes())).collect()
    };
    let first = hear(&mut conversation);
    let again = hear(&mut Conversation::restore(saved).expect("it can be restored"));
    assert_eq!(first, again);
    assert!(sent(&first).count() >= 2 && !effects.is_empty());
}

#[test]
fn the_version_and_the_session_are_reported() {
    for (kind, transcript, version) in [(Kind::Codex, CODEX, "0.166.0"), (Kind::Claude, CLAUDE, "2.1.325")] {
        let mut seen = (None, None);
        replay(kind, transcript, |conversation| {
            seen = (conversation.session().map(str::to_owned), conversation.version().map(str::to_owned));
            conversation
        });
        assert!(seen.0.is_some(), "{kind:?}");
        assert_eq!(seen.1.as_deref(), Some(version));
    }
}
