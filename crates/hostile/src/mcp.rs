//! Messages of an MCP client, passed to the real handler over streams, with both sets of tools. There is no daemon, so
//! every call with valid arguments fails because of that.

use std::io::Cursor;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use pinfold_api::client::Client;
use pinfold_mcp::{Options, Shape, serve_streams};
use serde_json::Value;
use tokio::io::AsyncWrite;

use crate::feed::Feed;

/// The start of a session; anything may follow.
const HANDSHAKE: &str = concat!(
    r#"{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"2025-06-18","#,
    r#""capabilities":{},"clientInfo":{"name":"hostile","version":"0"}}}"#,
    "\n",
    r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
    "\n"
);
/// Maximum size of a result (M3), plus the protocol's envelope.
const MAX_RESULT: usize = (256 + 16) << 10;
/// An error may repeat the whole request, with each byte escaped as `\u00XX`.
const MAX_ESCAPE: usize = 6;
/// How often the runtime yields to unfinished calls after the client has disconnected.
const YIELDS: usize = 64;

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
        for _ in 0..YIELDS {
            tokio::task::yield_now().await;
        }
    });
    let output = answers.0.lock().expect("not poisoned");
    for line in output.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let value: Value = serde_json::from_slice(line).expect("an answer is JSON");
        assert_eq!(value["jsonrpc"], "2.0", "{value}");
        assert!(line.len() <= MAX_RESULT + MAX_ESCAPE * data.len(), "a result of {} bytes", line.len());
    }
}

/// The output of the server.
#[derive(Clone, Debug, Default)]
struct Answers(Arc<Mutex<Vec<u8>>>);

impl AsyncWrite for Answers {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        self.0.lock().expect("not poisoned").extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
