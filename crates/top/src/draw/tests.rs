//! Screens as a terminal shows them, at several sizes. The expected ones are in `snapshots/`.

use pinfold_api::plain::is_steering;
use serde_json::json;

use super::*;
use crate::log::window::Piece;
use crate::message::{AttachNews, LogRead, Message, RawPiece, Snapshot};
use crate::testing::{agent, ask, assert_snapshot, drawn, event, now, press, record, shown, snapshot, state};
use crate::update::update;

fn with_log(mut state: State, text: &str) -> State {
    press(&mut state, "\n");
    let length = text.len() as u64;
    let piece = Piece { at: 0, bytes: text.into(), after_gap: false };
    let result = Ok(RawPiece { piece, next: length, end: length, closed: true });
    let View::Log(log) = state.view() else { panic!("no log") };
    let token = log.token;
    update(&mut state, Message::LogWasRead { token, read: LogRead::Tail, result });
    state
}

const LOG: &str = "listening on 3000\nGET / 200\nGET /favicon.ico 404 a long line that has to be wrapped somewhere, because \
                   no terminal of this test is as wide as it is, not even the widest one\n\x1b[31merror\x1b[0m: boom\n\tindented\n";

#[test]
fn the_list_at_every_size() {
    for (columns, rows) in [(40, 12), (80, 24), (120, 30), (200, 20)] {
        assert_snapshot(&format!("processes-{columns}x{rows}"), &state(columns, rows));
    }
}

#[test]
fn logs_at_every_size() {
    for (columns, rows) in [(40, 12), (80, 24)] {
        assert_snapshot(&format!("log-{columns}x{rows}"), &with_log(state(columns, rows), LOG));
    }
    let mut unwrapped = with_log(state(40, 12), LOG);
    press(&mut unwrapped, "wl");
    assert_snapshot("log-unwrapped-40x12", &unwrapped);
}

#[test]
fn every_list_at_every_size() {
    for (columns, rows) in [(40, 12), (80, 24)] {
        let mut inbox = state(columns, rows);
        press(&mut inbox, "2");
        assert_snapshot(&format!("inbox-{columns}x{rows}"), &inbox);
        press(&mut inbox, "!!");
        assert_snapshot(&format!("inbox-failed-{columns}x{rows}"), &inbox);
        let mut agents = state(columns, rows);
        press(&mut agents, "3");
        assert_snapshot(&format!("agents-{columns}x{rows}"), &agents);
        let mut events = state(columns, rows);
        let happened = vec![
            event(1, "started", json!({})),
            event(2, "waiting_for_input", json!({ "process": "w8t", "text": "package name: (x)" })),
            event(3, "finished", json!({ "process": "f41l", "outcome": { "kind": "exited", "code": 2 } })),
        ];
        update(&mut events, Message::EventsHappened(happened));
        press(&mut events, "4");
        assert_snapshot(&format!("events-{columns}x{rows}"), &events);
        let mut help = state(columns, rows);
        press(&mut help, "?");
        assert_snapshot(&format!("help-{columns}x{rows}"), &help);
        let mut palette = state(columns, rows);
        press(&mut palette, ":st");
        assert_snapshot(&format!("palette-{columns}x{rows}"), &palette);
    }
}

#[test]
fn nothing_of_the_help_the_commands_and_an_event_is_lost_on_a_small_screen() {
    let mut screen = state(40, 12);
    press(&mut screen, "?");
    let mut all = String::new();
    for _ in 0..crate::draw::help::rows(40).len() {
        all.push_str(&shown(&screen));
        press(&mut screen, "j");
    }
    let words: std::collections::HashSet<&str> = all.split_whitespace().collect();
    for named in crate::command::PALETTE {
        assert!(named.help.split(' ').all(|word| words.contains(word)), "{}: {all}", named.help);
    }
    let mut palette = state(40, 12);
    press(&mut palette, ":logs");
    let text = shown(&palette);
    assert!(text.contains("owner's row:"), "{text}");
    let mut events = state(40, 12);
    let long = "a long line of a process that cannot be shown in one row of this screen";
    update(&mut events, Message::EventsHappened(vec![event(1, "matched", json!({ "text": long }))]));
    press(&mut events, "4");
    let text = shown(&events);
    assert!(text.contains("a process that cannot") && text.contains("row of this screen"), "{text}");
}

fn tree() -> serde_json::Value {
    let member = |pid: u32, ppid: u32, command: &str| json!({ "pid": pid, "ppid": ppid, "command": command, "state": "S", "cpu_ms": 1200, "rss_bytes": 4 << 20, "ports": [] });
    json!([
        member(100, 7, "sh -c make"),
        member(101, 100, "make"),
        member(102, 101, "cc -c a.c"),
        member(200, 7, "watchman")
    ])
}

#[test]
fn a_tree_marks_what_left_it() {
    for (columns, rows) in [(40, 12), (80, 24)] {
        let mut screen = state(columns, rows);
        press(&mut screen, "t");
        let id = screen.subject().expect("a process");
        let look = Snapshot {
            at: now(),
            record: Some(Ok(Box::new(record(&id, json!({ "tree": tree() }))))),
            ..Snapshot::default()
        };
        update(&mut screen, Message::Answered(Box::new(look)));
        assert_snapshot(&format!("tree-{columns}x{rows}"), &screen);
        assert!(shown(&screen).contains("detached"));
        let strays =
            record(&id, json!({ "tree": tree(), "status": "lingering", "outcome": { "kind": "exited", "code": 0 } }));
        let look = Snapshot { at: now(), record: Some(Ok(Box::new(strays))), ..Snapshot::default() };
        update(&mut screen, Message::Answered(Box::new(look)));
        assert_eq!(shown(&screen).matches("stray").count(), 4, "{}", shown(&screen));
    }
}

#[test]
fn a_stop_names_everything_that_it_stops() {
    for (columns, rows) in [(40, 12), (80, 24)] {
        let mut screen = state(columns, rows);
        press(&mut screen, "x");
        let id = screen.subject().expect("a process");
        update(&mut screen, Message::Shown(Box::new(record(&id, json!({ "tree": tree() })))));
        assert_snapshot(&format!("stop-{columns}x{rows}"), &screen);
    }
}

#[test]
fn turns_show_what_was_asked_and_answered() {
    let mut screen = state(80, 24);
    press(&mut screen, "3\n");
    let turn = |number: u64, status: &str, fields: serde_json::Value| {
        let mut turn = serde_json::to_value(pinfold_api::types::Turn::default()).expect("json");
        turn["number"] = number.into();
        turn["status"] = status.into();
        for (name, field) in fields.as_object().expect("fields") {
            turn[name] = field.clone();
        }
        serde_json::from_value(turn).expect("a turn")
    };
    let turns = vec![
        turn(2, "completed", json!({ "prompt": "review the change", "text": "It looks good." })),
        turn(3, "running", json!({ "prompt": "clean up", "text": "I will remove the build directory." })),
    ];
    let look = Snapshot {
        at: now(),
        agents: Some(vec![agent("a1b2", json!({ "name": "reviewer", "asks": [ask()], "turn": 3 }))]),
        turns: Some(("a1b2".into(), turns)),
        ..Snapshot::default()
    };
    update(&mut screen, Message::Answered(Box::new(look)));
    assert_snapshot("turns-80x24", &screen);
}

#[test]
fn a_terminal_is_shown_in_place() {
    let mut screen = state(40, 12);
    press(&mut screen, "/npm init\na");
    let View::Attach(attach) = screen.view() else { panic!("not attached") };
    let token = attach.token;
    update(&mut screen, Message::Attachment { token, news: AttachNews::Opened });
    let bytes = b"\x1b[2J\x1b[3;5Hhello \x1b[1mworld\x1b[0m".to_vec();
    update(&mut screen, Message::Attachment { token, news: AttachNews::Bytes(bytes) });
    assert_snapshot("attach-40x12", &screen);
}

#[test]
fn a_daemon_that_is_away_is_said_on_top() {
    let mut screen = state(80, 12);
    update(&mut screen, Message::Unreachable { reason: "Connection refused (os error 111)".into() });
    update(&mut screen, Message::Ticked("2026-01-01T01:00:12Z".parse().expect("a time")));
    assert_snapshot("away-80x12", &screen);
    update(&mut screen, Message::Silent);
    assert!(shown(&screen).contains("daemon has not answered since 01:00:12"), "{}", shown(&screen));
    update(&mut screen, Message::Answered(Box::new(snapshot())));
    assert!(!shown(&screen).contains("daemon has not answered since"));
    assert!(shown(&screen).contains("answers again"));
}

#[test]
fn any_size_can_be_drawn() {
    for columns in [1, 2, 7, 39, 300] {
        for rows in [1, 2, 3, 5, 60] {
            for keys in ["", "2", "3", "4", "?", "t", "x", ":", "/a", "\n", "\nv", "3\n", "i"] {
                let mut screen = state(columns, rows);
                press(&mut screen, keys);
                drawn(&screen);
            }
            let mut log = with_log(state(columns, rows), LOG);
            press(&mut log, "gGjkwTv");
            drawn(&log);
        }
    }
}

#[test]
fn without_colours_no_colour_is_sent() {
    let coloured = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes).into_owned();
        (30..38).chain(40..48).chain(90..98).any(|code| text.contains(&format!("\x1b[{code}m")))
            || text.contains("[38;")
    };
    let mut plain = with_log(state(80, 24), LOG);
    assert!(!coloured(&drawn(&plain)));
    plain.colour = true;
    assert!(coloured(&drawn(&plain)), "the test would not see a colour");
}

#[test]
fn text_of_processes_does_not_steer_the_terminal() {
    let evil = "\u{1b}[2J\u{1b}]52;c;eA==\u{7}\u{9b}2J\u{202e}evil";
    let mut screen = state(80, 24);
    let live = vec![record(
        "evil",
        json!({ "name": evil, "owner": evil, "command": evil,
                "output": { "bytes": 1, "retained_from": 0, "dropped": 0, "closed": false, "last_line": evil } }),
    )];
    update(&mut screen, Message::Answered(Box::new(Snapshot { live: Some(live), ..snapshot() })));
    update(&mut screen, Message::EventsHappened(vec![event(9, "started", json!({ "command": evil, "text": evil }))]));
    update(&mut screen, Message::Acted { text: evil.into(), failed: true });
    for keys in ["", "4", "\u{1b}", "x", "n", "t"] {
        press(&mut screen, keys);
        let bytes = drawn(&screen);
        let text = String::from_utf8(bytes).expect("text");
        assert!(!text.contains("\x1b]52") && !text.contains("\x1b[2J"), "{text:?}");
        assert!(!text.chars().any(|c| is_steering(c) && !matches!(c, '\x1b' | '\r' | '\n')), "{text:?}");
    }
}

#[test]
fn the_text_between_two_cells_is_what_is_read_there() {
    let mut buffer = Buffer::empty(Rect::new(0, 0, 6, 3));
    for (y, text) in ["ab漢d ", "second", "third "].iter().enumerate() {
        buffer.set_string(0, y as u16, text, Style::default());
    }
    let at = |x, y| Position { x, y };
    assert_eq!(region_text(&buffer, at(1, 0), at(2, 2)), "b漢d\nsecond\nthi");
    assert_eq!(region_text(&buffer, at(2, 2), at(1, 0)), "b漢d\nsecond\nthi");
    assert_eq!(region_text(&buffer, at(2, 1), at(3, 1)), "co");
}

#[test]
fn a_selection_in_a_log_is_marked_and_the_rest_is_not() {
    let mut screen = with_log(state(40, 12), LOG);
    press(&mut screen, "gv");
    let View::Log(log) = screen.view() else { panic!("no log") };
    let selected = log.window.items().iter().filter(|item| log.is_selected(item)).count();
    assert_eq!(selected, 1);
}
