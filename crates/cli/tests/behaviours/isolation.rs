//! Ids, idempotency, quotas, limits, and what one process must not learn about another.

mod attacks;
mod environment;
mod inside;
mod lists;
mod owners;
mod parents;
mod revoking;
mod secrets;
mod tcp;
mod terminals;
mod views;

use std::collections::HashSet;

use pinfold_api::client::Client;
use pinfold_api::error::ErrorCode;
use pinfold_api::types::{Cause, GcRequest, ListQuery, Outcome, StartRequest, Started, Status, WaitReason};
use pinfold_testkit::{Pinfold, Setup, alive, until};
use tokio::task::JoinSet;

use crate::PINFOLD;

fn request(command: &str) -> StartRequest {
    StartRequest { command: Some(command.into()), ..StartRequest::default() }
}

/// Sends the same start many times concurrently.
fn start_at_once(pinfold: &Pinfold, request: &StartRequest, count: usize) -> Vec<Result<Started, ErrorCode>> {
    async fn start(client: Client, request: StartRequest) -> Result<Started, ErrorCode> {
        client.start(&request).await.map_err(|error| match error {
            pinfold_api::client::ClientError::Api { error, .. } => error.code,
            other => panic!("{other}"),
        })
    }
    pinfold.block(async {
        let mut starts = JoinSet::new();
        (0..count).for_each(|_| drop(starts.spawn(start(pinfold.client().clone(), request.clone()))));
        starts.join_all().await
    })
}

#[test]
fn ids_unique_forever() {
    let pinfold = Pinfold::start(PINFOLD);
    let mut seen = HashSet::new();
    let ends: [&dyn Fn(); 4] = [
        &|| drop(pinfold.cli(&["daemon", "stop"])),
        &|| pinfold.kill_daemon(),
        // Only the counter on disk remembers them.
        &|| {
            let everything = GcRequest { older_than: Some("0".into()), dry_run: false };
            pinfold.block(pinfold.client().gc(&everything)).expect("a gc");
            pinfold.kill_daemon();
        },
        &|| {},
    ];
    for end in ends {
        for _ in 0..20 {
            let id = pinfold.wait_finished(&pinfold.sh("exit 0").id).id;
            assert!(seen.insert(id.clone()), "{id} came twice");
        }
        end();
        pinfold.start_daemon();
    }
    assert_eq!(pinfold.list(&ListQuery::default()).total, 20);
}

#[test]
fn unique_prefixes_accepted_ambiguous_ones_refused() {
    let pinfold = Pinfold::start(PINFOLD);
    // Ids have an alphabet of 32, so of 33 at least two have the same first character.
    let ids: Vec<_> = (0..33).map(|_| pinfold.sh("exit 0").id).collect();
    let (one, other) = ids
        .iter()
        .flat_map(|one| ids.iter().map(move |other| (one, other)))
        .find(|(one, other)| one < other && one[..1] == other[..1])
        .expect("two that begin alike");
    let error = pinfold.try_show(&one[..1]).expect_err("ambiguous");
    assert_eq!(error.code, ErrorCode::AmbiguousId);
    assert!(error.message.contains("give more characters") && error.message.contains(&one[..1]), "{error}");
    for id in [one, other] {
        let unique = (1..=id.len()).find(|len| ids.iter().filter(|other| other.starts_with(&id[..*len])).count() == 1);
        assert_eq!(&pinfold.show(&id[..unique.expect("the whole id is")]).id, id);
    }
}

#[test]
fn duplicate_client_key() {
    let pinfold = Pinfold::start(PINFOLD);
    let keyed = StartRequest { idempotency_key: Some("once".into()), ..request("sleep 300") };
    let started = start_at_once(&pinfold, &keyed, 20);
    let started: Vec<_> = started.into_iter().map(|started| started.expect("an answer")).collect();
    assert_eq!(started.iter().filter(|started| started.created).count(), 1);
    assert_eq!(started.iter().map(|started| &started.record.id).collect::<HashSet<_>>().len(), 1);
    assert_eq!(pinfold.list(&ListQuery::default()).total, 1);

    let other = StartRequest { idempotency_key: Some("once".into()), ..request("sleep 301") };
    let error = pinfold.try_start(&other).expect_err("another command under the same key");
    assert_eq!((error.code, error.id), (ErrorCode::KeyReused, Some(started[0].record.id.clone())));

    // Without a daemon, no keeper waits for the next start.
    pinfold.kill_daemon();
    let directories = || std::fs::read_dir(pinfold.home().join("processes")).expect("a directory").count();
    until("starts that never were leave nothing", || directories() == 1);
}

#[test]
fn max_jobs_clear_error() {
    let config = "[limits]\nprocesses = 3\n".into();
    let pinfold = Pinfold::start_with(PINFOLD, Setup { config, ..Setup::default() });
    let started = start_at_once(&pinfold, &request("sleep 300"), 20);
    let (live, refused): (Vec<_>, Vec<_>) = started.into_iter().partition(Result::is_ok);
    assert_eq!(live.len(), 3, "the limit holds for starts at the same moment");
    assert!(refused.iter().all(|refused| matches!(refused, Err(ErrorCode::LimitReached))));

    let error = pinfold.try_start(&request("sleep 300")).expect_err("full");
    assert_eq!(error.code, ErrorCode::LimitReached);
    for part in ["3 processes are running", "limits.processes", "pinfold stop"] {
        assert!(error.message.contains(part), "{error}");
    }
    let ids: Vec<_> = live.into_iter().flatten().map(|started| started.record.id).collect();
    assert!(ids.iter().all(|id| pinfold.show(id).status == Status::Running), "a live process was evicted");
    pinfold.stop(&ids[0]);
    pinfold.sh("sleep 300");
}

/// Idle limits are tested elsewhere.
#[test]
fn runtime_limits() {
    let pinfold = Pinfold::start(PINFOLD);
    // Long enough for the whole tree to start before the limit ends it.
    let limited = StartRequest { time_limit: Some("5s".into()), ..request("setsid sleep 300 & sleep 300; :") };
    let background = pinfold.start_request(&limited).record.id;
    let tree = pinfold.until_tree(&background, 3);
    let limited = StartRequest { time_limit: Some("500ms".into()), ..limited };
    let foreground = pinfold.start_request(&StartRequest { wait: Some("60s".into()), ..limited });
    assert_eq!(foreground.waited.map(|waited| waited.reason), Some(WaitReason::Exited));
    for id in [&background, &foreground.record.id] {
        let record = pinfold.wait_finished(id);
        assert_eq!((record.cause, record.stopped_by), (Some(Cause::TimeLimit), None));
        assert!(matches!(record.outcome, Some(Outcome::Signaled { signal: 15, .. })), "{:?}", record.outcome);
    }
    assert!(!tree.into_iter().any(alive));
}

#[test]
fn env_merge_and_unset() {
    let env = [("BASE", "base"), ("OVER", "base"), ("GONE", "base")].map(|(name, value)| (name.into(), value.into()));
    let pinfold = Pinfold::start_with(PINFOLD, Setup { env: env.into(), ..Setup::default() });
    let asked = StartRequest {
        argv: Some(vec!["/usr/bin/env".into()]),
        owner: Some("chat-7".into()),
        env: [("OVER".into(), Some("asked".into())), ("GONE".into(), None), ("EMPTY".into(), Some(String::new()))]
            .into(),
        ..StartRequest::default()
    };
    let environment = |request: &StartRequest| {
        let id = pinfold.wait_finished(&pinfold.start_request(request).record.id).id;
        (pinfold.text(&id).lines().map(str::to_owned).collect::<HashSet<_>>(), id)
    };
    let (found, id) = environment(&asked);
    for line in ["BASE=base", "OVER=asked", "EMPTY=", "PINFOLD_OWNER=chat-7", &format!("PINFOLD_ID={id}")] {
        assert!(found.contains(line), "{line}: {found:?}");
    }
    assert!(!found.iter().any(|line| line.starts_with("GONE=")));

    let (found, _) = environment(&StartRequest { inherit_env: Some(false), ..asked.clone() });
    let names: HashSet<_> = found.iter().filter_map(|line| line.split('=').next()).collect();
    assert_eq!(names, HashSet::from(["OVER", "EMPTY", "PINFOLD_ID", "PINFOLD_OWNER", "PINFOLD_MARK", "PINFOLD_HOME"]));

    for (mark, value) in [("PINFOLD_ID", Some("x")), ("PINFOLD_OWNER", Some("x")), ("PINFOLD_MARK", None)] {
        let env = [(mark.to_owned(), value.map(str::to_owned))].into();
        let error = pinfold.try_start(&StartRequest { env, ..request("true") }).expect_err(mark);
        assert!(error.code == ErrorCode::InvalidRequest && error.message.contains(mark), "{error}");
    }
}

#[test]
fn usage_whole_tree() {
    let pinfold = Pinfold::start(PINFOLD);
    // On any machine this takes far more than the 100 ms below.
    let burn = "i=0; while [ $i -lt 1000000 ]; do i=$((i+1)); done";
    let gate = pinfold.home().join("gate");
    let wait = format!("while [ ! -e {} ]; do sleep 0.01; done", gate.display());
    // The leader itself uses almost no CPU: what is counted is used by its children, also in another session.
    let id = pinfold
        .sh(&format!("({burn}) & setsid sh -c '{burn}; {wait}' & dd if=/dev/zero of=/dev/null bs=60M count=1 & exit 0"))
        .id;
    until("a stray has burnt some time", || pinfold.show(&id).usage.cpu_ms >= 50);
    let live = pinfold.show(&id);
    assert_eq!((live.status, live.usage.processes as usize), (Status::Lingering, live.tree.len()));
    std::fs::write(gate, "").expect("an open gate");
    let usage = pinfold.wait_finished(&id).usage;
    assert!(usage.cpu_ms >= live.usage.cpu_ms.max(100), "{usage:?}");
    assert!(usage.max_rss_bytes >= 60 << 20 && usage.processes >= 2, "{usage:?}");
}

#[test]
fn duplicate_server_hint() {
    let pinfold = Pinfold::start(PINFOLD);
    let server = StartRequest { cwd: Some("/tmp".into()), ..request("sleep 300") };
    let first = pinfold.start_request(&server);
    assert_eq!(first.hints, [""; 0]);
    let second = pinfold.start_request(&server);
    assert!(second.hints.len() == 1 && second.hints[0].contains(&first.record.id), "{:?}", second.hints);
    let elsewhere = StartRequest { cwd: Some("/".into()), ..server.clone() };
    assert_eq!(pinfold.start_request(&elsewhere).hints, [""; 0]);
    pinfold.stop(&first.record.id);
    pinfold.stop(&second.record.id);
    assert_eq!(pinfold.start_request(&server).hints, [""; 0]);
}
