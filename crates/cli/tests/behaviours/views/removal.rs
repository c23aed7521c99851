//! Removing an ended process and its output.

use pinfold_api::client::ClientError;
use pinfold_api::error::ErrorCode;
use pinfold_api::types::{ListQuery, Removed, Restart, RestartPolicy, StartRequest};
use pinfold_testkit::{Pinfold, until};

use crate::PINFOLD;

/// The status and the error of a removal that is refused.
fn refused(pinfold: &Pinfold, removal: impl Future<Output = Result<Removed, ClientError>>) -> (u16, ErrorCode, String) {
    match pinfold.block(removal) {
        Err(ClientError::Api { status, error }) => (status, error.code, error.message),
        other => panic!("it is not refused: {other:?}"),
    }
}

#[test]
fn an_ended_process_is_removed_with_its_output_and_a_live_one_is_not() {
    let pinfold = Pinfold::start(PINFOLD);
    let id = pinfold.sh("echo kept; exec sleep 600").id;
    let (status, code, advice) = refused(&pinfold, pinfold.client().remove(&id));
    assert_eq!((status, code), (409, ErrorCode::StillRunning));
    assert!(advice.contains(&format!("pinfold stop {id}")), "{advice}");
    pinfold.stop(&id);
    let removed = pinfold.block(pinfold.client().remove(&id)).expect("it is removed");
    assert_eq!(removed.id, id);
    assert!(removed.freed_bytes > 0);
    assert!(!pinfold.directory(&id).exists(), "its directory is gone");
    assert_eq!(pinfold.list(&ListQuery::default()).total, 0);
    assert_eq!(refused(&pinfold, pinfold.client().remove(&id)).1, ErrorCode::NotFound);
    pinfold.crash_and_restart();
    assert_eq!(pinfold.list(&ListQuery::default()).total, 0, "it does not come back");
}

#[test]
fn a_process_that_awaits_its_restart_is_not_removed() {
    let pinfold = Pinfold::start(PINFOLD);
    let policy = RestartPolicy { when: "always".into(), initial: Some("1m".into()), ..RestartPolicy::default() };
    let restart = Some(Restart::Policy(policy));
    let request = StartRequest { command: Some("false".into()), restart, ..StartRequest::default() };
    let id = pinfold.start_request(&request).record.id;
    pinfold.wait_finished(&id);
    until("its restart is due", || pinfold.show(&id).life.is_some_and(|life| life.restarting_at.is_some()));
    let (status, code, advice) = refused(&pinfold, pinfold.client().remove(&id));
    assert_eq!((status, code), (409, ErrorCode::StillRunning));
    assert!(advice.contains("about to be restarted"), "{advice}");
    pinfold.stop(&id);
    pinfold.block(pinfold.client().remove(&id)).expect("after a stop it is removed");
}

#[test]
fn an_owner_removes_only_what_it_sees() {
    let pinfold = Pinfold::start(PINFOLD);
    let mine = pinfold.client().acting_as("mine", None);
    let request = StartRequest { command: Some("true".into()), ..StartRequest::default() };
    let id = pinfold.block(mine.start(&request)).expect("a start").record.id;
    pinfold.wait_finished(&id);
    let other = pinfold.client().acting_as("other", None);
    assert_eq!(refused(&pinfold, other.remove(&id)).1, ErrorCode::NotFound);
    assert!(pinfold.directory(&id).exists());
    pinfold.block(mine.remove(&id)).expect("its own");
}
