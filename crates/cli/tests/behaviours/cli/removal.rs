//! `rm` removes ended processes, and live ones only with `--force`.

use pinfold_api::types::{ListQuery, Removed};
use pinfold_testkit::{Pinfold, alive};

use crate::PINFOLD;

#[test]
fn rm_removes_what_ended_and_reports_what_it_cannot_remove() {
    let pinfold = Pinfold::start(PINFOLD);
    let (first, second, live) = (pinfold.run("echo a").0.id, pinfold.run("exit 3").0.id, pinfold.sh("sleep 300").id);
    for id in [&first, &second] {
        pinfold.wait_finished(id);
    }
    let cli = pinfold.cli(&["rm", &first, &live, "no-such-process", &second]);
    assert_eq!(cli.code, Some(2), "{cli:?}");
    assert!(cli.stdout.contains(&first) && cli.stdout.contains(&second) && !cli.stdout.contains(&live), "{cli:?}");
    assert!(cli.stderr.contains(&format!("pinfold stop {live}")) && cli.stderr.contains("--force"), "{cli:?}");
    assert!(cli.stderr.contains("no-such-process"), "{cli:?}");
    assert!(!pinfold.directory(&first).exists() && !pinfold.directory(&second).exists());
    assert_eq!(pinfold.list(&ListQuery::default()).total, 1);
}

#[test]
fn rm_force_stops_the_whole_tree_and_then_removes_it() {
    let pinfold = Pinfold::start(PINFOLD);
    let started = pinfold.cli(&["run", "-d", "--name", "web", "setsid sleep 300 & wait"]);
    let id = started.stdout.trim().to_owned();
    let pids = pinfold.until_tree(&id, 2);
    let cli = pinfold.cli(&["rm", "--json", "-f", "web"]);
    assert_eq!((cli.code, cli.stderr.as_str()), (Some(0), ""));
    let removed: Removed = serde_json::from_str(&cli.stdout).expect("one object");
    assert_eq!(removed.id, id);
    assert!(!pids.into_iter().any(alive) && !pinfold.directory(&id).exists());
    assert_eq!(pinfold.cli(&["show", "web"]).code, Some(2));
}
