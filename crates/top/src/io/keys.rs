//! The thread that reads the terminal: keys, mouse, pastes, resizes.

use std::io;

use crossterm::event::{Event, KeyEventKind, MouseEventKind, read};
use tokio::sync::mpsc::Sender;

use crate::message::Message;

/// What a shell sends when the terminal is closed.
const HANGUP: i32 = 1;

/// Starts the thread. It ends with the program: it may wait for a key for ever.
pub(super) fn start(urgent: Sender<Message>) -> io::Result<()> {
    let work = move || loop {
        let message = match read() {
            Ok(event) => of_event(event),
            // The terminal is gone.
            Err(_) => Some(Message::Signalled(HANGUP)),
        };
        let is_last = matches!(message, Some(Message::Signalled(_)));
        if message.is_some_and(|message| urgent.blocking_send(message).is_err()) || is_last {
            return;
        }
    };
    std::thread::Builder::new().name("keys".into()).spawn(work).map(drop)
}

fn of_event(event: Event) -> Option<Message> {
    match event {
        Event::Key(key) if key.kind != KeyEventKind::Release => Some(Message::KeyPressed(key)),
        Event::Mouse(mouse) if mouse.kind != MouseEventKind::Moved => Some(Message::MouseUsed(mouse)),
        Event::Paste(text) => Some(Message::Pasted(text)),
        Event::Resize(columns, rows) => Some(Message::Resized { columns, rows }),
        _ => None,
    }
}
