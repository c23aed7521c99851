//! `run`: start a process, and show it until its command exits.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use pinfold_api::input::{Size, Span};
use pinfold_api::types::{
    Cause, OutputQuery, Pty, PtySize, Record, StartRequest, Started, Stdin, Strays, Streams, WaitReason,
};
use rustix::rand::GetRandomFlags;

use super::attach::{self, AttachArgs};
use super::environment::Environment;
use super::feed;
use super::foreground::{self, Ending, Showing};
use super::foreground_restarts::{self, Next};
use super::interrupts::Interrupts;
use super::notify::NotifyArgs;
use super::service_options::{self, ServiceArgs};
use super::show_screen::parse_size;
use crate::args::Global;
use crate::console::Screen;
use crate::failure::Failure;
use crate::render::outcome::render_details;
use crate::render::summary::render_strays;
use crate::render::table::{cut, one_line};
use crate::session::Session;
use crate::{exit, paths};

/// How long the answer to a start waits for the end: what is short costs one request.
const SHORT: &str = "50ms";
/// Characters of a command in a message about it.
const COMMAND_SHOWN: usize = 60;
/// What pinfold sets in every process.
pub(super) const MARKS: [&str; 4] = ["PINFOLD_ID", "PINFOLD_OWNER", "PINFOLD_MARK", HOME];
/// The home that a process is kept in.
pub(super) const HOME: &str = "PINFOLD_HOME";

/// Run a command, show its output, and exit with its exit code
///
/// One COMMAND argument is a script for the shell; several are a program and its arguments, run without one.
/// The command gets this environment and directory. What it leaves running in the background lives on, is
/// listed by `ps` and ended by `stop`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  pinfold run 'make && make test'\n  pinfold run -d --name web -- npm run dev\n  \
                        pinfold run --time-limit 5m cargo test\n  pinfold run -it python3\n  \
                        pinfold run -d --notify-pattern ERROR --lifetime owner ./serve\n  \
                        pinfold run -d --lease PORT --ready-port PORT npm run dev\n\n\
                        Exits with the command's code, 128+N for signal N, 124 when --timeout passed, 127 when there\n\
                        is no such command, 126 when it cannot be executed, 125 when pinfold itself failed.\n\
                        Ctrl-C is passed on; a second one stops the whole tree, and so does TERM or HUP. If this\n\
                        command is killed, the process lives on: see `pinfold ps`. With --restart it shows each life\n\
                        until it is given up or stopped, and exits with the code of the last; Ctrl-C stops it.\n\
                        With -d and --ready-…: 0 when it is ready, 124 when it is not in time, and its own code (at\n\
                        least 1) when it ended before.")]
pub(crate) struct RunArgs {
    /// Print the id and return at once; with --ready-… as soon as it is ready
    #[arg(short, long)]
    pub(crate) detach: bool,
    /// A name to find it by
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// A label to find it by; may be repeated
    #[arg(long = "label", value_name = "K=V", value_parser = parse_pair)]
    pub(crate) labels: Vec<(String, String)>,
    /// The working directory [default: this one]
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
    /// Set a variable (`K=` sets it empty); may be repeated
    #[arg(long = "env", short = 'e', value_name = "K=V", value_parser = parse_pair)]
    pub(crate) env: Vec<(String, String)>,
    /// Unset a variable; may be repeated
    #[arg(long, value_name = "K")]
    pub(crate) unset: Vec<String>,
    /// The shell of a script [default: /bin/sh]
    #[arg(long, value_name = "SH")]
    pub(crate) shell: Option<String>,
    /// Stop the whole tree after this time (30s, 5m, 1h30m)
    #[arg(long, value_name = "D")]
    pub(crate) time_limit: Option<String>,
    /// Stop the whole tree after so long without output
    #[arg(long, value_name = "D")]
    pub(crate) idle_limit: Option<String>,
    /// The most memory of the whole tree (512M, 2G)
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory_limit: Option<String>,
    /// The most processes and threads of the tree at once
    #[arg(long, value_name = "N")]
    pub(crate) pids_limit: Option<u32>,
    /// How many cores the tree may keep busy (0.5); needs the cpu controller, see `pinfold doctor`
    #[arg(long, value_name = "CORES")]
    pub(crate) cpus: Option<f64>,
    /// The most processor time of the whole tree
    #[arg(long, value_name = "D")]
    pub(crate) cpu_time_limit: Option<String>,
    /// How long a stop waits before KILL
    #[arg(long, value_name = "D")]
    pub(crate) grace: Option<String>,
    /// The signal that a stop begins with [default: TERM]
    #[arg(long, value_name = "SIG")]
    pub(crate) stop_signal: Option<String>,
    /// What becomes of descendants that outlive the command [default: keep]
    #[arg(long, value_parser = PossibleValuesParser::new(["keep", "stop"]).map(strays_of))]
    pub(crate) strays: Option<Strays>,
    /// One stream in exact order, or stdout and stderr apart [default: merged]
    #[arg(long, value_parser = PossibleValuesParser::new(["merged", "separate"]).map(streams_of))]
    pub(crate) streams: Option<Streams>,
    /// Keep its stdin open: this command's own is passed on, with --detach `pinfold send` writes to it
    #[arg(long)]
    pub(crate) stdin: bool,
    /// Attach this terminal to it, in place of showing its output: with -t, as `pinfold attach` does
    #[arg(short, long, requires = "pty", conflicts_with_all = ["detach", "timeout"])]
    pub(crate) interactive: bool,
    /// Give it a terminal, of 24x80 or of this size: `pinfold send`, `screen` and `attach` use it
    #[arg(short = 't', long, value_name = "ROWSxCOLS", num_args = 0..=1, require_equals = true, default_missing_value = "24x80",
          value_parser = parse_size, conflicts_with_all = ["stdin", "streams"])]
    pub(crate) pty: Option<(u16, u16)>,
    /// How much output is kept on disk, first and latest bytes (64M)
    #[arg(long, value_name = "SIZE")]
    pub(crate) output_limit: Option<String>,
    /// Start nothing if a process with this key exists: show that one
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<String>,
    /// Watch at most this long (up to 1h), then leave it running and exit with 124
    #[arg(long, value_name = "D", conflicts_with = "detach")]
    pub(crate) timeout: Option<String>,
    #[command(flatten)]
    pub(crate) notify: NotifyArgs,
    #[command(flatten)]
    pub(crate) service: ServiceArgs,
    /// A script for the shell, in place of COMMAND
    #[arg(short = 'c', value_name = "SCRIPT", conflicts_with = "command")]
    pub(crate) script: Option<String>,
    /// One argument: a script for the shell; several: a program and its arguments
    #[arg(required_unless_present = "script", trailing_var_arg = true)]
    pub(crate) command: Vec<String>,
}

/// Starts it, and shows it unless it is detached.
pub(crate) async fn run(
    session: &Session,
    args: &RunArgs,
    global: &Global,
    screen: &mut Screen,
) -> Result<u8, Failure> {
    let config = paths::load_config(session.paths())?;
    let passes = |(name, _): &(OsString, OsString)| config.environment.passes(&name.to_string_lossy());
    let environment = environment(args, std::env::vars_os().filter(passes))?;
    let warning = environment.warning();
    if let (Some(warning), false) = (&warning, screen.json) {
        screen.note(warning);
    }
    let mut request = request(args, environment.variables)?;
    args.notify.apply(&mut request, inherited_owner(global));
    if args.interactive
        && let Some((cols, rows)) = terminal_size::terminal_size()
    {
        request.pty = Some(Pty::Sized(PtySize { rows: rows.0, cols: cols.0 }));
    }
    args.service.apply(&mut request);
    if !args.detach && !args.interactive {
        return in_foreground(session, args, request, warning, screen).await;
    }
    let mut started = start(session, &request).await?;
    started.hints.extend(warning.filter(|_| screen.json));
    tell_hints(&started, args, screen);
    if args.detach {
        if !screen.json {
            screen.text(&format!("{}\n", started.record.id))?;
        }
        let (record, code) = service_options::until_ready(session, started.record, screen).await?;
        started.record = record;
        if screen.json {
            screen.document(&started)?;
        }
        return Ok(code);
    }
    attach::run(session, &AttachArgs::of(&started.record.id), screen).await
}

/// Asks for the start; a start that takes long says where it is to be.
async fn start(session: &Session, request: &StartRequest) -> Result<Started, Failure> {
    let what = || {
        let command = request.command.clone().unwrap_or_else(|| request.argv.clone().unwrap_or_default().join(" "));
        let cwd = one_line(request.cwd.as_deref().unwrap_or("its directory"));
        format!("waiting for `{}` to start in {cwd}", cut(&one_line(&command), COMMAND_SHOWN))
    };
    session.saying(what, session.ask(async |client| client.start(request).await)).await
}

/// Starts it, and shows it until its command exits.
async fn in_foreground(
    session: &Session,
    args: &RunArgs,
    mut request: StartRequest,
    warning: Option<String>,
    screen: &mut Screen,
) -> Result<u8, Failure> {
    let unwatched = request.notify.is_none() && request.ready.is_none() && request.restart.is_none();
    if unwatched && !args.stdin && args.pty.is_none() && args.timeout.is_none() {
        request.wait = Some(Span::from(SHORT));
    }
    let mut interrupts = Interrupts::listen()?;
    let mut started = match foreground::heeding(session, &mut interrupts, start(session, &request)).await {
        Ok(started) => started?,
        Err(interrupt) => {
            screen.note("left before the daemon said whether it is started; if it is, it runs on  (pinfold ps)");
            return Ok(interrupt.code());
        }
    };
    started.hints.extend(warning.filter(|_| screen.json));
    tell_hints(&started, args, screen);
    let streams = args.streams.unwrap_or(Streams::Merged);
    let mut showing = Showing {
        streams: (!screen.json).then_some(streams),
        timeout: args.timeout.clone(),
        restarts: request.restart.is_some(),
    };
    let mut id = started.record.id.clone();
    if started.waited.as_ref().is_some_and(|waited| waited.reason == WaitReason::Exited) {
        let record = started.record.clone();
        foreground::show(session, &id, showing.streams, record.output.bytes).await?;
        return finish(session, started, record, screen).await;
    }
    let begun = Instant::now();
    let ending = loop {
        let ending = tokio::select! {
            ending = foreground::watch(session, &id, &showing, &mut interrupts, screen) => ending?,
            never = feed(session, &id, args.stdin && id == started.record.id, *screen) => match never {},
        };
        let Ending::Exited(record) = ending else { break ending };
        if !showing.restarts {
            break Ending::Exited(record);
        }
        match foreground_restarts::next_of(session, &record.id, &mut interrupts, screen).await? {
            Next::Life(next) => id = next,
            Next::Over(record) => break Ending::Exited(record),
            Next::Left(interrupt) => break Ending::Left(interrupt),
        }
        showing.timeout =
            args.timeout.as_deref().map(|timeout| foreground_restarts::remaining(timeout, begun.elapsed()));
    };
    match ending {
        Ending::Exited(record) => finish(session, started, *record, screen).await,
        Ending::Silent(interrupt) => {
            screen.note(&format!("the daemon does not answer: {id} is left to it  (pinfold doctor)"));
            Ok(interrupt.code())
        }
        Ending::TimedOut => {
            let waited = args.timeout.as_deref().unwrap_or_default();
            screen.note(&format!("{id} still runs after {waited}  (pinfold wait {id}, pinfold stop {id})"));
            let record = session.ask(async |client| client.show(&id).await).await?;
            if screen.json {
                print_json(session, started, record, screen).await?;
            }
            Ok(exit::TIMED_OUT)
        }
        Ending::Left(interrupt) => {
            screen.note(&format!("{id} is left to the daemon  (pinfold show {id})"));
            Ok(interrupt.code())
        }
    }
}

/// Says what the daemon noticed. That a name does not find one process alone is told to scripts too.
fn tell_hints(started: &Started, args: &RunArgs, screen: &Screen) {
    let named = args.name.as_ref().map(|name| format!("named `{name}`"));
    for hint in started.hints.iter().filter(|_| !screen.json) {
        match named.as_ref().is_some_and(|named| hint.contains(named)) {
            true => screen.note(hint),
            false => screen.hint(hint),
        }
    }
}

/// Passes our stdin on. A process that does not want the rest is no trouble.
async fn feed(session: &Session, id: &str, wanted: bool, screen: Screen) -> Infallible {
    if wanted {
        match feed::copy_stdin(session, id, true).await {
            Err(failure) if !feed::is_unwanted(&failure) => screen.note(&format!("stdin: {}", failure.error.message)),
            _ => {}
        }
    }
    std::future::pending().await
}

/// Says what the output does not, and gives the exit code.
async fn finish(session: &Session, started: Started, record: Record, screen: &mut Screen) -> Result<u8, Failure> {
    let code = record.outcome.as_ref().map_or(exit::PINFOLD_FAILED, exit::code_of);
    if screen.json {
        print_json(session, started, record, screen).await?;
        return Ok(code);
    }
    match record.outcome.as_ref().map(render_details) {
        Some(Some(details)) => screen.note(&format!("{}: {details}", record.id)),
        Some(None) => {}
        None => screen.note(&format!("{} ended and nobody saw how", record.id)),
    }
    if let Some(limit) = record.cause.and_then(reached_limit) {
        screen.note(&format!("{} was stopped at its {limit} limit", record.id));
    }
    if let Some(note) = &record.note {
        screen.note(&format!("{}: {note}", record.id));
    }
    if let Some(strays) = render_strays(&record) {
        screen.hint(&strays);
    }
    Ok(code)
}

/// The limit that a cause speaks of.
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

/// The start's own answer, as it would be had it waited: the record as it is now, with the output.
async fn print_json(session: &Session, started: Started, record: Record, screen: &mut Screen) -> Result<(), Failure> {
    let id = record.id.clone();
    let page = session.ask(async |client| client.output(&id, &OutputQuery::default()).await).await?;
    screen.document(&Started { record, output_page: Some(page), ..started })
}

/// The request that the arguments make.
fn request(args: &RunArgs, env: BTreeMap<String, Option<String>>) -> Result<StartRequest, Failure> {
    let (command, argv) = match (&args.script, args.command.as_slice()) {
        (Some(script), _) => (Some(script.clone()), None),
        (None, [script]) => (Some(script.clone()), None),
        (None, words) => (None, Some(words.to_vec())),
    };
    if argv.is_some() && args.shell.is_some() {
        return Err(Failure::refused("--shell needs a script: quote the command as one argument"));
    }
    let empty = |text: &String| text.trim().is_empty();
    if command.as_ref().is_some_and(empty) || argv.as_ref().is_some_and(|argv| argv.first().is_none_or(empty)) {
        return Err(Failure::refused(
            "the command is empty: give a script for the shell, or a program with its arguments",
        ));
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
        memory_limit: args.memory_limit.as_deref().map(Size::from),
        pids_limit: args.pids_limit,
        cpus: args.cpus,
        cpu_time_limit: span(&args.cpu_time_limit),
        output_limit: args.output_limit.as_deref().map(Size::from),
        idempotency_key: args.key.clone().or_else(fresh_key),
        ..Default::default()
    })
}

/// The environment that the command gets: this one, changed as the arguments say.
fn environment(args: &RunArgs, variables: impl Iterator<Item = (OsString, OsString)>) -> Result<Environment, Failure> {
    let mut environment = Environment::read(variables);
    if args.cwd.is_some() {
        environment.set("PWD", &directory(args.cwd.as_deref())?);
    }
    args.env.iter().for_each(|(name, value)| environment.set(name, value));
    args.unset.iter().for_each(|name| environment.unset(name));
    Ok(environment)
}

/// The owner of the process that this command runs in, unless the daemon is told who asks.
pub(super) fn inherited_owner(global: &Global) -> Option<String> {
    let owner = std::env::var("PINFOLD_OWNER").ok().filter(|owner| !owner.is_empty());
    owner.filter(|_| global.acting_as.is_none())
}

/// A key of this run's own, so that asking again after a broken connection starts nothing twice.
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
    let path = path.map_err(|error| Failure::refused(format!("the working directory: {error}")))?;
    let text = path.into_os_string().into_string();
    text.map_err(|path| Failure::refused(format!("the working directory {} is not UTF-8", path.display())))
}

pub(super) fn parse_pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(format!("`{text}` is not KEY=VALUE")),
    }
}

pub(super) fn strays_of(word: String) -> Strays {
    if word == "stop" { Strays::Stop } else { Strays::Keep }
}

fn streams_of(word: String) -> Streams {
    if word == "separate" { Streams::Separate } else { Streams::Merged }
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
