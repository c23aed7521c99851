//! Real programs on a terminal, as a model or a person would use them. One that is not installed is skipped, in a line
//! that says so.

use pinfold_api::types::{InputRequest, Outcome, ResizeRequest, StartRequest};
use pinfold_testkit::{Pinfold, until};
use serde_json::json;

use super::{eof, has, input, keys, line, on_terminal, screen, text, until_shown};
use crate::PINFOLD;
use crate::mcp::agent::Agent;

/// Starts a program on a terminal, with the C locale and no history file.
fn start(pinfold: &Pinfold, command: &str) -> String {
    let env = [("LC_ALL", Some("C.UTF-8")), ("HISTFILE", Some("/dev/null")), ("PYTHON_HISTORY", Some("/dev/null"))];
    let env = env.map(|(name, value)| (name.to_owned(), value.map(str::to_owned)));
    pinfold.start_request(&StartRequest { env: env.into(), ..on_terminal(command) }).record.id
}

#[test]
fn repl_roundtrip() {
    if !has("python3") {
        return;
    }
    let pinfold = Pinfold::start(PINFOLD);
    let id = start(&pinfold, "exec python3 -q");
    until_shown(&pinfold, &id, ">>>");
    input(&pinfold, &id, &line("print(6 * 7, 'é')"));
    until_shown(&pinfold, &id, "42 é");
    pinfold.crash_and_restart();
    input(&pinfold, &id, &line("x = 5"));
    input(&pinfold, &id, &line("'x' * x"));
    until_shown(&pinfold, &id, "'xxxxx'");
    input(&pinfold, &id, &eof());
    assert_eq!(pinfold.wait_finished(&id).outcome, Some(Outcome::Exited { code: 0 }));
}

#[test]
fn bash_has_its_history_and_job_control() {
    if !has("bash") {
        return;
    }
    let pinfold = Pinfold::start(PINFOLD);
    let id = start(&pinfold, "PS1='$ ' exec bash --norc --noprofile -i");
    until_shown(&pinfold, &id, "$");
    input(&pinfold, &id, &line("echo one-$((1 + 1))"));
    until_shown(&pinfold, &id, "one-2");
    input(&pinfold, &id, &keys(&["up", "left", "left", "backspace"]));
    input(&pinfold, &id, &line("5"));
    until_shown(&pinfold, &id, "one-6");
    input(&pinfold, &id, &line("sleep 300"));
    // Before exec it is still a copy of the shell, which Ctrl-Z does not stop.
    until("it sleeps", || pinfold.show(&id).tree.iter().any(|member| member.command.starts_with("sleep")));
    input(&pinfold, &id, &keys(&["ctrl+z"]));
    until_shown(&pinfold, &id, "Stopped");
    assert!(!pinfold.text(&id).contains("no job control"), "{}", pinfold.text(&id));
    assert!(pinfold.stop(&id).survivors.is_empty());
}

#[test]
fn vim_edits_and_saves() {
    if !has("vi") {
        return;
    }
    let pinfold = Pinfold::start(PINFOLD);
    let file = pinfold.home().join("edited.txt");
    std::fs::write(&file, "first\nsecond\nthird\n").expect("a file");
    let mut agent = Agent::connect(&pinfold);
    let command = format!("exec vi -u NONE -N -i NONE {}", file.display());
    let started = agent.call("execute", json!({ "command": command, "pty": true, "background": true }));
    let id = started.id().to_owned();
    until_shown(&pinfold, &id, "third");
    assert!(screen(&pinfold, &id).alternate);
    let called = agent.call("process_input", json!({ "id": id, "keys": ["down", "d", "d", "o"], "text": "" }));
    let shown = called.facts["screen"].as_str().unwrap_or_else(|| panic!("no screen: {}", called.text));
    assert!(shown.starts_with("first\nthird\n") && !shown.contains("second"), "{}", called.text);
    assert_eq!(called.facts["screen_cursor"], json!([3, 1]), "{}", called.text);
    input(&pinfold, &id, &InputRequest { text: Some("a new line".into()), ..keys(&["esc"]) });
    input(&pinfold, &id, &line(":wq"));
    assert_eq!(pinfold.wait_finished(&id).outcome, Some(Outcome::Exited { code: 0 }));
    assert_eq!(std::fs::read_to_string(&file).expect("it is saved"), "first\nthird\na new line\n");
}

#[test]
fn less_pages_and_quits() {
    if !has("less") {
        return;
    }
    let pinfold = Pinfold::start(PINFOLD);
    let id = start(&pinfold, "seq 1 500 | LESS= less");
    assert_eq!(until_shown(&pinfold, &id, "23").lines[0], "1");
    input(&pinfold, &id, &keys(&["space"]));
    until_shown(&pinfold, &id, "46");
    input(&pinfold, &id, &keys(&["down"]));
    until_shown(&pinfold, &id, "47");
    input(&pinfold, &id, &line("/^333"));
    assert_eq!(until_shown(&pinfold, &id, "333").lines[0], "333");
    input(&pinfold, &id, &text("q"));
    assert_eq!(pinfold.wait_finished(&id).outcome, Some(Outcome::Exited { code: 0 }));
}

#[test]
fn gdb_stops_at_a_breakpoint() {
    if !has("gdb") {
        return;
    }
    let pinfold = Pinfold::start(PINFOLD);
    let id = start(&pinfold, "exec gdb -q -nx");
    until_shown(&pinfold, &id, "(gdb)");
    input(&pinfold, &id, &line("print 6 * 7"));
    until_shown(&pinfold, &id, "$1 = 42");
    input(&pinfold, &id, &line("quit"));
    assert_eq!(pinfold.wait_finished(&id).outcome, Some(Outcome::Exited { code: 0 }));
}

#[test]
fn top_redraws_in_its_new_size() {
    if !has("top") {
        return;
    }
    let pinfold = Pinfold::start(PINFOLD);
    let id = start(&pinfold, "exec top -d 300");
    until_shown(&pinfold, &id, "PID");
    let asked = ResizeRequest { rows: 12, cols: 60 };
    pinfold.block(pinfold.client().resize(&id, &asked)).expect("a size");
    until("it has redrawn", || {
        let shown = screen(&pinfold, &id);
        shown.lines.len() <= 12 && shown.lines.iter().any(|line| line.contains("PID"))
    });
    input(&pinfold, &id, &text("q"));
    assert_eq!(pinfold.wait_finished(&id).outcome, Some(Outcome::Exited { code: 0 }));
}

#[test]
fn psql_asks_for_a_password_without_showing_it() {
    if !has("psql") {
        return;
    }
    let pinfold = Pinfold::start(PINFOLD);
    let id = start(&pinfold, "psql -h 127.0.0.1 -p 1 -W; echo ended");
    until_shown(&pinfold, &id, "Password");
    input(&pinfold, &id, &line("s3cret"));
    until_shown(&pinfold, &id, "ended");
    assert!(!pinfold.text(&id).contains("s3cret"), "{}", pinfold.text(&id));
}

#[test]
fn a_dialog_is_answered_by_keys() {
    let dialog = ["dialog", "whiptail"].into_iter().find(|program| has(program));
    let Some(dialog) = dialog else { return };
    let pinfold = Pinfold::start(PINFOLD);
    let id = start(&pinfold, &format!("{dialog} --yesno Proceed 8 40; echo; echo answer=$?"));
    until_shown(&pinfold, &id, "Proceed");
    input(&pinfold, &id, &keys(&["tab", "enter"]));
    pinfold.wait_finished(&id);
}
