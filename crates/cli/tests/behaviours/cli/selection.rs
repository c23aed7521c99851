//! Choosing processes by label, owner and status: `ps -q` and `stop --label`.

use pinfold_api::types::Status;
use pinfold_testkit::Pinfold;

use crate::PINFOLD;

fn start(pinfold: &Pinfold, owner: &str, labels: [&str; 2]) -> String {
    let [team, env] = labels;
    let line = ["run", "-d", "--owner", owner, "--label", team, "--label", env, "exec sleep 300"];
    pinfold.cli(&line).stdout.trim().to_owned()
}

#[test]
fn ps_quiet_prints_ids_that_other_commands_take() {
    let pinfold = Pinfold::start(PINFOLD);
    assert_eq!(pinfold.cli(&["ps", "-q"]).stdout, "");
    let ended = pinfold.run("exit 0").0.id;
    pinfold.wait_finished(&ended);
    let live = [start(&pinfold, "ann", ["team=ui", "env=dev"]), start(&pinfold, "ann", ["team=ui", "env=live"])];
    assert_eq!(pinfold.cli(&["ps", "-q", "--status", "ended"]).stdout, format!("{ended}\n"));
    let both = pinfold.cli(&["ps", "--quiet", "--label", "team=ui", "--label", "env=dev"]);
    assert_eq!(both.stdout, format!("{}\n", live[0]));
    let ids = pinfold.cli(&["ps", "-q", "--status", "live"]).stdout;
    assert_eq!(ids.lines().count(), 2);
    let stop: Vec<_> = ["stop"].into_iter().chain(ids.lines()).collect();
    assert_eq!(pinfold.cli(&stop).code, Some(0));
    assert_eq!(pinfold.cli(&["ps", "-q", "--status", "live"]).stdout, "");
    let refused = pinfold.cli(&["ps", "-q", "--json"]);
    assert!(refused.code == Some(2) && refused.stderr.contains("--quiet"), "{refused:?}");
}

#[test]
fn stop_by_label_stops_only_what_has_all_labels() {
    let pinfold = Pinfold::start(PINFOLD);
    let dev = start(&pinfold, "ann", ["team=ui", "env=dev"]);
    let other_owner = start(&pinfold, "bob", ["team=ui", "env=dev"]);
    let other_label = start(&pinfold, "ann", ["team=ui", "env=live"]);
    let stop = |more: &[&str]| pinfold.cli(&[&["stop", "--label", "team=ui"], more].concat());
    let stopped = stop(&["--label", "env=dev", "--owner", "ann"]);
    assert_eq!((stopped.code, stopped.stdout.lines().count()), (Some(0), 1), "{stopped:?}");
    assert!(stopped.stdout.contains(&dev), "{stopped:?}");
    for id in [&other_owner, &other_label] {
        assert_eq!(pinfold.show(id).status, Status::Running);
    }
    assert_eq!(stop(&[]).stdout.lines().count(), 2);
    let nothing = stop(&[]);
    assert!(nothing.code == Some(0) && nothing.stderr.contains("nothing to stop"), "{nothing:?}");
    let refused = pinfold.cli(&["stop", "--label", "team"]);
    assert!(refused.code == Some(2) && refused.stderr.contains("team"), "{refused:?}");
}
