//! Samples: what a live process uses, measured while a client asks for it.

use pinfold_api::types::{ListQuery, Samples, SamplesQuery, StartRequest};
use pinfold_testkit::{Pinfold, until_some};

use crate::PINFOLD;

const BUSY: &str = "while :; do :; done";

fn samples(pinfold: &Pinfold, id: &str, after: Option<String>) -> Samples {
    pinfold.block(pinfold.client().samples(id, &SamplesQuery { after })).expect("samples")
}

#[test]
fn a_process_that_is_looked_at_gets_samples_of_its_cpu_and_memory() {
    let pinfold = Pinfold::start(PINFOLD);
    let id = pinfold.sh(BUSY).id;
    let first = samples(&pinfold, &id, None);
    assert_eq!((first.samples.len(), first.interval_ms), (1, 1000), "the first request takes a sample");
    assert!(first.samples[0].millicpus.is_none(), "nothing to compare it with");
    assert!(first.samples[0].memory_bytes > 0 && first.samples[0].processes > 0, "{first:?}");
    let busy = until_some("a sample of its CPU use", || {
        let later = samples(&pinfold, &id, Some(first.samples[0].at.clone())).samples;
        assert!(later.iter().all(|sample| sample.at > first.samples[0].at), "only later ones");
        later.into_iter().find(|sample| sample.millicpus.is_some_and(|used| used > 0))
    });
    assert!(busy.millicpus.is_some_and(|used| used < 1_000_000), "{busy:?}");
    pinfold.stop(&id);
    assert_eq!(samples(&pinfold, &id, None).samples, [], "an ended process uses nothing");
}

#[test]
fn one_list_has_what_every_live_process_uses() {
    let pinfold = Pinfold::start(PINFOLD);
    // More than are measured one at a time.
    let idle: Vec<_> = (0..20).map(|_| pinfold.sh("exec sleep 600").id).collect();
    let busy = pinfold.sh(BUSY).id;
    let ended = pinfold.run("true").0.id;
    pinfold.wait_finished(&ended);
    let plain = pinfold.list(&ListQuery { tree: Some(false), limit: Some(2000), ..ListQuery::default() });
    assert!(plain.processes.iter().all(|record| record.sample.is_none() && record.tree.is_empty()));
    let query = ListQuery { tree: Some(false), usage: Some(true), limit: Some(2000), ..ListQuery::default() };
    let list = until_some("the busy one is seen to be busy", || {
        let list = pinfold.list(&query);
        let live = list.processes.iter().filter(|record| record.id != ended);
        for record in live {
            let sample = record.sample.as_ref().expect("each live one has a sample");
            assert!(sample.memory_bytes > 0 && sample.processes > 0, "{record:?}");
            assert!(record.usage.max_rss_bytes > 0 && record.tree.is_empty());
        }
        let used = list.processes.iter().find(|record| record.id == busy)?.sample.as_ref()?.millicpus?;
        (used > 0).then_some(list)
    });
    assert_eq!(list.processes.len(), 22);
    assert!(list.processes.iter().any(|record| record.id == ended && record.sample.is_none()));
    for id in idle.iter().chain([&busy]) {
        pinfold.stop(id);
    }
}

#[test]
fn an_owner_gets_no_samples_of_another_owner() {
    let pinfold = Pinfold::start(PINFOLD);
    let request =
        StartRequest { command: Some("exec sleep 600".into()), owner: Some("mine".into()), ..StartRequest::default() };
    let id = pinfold.start_request(&request).record.id;
    let other = pinfold.client().acting_as("other", None);
    let refused = pinfold.block(other.samples(&id, &SamplesQuery::default())).expect_err("not in view").to_string();
    assert!(refused.contains("no process"), "{refused}");
    let query = ListQuery { usage: Some(true), ..ListQuery::default() };
    assert_eq!(pinfold.block(other.list(&query)).expect("a list").total, 0);
    pinfold.stop(&id);
}
