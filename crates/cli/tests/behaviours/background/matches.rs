//! Waits for a pattern: in earlier and in new output, over chunk borders, among noise, in endless output.

use pinfold_api::error::ErrorCode;
use pinfold_api::types::{Outcome, WaitAnswer, WaitQuery, WaitReason};
use pinfold_testkit::Pinfold;

use super::{meanwhile, now, until, waiting};
use crate::PINFOLD;
use crate::output::answer_of;
use crate::output::gate::Gate;

fn matching(pattern: &str) -> WaitQuery {
    WaitQuery { pattern: Some(pattern.into()), ..until("match") }
}

/// Why it ended, the line, and where that begins.
fn hit(answer: &WaitAnswer) -> (WaitReason, Option<&str>, u64) {
    (answer.reason, answer.matched.as_deref(), answer.cursor)
}

#[test]
fn wait_pattern_past_and_new() {
    let pinfold = Pinfold::start(PINFOLD);
    let (two, end) = (Gate::new(&pinfold, "two"), Gate::new(&pinfold, "end"));
    let id = pinfold.sh(&format!("echo boot; echo ready 1; {}; echo ready 2; {}", two.wait(), end.wait())).id;
    let pattern = matching(r"^ready \d");
    assert_eq!(hit(&pinfold.wait(&id, &pattern)), (WaitReason::Matched, Some("ready 1"), 5));
    assert_eq!(hit(&pinfold.wait(&id, &now(pattern.clone()))), (WaitReason::Matched, Some("ready 1"), 5));
    let new = WaitQuery { cursor: Some(13), ..pattern };
    assert_eq!(hit(&pinfold.wait(&id, &now(new.clone()))), (WaitReason::Timeout, None, 13));
    let [answer] = &meanwhile(&pinfold, [waiting(&pinfold, &id, new)], async || two.open())[..] else {
        panic!("one answer")
    };
    assert_eq!(hit(answer), (WaitReason::Matched, Some("ready 2"), 13));

    let refusal = pinfold.try_wait(&id, &matching("a(b")).expect_err("no pattern");
    assert_eq!(refusal.code, ErrorCode::BadPattern);
    let refusal = pinfold.try_wait(&id, &until("match")).expect_err("no pattern");
    assert!(refusal.code == ErrorCode::InvalidRequest && refusal.message.contains("pattern"), "{refusal}");
}

#[test]
fn wait_pattern_split() {
    let pinfold = Pinfold::start(PINFOLD);
    let (half, end) = (Gate::new(&pinfold, "half"), Gate::new(&pinfold, "end"));
    // Lines of eight up to just before the end of a block of 256 KiB, then one that spans the border.
    let across = "yes 0123456 | head -c 262136; echo 'lies across the seam'";
    let id = pinfold.sh(&format!("{across}; printf REA; {}; echo DY; {}; printf last", half.wait(), end.wait())).id;
    let answer = pinfold.wait(&id, &matching("^lies across the seam$"));
    assert_eq!(hit(&answer), (WaitReason::Matched, Some("lies across the seam"), 262_136));
    // A prompt has no newline, and still matches.
    assert_eq!(hit(&pinfold.wait(&id, &matching("^REA$"))), (WaitReason::Matched, Some("REA"), 262_157));
    let [answer] = &meanwhile(&pinfold, [waiting(&pinfold, &id, matching("READY"))], async || half.open())[..] else {
        panic!("one answer")
    };
    assert_eq!(hit(answer), (WaitReason::Matched, Some("READY"), 262_157));
    let [answer] = &meanwhile(&pinfold, [waiting(&pinfold, &id, matching("^last$"))], async || end.open())[..] else {
        panic!("one answer")
    };
    assert_eq!(hit(answer), (WaitReason::Matched, Some("last"), 262_163));
    pinfold.wait_finished(&id);
    assert_eq!(hit(&pinfold.wait(&id, &matching("^last$"))), (WaitReason::Matched, Some("last"), 262_163));
}

#[test]
fn wait_pattern_never() {
    let pinfold = Pinfold::start(PINFOLD);
    let gate = Gate::new(&pinfold, "end");
    let id = pinfold.sh(&format!("echo hello; {}; echo bye; exit 3", gate.wait())).id;
    let wait = waiting(&pinfold, &id, matching("never"));
    let [answer] = &meanwhile(&pinfold, [wait], async || gate.open())[..] else { panic!("one answer") };
    assert_eq!(hit(answer), (WaitReason::EndedBefore, None, 10));
    assert_eq!(answer.record.outcome, Some(Outcome::Exited { code: 3 }));
    assert_eq!(pinfold.wait(&id, &matching("never")).reason, WaitReason::EndedBefore);
}

/// A wait keeps its timeout, and finds what is there, although the output never pauses.
#[test]
fn wait_pattern_in_endless_output() {
    let pinfold = Pinfold::start(PINFOLD);
    let id = pinfold.sh("echo first; exec yes 0123456").id;
    for (pattern, timeout, reason) in [("^first$", "60s", WaitReason::Matched), ("never", "100ms", WaitReason::Timeout)]
    {
        let query = WaitQuery { timeout: Some(timeout.into()), ..matching(pattern) };
        let answer = answer_of(&pinfold, waiting(&pinfold, &id, query));
        assert_eq!(answer.reason, reason, "{pattern}");
    }
}

#[test]
fn wait_excludes_noise() {
    let pinfold = Pinfold::start(PINFOLD);
    let (noise, news) = (Gate::new(&pinfold, "noise"), Gate::new(&pinfold, "news"));
    let id = pinfold.sh(&format!("echo noise 1; {}; echo noise 2; {}; echo news", noise.wait(), news.wait())).id;
    let quietly = |what: &str| WaitQuery { cursor: Some(0), exclude: Some("^noise".into()), ..until(what) };
    let output = quietly("output");
    let matches = WaitQuery { pattern: Some("n".into()), ..quietly("match") };
    pinfold.wait(&id, &matching("noise 1"));
    for query in [&output, &matches] {
        assert_eq!(pinfold.wait(&id, &now(query.clone())).reason, WaitReason::Timeout);
    }
    let waits = [waiting(&pinfold, &id, output), waiting(&pinfold, &id, matches)];
    let answers = meanwhile(&pinfold, waits, async || {
        noise.open();
        news.open();
    });
    assert_eq!((answers.len(), answers[0].record.output.bytes), (2, 21));
    for answer in answers {
        assert!(matches!(answer.reason, WaitReason::Output | WaitReason::Matched), "{answer:?}");
        assert_eq!((answer.matched.as_deref(), answer.cursor), (Some("news"), 16));
    }
}
