//! Sample data and a terminal emulator for the tests of this crate.

use std::num::NonZeroU16;
use std::path::Path;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use jiff::Timestamp;
use pinfold_api::types::{Agent, Event, Inbox, Owner, Record};
use ratatui::backend::CrosstermBackend;
use ratatui::layout::Rect;
use ratatui::{Terminal, TerminalOptions, Viewport};
use serde_json::{Value, json};

use crate::message::{Effect, EndedPage, Message, Snapshot};
use crate::state::State;
use crate::update::update;

pub(crate) fn now() -> Timestamp {
    "2026-01-01T01:00:00Z".parse().expect("a time")
}

/// A running process with fields replaced.
pub(crate) fn record(id: &str, fields: Value) -> Record {
    let mut value = json!({
        "id": id, "name": null, "command": "npm run dev", "shell": "sh", "cwd": "/srv", "owner": "default",
        "labels": {}, "status": "running", "paused": false, "pid": 100, "created_at": "2026-01-01T00:55:00Z",
        "started_at": "2026-01-01T00:55:00Z", "exited_at": null, "finished_at": null, "outcome": null, "cause": null,
        "stopped_by": null, "tree": [],
        "output": { "bytes": 3072, "retained_from": 0, "dropped": 0, "closed": false },
        "usage": { "cpu_ms": 0, "max_rss_bytes": 0, "processes": 1 },
    });
    merge(&mut value, fields);
    serde_json::from_value(value).expect("a record")
}

fn merge(value: &mut Value, fields: Value) {
    for (name, field) in fields.as_object().cloned().unwrap_or_default() {
        value[name] = field;
    }
}

pub(crate) fn owner(name: &str, parent: Option<&str>) -> Owner {
    serde_json::from_value(json!({ "owner": name, "parent": parent, "live": 1, "last_contact": null }))
        .expect("an owner")
}

pub(crate) fn agent(id: &str, fields: Value) -> Agent {
    let mut value = serde_json::to_value(Agent::default()).expect("json");
    merge(&mut value, json!({ "id": id, "kind": "codex", "status": "busy", "owner": "chat-7", "cwd": "/srv" }));
    merge(&mut value, fields);
    serde_json::from_value(value).expect("an agent")
}

pub(crate) fn event(seq: u64, kind: &str, fields: Value) -> Event {
    let mut value = json!({
        "seq": seq, "kind": kind, "process": "k3v9x2", "owner": "default", "at": "2026-01-01T00:59:01Z",
        "command": "npm run dev", "started_at": null, "outcome": null, "cause": null,
    });
    merge(&mut value, fields);
    serde_json::from_value(value).expect("an event")
}

pub(crate) fn ask() -> Value {
    json!({ "id": "q1", "turn": 3, "kind": "command", "what": "rm -rf build", "detail": { "cwd": "/srv/app" } })
}

pub(crate) fn inbox() -> Inbox {
    serde_json::from_value(json!({
        "items": [
            { "kind": "permission", "seen": false, "owner": "chat-7", "agent": "a1b2", "process": "ag1", "name": "reviewer",
              "text": "rm -rf build", "ask": ask() },
            { "kind": "waiting_for_input", "at": "2026-01-01T00:59:00Z", "seen": true, "seq": 4, "owner": "chat-7",
              "process": "w8t", "command": "npm init", "text": "package name: (x)", "cursor": 812 },
            { "kind": "failed", "at": "2026-01-01T00:50:00Z", "seen": false, "seq": 5, "owner": "default", "process": "f41l",
              "command": "make test", "text": "make: *** [test] Error 1", "outcome": { "kind": "exited", "code": 2 },
              "cause": "on_its_own" },
        ],
        "permission": 1, "waiting_for_input": 1, "failed": 1, "seen": 3, "latest": 5,
    }))
    .expect("an inbox")
}

fn sample(millicpus: u64, memory: u64, second: u64) -> Value {
    json!({ "at": format!("2026-01-01T00:59:{second:02}Z"), "millicpus": millicpus, "memory_bytes": memory, "processes": 2 })
}

/// What a daemon with a few processes answers.
pub(crate) fn snapshot() -> Snapshot {
    let output =
        |line: &str| json!({ "bytes": 3072, "retained_from": 0, "dropped": 0, "closed": false, "last_line": line });
    Snapshot {
        at: now(),
        live: Some(vec![
            record(
                "k3v9x2",
                json!({ "name": "web", "output": output("ready on \u{1b}[2Jhttp://localhost:3000"), "ports": { "PORT": 3000 },
                        "sample": sample(250, 64 << 20, 9) }),
            ),
            record(
                "ag1",
                json!({ "owner": "chat-7", "command": "/bin/sh app-server", "labels": { "pinfold.agent": "a1b2" },
                        "intent": "codex agent a1b2", "stdin": "pipe" }),
            ),
            record(
                "w8t",
                json!({ "owner": "chat-7", "command": "npm init", "pty": { "rows": 24, "cols": 80 }, "waiting_for_input": true,
                        "output": output("package name: (x)") }),
            ),
            record(
                "l1ng",
                json!({ "name": "build", "owner": "chat-7/sub", "command": "make all", "status": "lingering",
                        "outcome": { "kind": "exited", "code": 0 } }),
            ),
        ]),
        ended: Some(EndedPage {
            records: vec![
                record(
                    "f41l",
                    json!({ "command": "make test", "status": "finished", "outcome": { "kind": "exited", "code": 2 },
                            "cause": "on_its_own", "finished_at": "2026-01-01T00:56:00Z",
                            "output": output("make: *** [test] Error 1") }),
                ),
                record(
                    "st0p",
                    json!({ "name": "old-web", "status": "finished", "cause": "stop_requested", "ports": { "PORT": 3001 },
                            "outcome": { "kind": "signaled", "signal": 15, "name": "SIGTERM", "core_dumped": false },
                            "finished_at": "2026-01-01T00:56:00Z", "output": output("bye") }),
                ),
            ],
            total: 12,
        }),
        owners: Some(vec![owner("default", None), owner("chat-7", None), owner("chat-7/sub", Some("chat-7"))]),
        agents: Some(vec![agent(
            "a1b2",
            json!({ "name": "reviewer", "status": "asking", "process": "ag1", "turn": 3, "turns": 3, "asks": [ask()] }),
        )]),
        inbox: Some(inbox()),
        ..Snapshot::default()
    }
}

/// A screen that shows those processes.
pub(crate) fn state(columns: u16, rows: u16) -> State {
    let mut state = State::new(now(), columns, rows, false);
    update(&mut state, Message::Answered(Box::new(snapshot())));
    state
}

pub(crate) fn press(state: &mut State, keys: &str) -> Vec<Effect> {
    let mut effects = Vec::new();
    for c in keys.chars() {
        let (code, modifiers) = match c {
            '\n' => (KeyCode::Enter, KeyModifiers::NONE),
            '\u{1b}' => (KeyCode::Esc, KeyModifiers::NONE),
            '\t' => (KeyCode::Tab, KeyModifiers::NONE),
            c if c.is_control() => (KeyCode::Char((c as u8 + b'a' - 1) as char), KeyModifiers::CONTROL),
            c => (KeyCode::Char(c), KeyModifiers::NONE),
        };
        effects.extend(update(state, Message::KeyPressed(KeyEvent::new(code, modifiers))));
    }
    effects
}

/// The screen as a terminal shows it: drawn by the real back end, read by a terminal emulator.
pub(crate) fn shown(state: &State) -> String {
    let (columns, rows) = (state.columns, state.rows);
    let bytes = drawn(state);
    let size = |value: u16| NonZeroU16::new(value).expect("a size");
    let mut emulator = vt100::Parser::new(size(rows), size(columns), 0);
    emulator.process(&bytes);
    let lines: Vec<String> = emulator.screen().rows(0, columns).map(|line| line.trim_end().to_owned()).collect();
    lines.join("\n") + "\n"
}

/// The bytes that draw the screen.
pub(crate) fn drawn(state: &State) -> Vec<u8> {
    let mut bytes = Vec::new();
    let viewport = Viewport::Fixed(Rect::new(0, 0, state.columns, state.rows));
    let backend = CrosstermBackend::new(&mut bytes);
    let mut terminal = Terminal::with_options(backend, TerminalOptions { viewport }).expect("a terminal");
    terminal.draw(|frame| crate::draw::draw(state, frame)).expect("a frame");
    drop(terminal);
    bytes
}

/// Compares a screen with its snapshot; `PINFOLD_WRITE_SNAPSHOTS=1` writes it instead.
#[track_caller]
pub(crate) fn assert_snapshot(name: &str, state: &State) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("snapshots").join(format!("{name}.txt"));
    let screen = shown(state);
    if std::env::var_os("PINFOLD_WRITE_SNAPSHOTS").is_some() {
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("a directory can be made");
        std::fs::write(&path, &screen).expect("a snapshot can be written");
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(screen == expected, "{name} looks different.\nexpected:\n{expected}\nshown:\n{screen}");
}
