//! Messages of an MCP client, through the real handler on streams, with both sets of tools. No daemon answers, so every
//! call that gets past its arguments is told so.

use std::io::Cursor;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use pinfold_api::client::Client;
use pinfold_mcp::{Options, Shape, serve_streams};
use serde_json::Value;
use tokio::io::AsyncWrite;

use crate::feed::Feed;

/// How every session begins; what comes after may be anything.
const HANDSHAKE: &str = concat!(
    r#"{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"2025-06-18","#,
    r#""capabilities":{},"clientInfo":{"name":"hostile","version":"0"}}}"#,
    "\n",
    r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
    "\n"
);
/// No result is larger (M3), with what the protocol puts around it.
const RESULT_MOST: usize = (256 + 16) << 10;
/// What an error repeats of a request, at most, is all of it, each byte as `\u00XX`.
const ESCAPED: usize = 6;
/// Turns that calls get to end after the client has left.
const TURNS: usize = 64;

pub(crate) fn target(data: &[u8]) {
    let mut feed = Feed(data);
    let flags = feed.byte();
    let shape = if flags & 1 == 0 { Shape::Native } else { Shape::Coder };
    let handshake = if flags & 2 == 0 { HANDSHAKE } else { "" };
    let input = [handshake.as_bytes(), feed.0, b"\n"].concat();
    let answers = Answers::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let client = Client::new("/nonexistent/pinfold/socket");
        let options = Options { shape, ..Options::default() };
        serve_streams(client, &options, Cursor::new(input), answers.clone()).await;
        for _ in 0..TURNS {
            tokio::task::yield_now().await;
        }
    });
    let said = answers.0.lock().expect("nobody panicked");
    for line in said.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let value: Value = serde_json::from_slice(line).expect("an answer is JSON");
        assert_eq!(value["jsonrpc"], "2.0", "{value}");
        assert!(line.len() <= RESULT_MOST + ESCAPED * data.len(), "a result of {} bytes", line.len());
    }
}

/// What the server says.
#[derive(Clone, Debug, Default)]
struct Answers(Arc<Mutex<Vec<u8>>>);

impl AsyncWrite for Answers {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        self.0.lock().expect("nobody panicked").extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
