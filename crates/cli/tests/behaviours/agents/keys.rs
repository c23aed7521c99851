//! One idempotency key gives one agent.

use std::collections::HashSet;

use pinfold_api::client::ClientError;
use pinfold_api::error::ErrorCode;
use pinfold_api::types::{AgentListQuery, AgentMode, AgentRequest};
use pinfold_testkit::{Pidfd, until};
use tokio::task::JoinSet;

use super::Host;

fn keyed(host: &Host) -> AgentRequest {
    AgentRequest { idempotency_key: Some("once".into()), ..host.request() }
}

fn all(host: &Host) -> HashSet<String> {
    let query = AgentListQuery { all: Some(true), ..AgentListQuery::default() };
    let agents = host.pinfold.block(host.pinfold.client().agents(&query)).expect("a list").agents;
    agents.into_iter().map(|agent| agent.id).collect()
}

/// The ids in the responses to this many concurrent requests, without requests that the daemon did not answer.
fn host_at_once(host: &Host, request: &AgentRequest, count: usize) -> HashSet<String> {
    host.pinfold.block(async {
        let mut requests = JoinSet::new();
        for _ in 0..count {
            let (client, request) = (host.pinfold.client().clone(), request.clone());
            requests.spawn(async move { client.host_agent(&request).await });
        }
        let mut ids = HashSet::new();
        for answer in requests.join_all().await {
            match answer {
                Ok(agent) => drop(ids.insert(agent.id)),
                Err(ClientError::Api { error, .. }) => panic!("{error}"),
                Err(_) => {}
            }
        }
        ids
    })
}

#[test]
fn requests_at_once_with_one_key_host_one_agent() {
    let host = Host::start();
    for request in
        [keyed(&host), AgentRequest { mode: Some(AgentMode::Fresh), owner: Some("ann".into()), ..keyed(&host) }]
    {
        let before = all(&host);
        let ids = host_at_once(&host, &request, 20);
        assert_eq!(ids.len(), 1, "{ids:?}");
        let after = all(&host);
        assert_eq!(after.difference(&before).cloned().collect::<HashSet<_>>(), ids);
    }
}

#[test]
fn the_same_key_with_another_request_is_refused_also_after_a_crash() {
    let host = Host::start();
    let agent = host.host(&keyed(&host));
    for crashed in [false, true] {
        let others = [
            AgentRequest { kind: "claude".into(), ..keyed(&host) },
            AgentRequest { model: Some("other".into()), ..keyed(&host) },
            AgentRequest { args: vec!["--more".into()], ..keyed(&host) },
            AgentRequest { mode: Some(AgentMode::Fresh), ..keyed(&host) },
            AgentRequest { cwd: Some("/".into()), ..keyed(&host) },
        ];
        for other in others {
            let error = host.try_host(&other).expect_err("another agent");
            assert_eq!((error.code, error.id.as_deref()), (ErrorCode::KeyReused, Some(agent.id.as_str())), "{crashed}");
        }
        assert_eq!(host.host(&keyed(&host)).id, agent.id);
        assert_eq!(all(&host).len(), 1);
        host.pinfold.crash_and_restart();
    }
    for bad in [String::new(), "k".repeat(201)] {
        let error = host.try_host(&AgentRequest { idempotency_key: Some(bad), ..host.request() }).expect_err("no key");
        assert_eq!(error.code, ErrorCode::InvalidRequest);
    }
}

#[test]
fn a_daemon_that_is_killed_among_requests_leaves_one_agent() {
    let host = Host::start();
    let pid = host.pinfold.daemon_pid();
    let daemon = Pidfd::open(pid).expect("the daemon lives");
    let agents = host.pinfold.home().join("agents");
    let answered = std::thread::scope(|scope| {
        scope.spawn(|| {
            until("an agent is being made", || agents.exists());
            daemon.kill();
        });
        host_at_once(&host, &keyed(&host), 10)
    });
    host.pinfold.start_daemon();
    let again = host_at_once(&host, &keyed(&host), 10);
    assert_eq!(again.len(), 1, "{again:?}");
    assert!(answered.is_subset(&again), "{answered:?} {again:?}");
    assert_eq!(all(&host), again);
}
