//! What keys do, and what is asked of the daemon.

use pinfold_api::types::Verdict;
use serde_json::json;

use super::*;
use crate::message::{Action, Force, LineEnd};
use crate::processes::Row;
use crate::testing::{agent, ask, event, inbox, now, press, record, shown, snapshot, state};

fn actions(effects: &[Effect]) -> Vec<Action> {
    let action = |effect: &Effect| if let Effect::Act(action) = effect { Some(action.clone()) } else { None };
    effects.iter().filter_map(action).collect()
}

fn select(state: &mut State, name: &str) {
    let found = state.processes.rows.iter().position(|row| match row {
        Row::Process { index, .. } => state.processes.get(*index).id == name,
        Row::Owner { name: owner, .. } => owner == name,
        Row::More { .. } => false,
    });
    let rows = state.body_rows();
    state.processes.select(found.expect("a row"), rows);
}

fn answer(state: &mut State, snapshot: Snapshot) {
    update(state, Message::Answered(Box::new(snapshot)));
}

#[test]
fn a_stop_happens_only_after_yes() {
    let mut state = state(80, 24);
    select(&mut state, "k3v9x2");
    let effects = press(&mut state, "x");
    assert!(matches!(effects.as_slice(), [Effect::Show { id }, ..] if id == "k3v9x2"), "{effects:?}");
    assert!(shown(&state).contains("Stop web (k3v9x2)?"));
    assert!(actions(&press(&mut state, "n")).is_empty());
    press(&mut state, "x");
    let stop = |force| Action::Stop { ids: vec!["k3v9x2".into()], force };
    assert_eq!(actions(&press(&mut state, "y")), [stop(Force::Stop)]);
    press(&mut state, "X");
    assert!(shown(&state).contains("Kill web"));
    assert_eq!(actions(&press(&mut state, "\n")), [stop(Force::Kill)]);
    assert!(actions(&press(&mut state, "x\u{1b}y")).is_empty());
}

#[test]
fn what_is_confirmed_is_what_was_named_even_if_the_list_changes() {
    let mut state = state(80, 24);
    select(&mut state, "k3v9x2");
    press(&mut state, "x");
    answer(&mut state, Snapshot { live: Some(vec![record("other", json!({}))]), ..snapshot() });
    assert_eq!(actions(&press(&mut state, "y")), [Action::Stop { ids: vec!["k3v9x2".into()], force: Force::Stop }]);
}

#[test]
fn a_stop_of_an_owner_stops_what_its_row_names_with_its_descendants() {
    let mut state = state(80, 24);
    select(&mut state, "chat-7");
    let show = |effect| if let Effect::Show { id } = effect { Some(id) } else { None };
    let shows: Vec<String> = press(&mut state, "x").into_iter().filter_map(show).collect();
    let screen = shown(&state);
    assert!(screen.contains("Stop 3 processes of chat-7?") && screen.contains("l1ng build"), "{screen}");
    // The members of each are requested, and listed below it.
    let tree = json!([
        { "pid": 70, "ppid": 1, "command": "make all", "state": "S", "cpu_ms": 0, "rss_bytes": 0, "ports": [] },
        { "pid": 71, "ppid": 70, "command": "cc -c a.c", "state": "R", "cpu_ms": 0, "rss_bytes": 0, "ports": [] },
    ]);
    update(&mut state, Message::Shown(Box::new(record("l1ng", json!({ "tree": tree, "pid": 70 })))));
    let screen = shown(&state);
    let place = |text: &str| screen.find(text).unwrap_or_else(|| panic!("{text}: {screen}"));
    assert!(place("l1ng build") < place("70 make all") && place("70 make all") < place("71 cc -c a.c"), "{screen}");
    let ids: Vec<String> = vec!["ag1".into(), "w8t".into(), "l1ng".into()];
    assert_eq!(shows, ids);
    assert_eq!(actions(&press(&mut state, "y")), [Action::Stop { ids, force: Force::Stop }]);
}

#[test]
fn an_ended_process_is_not_stopped_again() {
    let mut state = state(80, 24);
    select(&mut state, "f41l");
    press(&mut state, "x");
    assert!(state.overlay.is_none() && shown(&state).contains("has ended already"));
}

#[test]
fn a_question_is_answered_from_the_inbox_with_one_key() {
    let answered =
        |verdict, what: &str| Action::Answer { agent: "a1b2".into(), ask: "q1".into(), verdict, what: what.into() };
    let mut state = state(80, 24);
    assert_eq!(actions(&press(&mut state, "!y")), [answered(Verdict::Allow, "allowed: rm -rf build")]);
    assert_eq!(actions(&press(&mut state, "n")), [answered(Verdict::Deny, "denied: rm -rf build")]);
}

#[test]
fn an_answer_never_goes_to_another_question() {
    let mut state = state(80, 24);
    press(&mut state, "!");
    let mut changed = inbox();
    let first = changed.items[0].ask.as_mut().expect("a question");
    (first.id, first.what) = ("q2".into(), "rm -rf /".into());
    answer(&mut state, Snapshot { inbox: Some(changed), at: now(), ..Snapshot::default() });
    assert!(actions(&press(&mut state, "y")).is_empty());
    assert!(shown(&state).contains("the selected item is gone"), "{}", shown(&state));
    assert_eq!(actions(&press(&mut state, "jy")).len(), 1);
}

#[test]
fn in_the_list_a_question_is_shown_in_full_before_it_is_answered() {
    let mut state = state(80, 24);
    select(&mut state, "ag1");
    assert!(actions(&press(&mut state, "y")).is_empty());
    let screen = shown(&state);
    assert!(screen.contains("reviewer asks: allow?") && screen.contains("cwd: /srv/app"), "{screen}");
    assert!(actions(&press(&mut state, "\n")).is_empty(), "Enter does not confirm");
    assert_eq!(actions(&press(&mut state, "n")).len(), 1);
    select(&mut state, "k3v9x2");
    assert!(actions(&press(&mut state, "y")).is_empty() && state.overlay.is_none());
}

#[test]
fn a_process_that_waits_gets_a_line_when_the_person_sends_it() {
    let mut state = state(80, 24);
    select(&mut state, "w8t");
    assert!(actions(&press(&mut state, "y")).is_empty(), "the letter is typed and not sent");
    let sent = actions(&press(&mut state, "es\n"));
    assert_eq!(sent, [Action::Send { id: "w8t".into(), text: "yes".into(), line_end: LineEnd::Enter }]);
    select(&mut state, "k3v9x2");
    press(&mut state, "i");
    assert!(state.overlay.is_none() && shown(&state).contains("takes no input"));
}

#[test]
fn a_filter_stays_until_it_is_cleared() {
    let mut state = state(80, 24);
    press(&mut state, "/MAKE\n");
    let rows = |state: &State| state.processes.rows.iter().filter(|row| matches!(row, Row::Process { .. })).count();
    assert_eq!(rows(&state), 2);
    answer(&mut state, snapshot());
    press(&mut state, "24\u{1b}");
    assert_eq!(rows(&state), 2);
    assert!(shown(&state).contains("filter MAKE"));
    press(&mut state, "/x\u{1b}");
    assert_eq!((rows(&state), state.processes.filter.as_str()), (2, "MAKE"));
    press(&mut state, "\u{1b}");
    assert_eq!(rows(&state), 6);
    press(&mut state, "e");
    assert_eq!(rows(&state), 4);
}

#[test]
fn esc_closes_and_clears_and_never_leaves() {
    let mut state = state(80, 24);
    press(&mut state, "/make\n");
    let effects = press(&mut state, &"\u{1b}".repeat(5));
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Quit)), "{effects:?}");
    assert!(state.processes.filter.is_empty() && shown(&state).contains("nothing to close: q leaves"));
    for keys in ["\n", "2", "3\n", "4", "t", "?", "x", ":", "\nv", "o"] {
        press(&mut state, keys);
        let effects = press(&mut state, &"\u{1b}".repeat(5));
        assert!(!effects.iter().any(|effect| matches!(effect, Effect::Quit)), "{keys:?}: {effects:?}");
        assert_eq!((state.kind(), state.processes.owner.as_deref()), (ViewKind::Processes, None), "{keys:?}");
    }
    assert!(press(&mut state, "q").iter().any(|effect| matches!(effect, Effect::Quit)));
}

#[test]
fn a_hosted_agents_process_is_called_and_found_by_the_agents_name() {
    let mut state = state(80, 24);
    select(&mut state, "ag1");
    assert!(shown(&state).contains("reviewer") && !shown(&state).contains("app-server"), "{}", shown(&state));
    press(&mut state, "/REVIEW\n");
    assert_eq!(state.subject().as_deref(), Some("ag1"));
    assert!(state.label("ag1").starts_with("reviewer"));
    // It stops: its process keeps the name while it is listed.
    let mut stopped = snapshot();
    stopped.agents = Some(Vec::new());
    answer(&mut state, stopped);
    assert_eq!(state.subject().as_deref(), Some("ag1"));
    // One that stopped before is known by what its process was started for.
    let earlier = record("old", json!({ "labels": { "pinfold.agent": "zz" }, "intent": "claude agent zz" }));
    assert_eq!(state.processes.title(&earlier), "claude agent zz");
}

#[test]
fn a_process_that_takes_no_input_is_not_offered_any() {
    let mut state = state(80, 24);
    select(&mut state, "k3v9x2");
    press(&mut state, "a");
    let screen = shown(&state);
    assert!(screen.contains("has no terminal: Enter shows its log") && !screen.contains("i sends"), "{screen}");
    select(&mut state, "ag1");
    press(&mut state, "a");
    assert!(shown(&state).contains("i sends it a line"), "{}", shown(&state));
    press(&mut state, "i");
    assert!(state.overlay.is_some());
}

#[test]
fn a_running_search_shows_how_far_it_is_and_esc_cancels_it() {
    let mut state = state(80, 24);
    press(&mut state, "\n");
    let View::Log(log) = state.view() else { panic!("no log") };
    let token = log.token;
    let effects = press(&mut state, "/needle\n");
    assert!(effects.iter().any(|effect| matches!(effect, Effect::SearchLog { .. })), "{effects:?}");
    let progress = crate::message::SearchProgress { searched: 12 << 20, total: 75 << 20 };
    update(&mut state, Message::LogSearchWentOn { token, progress });
    let screen = shown(&state);
    assert!(screen.contains("searched 12M of 75M") && screen.contains("Esc cancel"), "{screen}");
    let effects = press(&mut state, "\u{1b}");
    assert!(effects.iter().any(|effect| matches!(effect, Effect::CloseLog)), "{effects:?}");
    assert!(state.kind() == ViewKind::Log && shown(&state).contains("the search was cancelled"));
    // News of the cancelled search changes nothing.
    update(&mut state, Message::LogSearchWentOn { token, progress });
    assert!(!shown(&state).contains("searched"));
}

#[test]
fn a_long_message_is_shown_in_full_on_any_screen() {
    let text = "it was started without `restart`, so what a restart needs was not stored: start it again, with `restart` \
                if it should be restartable LAST";
    for (columns, rows) in [(40, 12), (80, 24)] {
        let mut state = state(columns, rows);
        update(&mut state, Message::Acted { text: text.into(), failed: true });
        let screen = shown(&state);
        for word in text.split(' ') {
            assert!(screen.contains(word), "{word}: {screen}");
        }
        press(&mut state, "j");
        assert!(!shown(&state).contains("LAST"), "a key closes it");
    }
}

#[test]
fn the_keys_that_are_offered_fit_the_selected_item() {
    let mut state = state(80, 24);
    let hints = |state: &State| shown(state).lines().last().unwrap_or_default().to_owned();
    press(&mut state, "2");
    assert!(hints(&state).contains("y/n answer") && !hints(&state).contains("seen"));
    press(&mut state, "j");
    assert!(hints(&state).contains("i input") && !hints(&state).contains("y/n"));
    press(&mut state, "j");
    assert!(hints(&state).contains("m seen") && !hints(&state).contains("y/n") && !hints(&state).contains("input"));
    for keys in ["1", "2", "3", "4", "1\n", "1t", "3\n"] {
        let mut small = crate::testing::state(40, 12);
        press(&mut small, keys);
        assert!(hints(&small).contains("? help"), "{keys:?}: {}", hints(&small));
    }
}

#[test]
fn memory_bars_can_be_compared_and_are_not_always_full() {
    let mut state = state(200, 20);
    let live = |id: &str, mebibytes: u64| {
        let sample =
            json!({ "at": "2026-01-01T00:59:09Z", "millicpus": 0, "memory_bytes": mebibytes << 20, "processes": 1 });
        record(id, json!({ "sample": sample, "name": id }))
    };
    let bar = |state: &State, name: &str| {
        let screen = shown(state);
        let line = screen.lines().find(|line| line.contains(name)).expect("a row").to_owned();
        line.chars().rfind(|c| ('▁'..='█').contains(c))
    };
    answer(&mut state, Snapshot { live: Some(vec![live("small", 20)]), ..snapshot() });
    assert_eq!(bar(&state, "small"), Some('▂'));
    answer(&mut state, Snapshot { live: Some(vec![live("small", 20), live("large", 4096)]), ..snapshot() });
    assert_eq!((bar(&state, "small"), bar(&state, "large")), (Some('▂'), Some('█')));
    answer(&mut state, Snapshot { live: Some(vec![live("half", 2048), live("large", 4096)]), ..snapshot() });
    assert_eq!(bar(&state, "half"), Some('▅'));
}

#[test]
fn an_ended_process_listens_on_no_port() {
    let screen = shown(&state(120, 30));
    assert!(screen.contains(":3000") && screen.contains("old-web") && !screen.contains(":3001"), "{screen}");
}

#[test]
fn o_narrows_to_an_owner_and_its_descendants() {
    let mut state = state(80, 24);
    select(&mut state, "w8t");
    press(&mut state, "o");
    let screen = shown(&state);
    assert!(
        screen.contains("owner chat-7") && screen.contains("chat-7/sub") && !screen.contains("default"),
        "{screen}"
    );
    press(&mut state, "o");
    assert!(shown(&state).contains("default"));
}

#[test]
fn the_selected_row_stays_selected_when_the_list_changes() {
    let mut state = state(80, 24);
    select(&mut state, "k3v9x2");
    let mut changed = snapshot();
    let live = changed.live.as_mut().expect("live ones");
    live.insert(0, record("new", json!({ "owner": "aaa" })));
    answer(&mut state, changed);
    assert_eq!(state.subject().as_deref(), Some("k3v9x2"));
}

#[test]
fn the_daemon_is_asked_only_for_what_is_on_the_screen() {
    let mut state = state(80, 24);
    let looks = |effects: Vec<Effect>| {
        let look = |effect| if let Effect::Look(interest) = effect { Some(interest) } else { None };
        effects.into_iter().filter_map(look).next_back()
    };
    let log = looks(press(&mut state, "\n")).expect("another interest");
    assert!(!log.processes && log.record.as_deref() == Some("ag1"), "{log:?}");
    let tree = looks(press(&mut state, "\u{1b}t")).expect("another interest");
    assert_eq!(tree.record.as_deref(), Some("ag1"));
    let turns = looks(press(&mut state, "3\n")).expect("another interest");
    assert_eq!(turns.turns.as_deref(), Some("a1b2"));
    assert!(looks(press(&mut state, "1")).expect("another interest").processes);
}

#[test]
fn more_ended_processes_are_asked_for_at_the_end_of_the_list_and_only_there() {
    let mut state = state(80, 24);
    let ended = (0..100).map(|number| record(&format!("e{number}"), json!({ "status": "finished" }))).collect();
    let page = crate::message::EndedPage { records: ended, total: 5000 };
    answer(&mut state, Snapshot { ended: Some(page), ..snapshot() });
    assert_eq!(state.interest.ended, 100);
    press(&mut state, "G");
    assert_eq!(state.interest.ended, 500);
}

#[test]
fn keys_go_to_an_attached_process_until_it_is_left() {
    let mut state = state(80, 24);
    select(&mut state, "w8t");
    let effects = press(&mut state, "a");
    assert!(
        matches!(effects.as_slice(), [Effect::Attach { id, rows: 22, columns: 80, .. }, ..] if id == "w8t"),
        "{effects:?}"
    );
    let View::Attach(attach) = state.view() else { panic!("not attached") };
    let token = attach.token;
    update(&mut state, Message::Attachment { token, news: AttachNews::Opened });
    let effects = press(&mut state, "q");
    assert!(matches!(effects.as_slice(), [Effect::AttachInput(bytes)] if bytes == b"q"), "{effects:?}");
    let effects = update(&mut state, Message::Resized { columns: 60, rows: 20 });
    assert!(matches!(effects.as_slice(), [Effect::AttachResize { rows: 18, columns: 60 }]), "{effects:?}");
    let effects = press(&mut state, "\u{10}\u{11}");
    assert!(matches!(effects.as_slice(), [Effect::Detach, ..]), "{effects:?}");
    assert_eq!(state.kind(), ViewKind::Processes);
    select(&mut state, "k3v9x2");
    press(&mut state, "a");
    assert!(shown(&state).contains("has no terminal"));
}

#[test]
fn answers_for_a_log_that_was_closed_are_ignored() {
    let mut state = state(80, 24);
    press(&mut state, "\n");
    let effects = press(&mut state, "q");
    assert!(effects.iter().any(|effect| matches!(effect, Effect::CloseLog)));
    press(&mut state, "\n");
    let stale = crate::message::RawPiece {
        piece: crate::log::window::Piece { at: 0, bytes: b"stale\n".to_vec(), after_gap: false },
        ..Default::default()
    };
    update(&mut state, Message::LogWasRead { token: 1, read: crate::message::LogRead::Tail, result: Ok(stale) });
    assert!(!shown(&state).contains("stale"));
}

#[test]
fn events_are_bounded_and_never_doubled() {
    let mut state = state(80, 24);
    let batch = |from: u64, to: u64| (from..to).map(|seq| event(seq, "started", json!({}))).collect();
    update(&mut state, Message::EventsHappened(batch(1, 900)));
    update(&mut state, Message::EventsHappened(batch(800, 1200)));
    assert_eq!(state.events.len(), MAX_EVENTS);
    assert_eq!(state.events.back().map(|event| event.seq), Some(1199));
    assert_eq!(state.events_cursor.index, MAX_EVENTS - 1);
}

#[test]
fn the_palette_runs_commands_by_name() {
    let mut state = state(80, 24);
    select(&mut state, "k3v9x2");
    press(&mut state, ":tre\n");
    assert_eq!(state.kind(), ViewKind::Tree);
    press(&mut state, ":nonsense\n");
    assert!(shown(&state).contains("no command `nonsense`"));
    let effects = press(&mut state, ":quit\n");
    assert!(effects.iter().any(|effect| matches!(effect, Effect::Quit)));
}

#[test]
fn q_closes_one_screen_after_the_other_and_then_leaves() {
    let mut state = state(80, 24);
    press(&mut state, "\nt?");
    for kind in [ViewKind::Tree, ViewKind::Log, ViewKind::Processes] {
        press(&mut state, "q");
        assert_eq!(state.kind(), kind);
    }
    assert!(press(&mut state, "q").iter().any(|effect| matches!(effect, Effect::Quit)));
    assert!(press(&mut state, "\n\u{3}").iter().any(|effect| matches!(effect, Effect::Quit)));
}

#[test]
fn many_screens_on_top_of_each_other_are_bounded() {
    let mut state = state(80, 24);
    press(&mut state, &"t\n".repeat(50));
    assert!(state.views.len() <= crate::state::MAX_VIEWS);
}

#[test]
fn a_drag_with_the_mouse_copies_what_is_between() {
    use crossterm::event::{KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
    let mut state = state(80, 24);
    let mut mouse = |kind, column, row| {
        update(&mut state, Message::MouseUsed(MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE }))
    };
    mouse(MouseEventKind::Down(MouseButton::Left), 2, 2);
    mouse(MouseEventKind::Drag(MouseButton::Left), 9, 2);
    let effects = mouse(MouseEventKind::Up(MouseButton::Left), 9, 2);
    assert!(matches!(effects.as_slice(), [Effect::CopyRegion(from, to)] if (from.x, to.x) == (2, 9)), "{effects:?}");
    mouse(MouseEventKind::Down(MouseButton::Left), 3, 7);
    assert!(mouse(MouseEventKind::Up(MouseButton::Left), 3, 7).is_empty(), "a click copies nothing");
    mouse(MouseEventKind::ScrollDown, 0, 0);
}

#[test]
fn an_agent_is_stopped_after_yes() {
    let mut state = state(80, 24);
    let effects = press(&mut state, "3x");
    assert!(effects.iter().any(|effect| matches!(effect, Effect::Show { id } if id == "ag1")), "{effects:?}");
    let tree = json!([
        { "pid": 70, "ppid": 1, "command": "codex", "state": "S", "cpu_ms": 0, "rss_bytes": 0, "ports": [] },
    ]);
    update(&mut state, Message::Shown(Box::new(record("ag1", json!({ "tree": tree, "pid": 70 })))));
    let screen = shown(&state);
    assert!(screen.contains("Stop the agent reviewer?") && screen.contains("70 codex"), "{screen}");
    assert!(screen.contains("3 turns so far"));
    assert_eq!(actions(&press(&mut state, "y")), [Action::StopAgent { id: "a1b2".into() }]);
}

#[test]
fn a_thousand_processes_are_a_list_like_any_other() {
    let mut state = state(120, 40);
    let live: Vec<_> = (0..1000)
        .map(|number| record(&format!("p{number}"), json!({ "owner": format!("chat-{}", number % 50) })))
        .collect();
    answer(
        &mut state,
        Snapshot { live: Some(live), agents: Some(vec![agent("x", json!({ "asks": [ask()] }))]), ..snapshot() },
    );
    press(&mut state, "Gjjkg");
    assert!(shown(&state).contains("1000 live"));
    assert!(state.processes.rows.len() > 1050);
}
