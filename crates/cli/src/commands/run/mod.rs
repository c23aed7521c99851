//! `run`: start a process and show its output until the command exits.

pub(crate) mod environment;
mod foreground;
mod owner_options;
mod restarts;
mod service_options;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use pinfold_api::input::{Size, Span};
use pinfold_api::types::{
    Cause, OutputQuery, Pty, PtySize, Record, SandboxRequest, StartRequest, Started, Stdin, Strays, Streams, WaitReason,
};
use rustix::rand::GetRandomFlags;

use self::environment::Environment;
use self::foreground::{Ending, WatchOptions};
use self::owner_options::NotifyArgs;
use self::restarts::Next;
use self::service_options::ServiceArgs;
pub(super) use self::service_options::lease_of;
use crate::args::Global;
use crate::commands::input::attach::{self, AttachArgs};
use crate::commands::input::copy_stdin;
use crate::commands::interrupts::{Interrupt, Interrupts};
use crate::commands::output::terminal::parse_size;
use crate::console::Console;
use crate::failure::Failure;
use crate::progress_line::ProgressLine;
use crate::render::outcome::render_details;
use crate::render::summary::render_strays;
use crate::render::table::{cut, one_line};
use crate::session::Session;
use crate::{exit, paths};

/// How long a start request waits for the exit: a short command then needs only one request.
const SHORT: &str = "50ms";
/// Longest command in a note.
const MAX_COMMAND: usize = 60;
/// Variables that pinfold sets in every process.
pub(super) const MARKS: [&str; 4] = ["PINFOLD_ID", "PINFOLD_OWNER", "PINFOLD_MARK", HOME];
/// Variable with the state directory of the daemon.
pub(super) const HOME: &str = "PINFOLD_HOME";

/// Run a command, show its output, and exit with its exit code
///
/// A single COMMAND argument is a shell script; several arguments are a program and its arguments, run without a shell.
/// The command gets this environment and working directory. Background processes that it leaves keep running: `pinfold ps`
/// lists them and `pinfold stop` stops them.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  pinfold run 'make && make test'\n  pinfold run -d --name web -- npm run dev\n  \
                        pinfold run --time-limit 5m cargo test\n  pinfold run -it python3\n  \
                        pinfold run -d --notify-pattern ERROR --lifetime owner ./serve\n  \
                        pinfold run -d --lease PORT --ready-port PORT npm run dev\n\n\
                        Exit code: that of the command; 128+N if signal N killed it; 124 after --timeout; 127 if the\n\
                        command does not exist; 126 if it cannot be executed; 125 if pinfold itself failed.\n\
                        With -d and --ready-…: 0 if ready, 124 if not ready in time, the command's own code (at least\n\
                        1) if it ended before.\n\n\
                        Ctrl-C is passed on to the command; a second one stops the whole tree, and so does TERM or\n\
                        HUP. Ctrl-\\ leaves it running and exits with 131. If `pinfold run` itself is killed, the\n\
                        process keeps running: see `pinfold ps`. With --restart it shows every run until the last\n\
                        one, and exits with its code; Ctrl-C stops it.")]
pub(crate) struct RunArgs {
    /// Run in the background: print the id and return; with --ready-…, return when it is ready
    #[arg(short, long)]
    pub(crate) detach: bool,
    /// Name that other commands accept instead of the id
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Label to filter by (`pinfold ps --label`); may be repeated
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = parse_pair)]
    pub(crate) labels: Vec<(String, String)>,
    /// Working directory [default: the current one]
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
    /// Set an environment variable (`KEY=` sets it to the empty string); may be repeated
    #[arg(long = "env", short = 'e', value_name = "KEY=VALUE", value_parser = parse_pair)]
    pub(crate) env: Vec<(String, String)>,
    /// Unset an environment variable; may be repeated
    #[arg(long, value_name = "KEY")]
    pub(crate) unset: Vec<String>,
    /// Shell that runs a script [default: /bin/sh]
    #[arg(long, value_name = "SHELL")]
    pub(crate) shell: Option<String>,
    /// Stop the whole tree after this time (30s, 5m, 1h30m)
    #[arg(long, value_name = "DURATION")]
    pub(crate) time_limit: Option<String>,
    /// Stop the whole tree after this time without output
    #[arg(long, value_name = "DURATION")]
    pub(crate) idle_limit: Option<String>,
    /// What it may do: read-only, workspace-write or off, with parts such as network=none (docs/sandbox.md)
    #[arg(long, value_name = "PROFILE[,PART=VALUE…]")]
    pub(crate) sandbox: Option<String>,
    /// Memory limit of the whole tree (512M, 2G)
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory_limit: Option<String>,
    /// Limit of processes and threads in the tree at once
    #[arg(long, value_name = "N")]
    pub(crate) pids_limit: Option<u32>,
    /// Cores that the tree may use (0.5); needs the cpu controller, see `pinfold doctor`
    #[arg(long, value_name = "CORES")]
    pub(crate) cpus: Option<f64>,
    /// Limit of CPU time of the whole tree
    #[arg(long, value_name = "DURATION")]
    pub(crate) cpu_time_limit: Option<String>,
    /// Time between the stop signal and KILL when the process is stopped
    #[arg(long, value_name = "DURATION")]
    pub(crate) grace: Option<String>,
    /// First signal of a stop [default: TERM]
    #[arg(long, value_name = "SIGNAL")]
    pub(crate) stop_signal: Option<String>,
    /// What to do with descendants that outlive the command [default: keep]
    #[arg(long, value_parser = PossibleValuesParser::new(["keep", "stop"]).map(strays_of))]
    pub(crate) strays: Option<Strays>,
    /// Record stdout and stderr as one stream in exact order, or separately [default: merged]
    #[arg(long, value_parser = PossibleValuesParser::new(["merged", "separate"]).map(streams_of))]
    pub(crate) streams: Option<Streams>,
    /// Open a pipe to its stdin: it gets our stdin, or with --detach what `pinfold send` writes
    #[arg(long)]
    pub(crate) stdin: bool,
    /// Attach this terminal to the process, as `pinfold attach` does; needs -t
    #[arg(short, long, requires = "pty", conflicts_with_all = ["detach", "timeout"])]
    pub(crate) interactive: bool,
    /// Run it on a terminal of this size [default: 24x80]; see `pinfold attach`, `screen` and `send`
    #[arg(short = 't', long, value_name = "ROWSxCOLS", num_args = 0..=1, require_equals = true, default_missing_value = "24x80",
          value_parser = parse_size, conflicts_with_all = ["stdin", "streams"])]
    pub(crate) pty: Option<(u16, u16)>,
    /// How much output to keep on disk, the first and the latest bytes (64M)
    #[arg(long, value_name = "SIZE")]
    pub(crate) output_limit: Option<String>,
    /// Idempotency key: if a process with this key exists, show that one and start nothing
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<String>,
    /// Wait at most this long (up to 1h), then leave it running and exit with 124
    #[arg(long, value_name = "DURATION", conflicts_with = "detach")]
    pub(crate) timeout: Option<String>,
    #[command(flatten)]
    pub(crate) notify: NotifyArgs,
    #[command(flatten)]
    pub(crate) service: ServiceArgs,
    /// Shell script to run, instead of COMMAND
    #[arg(short = 'c', value_name = "SCRIPT", conflicts_with = "command")]
    pub(crate) script: Option<String>,
    /// One argument: a shell script; several: a program and its arguments
    #[arg(required_unless_present = "script", trailing_var_arg = true)]
    pub(crate) command: Vec<String>,
}

/// Starts the process, and shows it unless it is detached.
pub(crate) async fn run(
    session: &Session,
    args: &RunArgs,
    global: &Global,
    console: &mut Console,
) -> Result<u8, Failure> {
    let mut environment = environment(args, passed_variables(session)?.into_iter())?;
    let traceparent = environment.take_traceparent();
    let warning = environment.warning();
    if let (Some(warning), false) = (&warning, console.json) {
        console.note(warning);
    }
    let mut request = request(args, environment.variables)?;
    request.traceparent = traceparent;
    args.notify.apply(&mut request, inherited_owner(global));
    if args.interactive
        && let Some((cols, rows)) = terminal_size::terminal_size()
    {
        request.pty = Some(Pty::Sized(PtySize { rows: rows.0, cols: cols.0 }));
    }
    args.service.apply(&mut request);
    let shown = match (args.detach, args.interactive) {
        (true, _) => Shown::Detached,
        (false, true) => Shown::Attached,
        (false, false) => Shown::Foreground { timeout: args.timeout.clone() },
    };
    start_and_show(session, request, shown, warning, console).await
}

/// The variables of this command that processes inherit, as the configuration says.
pub(super) fn passed_variables(session: &Session) -> Result<Vec<(OsString, OsString)>, Failure> {
    let config = paths::load_config(session.paths())?;
    let passes = |(name, _): &(OsString, OsString)| config.environment.passes(&name.to_string_lossy());
    Ok(std::env::vars_os().filter(passes).collect())
}

/// How much of a new process this command shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// Its id, and whether it became ready.
    Detached,
    /// Its terminal, which gets our keys.
    Attached,
    /// Its output, until it exits or the timeout has passed.
    Foreground { timeout: Option<String> },
}

/// Starts the process and shows it. `warning` is about its environment and was already printed, except with `--json`.
pub(super) async fn start_and_show(
    session: &Session,
    request: StartRequest,
    shown: Shown,
    warning: Option<String>,
    console: &mut Console,
) -> Result<u8, Failure> {
    if let Shown::Foreground { timeout } = shown {
        return in_foreground(session, timeout, request, warning, console).await;
    }
    let mut started = start(session, &request).await?;
    started.hints.extend(warning.filter(|_| console.json));
    print_hints(&started, console);
    if shown == Shown::Attached {
        return attach::run(session, &AttachArgs::of(&started.record.id), console).await;
    }
    if !console.json {
        console.text(&format!("{}\n", started.record.id))?;
    }
    let (record, code) = service_options::until_ready(session, started.record, console).await?;
    started.record = record;
    if console.json {
        console.document(&started)?;
    }
    Ok(code)
}

/// Sends the start request; prints a note if it takes long.
async fn start(session: &Session, request: &StartRequest) -> Result<Started, Failure> {
    let what = || {
        let command = request.command.clone().unwrap_or_else(|| request.argv.clone().unwrap_or_default().join(" "));
        let cwd = one_line(request.cwd.as_deref().unwrap_or("its directory"));
        format!("waiting for `{}` to start in {cwd}", cut(&one_line(&command), MAX_COMMAND))
    };
    session.note_if_slow(what, session.ask(async |client| client.start(request).await)).await
}

/// Starts the process and shows it until the command exits.
async fn in_foreground(
    session: &Session,
    timeout: Option<String>,
    mut request: StartRequest,
    warning: Option<String>,
    console: &mut Console,
) -> Result<u8, Failure> {
    let has_stdin = request.stdin == Some(Stdin::Pipe);
    let unwatched = request.notify.is_none() && request.ready.is_none() && request.restart.is_none();
    if unwatched && !has_stdin && request.pty.is_none() && timeout.is_none() {
        request.wait = Some(Span::from(SHORT));
    }
    let mut interrupts = Interrupts::listen()?;
    let mut started = match foreground::with_interrupts(session, &mut interrupts, start(session, &request)).await {
        Ok(started) => started?,
        Err(interrupt) => {
            console.note(
                "interrupted before the daemon confirmed the start; the process may be running: see `pinfold ps`",
            );
            return Ok(interrupt.code());
        }
    };
    started.hints.extend(warning.filter(|_| console.json));
    print_hints(&started, console);
    let streams = request.streams.unwrap_or(Streams::Merged);
    let mut options = WatchOptions {
        streams: (!console.json).then_some(streams),
        timeout: timeout.clone(),
        restarts: request.restart.is_some(),
    };
    let mut id = started.record.id.clone();
    if started.waited.as_ref().is_some_and(|waited| waited.reason == WaitReason::Exited) {
        let record = started.record.clone();
        foreground::show(session, &id, options.streams, record.output.bytes).await?;
        return finish(session, started, record, console).await;
    }
    // Keys that are typed for the process would be erased with the line.
    let keys_go_to_process = has_stdin && io::stdin().is_terminal();
    let has_line = !(console.json || keys_go_to_process);
    let progress = has_line.then(|| ProgressLine::start(&id)).flatten();
    let follow_start = Instant::now();
    let ending = loop {
        let ending = tokio::select! {
            ending = foreground::watch(session, &id, &options, &mut interrupts, console) => ending?,
            never = feed(session, &id, has_stdin && id == started.record.id, *console) => match never {},
        };
        let Ending::Exited(record) = ending else { break ending };
        if !options.restarts {
            break Ending::Exited(record);
        }
        match restarts::next_of(session, &record.id, &mut interrupts, console).await? {
            Next::Restarted(next) => id = next,
            Next::Over(record) => break Ending::Exited(record),
            Next::Left(interrupt) => break Ending::Left(interrupt),
        }
        options.timeout = timeout.as_deref().map(|timeout| restarts::remaining(timeout, follow_start.elapsed()));
    };
    drop(progress);
    match ending {
        Ending::Exited(record) => finish(session, started, *record, console).await,
        Ending::Silent(interrupt) => {
            console.note(&format!("the daemon does not answer; {id} may still be running: see `pinfold doctor`"));
            Ok(interrupt.code())
        }
        Ending::TimedOut => {
            let waited = timeout.as_deref().unwrap_or_default();
            console
                .note(&format!("{id} is still running after {waited}: see `pinfold wait {id}`, `pinfold stop {id}`"));
            let record = session.ask(async |client| client.show(&id).await).await?;
            if console.json {
                print_json(session, started, record, console).await?;
            }
            Ok(exit::TIMED_OUT)
        }
        Ending::Left(Interrupt::Quit) => {
            console.note(&format!("left {id} running: see `pinfold logs -f {id}`, `pinfold stop {id}`"));
            Ok(Interrupt::Quit.code())
        }
        Ending::Left(interrupt) => {
            console.note(&format!("left while {id} is being stopped: see `pinfold show {id}`"));
            Ok(interrupt.code())
        }
    }
}

/// Prints the daemon's hints. The hint that the name is not unique is printed to scripts too.
fn print_hints(started: &Started, console: &Console) {
    let named = started.record.name.as_ref().map(|name| format!("named `{name}`"));
    for hint in started.hints.iter().filter(|_| !console.json) {
        match named.as_ref().is_some_and(|named| hint.contains(named)) {
            true => console.note(hint),
            false => console.hint(hint),
        }
    }
}

/// Passes our stdin on. It is not an error if the process closes its stdin early.
async fn feed(session: &Session, id: &str, wanted: bool, console: Console) -> Infallible {
    if wanted {
        match copy_stdin::copy_stdin(session, id, true).await {
            Err(failure) if !copy_stdin::is_unwanted(&failure) => {
                console.note(&format!("stdin: {}", failure.error.message))
            }
            _ => {}
        }
    }
    std::future::pending().await
}

/// Prints what the output does not show; returns the exit code.
async fn finish(session: &Session, started: Started, record: Record, console: &mut Console) -> Result<u8, Failure> {
    let code = record.outcome.as_ref().map_or(exit::PINFOLD_FAILED, exit::code_of);
    if console.json {
        print_json(session, started, record, console).await?;
        return Ok(code);
    }
    match record.outcome.as_ref().map(render_details) {
        Some(Some(details)) => console.note(&format!("{}: {details}", record.id)),
        Some(None) => {}
        None => console.note(&format!("{} ended, and its outcome is unknown", record.id)),
    }
    if let Some(limit) = record.cause.and_then(reached_limit) {
        console.note(&format!("{} was stopped at its {limit} limit", record.id));
    }
    if let Some(hint) = record.sandbox.as_ref().and_then(|sandbox| sandbox.hint.as_ref()) {
        console.hint(&format!("{}: {hint}", record.id));
    }
    if let Some(note) = &record.note {
        console.note(&format!("{}: {note}", record.id));
    }
    if let Some(strays) = render_strays(&record) {
        console.hint(&strays);
    }
    Ok(code)
}

/// The limit that a cause names.
fn reached_limit(cause: Cause) -> Option<&'static str> {
    match cause {
        Cause::TimeLimit => Some("time"),
        Cause::IdleLimit => Some("idle"),
        Cause::OutOfMemory => Some("memory"),
        Cause::PidsLimit => Some("pids"),
        Cause::CpuTimeLimit => Some("cpu time"),
        Cause::OnItsOwn | Cause::StopRequested | Cause::OwnerEnded => None,
    }
}

/// Prints the answer of the start with the record as it is now, and the output.
async fn print_json(session: &Session, started: Started, record: Record, console: &mut Console) -> Result<(), Failure> {
    let id = record.id.clone();
    let page = session.ask(async |client| client.output(&id, &OutputQuery::default()).await).await?;
    console.document(&Started { record, output_page: Some(page), ..started })
}

/// The start request for the arguments.
fn request(args: &RunArgs, env: BTreeMap<String, Option<String>>) -> Result<StartRequest, Failure> {
    let (command, argv) = match (&args.script, args.command.as_slice()) {
        (Some(script), _) => (Some(script.clone()), None),
        (None, [script]) => (Some(script.clone()), None),
        (None, words) => (None, Some(words.to_vec())),
    };
    if argv.is_some() && args.shell.is_some() {
        return Err(Failure::invalid("--shell works only with a script: quote the command as one argument"));
    }
    let empty = |text: &String| text.trim().is_empty();
    if command.as_ref().is_some_and(empty) || argv.as_ref().is_some_and(|argv| argv.first().is_none_or(empty)) {
        return Err(Failure::invalid("the command is empty: give a shell script, or a program and its arguments"));
    }
    let cwd = directory(args.cwd.as_deref())?;
    let span = |text: &Option<String>| text.as_deref().map(Span::from);
    Ok(StartRequest {
        command,
        argv,
        shell: args.shell.clone(),
        cwd: Some(cwd),
        env,
        inherit_env: Some(false),
        name: args.name.clone(),
        labels: args.labels.iter().cloned().collect(),
        streams: args.streams,
        stdin: args.stdin.then_some(Stdin::Pipe),
        pty: args.pty.map(|(rows, cols)| Pty::Sized(PtySize { rows, cols })),
        strays: args.strays,
        stop_signal: args.stop_signal.clone(),
        grace: span(&args.grace),
        time_limit: span(&args.time_limit),
        idle_limit: span(&args.idle_limit),
        sandbox: args.sandbox.clone().map(SandboxRequest::Text),
        memory_limit: args.memory_limit.as_deref().map(Size::from),
        pids_limit: args.pids_limit,
        cpus: args.cpus,
        cpu_time_limit: span(&args.cpu_time_limit),
        output_limit: args.output_limit.as_deref().map(Size::from),
        idempotency_key: args.key.clone().or_else(fresh_key),
        ..Default::default()
    })
}

/// The environment of the command: ours with the changes of `--env`, `--unset` and `--cwd`.
fn environment(args: &RunArgs, variables: impl Iterator<Item = (OsString, OsString)>) -> Result<Environment, Failure> {
    let mut environment = Environment::read(variables);
    if args.cwd.is_some() {
        environment.set("PWD", &directory(args.cwd.as_deref())?);
    }
    args.env.iter().for_each(|(name, value)| environment.set(name, value));
    args.unset.iter().for_each(|name| environment.unset(name));
    Ok(environment)
}

/// The owner of the process that this command runs in; none with `--as`, which the daemon applies itself.
pub(super) fn inherited_owner(global: &Global) -> Option<String> {
    let owner = std::env::var("PINFOLD_OWNER").ok().filter(|owner| !owner.is_empty());
    owner.filter(|_| global.acting_as.is_none())
}

/// A random idempotency key: a request that is repeated after a broken connection starts nothing twice.
pub(super) fn fresh_key() -> Option<String> {
    let mut random = [0; 16];
    rustix::rand::getrandom(&mut random, GetRandomFlags::empty()).ok()?;
    Some(format!("run-{:032x}", u128::from_le_bytes(random)))
}

pub(super) fn directory(given: Option<&Path>) -> Result<String, Failure> {
    let path = match given {
        Some(path) => std::path::absolute(path),
        None => std::env::current_dir(),
    };
    let path = path.map_err(|error| {
        Failure::invalid(format!("cannot use the working directory: {error}: change to another, or use --cwd"))
    })?;
    let text = path.into_os_string().into_string();
    text.map_err(|path| {
        Failure::invalid(format!("the working directory {} is not UTF-8: use --cwd with another one", path.display()))
    })
}

pub(super) fn parse_pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(format!("expected KEY=VALUE, got `{text}`")),
    }
}

pub(super) fn strays_of(word: String) -> Strays {
    if word == "stop" { Strays::Stop } else { Strays::Keep }
}

fn streams_of(word: String) -> Streams {
    if word == "separate" { Streams::Separate } else { Streams::Merged }
}
