//! Exit, closed output and an empty tree are three facts, reported separately.

use pinfold_api::types::{EventKind, EventsQuery, Outcome, OutputQuery, Status, WaitQuery, WaitReason};
use pinfold_testkit::Pinfold;

use crate::requests::{Gate, both_ways, call, reason, said};

fn wait(pinfold: &Pinfold, id: &str, until: &str, timeout: &str) -> WaitReason {
    let (until, timeout) = (Some(until.into()), Some(timeout.into()));
    pinfold.wait(id, &WaitQuery { until, timeout, ..WaitQuery::default() }).reason
}

#[test]
fn exited_vs_closed() {
    both_ways(|pinfold| {
        let (speak, end) = (Gate::new(pinfold, "speak"), Gate::new(pinfold, "end"));
        let stray = format!("{}; echo late; exec >/dev/null 2>&1; {}", speak.wait(), end.wait());
        let called = call(pinfold, &format!("({stray}) & echo first; exit 4"), "60s");
        let id = &called.record.id;

        // Exited: the output of the leader is complete; strays may still print.
        assert_eq!((reason(&called), said(&called)), (WaitReason::Exited, "first\n"));
        let record = pinfold.show(id);
        assert_eq!((record.status, record.outcome), (Status::Lingering, Some(Outcome::Exited { code: 4 })));
        assert!(record.exited_at.is_some() && record.finished_at.is_none() && !record.output.closed);
        assert_eq!(wait(pinfold, id, "closed", "0"), WaitReason::Timeout);

        // Closed: no more output is possible; the tree is not empty.
        speak.open();
        assert_eq!(wait(pinfold, id, "closed", "60s"), WaitReason::Closed);
        let page = pinfold.output(id, &OutputQuery::default());
        assert_eq!((page.text.as_str(), page.exited, page.closed), ("first\nlate\n", true, true));
        let record = pinfold.show(id);
        assert_eq!((record.status, record.output.closed), (Status::Lingering, true));
        assert!(!record.tree.is_empty() && record.finished_at.is_none());
        assert_eq!(wait(pinfold, id, "finished", "0"), WaitReason::Timeout);

        // Finished: the tree is empty.
        end.open();
        assert_eq!(wait(pinfold, id, "finished", "60s"), WaitReason::Finished);
        let record = pinfold.show(id);
        assert_eq!((record.status, record.outcome), (Status::Finished, Some(Outcome::Exited { code: 4 })));
        assert!(record.tree.is_empty() && record.finished_at > record.exited_at);

        let query = EventsQuery { process: Some(id.clone()), ..EventsQuery::default() };
        let events = pinfold.block(pinfold.client().events(&query)).expect("events").events;
        let kinds: Vec<_> = events.iter().map(|event| event.kind).collect();
        assert_eq!(kinds, [EventKind::Started, EventKind::Exited, EventKind::Closed, EventKind::Finished]);
    });
}

#[test]
fn output_can_close_before_the_exit() {
    both_ways(|pinfold| {
        let gate = Gate::new(pinfold, "gate");
        let command = format!("echo only; exec >/dev/null 2>&1; {}; exit 3", gate.wait());
        let id = call(pinfold, &command, "10ms").record.id;
        assert_eq!(wait(pinfold, &id, "closed", "60s"), WaitReason::Closed);
        let record = pinfold.show(&id);
        assert_eq!((record.status, record.output.closed, record.exited_at), (Status::Running, true, None));
        gate.open();
        assert_eq!(pinfold.wait_finished(&id).outcome, Some(Outcome::Exited { code: 3 }));
        assert_eq!(pinfold.text(&id), "only\n");
    });
}
