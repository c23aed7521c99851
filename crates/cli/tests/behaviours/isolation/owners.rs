//! Owners: what each sees, what happens to its processes when it ends, and how a process is handed over.

use pinfold_api::client::{Client, ClientError};
use pinfold_api::error::ErrorCode;
use pinfold_api::types::{
    Cause, EndRequest, EventKind, EventsQuery, HandoverRequest, Lifetime, ListQuery, OutputQuery, Record,
    SignalRequest, StartRequest, Status, StopRequest, WaitManyRequest, WaitQuery, WaitReason,
};
use pinfold_testkit::{Pinfold, until, until_some};

use crate::PINFOLD;

fn code<T: std::fmt::Debug>(result: Result<T, ClientError>) -> ErrorCode {
    match result.expect_err("refused") {
        ClientError::Api { error, .. } => error.code,
        other => panic!("{other}"),
    }
}

fn start(pinfold: &Pinfold, client: &Client, request: StartRequest) -> Record {
    pinfold.block(client.start(&request)).expect("it starts").record
}

fn sleeper(command: &str) -> StartRequest {
    StartRequest { command: Some(command.into()), ..StartRequest::default() }
}

fn ids(pinfold: &Pinfold, client: &Client) -> Vec<String> {
    let list = pinfold.block(client.list(&ListQuery::default())).expect("a list");
    assert_eq!(list.total, list.processes.len() as u64);
    let mut ids: Vec<_> = list.processes.into_iter().map(|record| record.id).collect();
    ids.sort();
    ids
}

fn sorted<'a>(records: impl IntoIterator<Item = &'a Record>) -> Vec<String> {
    let mut ids: Vec<_> = records.into_iter().map(|record| record.id.clone()).collect();
    ids.sort();
    ids
}

/// D5, on every route that names a process.
#[test]
fn other_owner_not_found() {
    let pinfold = Pinfold::start(PINFOLD);
    let (ann, eve) = (pinfold.client().acting_as("ann", None), pinfold.client().acting_as("eve", None));
    let named = StartRequest { name: Some("web".into()), ..sleeper("echo secret; sleep 300") };
    let live = start(&pinfold, &ann, named);
    let over = start(&pinfold, &ann, sleeper("echo secret"));
    pinfold.wait_finished(&over.id);
    let unknown = code(pinfold.block(eve.show("zzzzzzzz")));
    assert_eq!(unknown, ErrorCode::NotFound);
    for word in [live.id.as_str(), &live.id[..3], "web", over.id.as_str(), &over.id[..3]] {
        let tries = pinfold.block(async {
            [
                code(eve.show(word).await),
                code(eve.output(word, &OutputQuery::default()).await),
                code(eve.wait(word, &WaitQuery::default()).await),
                code(eve.stop(word, &StopRequest::default()).await),
                code(eve.signal(word, &SignalRequest { signal: "KILL".into(), by: None }).await),
                code(eve.pause(word).await),
                code(eve.resume(word).await),
                code(eve.handover(word, &HandoverRequest { to: Some("eve".into()), purpose: "x".into() }).await),
                code(eve.events(&EventsQuery { process: Some(word.into()), ..EventsQuery::default() }).await),
                code(
                    eve.wait_many(&WaitManyRequest { ids: vec![word.into()], mode: None, until: None, timeout: None })
                        .await,
                ),
            ]
        });
        assert_eq!(tries, [ErrorCode::NotFound; 10], "{word}");
    }
    assert_eq!(ids(&pinfold, &eve), Vec::<String>::new());
    assert_eq!(pinfold.block(eve.events(&EventsQuery::default())).expect("events").events, []);
    assert_eq!(pinfold.show(&live.id).status, Status::Running);
    assert_eq!(ids(&pinfold, &ann), sorted([&live, &over]));
    assert!(pinfold.block(ann.output("web", &OutputQuery::default())).is_ok());
}

#[test]
fn malformed_identity_rejected() {
    let pinfold = Pinfold::start(PINFOLD);
    start(&pinfold, pinfold.client(), sleeper("sleep 300"));
    for owner in ["", " ", "a\tb", "a;b", "\u{1f600}", &"x".repeat(200), "a,b", "*"] {
        let client = pinfold.client().acting_as(owner, None);
        assert_eq!(code(pinfold.block(client.list(&ListQuery::default()))), ErrorCode::InvalidRequest, "{owner:?}");
        assert_eq!(code(pinfold.block(client.start(&sleeper("true")))), ErrorCode::InvalidRequest, "{owner:?}");
    }
    let odd_parent = pinfold.client().acting_as("ann", Some("a\u{7f}b"));
    assert_eq!(code(pinfold.block(odd_parent.list(&ListQuery::default()))), ErrorCode::InvalidRequest);
    let own_parent = pinfold.client().acting_as("ann", Some("ann"));
    assert_eq!(code(pinfold.block(own_parent.start(&sleeper("true")))), ErrorCode::InvalidRequest);
}

#[test]
fn operator_sees_all() {
    let pinfold = Pinfold::start(PINFOLD);
    let (ann, eve) = (pinfold.client().acting_as("ann", None), pinfold.client().acting_as("eve", None));
    let all = [
        start(&pinfold, &ann, sleeper("sleep 300")),
        start(&pinfold, &eve, sleeper("sleep 300")),
        start(&pinfold, pinfold.client(), sleeper("sleep 300")),
    ];
    assert_eq!(ids(&pinfold, pinfold.client()), sorted(&all));
    assert_eq!(ids(&pinfold, &ann), sorted(&all[..1]));
    for refused in [
        code(pinfold.block(ann.gc(&Default::default()))),
        code(pinfold.block(ann.shutdown(&Default::default()))),
        code(pinfold.block(ann.metrics())),
    ] {
        assert_eq!(refused, ErrorCode::Forbidden);
    }
    assert_eq!(pinfold.show(&all[1].id).status, Status::Running);
}

#[test]
fn ancestor_sees_descendants() {
    let pinfold = Pinfold::start(PINFOLD);
    let chat = pinfold.client().acting_as("chat", None);
    let child = pinfold.client().acting_as("child", Some("chat"));
    let grandchild = pinfold.client().acting_as("grandchild", Some("child"));
    let ours = start(&pinfold, &chat, sleeper("sleep 300"));
    let theirs = start(&pinfold, &child, sleeper("echo hi; sleep 300"));
    let deepest = start(&pinfold, &grandchild, sleeper("sleep 300"));
    assert_eq!((theirs.parent.as_deref(), deepest.parent.as_deref()), (Some("chat"), Some("child")));
    for restart in [false, true] {
        if restart {
            pinfold.crash_and_restart();
        }
        assert_eq!(ids(&pinfold, &chat), sorted([&ours, &theirs, &deepest]), "restarted: {restart}");
        assert_eq!(ids(&pinfold, &child), sorted([&theirs, &deepest]));
        assert_eq!(ids(&pinfold, &grandchild), sorted([&deepest]));
        assert_eq!(code(pinfold.block(child.show(&ours.id))), ErrorCode::NotFound);
    }
    let stopped = pinfold.block(chat.stop(&deepest.id, &StopRequest::default())).expect("a stop");
    assert_eq!((stopped.survivors.len(), stopped.record.status), (0, Status::Finished));
    assert_eq!(code(pinfold.block(grandchild.stop(&ours.id, &StopRequest::default()))), ErrorCode::NotFound);
    // The first parent is kept, and an ended process keeps its place in the tree of owners.
    let elsewhere = pinfold.client().acting_as("child", Some("eve"));
    assert_eq!(code(pinfold.block(elsewhere.start(&sleeper("true")))), ErrorCode::InvalidRequest);
    pinfold.crash_and_restart();
    assert!(pinfold.block(chat.show(&deepest.id)).is_ok());
}

#[test]
fn handover() {
    let pinfold = Pinfold::start(PINFOLD);
    let chat = pinfold.client().acting_as("chat", None);
    let child = pinfold.client().acting_as("child", Some("chat"));
    let web = start(&pinfold, &child, sleeper("sleep 300"));
    let ask = |to: Option<&str>, purpose: &str| HandoverRequest { to: to.map(Into::into), purpose: purpose.into() };
    let refused = |request: &HandoverRequest| code(pinfold.block(child.handover(&web.id, request)));
    assert_eq!(refused(&ask(None, " ")), ErrorCode::InvalidRequest);
    assert_eq!(refused(&ask(Some("eve"), "take it")), ErrorCode::NotFound);
    assert_eq!(refused(&ask(Some("a\nb"), "take it")), ErrorCode::InvalidRequest);
    let given = pinfold.block(child.handover(&web.id, &ask(None, "keep the dev server"))).expect("handed over");
    assert_eq!((given.owner.as_str(), given.parent), ("chat", None));
    assert_eq!(code(pinfold.block(child.show(&web.id))), ErrorCode::NotFound);
    pinfold.crash_and_restart();
    assert_eq!(pinfold.block(chat.show(&web.id)).expect("it is chat's").owner, "chat");
    let events = pinfold.block(chat.events(&EventsQuery::default())).expect("events").events;
    let event = events.iter().find(|event| event.kind == EventKind::HandedOver).expect("an event for chat");
    assert_eq!((event.text.as_deref(), event.announce), (Some("keep the dev server"), true));
    pinfold.block(chat.stop(&web.id, &StopRequest::default())).expect("chat may stop it");
    let over = code(pinfold.block(pinfold.client().handover(&web.id, &ask(Some("x"), "y"))));
    assert_eq!(over, ErrorCode::AlreadyOver);
    let without_parent = start(&pinfold, &chat, sleeper("sleep 300"));
    let orphan = code(pinfold.block(chat.handover(&without_parent.id, &ask(None, "up"))));
    assert_eq!(orphan, ErrorCode::InvalidRequest);
}

#[test]
fn owner_end_policy() {
    let pinfold = Pinfold::start(PINFOLD);
    let child = pinfold.client().acting_as("child", Some("chat"));
    let until_end = |lifetime| StartRequest { lifetime: Some(lifetime), ..sleeper("sleep 300 & sleep 300") };
    let stopped = start(&pinfold, &child, until_end(Lifetime::Owner));
    let kept = start(&pinfold, &child, until_end(Lifetime::Keep));
    let handed = start(&pinfold, &child, until_end(Lifetime::Parent));
    let stranger = pinfold.client().acting_as("eve", None);
    let refused = code(pinfold.block(stranger.end_owner("child", &EndRequest::default())));
    assert_eq!(refused, ErrorCode::NotFound);
    let chat = pinfold.client().acting_as("chat", None);
    let ended = pinfold.block(chat.end_owner("child", &EndRequest::default())).expect("ended");
    assert_eq!((ended.stopped, ended.kept), (vec![stopped.id.clone()], vec![kept.id.clone()]));
    assert_eq!((ended.handed_over, ended.survivors), (vec![handed.id.clone()], vec![]));
    let record = pinfold.show(&stopped.id);
    assert_eq!((record.status, record.cause), (Status::Finished, Some(Cause::OwnerEnded)));
    assert_eq!(pinfold.show(&kept.id).status, Status::Running);
    let record = pinfold.show(&handed.id);
    assert_eq!((record.status, record.owner.as_str()), (Status::Running, "chat"));
}

#[test]
fn owner_grace_counts_from_the_last_contact() {
    let pinfold = Pinfold::start(PINFOLD);
    let ann = pinfold.client().acting_as("ann", None);
    let graced =
        StartRequest { lifetime: Some(Lifetime::Owner), owner_grace: Some("4s".into()), ..sleeper("sleep 300") };
    let record = start(&pinfold, &ann, graced.clone());
    // An open request is contact, however long it lasts.
    let wait = WaitQuery { timeout: Some("6s".into()), ..WaitQuery::default() };
    let waited = pinfold.block(ann.wait(&record.id, &wait)).expect("a wait");
    assert_eq!((waited.reason, waited.record.status), (WaitReason::Timeout, Status::Running));
    // The operator's request is not contact of the owner.
    assert_eq!(pinfold.wait_finished(&record.id).cause, Some(Cause::OwnerEnded));
    // For an owner that never had contact the grace counts from the start of the process, not from the start of the
    // daemon, which is earlier.
    let unheard = StartRequest { owner: Some("unheard".into()), ..graced.clone() };
    let record = start(&pinfold, pinfold.client(), unheard);
    let record = pinfold.wait_finished(&record.id);
    let moment = |text: &str| text.parse::<jiff::Timestamp>().expect("a time");
    let lived = moment(record.finished_at.as_deref().expect("an end")).duration_since(moment(&record.created_at));
    assert!(lived.as_secs() >= 2, "it lived for {lived}");
    let senseless = StartRequest { lifetime: None, ..graced };
    assert_eq!(code(pinfold.block(ann.start(&senseless))), ErrorCode::InvalidRequest);
}

#[test]
fn one_visibility_rule() {
    let pinfold = Pinfold::start(PINFOLD);
    let chat = || pinfold.client().acting_as("chat", None);
    let child = || pinfold.client().acting_as("child", Some("chat"));
    let eve = || pinfold.client().acting_as("eve", None);
    let operator = || pinfold.client().clone();
    let makers: [&dyn Fn() -> Client; 4] = [&chat, &child, &eve, &operator];
    let processes: Vec<_> = makers.iter().map(|make| start(&pinfold, &make(), sleeper("sleep 300"))).collect();
    let sees = [[true, true, false, false], [false, true, false, false], [false, false, true, false], [true; 4]];
    for (viewer, make) in makers.iter().enumerate() {
        let client = make();
        let listed = ids(&pinfold, &client);
        for (process, record) in processes.iter().enumerate() {
            let expected = sees[viewer][process];
            let signal = SignalRequest { signal: "CONT".into(), by: None };
            let views = pinfold.block(async {
                [
                    listed.contains(&record.id),
                    client.show(&record.id).await.is_ok(),
                    client.output(&record.id, &OutputQuery::default()).await.is_ok(),
                    client.signal(&record.id, &signal).await.is_ok(),
                ]
            });
            assert_eq!(views, [expected; 4], "viewer {viewer}, process {process}");
        }
    }
}

#[test]
fn wait_unblocked_by_user() {
    let pinfold = Pinfold::start(PINFOLD);
    let ann = pinfold.client().acting_as("ann", None);
    let record = start(&pinfold, &ann, sleeper("sleep 300"));
    let query = WaitQuery { timeout: Some("1h".into()), ..WaitQuery::default() };
    let answer = pinfold.block(async {
        let (client, id) = (ann.clone(), record.id.clone());
        let waiting = tokio::spawn(async move { client.wait(&id, &query).await });
        let released = loop {
            let released = ann.release_owner("ann").await.expect("a release").released;
            if released > 0 {
                break released;
            }
            tokio::task::yield_now().await;
        };
        assert_eq!(released, 1);
        waiting.await.expect("no panic").expect("an answer")
    });
    assert_eq!((answer.reason, answer.record.status), (WaitReason::Cancelled, Status::Running));
    let eve = pinfold.client().acting_as("eve", None);
    assert_eq!(code(pinfold.block(eve.release_owner("ann"))), ErrorCode::NotFound);
}

#[test]
fn owners_are_listed_as_far_as_they_are_seen() {
    let pinfold = Pinfold::start(PINFOLD);
    let child = pinfold.client().acting_as("child", Some("chat"));
    start(&pinfold, &child, sleeper("sleep 300"));
    let chat = pinfold.client().acting_as("chat", None);
    let seen = pinfold.block(chat.owners()).expect("owners").owners;
    let child_seen = seen.iter().find(|owner| owner.owner == "child").expect("the child");
    assert_eq!((child_seen.parent.as_deref(), child_seen.live), (Some("chat"), 1));
    assert!(child_seen.last_contact.is_some());
    let eve = pinfold.client().acting_as("eve", None);
    let seen = pinfold.block(eve.owners()).expect("owners").owners;
    assert!(seen.iter().all(|owner| owner.owner == "eve"), "{seen:?}");
}

#[test]
fn runtime_and_idle_limits() {
    let pinfold = Pinfold::start(PINFOLD);
    let limited = |command: &str| StartRequest { idle_limit: Some("4s".into()), ..sleeper(command) };
    let silent = start(&pinfold, pinfold.client(), limited("echo up; sleep 300 & sleep 300"));
    let talking = start(&pinfold, pinfold.client(), limited("while :; do echo tick; sleep .2; done"));
    let record = pinfold.wait_finished(&silent.id);
    assert_eq!((record.cause, record.tree.len()), (Some(Cause::IdleLimit), 0));
    until("a tick after that", || {
        let before = pinfold.show(&talking.id).output.bytes;
        until_some("more output", || Some(pinfold.show(&talking.id)).filter(|record| record.output.bytes > before));
        true
    });
    assert_eq!(pinfold.show(&talking.id).status, Status::Running);
}
