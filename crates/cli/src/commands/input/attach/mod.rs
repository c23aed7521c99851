//! `attach`: connect our terminal to a process until it ends or the user detaches.
//!
//! Output has a cursor and input frames are numbered, so nothing is lost if the daemon is replaced: reading continues at the
//! cursor, and frames that were not acknowledged are sent again.

mod detach;
mod queries;
mod raw;

use std::collections::VecDeque;
use std::io::{self, IsTerminal, Read, Write};

use clap::Args;
use pinfold_api::client::{AttachReader, AttachWriter, Received};
use pinfold_api::types::{AttachControl, AttachNotice, AttachQuery, Outcome};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use self::detach::{DetachKeys, Typed};
use self::queries::QueryFilter;
use self::raw::RawTerminal;
use crate::commands::interrupts::Interrupts;
use crate::commands::run::fresh_key;
use crate::console::Console;
use crate::exit;
use crate::failure::Failure;
use crate::output_threads::start_thread;
use crate::session::Session;

/// With this many unacknowledged bytes, no more input is read.
const MAX_UNACKNOWLEDGED: usize = 64 * 1024;
/// How often a broken connection is reopened without progress.
const TRIES: u32 = 5;

/// Attach this terminal to a running process
///
/// Shows its output and sends what you type. The terminal of the process gets the size of this one; if several are attached,
/// the last resize wins. Detach with ctrl+p ctrl+q: the process keeps running.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  pinfold attach editor\n  pinfold attach --read-only build\n\n\
                        Exit code: that of the command if it ended, 0 if you detached.")]
pub(crate) struct AttachArgs {
    /// Process: id, unique prefix of an id, or name
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// Only show its output: send no input and no size
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Do not read stdin; the terminal size is still sent
    #[arg(long)]
    pub(crate) no_stdin: bool,
    /// Keys that detach, separated by commas; empty for none
    #[arg(long, value_name = "KEYS", default_value = "ctrl+p,ctrl+q", value_parser = DetachKeys::parse)]
    pub(crate) detach_keys: DetachKeys,
}

impl AttachArgs {
    /// Defaults, for `run --interactive`.
    pub(crate) fn of(id: &str) -> Self {
        Self { id: id.to_owned(), read_only: false, no_stdin: false, detach_keys: DetachKeys::usual() }
    }
}

pub(crate) async fn run(session: &Session, args: &AttachArgs, console: &mut Console) -> Result<u8, Failure> {
    let record = session.ask(async |client| client.show(&args.id).await).await?;
    let takes_input = record.pty.is_some() || record.stdin != pinfold_api::types::Stdin::Null;
    let write = takes_input && !args.read_only;
    let terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
    let raw = (write && terminal && record.pty.is_some() && !args.no_stdin).then(RawTerminal::enter).transpose()?;
    let typed = (write && !args.no_stdin).then(read_stdin).transpose()?;
    let mut attached = Attached {
        session,
        id: record.id.clone(),
        write,
        sizes: write && terminal && record.pty.is_some(),
        filter: (terminal && record.pty.is_some()).then(QueryFilter::default),
        keys: args.detach_keys.clone(),
        name: fresh_key().unwrap_or_default(),
        cursor: None,
        first: 0,
        unacknowledged: VecDeque::new(),
    };
    let ending = attached.watch(typed).await;
    drop(raw);
    match ending? {
        Ending::Ended(outcome) => Ok(outcome.as_ref().map_or(exit::PINFOLD_FAILED, exit::code_of)),
        Ending::Detached => {
            console.hint(&format!("detached; {0} keeps running: see `pinfold attach {0}`", record.id));
            Ok(0)
        }
    }
}

/// How it ended.
enum Ending {
    Ended(Option<Outcome>),
    Detached,
}

/// One piece of input.
enum Frame {
    Bytes(Vec<u8>),
    Eof,
}

/// What the loop of [`Attached::serve`] reacts to.
enum Happened {
    Received(Option<Received>),
    Typed(Option<Vec<u8>>),
    Resized,
    Interrupted,
}

struct Attached<'a> {
    session: &'a Session,
    id: String,
    write: bool,
    /// Whether our terminal size is sent.
    sizes: bool,
    filter: Option<QueryFilter>,
    keys: DetachKeys,
    /// Identifies our frames across connections.
    name: String,
    cursor: Option<u64>,
    /// Number of the first unacknowledged frame.
    first: u64,
    unacknowledged: VecDeque<Frame>,
}

impl Attached<'_> {
    async fn watch(&mut self, mut typed: Option<mpsc::Receiver<Vec<u8>>>) -> Result<Ending, Failure> {
        let mut tries = 0;
        loop {
            let before = self.cursor;
            let (reader, writer) = self.connect().await?;
            if let Some(ending) = self.serve(reader, writer, &mut typed).await? {
                return Ok(ending);
            }
            tries = if self.cursor == before { tries + 1 } else { 0 };
            if tries >= TRIES {
                return Err(Failure::internal(format!(
                    "the daemon closed the connection {TRIES} times in a row: run `pinfold doctor`"
                )));
            }
        }
    }

    async fn connect(&self) -> Result<(AttachReader, AttachWriter), Failure> {
        let query = AttachQuery {
            cursor: self.cursor,
            write: Some(self.write),
            session: (!self.name.is_empty()).then(|| self.name.clone()),
            next: Some(self.first),
        };
        self.session.ask(async |client| client.attach(&self.id, &query).await).await
    }

    /// Serves one connection; `None` if it broke.
    async fn serve(
        &mut self,
        mut reader: AttachReader,
        mut writer: AttachWriter,
        typed: &mut Option<mpsc::Receiver<Vec<u8>>>,
    ) -> Result<Option<Ending>, Failure> {
        let mut resized = signal(SignalKind::window_change())?;
        let mut interrupts = Interrupts::listen()?;
        self.send_size(&mut writer).await;
        for frame in &self.unacknowledged {
            send(&mut writer, frame).await;
        }
        loop {
            let room = self.unacknowledged_bytes() < MAX_UNACKNOWLEDGED;
            let happened = tokio::select! {
                received = reader.next() => Happened::Received(received.transpose()?),
                bytes = next_typed(typed), if room => Happened::Typed(bytes),
                _ = resized.recv() => Happened::Resized,
                _ = interrupts.next() => Happened::Interrupted,
            };
            match happened {
                Happened::Received(None) => return Ok(None),
                Happened::Received(Some(received)) => {
                    if let Some(ending) = self.received(received)? {
                        return Ok(Some(ending));
                    }
                }
                Happened::Typed(bytes) => {
                    let frame = match bytes.map(|bytes| self.keys.take(&bytes)) {
                        None => {
                            *typed = None;
                            Frame::Eof
                        }
                        Some(Typed::Detach) => return Ok(Some(Ending::Detached)),
                        Some(Typed::Bytes(bytes)) if bytes.is_empty() => continue,
                        Some(Typed::Bytes(bytes)) => Frame::Bytes(bytes),
                    };
                    send(&mut writer, &frame).await;
                    self.unacknowledged.push_back(frame);
                }
                Happened::Resized => self.send_size(&mut writer).await,
                Happened::Interrupted => return Ok(Some(Ending::Detached)),
            }
        }
    }

    fn received(&mut self, received: Received) -> Result<Option<Ending>, Failure> {
        match received {
            Received::Bytes(bytes) => {
                self.cursor = self.cursor.map(|cursor| cursor + bytes.len() as u64);
                match &mut self.filter {
                    Some(filter) => print(&filter.pass(&bytes))?,
                    None => print(&bytes)?,
                }
            }
            Received::Notice(notice) => match *notice {
                AttachNotice::Attached { cursor, .. } => self.cursor = Some(cursor),
                AttachNotice::Screen { data } if self.filter.is_some() => print(data.as_bytes())?,
                AttachNotice::Gap { from, to } => {
                    self.cursor = Some(to);
                    Console::new(false).note(&format!("{} bytes of output were dropped", to - from));
                }
                AttachNotice::Taken { below } => {
                    let known = below.saturating_sub(self.first) as usize;
                    self.unacknowledged.drain(..known.min(self.unacknowledged.len()));
                    self.first = self.first.max(below);
                }
                AttachNotice::Refused { message, .. } => Console::new(false).note(&message),
                AttachNotice::Exit { outcome, .. } => return Ok(Some(Ending::Ended(outcome))),
                AttachNotice::Closed {} => return Ok(Some(Ending::Ended(None))),
                AttachNotice::Screen { .. } | AttachNotice::Size { .. } => {}
            },
        }
        Ok(None)
    }

    fn unacknowledged_bytes(&self) -> usize {
        let length = |frame: &Frame| match frame {
            Frame::Bytes(bytes) => bytes.len(),
            Frame::Eof => 1,
        };
        self.unacknowledged.iter().map(length).sum()
    }

    async fn send_size(&self, writer: &mut AttachWriter) {
        if let Some((cols, rows)) = terminal_size::terminal_size().filter(|_| self.sizes) {
            // An error here also ends the reader, which handles it.
            let _ = writer.control(&AttachControl::Resize { rows: rows.0, cols: cols.0 }).await;
        }
    }
}

async fn send(writer: &mut AttachWriter, frame: &Frame) {
    // An error here also ends the reader, which handles it; the frame is kept until it is acknowledged.
    let _ = match frame {
        Frame::Bytes(bytes) => writer.send(bytes.clone().into()).await,
        Frame::Eof => writer.control(&AttachControl::Eof {}).await,
    };
}

async fn next_typed(typed: &mut Option<mpsc::Receiver<Vec<u8>>>) -> Option<Vec<u8>> {
    match typed {
        Some(typed) => typed.recv().await,
        None => std::future::pending().await,
    }
}

fn print(bytes: &[u8]) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes)?;
    Ok(stdout.flush()?)
}

/// Reads stdin on a detached thread: the read may block forever.
fn read_stdin() -> Result<mpsc::Receiver<Vec<u8>>, Failure> {
    let (sender, typed) = mpsc::channel(16);
    start_thread(move || {
        let mut buffer = [0; 4096];
        loop {
            match io::stdin().lock().read(&mut buffer) {
                Ok(0) => return,
                Ok(count) if sender.blocking_send(buffer[..count].to_vec()).is_ok() => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(_) | Err(_) => return,
            }
        }
    })?;
    Ok(typed)
}
