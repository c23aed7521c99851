//! Our own stdin on its way to a process, byte for byte, each piece under a name of its own: a daemon that dies in
//! between costs nothing, the next one is asked again.

use std::io::{self, Read};

use pinfold_api::error::ErrorCode;
use pinfold_api::types::{InputAnswer, InputRequest};
use tokio::sync::mpsc;

use super::run::fresh_key;
use crate::failure::Failure;
use crate::offload::start_thread;
use crate::session::Session;

/// The most bytes of one piece, and how many are read ahead.
const PIECE: usize = 64 * 1024;
const AHEAD: usize = 4;
/// How long one request waits for a process that does not read, before it is made again.
const PATIENCE: &str = "30s";

/// Copies our stdin to the process until it ends, and then that end.
pub(super) async fn copy_stdin(session: &Session, id: &str, eof: bool) -> Result<(), Failure> {
    let (sender, mut pieces) = mpsc::channel(AHEAD);
    // A thread that may wait for a person for ever: nobody waits for it.
    start_thread(move || read_stdin(&sender))?;
    let name = fresh_key().unwrap_or_default();
    let mut number = 0_u64;
    while let Some(piece) = pieces.recv().await {
        let input_id = (!name.is_empty()).then(|| format!("{name}-{number}"));
        let request = InputRequest { base64: Some(encode(&piece?)), input_id, ..InputRequest::default() };
        send_all(session, id, request).await?;
        number += 1;
    }
    if eof {
        let input_id = (!name.is_empty()).then(|| format!("{name}-eof"));
        send_all(session, id, InputRequest { eof: true, input_id, ..InputRequest::default() }).await?;
    }
    Ok(())
}

/// Sends one input until all of it is taken, however long the process takes to read.
async fn send_all(session: &Session, id: &str, request: InputRequest) -> Result<InputAnswer, Failure> {
    let request = InputRequest { wait: Some(PATIENCE.into()), ..request };
    loop {
        let answer = session.ask(async |client| client.input(id, &request).await).await?;
        if answer.complete {
            return Ok(answer);
        }
    }
}

fn read_stdin(sender: &mpsc::Sender<io::Result<Vec<u8>>>) {
    let mut stdin = io::stdin().lock();
    loop {
        let mut piece = vec![0; PIECE];
        let read = match stdin.read(&mut piece) {
            Ok(0) => return,
            Ok(count) => {
                piece.truncate(count);
                Ok(piece)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => Err(error),
        };
        let failed = read.is_err();
        if sender.blocking_send(read).is_err() || failed {
            return;
        }
    }
}

pub(super) fn encode(bytes: &[u8]) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

/// Whether the process is of no mind to read on: what a pipe would tell us by SIGPIPE.
pub(super) fn is_unwanted(failure: &Failure) -> bool {
    matches!(failure.error.code, ErrorCode::StdinClosed | ErrorCode::AlreadyOver)
}
