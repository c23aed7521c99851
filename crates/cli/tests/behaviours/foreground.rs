//! Commands in the foreground: exact exit codes, and calls that return before the command ends.

mod commands;
mod waits;

use std::collections::HashMap;

use pinfold_api::client::Client;
use pinfold_api::types::{Cause, EventKind, ListQuery, Outcome, Status, WaitReason};
use pinfold_testkit::Pinfold;
use tokio::task::JoinSet;

use crate::PINFOLD;
use crate::requests::{call, ordinary_user, reason, request, said};

#[test]
fn fg_exit_code_exact() {
    exit_codes_are_exact(&Pinfold::start(PINFOLD));
}

#[test]
fn fg_exit_code_exact_for_an_ordinary_user() {
    exit_codes_are_exact(&ordinary_user());
}

fn exit_codes_are_exact(pinfold: &Pinfold) {
    for code in [0, 3, 42, 255] {
        let command = format!("echo before; exit {code}");
        let called = call(pinfold, &command, "60s");
        assert_eq!(reason(&called), WaitReason::Exited);
        assert_eq!((called.record.outcome.as_ref(), said(&called)), (Some(&Outcome::Exited { code }), "before\n"));
        assert_eq!(called.record.cause, Some(Cause::OnItsOwn));

        let (record, output) = pinfold.run(&command);
        assert_eq!((record.outcome, output.as_str()), (Some(Outcome::Exited { code }), "before\n"));

        let cli = pinfold.cli(&["run", &command]);
        assert_eq!((cli.code, cli.stdout.as_str()), (Some(i32::from(code)), "before\n"));
    }
}

#[test]
fn fg_killed_by_signal() {
    let pinfold = Pinfold::start(PINFOLD);
    for (signal, name) in [(9, "KILL"), (15, "TERM"), (1, "HUP")] {
        let command = format!("echo before; kill -{name} $$; echo never");
        let called = call(&pinfold, &command, "60s");
        let outcome = Outcome::Signaled { signal, name: name.into(), core_dumped: false };
        assert_eq!((called.record.outcome.as_ref(), said(&called)), (Some(&outcome), "before\n"));
        assert_eq!(called.record.cause, Some(Cause::OnItsOwn));
        let cli = pinfold.cli(&["run", &command]);
        assert_eq!((cli.code, cli.stdout.as_str()), (Some(128 + signal), "before\n"));
    }
}

#[test]
fn fast_jobs_none_lost() {
    const LANES: usize = 10;
    const EACH: usize = 20;
    let pinfold = Pinfold::start(PINFOLD);
    let ids = pinfold.block(async {
        let mut lanes = JoinSet::new();
        for _ in 0..LANES {
            lanes.spawn(start_in_a_row(pinfold.client().clone(), EACH));
        }
        lanes.join_all().await.concat()
    });
    assert_eq!(ids.len(), LANES * EACH);
    for id in &ids {
        let record = pinfold.wait_finished(id);
        assert_eq!((record.status, record.outcome), (Status::Finished, Some(Outcome::Exited { code: 0 })), "{id}");
    }

    let mut completions: HashMap<String, usize> = HashMap::new();
    for event in pinfold.events(0).events.into_iter().filter(|event| event.kind == EventKind::Finished) {
        assert_eq!(event.outcome, Some(Outcome::Exited { code: 0 }));
        *completions.entry(event.process).or_default() += 1;
    }
    assert_eq!(completions, ids.into_iter().map(|id| (id, 1)).collect());
    let listed = |status: &str| pinfold.list(&ListQuery { status: Some(status.into()), ..ListQuery::default() }).total;
    assert_eq!((listed("live"), listed("finished")), (0, (LANES * EACH) as u64));
}

async fn start_in_a_row(client: Client, count: usize) -> Vec<String> {
    let mut ids = Vec::with_capacity(count);
    for _ in 0..count {
        ids.push(client.start(&request("true")).await.expect("it starts").record.id);
    }
    ids
}
