//! Escape sequences in the text of processes and other owners do not reach the terminal of a user who views it.

use std::collections::BTreeMap;

use pinfold_api::types::{StartRequest, StopRequest};
use pinfold_testkit::{Pinfold, Terminal};

use crate::PINFOLD;

/// Clears the screen, sets a title, moves the cursor up; a C1 control; reverses the direction of text.
const EVIL: &str = "\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}1A\u{202e}gnp.txt\u{2066}";

fn has_control_sequences(text: &str) -> bool {
    ["\u{1b}[2J", "\u{1b}]0", "\u{7}", "\u{9b}", "\u{202e}", "\u{2066}"].iter().any(|evil| text.contains(evil))
}

#[test]
fn nothing_that_is_shown_contains_control_sequences() {
    let pinfold = Pinfold::start(PINFOLD);
    let cwd = pinfold.home().join(format!("work{EVIL}"));
    std::fs::create_dir(&cwd).expect("a directory");
    let request = StartRequest {
        command: Some(format!("sleep 300 # {EVIL}")),
        cwd: Some(cwd.to_string_lossy().into_owned()),
        intent: Some(format!("for {EVIL}")),
        labels: BTreeMap::from([("key".into(), format!("value{EVIL}"))]),
        ..StartRequest::default()
    };
    let id = pinfold.start_request(&request).record.id;
    let broken =
        StartRequest { command: Some("true".into()), cwd: Some(format!("/no{EVIL}")), ..StartRequest::default() };
    assert!(pinfold.try_start(&broken).is_err());
    let by = StopRequest { by: Some(format!("me{EVIL}")), ..StopRequest::default() };
    let over = pinfold.start_request(&request).record.id;
    pinfold.stop_request(&over, &by);
    let odd = format!("x{EVIL}");
    let looks: Vec<Vec<&str>> = vec![
        vec!["show", &id],
        vec!["show", &over],
        vec!["ps", "--all"],
        vec!["events"],
        vec!["wait", &over],
        vec!["stop", &over],
        vec!["show", &odd],
        vec!["run", "--cwd", &odd, "true"],
        vec!["logs", &odd],
        vec!["--json", "show", &id],
        vec!["--json", "show", &odd],
        vec!["--json", "ps", "--all"],
    ];
    for look in looks {
        let cli = pinfold.cli(&look);
        for text in [&cli.stdout, &cli.stderr] {
            assert!(!has_control_sequences(text), "{look:?}: {text:?}");
        }
        let mut terminal = Terminal::start(&mut pinfold.command(&look), 40, 200).expect("a terminal");
        let parts = std::iter::from_fn(|| Some(terminal.read()).filter(|part| !part.is_empty()));
        let shown = String::from_utf8_lossy(&parts.flatten().collect::<Vec<u8>>()).into_owned();
        assert!(!has_control_sequences(&shown) && !shown.is_empty(), "{look:?}: {shown:?}");
    }
    let shown = pinfold.cli(&["show", &id]).stdout;
    assert!(shown.contains("\\x1b[2J") && shown.contains("\\u{202e}"), "{shown}");
}
