//! Trees that fork. Each fork bomb here is also bounded by itself or by a cgroup controller, in case pinfold fails to
//! stop it.

use pinfold_api::types::{Cause, Outcome, Record, StartRequest};
use pinfold_testkit::Pinfold;

use super::{ended, kept_by_controller};
use crate::PINFOLD;
use crate::clients::carriers_of;
use crate::containment::with_each_containment;
use crate::records::intent;
use crate::requests::request;

fn limited(command: &str) -> StartRequest {
    StartRequest { pids_limit: Some(40), time_limit: Some("60s".into()), ..request(command) }
}

/// Doubles seven times, then waits.
const DOUBLING: &str = "f() { [ $1 -gt 0 ] || exec sleep 300; f $(($1-1)) & f $(($1-1)) & wait; }; f 7; exit 0";

/// As the cause; or as a note, if the fork of the leader was refused and it exited before the stop.
fn mentions_the_limit(record: &Record) -> bool {
    let noted = record.note.as_deref().is_some_and(|note| note.contains("pids_limit of 40"));
    record.cause == Some(Cause::PidsLimit) || noted
}

#[test]
fn a_tree_that_forks_beyond_its_limit_is_stopped() {
    with_each_containment(|pinfold| {
        let record = ended(pinfold, &pinfold.start_request(&limited(DOUBLING)).record);
        assert!(mentions_the_limit(&record), "{record:?}");
        assert_eq!(carriers_of(&intent(pinfold, &record.id).mark), Vec::<u32>::new());
        let (_, text) = pinfold.run("echo usable");
        assert_eq!(text, "usable\n");
    });
}

/// The leader of this one exits at once; its strays are stopped, and that is noted.
#[test]
fn a_fork_bomb_leaves_the_machine_usable_and_is_stopped() {
    with_each_containment(|pinfold| {
        let bomb = match kept_by_controller(pinfold, "pids_limit") {
            // A cgroup controller bounds the real fork bomb, whatever the keeper does.
            true => "bomb() { bomb | bomb & }; bomb".to_owned(),
            false => "bomb() { [ $1 -gt 0 ] || exec sleep 300; bomb $(($1-1)) | bomb $(($1-1)) & }; bomb 7".to_owned(),
        };
        let record = pinfold.start_request(&limited(&bomb)).record;
        let record = pinfold.wait_finished(&record.id);
        assert!(mentions_the_limit(&record), "{record:?}");
        assert_eq!(carriers_of(&intent(pinfold, &record.id).mark), Vec::<u32>::new());
        let (_, text) = pinfold.run("echo usable");
        assert_eq!(text, "usable\n");
    });
}

#[test]
fn a_tree_within_its_limit_is_left_alone() {
    with_each_containment(|pinfold| {
        let command =
            "i=0; while [ $i -lt 100 ]; do (exit 0) & wait; i=$((i+1)); done; sleep 0.3 & sleep 0.3 & wait; exit 4";
        let record = pinfold.wait_finished(&pinfold.start_request(&limited(command)).record.id);
        assert_eq!((record.outcome, record.cause), (Some(Outcome::Exited { code: 4 }), Some(Cause::OnItsOwn)));
        assert_eq!(record.note, None);
    });
}

/// Each generation starts the next and exits: the tree is never empty, and no member is missed.
#[test]
fn a_tree_whose_members_replace_each_other_is_not_considered_empty() {
    let chain = "f() { [ $1 -gt 0 ] && { f $(($1-1)) & exit 0; }; echo last; }; f 900";
    let pinfold = Pinfold::start_without_cgroup(PINFOLD);
    for _ in 0..3 {
        let record = pinfold.wait_finished(&pinfold.sh(chain).id);
        assert_eq!(pinfold.text(&record.id), "last\n", "{record:?}");
    }
}
