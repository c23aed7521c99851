//! `stats` counts what the stored records say.

use pinfold_testkit::Pinfold;
use serde_json::Value;

use crate::PINFOLD;

fn stats(pinfold: &Pinfold, arguments: &[&str]) -> Value {
    let cli = pinfold.cli(&[&["--json", "stats"], arguments].concat());
    assert_eq!(cli.code, Some(0), "{}", cli.stderr);
    serde_json::from_str(&cli.stdout).expect("JSON")
}

#[test]
fn stats_counts_processes_by_outcome_and_owner() {
    let pinfold = Pinfold::start(PINFOLD);
    assert_eq!(stats(&pinfold, &[])["total"]["runs"], 0);
    for command in ["true", "exit 3", "exit 3", "kill -9 $$"] {
        let id = pinfold.run(command).0.id;
        pinfold.wait_finished(&id);
    }
    let ann = pinfold.cli(&["run", "-d", "--owner", "ann", "sleep 300"]).stdout;
    let stopped = pinfold.sh("sleep 300").id;
    pinfold.cli(&["stop", &stopped]);
    let all = stats(&pinfold, &[]);
    let total = &all["total"];
    let counts = ["runs", "live", "failed", "stopped", "lost"].map(|name| total[name].as_u64().expect("a count"));
    assert_eq!(counts, [6, 1, 3, 1, 0], "{all}");
    assert_eq!(all["failing_commands"][0], serde_json::json!({ "name": "exit 3", "count": 2 }));
    assert_eq!(all["longest"]["id"], stopped.as_str(), "of those that have exited");
    let of_ann = stats(&pinfold, &["--owner", "ann"]);
    assert_eq!((&of_ann["total"]["runs"], &of_ann["total"]["live"]), (&1.into(), &1.into()));
    assert_eq!(of_ann["owners"], serde_json::json!([{ "name": "ann", "count": 1 }]));
    let text = pinfold.cli(&["stats"]).stdout;
    assert!(text.contains("RUNS") && text.contains("busiest owners") && text.contains("ann"), "{text}");
    pinfold.cli(&["stop", ann.trim()]);
}

#[test]
fn stats_of_a_bad_time_says_what_a_time_is() {
    let pinfold = Pinfold::start(PINFOLD);
    let cli = pinfold.cli(&["stats", "--since", "moonrise"]);
    assert!(cli.code == Some(2) && cli.stderr.contains("moonrise"), "{cli:?}");
}
