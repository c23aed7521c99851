//! Messages between daemon, nursery and keepers: arbitrary bytes, and arbitrary bodies in valid frames.

use pinfold_model::facts::History;
use pinfold_model::link::{Decoder, FromKeeper, Message, NurserySetup, ToKeeper, encode};
use serde::Serialize;

use crate::feed::Feed;

pub(crate) fn target(data: &[u8]) {
    let mut feed = Feed(data);
    let (piece, framed) = (usize::from(feed.byte()).max(1), feed.byte() & 1 != 0);
    let bytes = if framed {
        let frame = |body: &[u8]| [&(body.len() as u32).to_le_bytes(), body].concat();
        feed.0.split(|byte| *byte == b'\n').flat_map(frame).collect()
    } else {
        feed.0.to_vec()
    };
    try_link::<ToKeeper>(&bytes, piece);
    try_link::<NurserySetup>(&bytes, piece);
    for message in try_link::<FromKeeper>(&bytes, piece) {
        let history = match message {
            FromKeeper::Hello { kept: Some(kept), .. } => kept.history,
            FromKeeper::Fact { fact: pinfold_model::facts::Fact::Intended(intent), .. } => History::new(*intent),
            _ => continue,
        };
        let _ = (history.status(), history.outcome(), history.cause(), history.ended_at(), history.lingered());
    }
}

/// The messages before the first invalid one. Checks that they do not depend on how the bytes are split, and that they
/// are the same after encoding and decoding them again.
fn try_link<M: Message + Serialize + PartialEq + std::fmt::Debug>(bytes: &[u8], piece: usize) -> Vec<M> {
    let messages = receive(bytes, bytes.len().max(1));
    assert_eq!(receive::<M>(bytes, piece), messages, "pieces of {piece} bytes give another result");
    let sent: Vec<u8> = messages.iter().flat_map(encode).collect();
    assert_eq!(receive::<M>(&sent, sent.len().max(1)), messages, "encoding and decoding changed a message");
    messages
}

fn receive<M: Message>(bytes: &[u8], piece: usize) -> Vec<M> {
    let mut decoder = Decoder::default();
    let mut messages = Vec::new();
    for part in bytes.chunks(piece) {
        decoder.extend(part);
        loop {
            match decoder.try_next() {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => break,
                Err(_) => return messages,
            }
        }
    }
    messages
}
