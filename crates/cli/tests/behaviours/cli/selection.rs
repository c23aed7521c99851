//! Choosing processes by label, owner and status, and looking at them: `ps` and `stop --label`.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use pinfold_api::types::{ProcessList, Status};
use pinfold_testkit::{Pidfd, Pinfold, Terminal};

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

#[test]
fn ps_watch_shows_each_change_until_it_is_interrupted() {
    let pinfold = Pinfold::start(PINFOLD);
    let mut command = pinfold.command(&["ps", "--watch"]);
    let mut terminal = Terminal::start(command.env("TERM", "xterm"), 24, 80).expect("a terminal");
    terminal.until("no processes");
    let id = start(&pinfold, "ann", ["team=ui", "env=dev"]);
    terminal.until(&id);
    terminal.until("running");
    pinfold.stop(&id);
    terminal.until("finished");
    Pidfd::open(terminal.pid()).expect("it is running").signal(2);
    assert!(!terminal.wait().success());
    let mut lines = pinfold.command(&["ps", "--watch", "--json"]).stdout(Stdio::piped()).spawn().expect("ps");
    let mut first = String::new();
    BufReader::new(lines.stdout.as_mut().expect("stdout")).read_line(&mut first).expect("a line");
    let list: ProcessList = serde_json::from_str(&first).expect("a list");
    assert_eq!(list.processes[0].id, id);
    lines.kill().expect("killed");
    lines.wait().expect("reaped");
}

#[test]
fn ps_keeps_each_process_on_one_line_of_a_terminal() {
    let pinfold = Pinfold::start(PINFOLD);
    start(&pinfold, "a-rather-long-owner", ["team=ui", "env=dev"]);
    pinfold.run("echo a command that is too long for a terminal of eighty columns; exit 7");
    for columns in [40, 80, 200] {
        let mut command = pinfold.command(&["ps"]);
        let mut terminal =
            Terminal::start(command.env("TERM", "xterm").env("NO_COLOR", "1"), 24, columns).expect("a terminal");
        let shown = terminal.until("exec sl");
        assert!(terminal.wait().success());
        let lines: Vec<&str> = shown.lines().map(|line| line.trim_end_matches('\r')).collect();
        assert!(lines.iter().all(|line| line.chars().count() <= usize::from(columns)), "{columns}: {lines:#?}");
        assert_eq!(lines[0].contains("OWNER"), columns > 40, "{lines:#?}");
    }
}
