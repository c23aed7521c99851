//! Every way out is tried on every ground: nobody survives a stop, or the kernel's reason is known and he is named.

use pinfold_testkit::escapes::{WAYS, attempt};
use pinfold_testkit::ground::{Containment, Ground, User};

use crate::PINFOLD;

fn nobody_gets_away(user: User, containment: Containment) {
    let ground = Ground { user, containment };
    let grounded = match ground.try_start(PINFOLD) {
        Ok(grounded) => grounded,
        Err(reason) => return println!("skipped: {ground}: {reason}"),
    };
    let mut wrong = Vec::new();
    for way in WAYS {
        let result = attempt(way, &grounded);
        println!("{ground}: {}: {result:?}", way.name);
        if !result.is_right(way, ground) {
            wrong.push((way.name, result));
        }
    }
    assert!(wrong.is_empty(), "{ground}: {wrong:#?}");
}

#[test]
fn no_escape_from_root_with_a_cgroup() {
    nobody_gets_away(User::Root, Containment::Cgroup);
}

#[test]
fn no_escape_from_root_without_a_cgroup() {
    nobody_gets_away(User::Root, Containment::Walk);
}

#[test]
fn no_escape_from_an_ordinary_user_with_a_cgroup() {
    nobody_gets_away(User::Ordinary, Containment::Cgroup);
}

#[test]
fn no_escape_from_an_ordinary_user_without_a_cgroup() {
    nobody_gets_away(User::Ordinary, Containment::Walk);
}
