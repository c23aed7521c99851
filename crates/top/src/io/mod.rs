//! Beside the pure core: the terminal, the keys, and the talk with the daemon.
//!
//! The thread of the screen waits for messages, updates and draws; it does no other I/O than writing to the terminal. A
//! second thread reads keys, a third talks to the daemon. Messages wait in bounded channels, keys before everything else: a
//! process that writes faster than the screen shows is read more slowly, and no key waits behind its output.

mod acts;
mod attach;
mod events;
mod keys;
mod logs;
pub(crate) mod own_terminal;
mod poll;
mod search;
mod worker;

use std::io::{self, BufWriter, Stdout, Write};
use std::time::Duration;

use base64::Engine;
use jiff::Timestamp;
use pinfold_api::client::Client;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::draw;
use crate::message::{Effect, Message};
use crate::state::State;
use crate::update::update;
use own_terminal::OwnTerminal;
use worker::Worker;

/// The time between two frames; what happens in between is shown with the next one.
const FRAME: Duration = Duration::from_millis(33);
/// Keys, signals and ticks that wait for the screen. The sender waits if there are more.
const MAX_URGENT: usize = 256;
/// Answers of the daemon that wait for the screen; each is bounded itself.
const MAX_NEWS: usize = 16;
/// Effects that wait for the worker. If there are more, the daemon hangs: they are refused, and the screen says so.
const MAX_EFFECTS: usize = 256;
/// The most text that is put on the clipboard: terminals take no more.
const MAX_COPY: usize = 512 << 10;

/// What to show, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// The daemon. The client must not have been used on another runtime.
    pub client: Client,
    /// Whether to use colours.
    pub colour: bool,
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The person left.
    Left,
    /// By this signal.
    Signalled(i32),
}

/// Takes over the terminal until the person leaves.
pub fn run(options: Options) -> io::Result<Ended> {
    let (urgent, urgent_receiver) = mpsc::channel(MAX_URGENT);
    let (news, news_receiver) = mpsc::channel(MAX_NEWS);
    let (effects, effects_receiver) = mpsc::channel(MAX_EFFECTS);
    let worker = Worker::prepare()?;
    let own_terminal = OwnTerminal::enter()?;
    keys::start(urgent.clone())?;
    worker.start(options.client, effects_receiver, urgent, news)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let loop_ = ScreenLoop { urgent: urgent_receiver, news: news_receiver, effects, terminal: terminal()? };
    let ended = runtime.block_on(loop_.run(options.colour));
    drop(own_terminal);
    ended
}

type Screen = Terminal<CrosstermBackend<BufWriter<Stdout>>>;

fn terminal() -> io::Result<Screen> {
    Terminal::new(CrosstermBackend::new(BufWriter::with_capacity(64 << 10, io::stdout())))
}

/// What the thread of the screen has.
struct ScreenLoop {
    urgent: mpsc::Receiver<Message>,
    news: mpsc::Receiver<Message>,
    effects: mpsc::Sender<Effect>,
    terminal: Screen,
}

impl ScreenLoop {
    async fn run(mut self, colour: bool) -> io::Result<Ended> {
        let size = self.terminal.size()?;
        let mut state = State::new(Timestamp::now(), size.width, size.height, colour);
        let mut next_frame = Instant::now();
        let mut message = Some(Message::Ticked(state.now));
        let mut is_dirty = true;
        loop {
            if let Some(message) = message.take() {
                let signal = if let Message::Signalled(signal) = message { Some(signal) } else { None };
                for effect in update(&mut state, message) {
                    if self.carry_out(&mut state, effect)? {
                        return Ok(signal.map_or(Ended::Left, Ended::Signalled));
                    }
                }
                is_dirty = true;
            }
            if is_dirty && Instant::now() >= next_frame {
                self.terminal.draw(|frame| draw::draw(&state, frame))?;
                is_dirty = false;
                next_frame = Instant::now() + FRAME;
            }
            message = tokio::select! {
                biased;
                message = self.urgent.recv() => message,
                message = self.news.recv() => message,
                () = tokio::time::sleep_until(next_frame), if is_dirty => None,
            };
        }
    }

    /// Does it, or passes it on; whether to leave.
    fn carry_out(&mut self, state: &mut State, effect: Effect) -> io::Result<bool> {
        match effect {
            Effect::Quit => return Ok(true),
            Effect::Copy(text) => self.copy(state, &text)?,
            Effect::CopyRegion(from, to) => {
                let frame = self.terminal.draw(|frame| draw::draw(state, frame))?;
                let text = draw::region_text(frame.buffer, from, to);
                self.copy(state, &text)?;
            }
            effect => {
                if self.effects.try_send(effect).is_err() {
                    state.complain("too much is waiting for the daemon: try again when it answers");
                }
            }
        }
        Ok(false)
    }

    /// Puts text on the clipboard with OSC 52, which reaches the person's machine over ssh, too.
    fn copy(&mut self, state: &mut State, text: &str) -> io::Result<()> {
        if text.len() > MAX_COPY {
            state.complain("too much to copy: select less than 512 KiB");
            return Ok(());
        }
        let encoded = base64::engine::general_purpose::STANDARD.encode(text);
        let out = self.terminal.backend_mut();
        write!(out, "\x1b]52;c;{encoded}\x07")?;
        Write::flush(out)
    }
}
