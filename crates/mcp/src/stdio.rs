//! Serves MCP on stdin and stdout. When the server exits, its open calls end; the processes keep running.

use std::time::Duration;

use pinfold_api::client::Client;
use rmcp::transport::io::stdio_pipes;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, DuplexStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use crate::daemon_access::Ensure;
use crate::identity::ClientIdentity;
use crate::options::{CommandDefaults, Options};
use crate::oversized_message::OversizedMessage;
use crate::server::Server;
use crate::{duplicates, random};

/// Maximum length of a message. A longer message is dropped; if it is a request, the client gets an error.
pub(crate) const MAX_LINE: usize = 16 << 20;
/// Size of the buffer between reading lines and parsing them.
const BUFFER: usize = 64 << 10;
/// How long open calls may take to finish after stdin was closed.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(250);
/// Timeout for acknowledging the news that were sent.
const ACK_TIMEOUT: Duration = Duration::from_millis(100);

/// Serves one client on stdin and stdout until it closes stdin, or until SIGINT or SIGTERM. The daemon is started in
/// parallel with the MCP handshake.
pub async fn serve_stdio(client: Client, ensure: Ensure, options: Options) -> std::io::Result<()> {
    let server = Server::new(
        client,
        Some(ensure),
        identity(&options),
        CommandDefaults::from_this_process(&options.withheld),
        &options,
    );
    let starting_daemon = {
        let server = server.clone();
        // Ignore an error here: the first call runs into the same error and reports it.
        tokio::spawn(async move {
            if server.daemon().ensure().await.is_ok() {
                server.keep_known_owner_alive();
            }
        })
    };
    let (stdin, stdout) = stdio_pipes();
    let (near, far) = tokio::io::duplex(BUFFER);
    let (ended, end) = oneshot::channel();
    let forwarding = tokio::spawn(async move {
        forward_lines(stdin, far).await;
        let _ = ended.send(());
    });
    let serving = tokio::spawn(serve(server.clone(), near, stdout));
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
        _ = end => {
            // Answer open calls that finish within [`SHUTDOWN_TIMEOUT`].
            let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, serving).await;
        }
    }
    let _ = tokio::time::timeout(ACK_TIMEOUT, server.acknowledge_sent()).await;
    starting_daemon.abort();
    forwarding.abort();
    Ok(())
}

/// Serves one client on any pair of streams until it disconnects, for fuzzing and tests.
#[doc(hidden)]
pub async fn serve_streams<I, O>(client: Client, options: &Options, input: I, output: O)
where
    I: AsyncRead + Unpin,
    O: AsyncWrite + Send + Unpin + 'static,
{
    let server = Server::new(client, None, ClientIdentity::default(), CommandDefaults::default(), options);
    let (near, far) = tokio::io::duplex(BUFFER);
    tokio::join!(forward_lines(input, far), serve(server, near, output));
}

async fn serve(server: Server, input: DuplexStream, output: impl AsyncWrite + Send + Unpin + 'static) {
    if let Ok(running) = rmcp::serve_server(server, (input, output)).await {
        let _ = running.waiting().await;
    }
}

fn identity(options: &Options) -> ClientIdentity {
    let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    ClientIdentity {
        owner: options.owner.clone(),
        parent: options.parent.clone(),
        claude: variable("CLAUDE_CODE_SESSION_ID"),
        follows_claude: true,
        outer_owner: variable("PINFOLD_OWNER"),
        connection: Some(format!("mcp-{}", random::hex(8))),
    }
}

/// Forwards lines to the SDK, with duplicate argument keys noted in `_meta`. Returns when the input ends.
async fn forward_lines(input: impl AsyncRead + Unpin, mut output: DuplexStream) {
    let mut input = BufReader::new(input);
    let mut line = Vec::new();
    let mut oversized: Option<OversizedMessage> = None;
    loop {
        let Ok(available) = input.fill_buf().await else { return };
        if available.is_empty() {
            return;
        }
        let end = available.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(available.len(), |end| end + 1);
        let piece = &available[..taken];
        match &mut oversized {
            Some(oversized) => oversized.push(piece),
            None => {
                line.extend_from_slice(piece);
                if line.len() > MAX_LINE {
                    oversized = Some(OversizedMessage::new(&std::mem::take(&mut line)));
                }
            }
        }
        input.consume(taken);
        if end.is_none() {
            continue;
        }
        let passed = match oversized.take() {
            Some(oversized) => match oversized.placeholder_request() {
                Some(request) => output.write_all(request.as_bytes()).await,
                None => Ok(()),
            },
            None => forward_line(&line, &mut output).await,
        };
        if passed.is_err() {
            return;
        }
        line.clear();
    }
}

async fn forward_line(line: &[u8], output: &mut DuplexStream) -> std::io::Result<()> {
    match duplicates::annotate(line) {
        Some(annotated) => {
            output.write_all(&annotated).await?;
            output.write_all(b"\n").await
        }
        None => output.write_all(line).await,
    }
}
