//! Owners, handovers, tokens and consumers on the command line.

use pinfold_api::types::{
    ConsumerList, EndAnswer, Event, Lifetime, ListQuery, OwnerList, Record, ReleaseAnswer, Started, Status, Token,
    TokenAnswer, TokenList,
};
use pinfold_testkit::{Pinfold, until};
use serde::de::DeserializeOwned;

use crate::PINFOLD;
use crate::clients::Running;

fn document<T: DeserializeOwned>(pinfold: &Pinfold, arguments: &[&str]) -> T {
    let cli = pinfold.cli(&[&["--json"], arguments].concat());
    serde_json::from_str(&cli.stdout).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {cli:?}"))
}

#[test]
fn an_owner_sees_only_its_own_processes() {
    let pinfold = Pinfold::start(PINFOLD);
    let mine = pinfold.cli(&["run", "-d", "--as", "ann", "sleep 300"]).stdout.trim().to_owned();
    let child = pinfold.cli(&["run", "-d", "--owner", "kid", "--parent", "ann", "sleep 300"]).stdout.trim().to_owned();
    let others = pinfold.cli(&["run", "-d", "--owner", "bob", "sleep 300"]).stdout.trim().to_owned();
    assert_eq!(pinfold.show(&mine).owner, "ann");
    let seen = pinfold.cli(&["ps", "--as", "ann"]).stdout;
    assert!(seen.contains(&mine) && seen.contains(&child) && !seen.contains(&others), "{seen}");
    for arguments in [&["show", &others][..], &["logs", &others], &["stop", &others], &["wait", &others]] {
        let cli = pinfold.cli(&[arguments, &["--as", "ann"]].concat());
        assert!(cli.code != Some(0) && cli.stdout.is_empty(), "{arguments:?}: {cli:?}");
    }
    assert_eq!(pinfold.show(&others).status, Status::Running);
    let refused = pinfold.cli(&["daemon", "stop", "--as", "ann"]);
    assert!(refused.code == Some(2) && refused.stderr.contains("--as"), "{refused:?}");
    assert_eq!(pinfold.cli(&["ps", "--as", "no\nname"]).code, Some(2), "never a wider view");
}

/// A command that a managed process runs acts as the owner of that process.
#[test]
fn the_owner_is_handed_down() {
    let pinfold = Pinfold::start(PINFOLD);
    let inner = format!("{PINFOLD} run -d 'sleep 300'");
    let outer = pinfold.cli(&["run", "--owner", "ann", &inner]);
    let id = outer.stdout.trim();
    assert_eq!(pinfold.show(id).owner, "ann", "{outer:?}");
    let asked = pinfold.command(&["run", "-d", "--owner", "bob", "exit 0"]).env("PINFOLD_OWNER", "ann").output();
    let id = String::from_utf8(asked.expect("pinfold").stdout).expect("text");
    assert_eq!(pinfold.show(id.trim()).owner, "bob");
}

#[test]
fn the_options_of_a_process_are_shown() {
    let pinfold = Pinfold::start(PINFOLD);
    let line = "run -d --owner kid --parent ann --lifetime parent --owner-grace 1h --idle-limit 1h --intent tests \
                --notify-pattern ERROR --heartbeat 1h sleep 300";
    let started: Started = document(&pinfold, &line.split_whitespace().collect::<Vec<_>>());
    assert_eq!((started.record.lifetime, started.record.parent.as_deref()), (Lifetime::Parent, Some("ann")));
    let shown = pinfold.cli(&["show", &started.record.id]).stdout;
    for line in ["owner     kid, child of ann", "intent    tests", "lines that match `ERROR`"] {
        assert!(shown.contains(line), "{shown}");
    }
    assert_eq!(pinfold.cli(&["run", "--idle-limit", "100ms", "sleep 300"]).code, Some(143));
}

#[test]
fn owners_are_listed_released_and_ended() {
    let pinfold = Pinfold::start(PINFOLD);
    let run = |arguments: &[&str]| pinfold.cli(&[&["run", "-d"], arguments].concat()).stdout.trim().to_owned();
    let ends = run(&["--owner", "ann", "--lifetime", "owner", "sleep 300"]);
    let stays = run(&["--owner", "ann", "sleep 300"]);
    let list: OwnerList = document(&pinfold, &["owner", "ls"]);
    assert!(list.owners.iter().any(|owner| owner.owner == "ann" && owner.live == 2), "{list:?}");
    assert!(pinfold.cli(&["owner", "ls"]).stdout.starts_with("OWNER"));

    let waiter = Running::start(&pinfold, &["--as", "ann", "wait", &stays]);
    until("the wait is released", || document::<ReleaseAnswer>(&pinfold, &["owner", "release", "ann"]).released == 1);
    assert_eq!(waiter.end().code, Some(124));

    let answer: EndAnswer = document(&pinfold, &["owner", "end", "ann", "--grace", "0"]);
    assert_eq!((answer.stopped, answer.kept), (vec![ends], vec![stays]));
    let again = pinfold.cli(&["owner", "end", "ann"]);
    assert!(again.code == Some(0) && again.stdout.starts_with("ann  ended\n  kept: "), "{again:?}");
}

#[test]
fn a_process_is_handed_over_with_its_purpose() {
    let pinfold = Pinfold::start(PINFOLD);
    let id = pinfold.cli(&["run", "-d", "--owner", "kid", "--parent", "ann", "sleep 300"]).stdout.trim().to_owned();
    let said = pinfold.cli(&["handover", &id, "--purpose", "mind it"]);
    assert_eq!((said.code, said.stdout), (Some(0), format!("{id}  now belongs to ann\n")));
    let record: Record = document(&pinfold, &["handover", &id, "--to", "bob", "--purpose", "mind it too"]);
    assert_eq!(record.owner, "bob");
    let events = pinfold.cli(&["events", "--kinds", "handed_over"]).stdout;
    assert!(events.contains("mind it too") && events.lines().count() == 2, "{events}");
}

#[test]
fn a_consumer_reads_each_event_once() {
    let pinfold = Pinfold::start(PINFOLD);
    (0..3).for_each(|_| drop(pinfold.wait_finished(&pinfold.sh("exit 0").id)));
    let read = |arguments: &[&str]| -> Vec<Event> {
        let line = [&["events", "--json", "--kinds", "announce", "--consumer"], arguments].concat();
        pinfold.cli(&line).stdout.lines().map(|line| serde_json::from_str(line).expect("an event")).collect()
    };
    assert_eq!(read(&["a", "--ack"]).len(), 3);
    assert_eq!(read(&["a", "--ack"]).len(), 0, "acknowledged");
    assert_eq!(read(&["b", "--lease", "1h"]).len(), 3, "each has its own place");
    assert_eq!(read(&["b"]).len(), 0, "leased to the first reader");
    let known: ConsumerList = pinfold.block(pinfold.client().consumers()).expect("consumers");
    let leased: Vec<_> = known.consumers.iter().map(|one| (one.name.as_str(), one.leased_through.is_some())).collect();
    assert_eq!(leased, [("a", false), ("b", true)]);

    let mut follower = Running::start(&pinfold, &["events", "-f", "--consumer", "a", "--ack", "--kinds", "announce"]);
    let id = pinfold.sh("exit 9").id;
    assert!(follower.line().contains(&id), "printed as it happens");
}

#[test]
fn a_token_is_shown_once_and_can_be_revoked() {
    let pinfold = Pinfold::start(PINFOLD);
    let made: TokenAnswer =
        document(&pinfold, &["token", "add", "--owner", "ann", "--label", "laptop", "--expires", "1h"]);
    assert!(made.token.len() > 20 && made.shown.owner.as_deref() == Some("ann"), "{made:?}");
    let bare = pinfold.cli(&["token", "add"]);
    assert!(bare.code == Some(0) && bare.stdout.lines().count() == 1, "{bare:?}");
    let listed = pinfold.cli(&["token", "ls"]).stdout;
    assert!(listed.contains("laptop") && listed.contains("(operator)") && !listed.contains(&made.token), "{listed}");
    let revoked: Token = document(&pinfold, &["token", "revoke", &made.shown.id]);
    assert_eq!(revoked.id, made.shown.id);
    assert_eq!(document::<TokenList>(&pinfold, &["token", "ls"]).tokens.len(), 1);
    assert_eq!(pinfold.cli(&["token", "revoke", &made.shown.id]).code, Some(2));
    assert_eq!(pinfold.list(&ListQuery::default()).total, 0);
}
