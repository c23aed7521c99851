//! MCP on stdin and stdout. When this server ends, only its open calls end with it.

use std::time::Duration;

use pinfold_api::client::Client;
use rmcp::transport::io::stdio_pipes;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, DuplexStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use crate::daemon_access::Ensure;
use crate::identity::ClientIdentity;
use crate::options::{Base, Options};
use crate::overlong::Overlong;
use crate::server::Server;
use crate::{duplicates, random};

/// Maximum length of a message. A longer one is dropped; a request gets an error.
pub(crate) const MAX_LINE: usize = 16 << 20;
/// Buffer between reading lines and parsing them.
const BUFFER: usize = 64 << 10;
/// How long open calls may still take after the end of input.
const LAST_ANSWERS: Duration = Duration::from_millis(250);
/// Timeout for acknowledging delivered news.
const LAST_ACKS: Duration = Duration::from_millis(100);

/// Serves one client on stdin and stdout until it leaves, or until INT or TERM. The daemon is started beside the
/// handshake, not before it.
pub async fn serve_stdio(client: Client, ensure: Ensure, options: Options) -> std::io::Result<()> {
    let server =
        Server::new(client, Some(ensure), identity(&options), Base::of_this_program(&options.withheld), &options);
    let warming = {
        let server = server.clone();
        // The first call meets the same error and reports it.
        tokio::spawn(async move {
            if server.daemon().ensure().await.is_ok() {
                server.keep_known_owner();
            }
        })
    };
    let (stdin, stdout) = stdio_pipes();
    let (near, far) = tokio::io::duplex(BUFFER);
    let (ended, end) = oneshot::channel();
    let feeding = tokio::spawn(async move {
        feed(stdin, far).await;
        let _ = ended.send(());
    });
    let serving = tokio::spawn(serve(server.clone(), near, stdout));
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
        _ = end => {
            // Answer open calls that finish within [`LAST_ANSWERS`].
            let _ = tokio::time::timeout(LAST_ANSWERS, serving).await;
        }
    }
    let _ = tokio::time::timeout(LAST_ACKS, server.settle()).await;
    warming.abort();
    feeding.abort();
    Ok(())
}

/// Serves what a client says, and ends with it: the same without the descriptors of this program, for whoever tries
/// it with any bytes.
#[doc(hidden)]
pub async fn serve_streams<I, O>(client: Client, options: &Options, input: I, output: O)
where
    I: AsyncRead + Unpin,
    O: AsyncWrite + Send + Unpin + 'static,
{
    let server = Server::new(client, None, ClientIdentity::default(), Base::default(), options);
    let (near, far) = tokio::io::duplex(BUFFER);
    tokio::join!(feed(input, far), serve(server, near, output));
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
        inside: variable("PINFOLD_OWNER"),
        connection: Some(format!("mcp-{}", random::hex(8))),
    }
}

/// Hands lines on, with doubled keys noted. Ends with the input.
async fn feed(input: impl AsyncRead + Unpin, mut output: DuplexStream) {
    let mut input = BufReader::new(input);
    let mut line = Vec::new();
    let mut overlong: Option<Overlong> = None;
    loop {
        let Ok(available) = input.fill_buf().await else { return };
        if available.is_empty() {
            return;
        }
        let end = available.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(available.len(), |end| end + 1);
        let piece = &available[..taken];
        match &mut overlong {
            Some(overlong) => overlong.push(piece),
            None => {
                line.extend_from_slice(piece);
                if line.len() > MAX_LINE {
                    overlong = Some(Overlong::new(&std::mem::take(&mut line)));
                }
            }
        }
        input.consume(taken);
        if end.is_none() {
            continue;
        }
        let passed = match overlong.take() {
            Some(overlong) => match overlong.substitute() {
                Some(request) => output.write_all(request.as_bytes()).await,
                None => Ok(()),
            },
            None => pass_on(&line, &mut output).await,
        };
        if passed.is_err() {
            return;
        }
        line.clear();
    }
}

async fn pass_on(line: &[u8], output: &mut DuplexStream) -> std::io::Result<()> {
    match duplicates::noted(line) {
        Some(noted) => {
            output.write_all(&noted).await?;
            output.write_all(b"\n").await
        }
        None => output.write_all(line).await,
    }
}
