//! What works in a sandbox as without: output, input, terminals, limits, strays and stops.

use pinfold_api::types::{Cause, Outcome, Pty, StartRequest, Status, Streams};
use pinfold_testkit::until_some;

use super::{Places, TIERS, daemons, request, run};

#[test]
fn output_exit_codes_and_programs_work() {
    let places = Places::new();
    for (environment, pinfold) in daemons() {
        let landlock = [Some("read-only,tier=landlock"), Some("workspace-write,network=none,tier=landlock")];
        for sandbox in landlock.into_iter().chain([None, Some("read-only"), Some("workspace-write,network=none")]) {
            let script = "echo out; echo err >&2; seq 1 100000 | tail -1; (exit 3) || echo three; exec sh -c 'exit 7'";
            let (record, text) = run(&pinfold, script, &places.work(), sandbox);
            assert_eq!(text, "out\nerr\n100000\nthree\n", "{environment}, {sandbox:?}");
            assert_eq!(record.outcome, Some(Outcome::Exited { code: 7 }), "{environment}, {sandbox:?}");
        }
        let (_, text) = run(
            &pinfold,
            "echo a > f && mkdir -p d/e && mv f d/e/g && ln d/e/g h && cat h && rm -r d h",
            &places.work(),
            Some("workspace-write"),
        );
        assert_eq!(text, "a\n", "{environment}");
        let separate =
            StartRequest { streams: Some(Streams::Separate), ..request("echo x", &places.work(), Some("read-only")) };
        let record = pinfold.start_request(&separate).record;
        pinfold.wait_finished(&record.id);
        assert_eq!(pinfold.text(&record.id), "x\n", "{environment}");
    }
}

#[test]
fn a_terminal_works() {
    let places = Places::new();
    for (environment, pinfold) in daemons() {
        let script = "test -t 0 && echo one > /dev/tty && echo two > $(tty) && stty size";
        for tier in TIERS {
            let sandbox = format!("read-only{tier}");
            let pty = request(script, &places.work(), Some(&sandbox));
            let record = pinfold.start_request(&StartRequest { pty: Some(Pty::Wanted(true)), ..pty }).record;
            pinfold.wait_finished(&record.id);
            assert_eq!(pinfold.text(&record.id).replace('\r', ""), "one\ntwo\n24 80\n", "{environment}, {tier}");
        }
    }
}

#[test]
fn limits_strays_and_stops_work() {
    let places = Places::new();
    for (environment, pinfold) in daemons() {
        let limited = StartRequest {
            time_limit: Some("200ms".into()),
            ..request("trap '' TERM; sleep 1000 & sleep 1000", &places.work(), Some("read-only"))
        };
        let limited = StartRequest { grace: Some("100ms".into()), ..limited };
        let record = pinfold.start_request(&limited).record;
        assert_eq!(pinfold.wait_finished(&record.id).cause, Some(Cause::TimeLimit), "{environment}");
        let record = pinfold
            .start_request(&request("setsid -f sleep 31417; echo left", &places.work(), Some("read-only")))
            .record;
        let lingering = until_some("its stray", || {
            let record = pinfold.show(&record.id);
            (record.status == Status::Lingering).then_some(record)
        });
        assert_eq!(lingering.tree.len(), 1, "{environment}");
        let stopped = pinfold.stop(&record.id);
        assert!(stopped.survivors.is_empty(), "{environment}: {stopped:?}");
        assert_eq!(pinfold.show(&record.id).status, Status::Finished, "{environment}");
    }
}
