//! Copies our stdin to a process, byte for byte. Each piece has an id, so it can be sent again to the next daemon without being
//! written twice.

use std::io::{self, Read};

use pinfold_api::error::ErrorCode;
use pinfold_api::types::{InputAnswer, InputRequest};
use tokio::sync::mpsc;

use crate::commands::run::fresh_key;
use crate::failure::Failure;
use crate::output_threads::start_thread;
use crate::session::Session;

/// Maximum bytes of one piece, and how many pieces are read ahead.
const PIECE: usize = 64 * 1024;
const AHEAD: usize = 4;
/// How long one request waits for a process that does not read; it is then repeated.
const DEADLINE: &str = "30s";

/// Copies our stdin to the process until end of file; with `eof` closes the process's stdin then.
pub(crate) async fn copy_stdin(session: &Session, id: &str, eof: bool) -> Result<(), Failure> {
    let (sender, mut pieces) = mpsc::channel(AHEAD);
    // Detached: the read may block forever.
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

/// Repeats one input until all of it is accepted.
async fn send_all(session: &Session, id: &str, request: InputRequest) -> Result<InputAnswer, Failure> {
    let request = InputRequest { wait: Some(DEADLINE.into()), ..request };
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

/// Whether the process no longer reads its stdin: what SIGPIPE means for a pipe.
pub(crate) fn is_unwanted(failure: &Failure) -> bool {
    matches!(failure.error.code, ErrorCode::StdinClosed | ErrorCode::AlreadyOver)
}
