//! `logs` of several processes and of a range of time.

use std::process::Stdio;

use pinfold_api::types::{Record, StartRequest};
use pinfold_testkit::Pinfold;
use serde_json::Value;

use crate::PINFOLD;
use crate::requests::{Gate, request, until_said};

/// Longer than the resolution of the times of output.
const PAUSE: &str = "sleep 0.3";

fn named(pinfold: &Pinfold, name: &str, command: &str) -> Record {
    pinfold.start_request(&StartRequest { name: Some(name.into()), ..request(command) }).record
}

/// `web` writes first and last, `db` in between; both have ended.
fn two_processes(pinfold: &Pinfold) -> [Record; 2] {
    let gate = Gate::new(pinfold, "last");
    let web = named(pinfold, "web", &format!("echo one; {}; {PAUSE}; printf '\\033[31mthree\\033[0m'", gate.wait()));
    until_said(pinfold, &web.id, "^one$");
    let db = named(pinfold, "db", &format!("{PAUSE}; echo two"));
    pinfold.wait_finished(&db.id);
    gate.open();
    pinfold.wait_finished(&web.id);
    [web, db]
}

#[test]
fn lines_of_several_processes_are_printed_in_the_order_of_their_arrival() {
    let pinfold = Pinfold::start(PINFOLD);
    let [web, db] = two_processes(&pinfold);
    let logs = pinfold.cli(&["logs", "web", "db"]);
    assert_eq!((logs.code, logs.stdout.as_str()), (Some(0), "web | one\ndb  | two\nweb | three\n"), "{logs:?}");
    let json = pinfold.cli(&["logs", "--json", "db", "web", &db.id]).stdout;
    let lines: Vec<Value> = json.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let of = |line: &Value| format!("{} {}", line["id"].as_str().unwrap_or(""), line["line"].as_str().unwrap_or(""));
    let expected = [(&web, "one"), (&db, "two"), (&web, "three")].map(|(of, line)| format!("{} {line}", of.id));
    assert_eq!(lines.iter().map(of).collect::<Vec<_>>(), expected);
    let timed = pinfold.cli(&["logs", "--times", "--tail", "1", "web", "db"]).stdout;
    assert!(timed.starts_with("db  | 20") && timed.lines().count() == 2, "{timed}");
    for option in ["--grep=x", "--cursor=1", "--budget=4k", "--raw"] {
        let refused = pinfold.cli(&["logs", option, "web", "db"]);
        assert!(refused.code == Some(2) && refused.stderr.contains("works with one process"), "{refused:?}");
    }
    let many: Vec<&str> = std::iter::once("logs").chain(std::iter::repeat_n("web", 33)).collect();
    assert!(pinfold.cli(&many).stderr.contains("at most 32"));
}

#[test]
fn several_processes_are_followed_until_all_have_closed_their_output() {
    let pinfold = Pinfold::start(PINFOLD);
    let gate = Gate::new(&pinfold, "go");
    named(&pinfold, "web", &format!("printf be; {}; echo gin; echo end", gate.wait()));
    named(&pinfold, "db", &format!("echo up; {}; printf down", gate.wait()));
    let follow = pinfold.command(&["logs", "-f", "web", "db"]).stdout(Stdio::piped()).spawn().expect("logs");
    until_said(&pinfold, "db", "^up$");
    gate.open();
    let output = follow.wait_with_output().expect("it ends by itself");
    let mut lines: Vec<_> = std::str::from_utf8(&output.stdout).expect("text").lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["db  | down", "db  | up", "web | begin", "web | end"]);
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn since_and_until_choose_a_range_of_time() {
    let pinfold = Pinfold::start(PINFOLD);
    let command = format!("echo one; {PAUSE}; echo two; {PAUSE}; echo three");
    let id = named(&pinfold, "web", &command).id;
    pinfold.wait_finished(&id);
    let times = pinfold.cli(&["logs", "--times", "web"]).stdout;
    let times: Vec<&str> = times.lines().filter_map(|line| line.split(' ').next()).collect();
    let logs = |options: &[&str]| pinfold.cli(&[&["logs", "web"], options].concat()).stdout;
    assert_eq!(logs(&["--since", times[1]]), "two\nthree\n");
    assert_eq!(logs(&["--until", times[2]]), "one\ntwo\n");
    assert_eq!(logs(&["--since", times[1], "--until", times[2]]), "two\n");
    assert_eq!(logs(&["--since", times[2], "--until", times[1]]), "");
    assert_eq!(logs(&["--since", "1d", "--until", times[2], "--grep", "t"]), "two\n");
    assert_eq!(logs(&["--until", times[1], "--strip-ansi"]), "one\n");
    assert_eq!(logs(&["--since", "0s"]), "");
    assert_eq!(logs(&["--until", "1d"]), "");
    let both = pinfold.cli(&["logs", "web", &named(&pinfold, "b", "echo b").id, "--since", times[2]]).stdout;
    assert!(both.contains("web | three\n") && !both.contains("two"), "{both}");
    for option in ["--since", "--until"] {
        let refused = pinfold.cli(&["logs", "web", option, "yesterday"]);
        let expected = format!("{option} `yesterday`: write a time such as");
        assert!(refused.code == Some(2) && refused.stderr.contains(&expected), "{refused:?}");
    }
}
