//! The cause of an end, as distinct from the outcome.

use pinfold_api::types::{Cause, EventKind, OnWaitTimeout, Outcome, Record, StartRequest, StopRequest, Strays};
use pinfold_testkit::{Pidfd, Pinfold};

use super::{killed, on_term, terminated};
use crate::PINFOLD;
use crate::requests::{ready, request, send};

/// Outcome and cause in the record, and the text of the last event.
fn end_of(pinfold: &Pinfold, record: &Record) -> (Option<Outcome>, Option<Cause>, Option<String>) {
    let record = pinfold.wait_finished(&record.id);
    let events = pinfold.events(0).events.into_iter();
    let finished: Vec<_> =
        events.filter(|event| event.process == record.id && event.kind == EventKind::Finished).collect();
    assert_eq!(finished.len(), 1);
    assert_eq!((&finished[0].outcome, finished[0].cause), (&record.outcome, record.cause));
    (record.outcome, record.cause, record.stopped_by)
}

#[test]
fn end_reason_distinct() {
    let pinfold = Pinfold::start(PINFOLD);
    let (itself, asked, limit) = (Some(Cause::OnItsOwn), Some(Cause::StopRequested), Some(Cause::TimeLimit));
    let end = |record: &Record| end_of(&pinfold, record);
    let exited = |code| Some(Outcome::Exited { code });
    let by_us = |who: &str| Some(who.to_owned());
    let sleeper = || ready(&pinfold, &request("echo ready; exec sleep 300"));

    // On its own: an exit, a crash, a kill from outside of pinfold.
    assert_eq!(end(&pinfold.sh("exit 3")), (exited(3), itself, None));
    let crash = end(&pinfold.sh("ulimit -c 0; kill -SEGV $$"));
    let segv = Outcome::Signaled { signal: 11, name: "SEGV".into(), core_dumped: false };
    assert_eq!(crash, (Some(segv), itself, None));
    let victim = sleeper();
    Pidfd::open(victim.pid.expect("a leader")).expect("a leader").kill();
    assert_eq!(end(&victim), (killed(), itself, None));

    // A requested stop, and a signal that ended it, with the name of the requester.
    let stopped = sleeper();
    pinfold.stop_request(&stopped.id, &StopRequest { by: by_us("me"), ..StopRequest::default() });
    assert_eq!(end(&stopped), (terminated(), asked, by_us("me")));
    let signalled = sleeper();
    send(&pinfold, &signalled.id, "KILL");
    assert_eq!(end(&signalled), (killed(), asked, by_us("a client")));
    let handled = ready(&pinfold, &on_term("exit 5"));
    pinfold.stop(&handled.id);
    assert_eq!(end(&handled), (exited(5), asked, by_us("a client")));

    // A limit: of the process, or of the call.
    let time_limit = Some("300ms".into());
    let limited = pinfold.start_request(&StartRequest { time_limit, ..request("sleep 300") }).record;
    assert_eq!(end(&limited), (terminated(), limit, None));
    let (wait, on_wait_timeout) = (Some("10ms".into()), Some(OnWaitTimeout::Stop));
    let limited = pinfold.start_request(&StartRequest { wait, on_wait_timeout, ..request("sleep 300") }).record;
    assert_eq!(end(&limited), (terminated(), limit, None));

    let time_limit = || Some("60s".into());
    let memory_limit = Some("48M".into());
    let eater = StartRequest { memory_limit, time_limit: time_limit(), ..request("exec tail /dev/zero") };
    let eater = pinfold.start_request(&eater).record;
    assert_eq!(end(&eater), (killed(), Some(Cause::OutOfMemory), None));
    // A shell whose fork is refused exits: here it is not the leader.
    let forks = "sleep 300 & sleep 300 & (sleep 300 & sleep 300); wait";
    let forker = StartRequest { pids_limit: Some(4), time_limit: time_limit(), ..request(forks) };
    let forker = pinfold.start_request(&forker).record;
    assert_eq!(end(&forker), (killed(), Some(Cause::PidsLimit), None));
    let cpu_time_limit = Some("100ms".into());
    let burner = StartRequest { cpu_time_limit, time_limit: time_limit(), ..request("while :; do :; done") };
    let burner = pinfold.start_request(&burner).record;
    assert_eq!(end(&burner), (terminated(), Some(Cause::CpuTimeLimit), None));

    // What happens after the leader's own exit does not change the cause.
    let lingering = pinfold.run("sleep 300 & exit 6").0;
    pinfold.stop(&lingering.id);
    assert_eq!(end(&lingering), (exited(6), itself, None));
    let strays = Some(Strays::Stop);
    let swept = pinfold.start_request(&StartRequest { strays, ..request("sleep 300 & exit 7") }).record;
    assert_eq!(end(&swept), (exited(7), itself, None));
}
