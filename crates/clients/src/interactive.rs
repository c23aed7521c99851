//! A client on a terminal, run by its own pinfold daemon: reads its screen, answers its questions, types prompts. The
//! model is scripted.
//!
//! Only in this mode does Claude Code announce all of its capabilities to servers.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pinfold_api::types::{InputRequest, Pty, PtySize, StartRequest};
use pinfold_testkit::{Pinfold, until};

use crate::agents::{Mode, Program, ServerAccess};
use crate::chat::new_scratch;
use crate::model::Model;

/// How long a client may take until it is ready for a prompt. The first start unpacks files.
const DEADLINE: Duration = Duration::from_secs(150);
/// How often the screen is checked until then.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Shown when the client is ready for a prompt.
const READY: &str = "bypass permissions on";
/// Shown with every question at the first start.
const QUESTION: &str = "Enter to confirm";
/// The cursor before the selected answer.
const CURSOR: char = '❯';

/// A client on a terminal. Dropping it stops the client and removes its files.
pub struct Interactive {
    pub model: Model,
    host: Pinfold,
    id: String,
    scratch: PathBuf,
}

impl Interactive {
    /// Starts a client with pinfold's server for this daemon, and waits until it is ready for a prompt.
    pub fn start(program: &Program, pinfold: &Pinfold) -> Self {
        let scratch = new_scratch();
        let model = Model::listen();
        let command = program.command_in(&Mode::Interactive, &scratch, model.address, &ServerAccess::of(pinfold));
        skip_welcome(&scratch);
        let text = |value: &std::ffi::OsStr| value.to_string_lossy().into_owned();
        let request = StartRequest {
            argv: Some([command.get_program()].into_iter().chain(command.get_args()).map(text).collect()),
            cwd: command.get_current_dir().map(|directory| directory.to_string_lossy().into_owned()),
            env: command.get_envs().map(|(name, value)| (text(name), value.map(text))).collect(),
            inherit_env: Some(false),
            pty: Some(Pty::Sized(PtySize { rows: 40, cols: 120 })),
            ..StartRequest::default()
        };
        let host = Pinfold::start(&pinfold.binary().to_string_lossy());
        let id = host.start_request(&request).record.id;
        let client = Interactive { model, host, id, scratch };
        let deadline = Instant::now() + DEADLINE;
        while !client.answer_questions().contains(READY) {
            assert!(Instant::now() < deadline, "the client never asked for a prompt: {}", client.screen());
            std::thread::sleep(POLL_INTERVAL);
        }
        client
    }

    pub fn prompt(&self, text: &str) {
        self.send(&InputRequest { text: Some(text.to_owned()), ..InputRequest::default() });
        // Sent together with the text, enter would be part of a paste.
        until("the prompt is on the screen", || self.screen().contains(text));
        self.press(&["enter"]);
    }

    /// The terminal's content.
    pub fn screen(&self) -> String {
        let screen = self.host.block(self.host.client().screen(&self.id)).expect("a screen");
        screen.lines.join("\n")
    }

    /// Selects yes if a question is on the screen; returns the screen.
    fn answer_questions(&self) -> String {
        let screen = self.screen();
        if screen.contains(QUESTION) {
            let place = |wanted: &dyn Fn(&str) -> bool| screen.lines().position(wanted);
            let chosen = place(&|line| line.trim_start().starts_with(CURSOR));
            let yes = place(&|line| line.trim_start_matches([' ', CURSOR]).starts_with("Yes"));
            if let (Some(chosen), Some(yes)) = (chosen, yes) {
                let key = if yes < chosen { "up" } else { "down" };
                let moves = yes.abs_diff(chosen);
                self.press(&[vec![key; moves], vec!["enter"]].concat());
                until("the question is gone", || self.screen() != screen);
            }
        }
        screen
    }

    fn press(&self, keys: &[&str]) {
        let keys = keys.iter().map(|key| (*key).to_owned()).collect();
        self.send(&InputRequest { keys, ..InputRequest::default() });
    }

    fn send(&self, request: &InputRequest) {
        let sent = self.host.block(self.host.client().input(&self.id, request)).expect("input");
        assert!(sent.complete, "{sent:?}");
    }
}

impl Drop for Interactive {
    fn drop(&mut self) {
        // A running client writes into its home.
        self.host.stop(&self.id);
        let _ = std::fs::remove_dir_all(&self.scratch);
    }
}

/// Skips the theme and login questions, which need a network.
fn skip_welcome(scratch: &Path) {
    let settings = r#"{"hasCompletedOnboarding":true,"theme":"dark"}"#;
    std::fs::write(scratch.join("home/.claude.json"), settings).expect("settings");
}
