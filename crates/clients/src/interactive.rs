//! A client for a person, on a terminal: run under a daemon of its own, its screen read, its questions answered, the
//! prompt typed. The model is scripted as ever.
//!
//! Claude Code announces to servers what it can do only in this mode, so headless chats do not show all of it.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pinfold_api::types::{InputRequest, Pty, PtySize, StartRequest};
use pinfold_testkit::{Pinfold, until};

use crate::agents::{Mode, Program, Way};
use crate::chat::new_scratch;
use crate::model::Model;

/// How long a client may take until it asks for a prompt. A cold one unpacks itself first.
const PATIENCE: Duration = Duration::from_secs(150);
/// How often its screen is looked at meanwhile.
const LOOK: Duration = Duration::from_millis(50);
/// What the client shows when it waits for a prompt.
const READY: &str = "bypass permissions on";
/// What every question of the client at its first start shows.
const QUESTION: &str = "Enter to confirm";
/// What stands before the answer that is chosen.
const CHOSEN: char = '❯';

/// A client on a terminal. It is stopped and its files are removed when it is dropped.
pub struct Interactive {
    pub model: Model,
    host: Pinfold,
    id: String,
    scratch: PathBuf,
}

impl Interactive {
    /// A client that waits for its first prompt, with pinfold's server for this daemon.
    pub fn start(program: &Program, pinfold: &Pinfold) -> Self {
        let scratch = new_scratch();
        let model = Model::listen();
        let command = program.command_in(&Mode::Interactive, &scratch, model.address, &Way::of(pinfold));
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
        let deadline = Instant::now() + PATIENCE;
        while !client.answer_questions().contains(READY) {
            assert!(Instant::now() < deadline, "the client never asked for a prompt: {}", client.screen());
            std::thread::sleep(LOOK);
        }
        client
    }

    /// Types a prompt.
    pub fn prompt(&self, text: &str) {
        self.send(&InputRequest { text: Some(text.to_owned()), ..InputRequest::default() });
        // In one piece with the text, enter would be a line break of what is pasted.
        until("the prompt is on the screen", || self.screen().contains(text));
        self.press(&["enter"]);
    }

    /// What the terminal shows.
    pub fn screen(&self) -> String {
        let screen = self.host.block(self.host.client().screen(&self.id)).expect("a screen");
        screen.lines.join("\n")
    }

    /// Says yes to the question on the screen, if there is one; gives the screen.
    fn answer_questions(&self) -> String {
        let screen = self.screen();
        if screen.contains(QUESTION) {
            let place = |wanted: &dyn Fn(&str) -> bool| screen.lines().position(wanted);
            let chosen = place(&|line| line.trim_start().starts_with(CHOSEN));
            let yes = place(&|line| line.trim_start_matches([' ', CHOSEN]).starts_with("Yes"));
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
        // As long as it lives it writes into its home.
        self.host.stop(&self.id);
        let _ = std::fs::remove_dir_all(&self.scratch);
    }
}

/// The very first questions, theme and login, come only with a network.
fn skip_welcome(scratch: &Path) {
    let settings = r#"{"hasCompletedOnboarding":true,"theme":"dark"}"#;
    std::fs::write(scratch.join("home/.claude.json"), settings).expect("settings");
}
