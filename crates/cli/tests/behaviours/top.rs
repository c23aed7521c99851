//! `pinfold top`, on a terminal run by another pinfold: what is typed into it, and what its screen shows.

mod large;

use std::collections::BTreeMap;

use pinfold_api::types::{
    InputRequest, OutputQuery, Pty, PtySize, Record, ResizeRequest, Screen, StartRequest, Status,
};
use pinfold_testkit::{Pidfd, Pinfold, Terminal, until};

use crate::PINFOLD;
use crate::interactive::{on_terminal, screen, until_shown};
use crate::requests::request;

/// The daemon that is shown, and another one with the terminal in which `pinfold top` runs. So the screen can be read
/// while the first one is dead.
pub(crate) struct Looker<'a> {
    looked_at: &'a Pinfold,
    host: Pinfold,
    top: Record,
}

impl<'a> Looker<'a> {
    pub(crate) fn open(looked_at: &'a Pinfold, cols: u16, rows: u16) -> Self {
        let host = Pinfold::start(PINFOLD);
        let home = looked_at.home().display().to_string();
        let env = BTreeMap::from([("PINFOLD_HOME".to_owned(), Some(home)), ("NO_COLOR".to_owned(), None)]);
        let command = StartRequest {
            argv: Some(vec![PINFOLD.to_owned(), "top".to_owned()]),
            pty: Some(Pty::Sized(PtySize { rows, cols })),
            env,
            ..StartRequest::default()
        };
        let top = host.start_request(&command).record;
        let looker = Self { looked_at, host, top };
        looker.until("live");
        looker
    }

    pub(crate) fn keys(&self, text: &str) {
        let input = InputRequest { text: Some(text.into()), ..InputRequest::default() };
        self.host.block(self.host.client().input(&self.top.id, &input)).expect("it is taken");
    }

    #[track_caller]
    pub(crate) fn until(&self, what: &str) -> Screen {
        until_shown(&self.host, &self.top.id, what)
    }

    fn shows(&self, what: &str) -> bool {
        screen(&self.host, &self.top.id).lines.iter().any(|line| line.contains(what))
    }

    #[track_caller]
    fn until_gone(&self, what: &str) {
        until(&format!("`{what}` is gone from the screen"), || !self.shows(what));
    }

    /// Selects a process by its name: the filter leaves its owner and itself.
    pub(crate) fn select(&self, name: &str) {
        self.keys(&format!("/{name}\r"));
        self.until(&format!("filter {name}"));
    }

    fn has_ended(&self) -> bool {
        matches!(self.host.show(&self.top.id).status, Status::Finished | Status::Lost)
    }
}

fn named(pinfold: &Pinfold, name: &str, command: &str) -> Record {
    let request = StartRequest { name: Some(name.into()), ..request(command) };
    pinfold.start_request(&request).record
}

#[test]
fn all_processes_are_on_one_screen() {
    let pinfold = Pinfold::start(PINFOLD);
    named(&pinfold, "web", "echo listening on 3000; exec sleep 300");
    let owned = StartRequest { owner: Some("chat-7".into()), name: Some("sub".into()), ..request("exec sleep 300") };
    pinfold.start_request(&owned);
    let (failed, _) = pinfold.run("echo went wrong; exit 3");
    let looker = Looker::open(&pinfold, 100, 24);
    let shown = looker.until("went wrong").lines.join("\n");
    for text in ["2 live", "chat-7", "sub", "web", "running", "listening on 3000", "exit 3"] {
        assert!(shown.contains(text), "{text}: {shown}");
    }
    // A process that starts later appears.
    named(&pinfold, "later", "exec sleep 300");
    looker.until("later");
    looker.keys("4");
    looker.until("finished");
    looker.keys("2");
    looker.until("went wrong");
    looker.keys("m");
    looker.until("nothing waits for you");
    // Esc closes and never leaves.
    looker.keys("\u{1b}");
    looker.until("listening on 3000");
    looker.keys("\u{1b}");
    looker.until("q leaves");
    looker.keys("q");
    until("it has left", || looker.has_ended());
    assert_eq!(pinfold.show(&failed.id).status, Status::Finished);
}

#[test]
fn a_stop_is_confirmed_and_names_the_members_of_the_tree() {
    let pinfold = Pinfold::start(PINFOLD);
    let family = named(&pinfold, "family", "sleep 301 & setsid sleep 302 & wait");
    named(&pinfold, "other", "exec sleep 303");
    let tree = pinfold.until_tree(&family.id, 3);
    let looker = Looker::open(&pinfold, 90, 24);
    looker.select("family");
    looker.keys("x");
    looker.until("Stop family");
    let shown = tree.iter().map(|pid| looker.until(&format!("{pid} ")).lines.join("\n")).next_back().expect("a screen");
    assert!(shown.contains("sleep 302") && !shown.contains("sleep 303"), "{shown}");
    looker.keys("n");
    looker.until_gone("Stop family");
    assert_eq!(pinfold.show(&family.id).status, Status::Running);
    looker.keys("x");
    looker.until("Stop family");
    looker.keys("y");
    looker.until("its tree is empty");
    let ended = pinfold.wait_finished(&family.id);
    assert_eq!(ended.stopped_by.as_deref(), Some("pinfold top"));
    assert!(pinfold.list(&Default::default()).processes.iter().any(|record| record.status == Status::Running));
}

#[test]
fn a_log_is_searched_up_and_down_beyond_what_is_on_the_screen() {
    let pinfold = Pinfold::start(PINFOLD);
    let log = named(&pinfold, "log", "seq -f 'line %.0f' 1 200000; echo END; exec sleep 300");
    crate::requests::until_said(&pinfold, &log.id, "END");
    let looker = Looker::open(&pinfold, 80, 12);
    looker.select("log");
    looker.keys("\r");
    looker.until("END");
    looker.keys("/line 1?5000$\r");
    looker.until("line 15000");
    looker.keys("N");
    looker.until("line 5000");
    looker.until_gone("line 15000");
    looker.keys("n");
    looker.until("line 15000");
    looker.keys("n");
    looker.until("no match below");
    looker.keys("g");
    looker.until("line 2");
}

#[test]
fn a_killed_daemon_that_comes_back_is_noticed_both_times() {
    let pinfold = Pinfold::start(PINFOLD);
    named(&pinfold, "web", "while :; do echo tick; sleep 0.2; done");
    let looker = Looker::open(&pinfold, 100, 24);
    looker.select("web");
    looker.keys("\r");
    looker.until("tick");
    pinfold.kill_daemon();
    looker.until("daemon away since");
    // Keys work meanwhile.
    looker.keys("?");
    looker.until("hosted agents and their turns");
    looker.keys("q");
    looker.looked_at.start_daemon();
    looker.until_gone("daemon away since");
    // Back to the list, and without the filter.
    looker.keys("qq");
    named(&pinfold, "after", "exec sleep 300");
    looker.until("after");
}

/// Stops the daemon until this is dropped, also if the test fails: otherwise its shutdown would hang.
struct Stopped(Pidfd);

impl Drop for Stopped {
    fn drop(&mut self) {
        const CONT: i32 = 18;
        self.0.signal(CONT);
    }
}

#[test]
fn a_hung_daemon_does_not_stop_the_screen() {
    const STOP: i32 = 19;
    let pinfold = Pinfold::start(PINFOLD);
    named(&pinfold, "web", "exec sleep 300");
    let looker = Looker::open(&pinfold, 100, 24);
    looker.until("web");
    let daemon = Stopped(Pidfd::open(pinfold.daemon_pid()).expect("the daemon lives"));
    daemon.0.signal(STOP);
    looker.until("daemon has not answered since");
    looker.keys("?");
    looker.until("hosted agents and their turns");
    looker.keys("q");
    looker.until("web");
    drop(daemon);
    looker.until_gone("daemon has not answered since");
}

#[test]
fn a_small_terminal_and_a_resize_are_fine() {
    let pinfold = Pinfold::start(PINFOLD);
    named(&pinfold, "web", "echo listening; exec sleep 300");
    let looker = Looker::open(&pinfold, 40, 12);
    let shown = looker.until("web");
    assert!(shown.lines.len() <= 12 && shown.lines.iter().all(|line| line.chars().count() <= 40), "{shown:?}");
    looker.keys("x");
    looker.until("Stop web");
    looker.keys("n");
    let size = ResizeRequest { rows: 30, cols: 120 };
    looker.host.block(looker.host.client().resize(&looker.top.id, &size)).expect("a size");
    let shown = looker.until("q quit");
    assert_eq!(shown.lines.len(), 30, "{shown:?}");
}

#[test]
fn a_process_is_attached_to_in_place() {
    let pinfold = Pinfold::start(PINFOLD);
    let asks = StartRequest {
        name: Some("asks".into()),
        ..on_terminal("printf 'Name? '; read n; echo \"hello $n\"; exec sleep 300")
    };
    pinfold.start_request(&asks);
    let looker = Looker::open(&pinfold, 80, 24);
    looker.until("waits: Name?");
    looker.select("asks");
    looker.keys("a");
    looker.until("ctrl+p ctrl+q");
    looker.until("Name?");
    looker.keys("quincy\r");
    looker.until("hello quincy");
    looker.keys("\u{10}\u{11}");
    looker.until("filter asks");
}

#[test]
fn a_line_is_sent_to_a_process_that_waits() {
    let pinfold = Pinfold::start(PINFOLD);
    let asks = on_terminal("printf 'Proceed? [y/N] '; read a; echo \"you said $a\"; exec sleep 300");
    let asks = pinfold.start_request(&asks).record;
    let looker = Looker::open(&pinfold, 100, 24);
    looker.until("1 needs you");
    looker.keys("!");
    looker.until("inbox: 1 item");
    looker.keys("y");
    looker.until("> y");
    looker.keys("\r");
    crate::requests::until_said(&pinfold, &asks.id, "you said y");
    looker.until("nothing waits for you");
}

#[test]
fn selected_lines_reach_the_terminals_clipboard() {
    let pinfold = Pinfold::start(PINFOLD);
    named(&pinfold, "said", "echo one; echo take me; exec sleep 300");
    let looker = Looker::open(&pinfold, 80, 12);
    looker.until("take me");
    looker.select("said");
    looker.keys("\r");
    looker.until("following, 12B");
    looker.until("take me");
    looker.keys("vky");
    looker.until("copied 2 lines");
    // OSC 52 with `one\ntake me`, in the bytes that the terminal got.
    let sequence = b"\x1b]52;c;b25lCnRha2UgbWU=\x07";
    until("it is sent to the terminal", || {
        let query = OutputQuery { max_bytes: Some("16m".into()), ..OutputQuery::default() };
        let raw = looker.host.block(looker.host.client().output_raw(&looker.top.id, &query)).expect("its output");
        raw.bytes.windows(sequence.len()).any(|bytes| bytes == sequence)
    });
}

#[test]
fn a_process_that_writes_all_the_time_costs_frames_and_not_memory() {
    const ENOUGH: u64 = 200 << 20;
    let pinfold = Pinfold::start(PINFOLD);
    let flood = named(&pinfold, "flood", "exec yes 'a line that is written as fast as it can be'");
    let looker = Looker::open(&pinfold, 80, 24);
    looker.select("flood");
    looker.keys("\r");
    looker.until("following");
    looker.until("a line that is written");
    until("much was written", || pinfold.show(&flood.id).output.bytes > 100 << 20);
    let tree = looker.host.show(&looker.top.id).tree;
    let memory: u64 = tree.iter().map(|member| member.rss_bytes).sum();
    assert!(memory > 0 && memory < ENOUGH, "{memory} bytes");
    looker.keys("q");
    looker.until("filter flood");
}

#[test]
fn the_terminal_is_restored_on_quit_and_on_sigterm() {
    let pinfold = Pinfold::start(PINFOLD);
    let open = || {
        let mut terminal = Terminal::start(&mut pinfold.command(&["top"]), 24, 80).expect("a terminal");
        terminal.until("live");
        until("it is raw", || !terminal.echoes());
        terminal
    };
    let mut terminal = open();
    terminal.write(b"q");
    assert_eq!(terminal.wait().code(), Some(0));
    assert!(terminal.echoes());
    let mut terminal = open();
    // `env` has called exec for pinfold.
    Pidfd::open(terminal.pid()).expect("it lives").signal(15);
    let output = terminal.until("\u{1b}[?1049l");
    assert_eq!(terminal.wait().code(), Some(143));
    assert!(terminal.echoes() && output.contains("\u{1b}[?25h"), "{output:?}");
}

#[test]
fn without_a_terminal_it_says_what_to_use_instead() {
    let pinfold = Pinfold::prepare(PINFOLD, Default::default());
    let refused = pinfold.cli(&["top"]);
    assert_eq!(refused.code, Some(2));
    assert!(refused.stderr.contains("pinfold ps"), "{}", refused.stderr);
    assert!(!pinfold.home().join("socket").exists(), "no daemon is started for it");
}
