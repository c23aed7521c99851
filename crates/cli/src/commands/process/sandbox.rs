//! `sandbox`: try a sandbox on this machine.

use std::io;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::Path;

use clap::{Args, Subcommand};
use pinfold_api::input::Span;
use pinfold_api::types::{OutputQuery, SandboxRequest, SandboxShown, StartRequest};
use serde::Serialize;

use crate::commands::run;
use crate::console::Console;
use crate::exit;
use crate::failure::Failure;
use crate::render::paint::Tone;
use crate::render::table::{Heading, Side, cell, plain, render_table};
use crate::session::Session;

/// How long the attempts may take.
const MAX_TIME: &str = "30s";
const ALLOWED: &str = "allowed";
const REFUSED: &str = "refused";

/// Try a sandbox on this machine
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  pinfold sandbox check workspace-write,network=none")]
pub(crate) struct SandboxArgs {
    #[command(subcommand)]
    command: SandboxCommand,
}

#[derive(Debug, Subcommand)]
enum SandboxCommand {
    /// Start a process in this sandbox that tries what it should not be able to do, and print the results
    #[command(
        after_help = "Examples:\n  pinfold sandbox check read-only\n  pinfold sandbox check workspace-write,network=none"
    )]
    Check {
        /// read-only or workspace-write, with parts such as network=none
        #[arg(value_name = "PROFILE")]
        profile: String,
    },
    /// Try everything from inside; run by `check`
    #[command(hide = true)]
    Probe,
}

/// One line of the table.
#[derive(Debug, Serialize)]
struct Attempt {
    what: String,
    result: String,
}

/// What `check` prints as JSON.
#[derive(Debug, Serialize)]
struct Checked {
    sandbox: SandboxShown,
    attempts: Vec<Attempt>,
}

impl SandboxArgs {
    /// Whether it works without a daemon.
    pub(crate) fn is_probe(&self) -> bool {
        matches!(self.command, SandboxCommand::Probe)
    }
}

pub(crate) async fn run(session: &Session, args: &SandboxArgs, console: &mut Console) -> Result<u8, Failure> {
    match &args.command {
        SandboxCommand::Check { profile } => check(session, profile, console).await,
        SandboxCommand::Probe => probe(console),
    }
}

async fn check(session: &Session, profile: &str, console: &mut Console) -> Result<u8, Failure> {
    let program = std::env::current_exe().map_err(|error| Failure::invalid(format!("cannot find pinfold: {error}")))?;
    let argv = [program.to_string_lossy().as_ref(), "sandbox", "probe"].map(str::to_owned);
    let request = StartRequest {
        argv: Some(argv.into()),
        cwd: Some(run::directory(None)?),
        sandbox: Some(SandboxRequest::Text(profile.to_owned())),
        name: Some("sandbox-check".to_owned()),
        time_limit: Some(Span::from(MAX_TIME)),
        idempotency_key: run::fresh_key(),
        wait: Some(Span::from(MAX_TIME)),
        ..StartRequest::default()
    };
    let started = session.ask(async |client| client.start(&request).await).await?;
    let id = started.record.id.clone();
    let Some(sandbox) = started.record.sandbox else {
        return Err(Failure::invalid("`off` is not a sandbox: give read-only or workspace-write"));
    };
    let page = session.ask(async |client| client.output(&id, &OutputQuery::default()).await).await?;
    let attempts: Vec<Attempt> = page
        .text
        .lines()
        .filter_map(|line| line.split_once('\t'))
        .map(|(what, result)| Attempt { what: what.to_owned(), result: result.to_owned() })
        .collect();
    let enforced = sandbox.missing.is_empty() && !attempts.is_empty();
    if console.json {
        console.document(&Checked { sandbox, attempts })?;
    } else {
        console.text(&render(&sandbox, &attempts, console))?;
    }
    Ok(if enforced { 0 } else { exit::FAILED })
}

fn render(sandbox: &SandboxShown, attempts: &[Attempt], console: &Console) -> String {
    let paint = console.paint();
    const PARTS: &[Heading] = &[("PART", Side::Left), ("ENFORCED", Side::Left), ("WHAT IT STOPS", Side::Left)];
    const ATTEMPTS: &[Heading] = &[("TRIED FROM INSIDE", Side::Left), ("RESULT", Side::Left)];
    let parts = sandbox.got.iter().map(|part| (part, "yes", Tone::Good));
    let missing = sandbox.missing.iter().map(|part| (part, "no", Tone::Bad));
    let rows: Vec<_> = parts
        .chain(missing)
        .map(|(part, enforced, tone)| {
            let about = match enforced {
                "yes" => part.about().to_owned(),
                _ => format!("{}; needs {}", part.about(), part.needs()),
            };
            vec![plain(part.name()), cell(enforced, tone), plain(about)]
        })
        .collect();
    let mut text =
        format!("{} (tier {}, Landlock ABI {})\n\n", sandbox.label, sandbox.tier.name(), sandbox.landlock_abi);
    text.push_str(&render_table(PARTS, &rows, None, paint));
    text.push('\n');
    let rows: Vec<_> = attempts.iter().map(|attempt| vec![plain(&attempt.what), plain(&attempt.result)]).collect();
    text.push_str(&render_table(ATTEMPTS, &rows, None, paint));
    text
}

/// Tries each and prints a line for it. What succeeds is undone at once.
pub(crate) fn probe(console: &mut Console) -> Result<u8, Failure> {
    let home = std::env::var("PINFOLD_HOME").unwrap_or_default();
    let parent = rustix::process::getppid();
    let attempts = [
        ("write in the working directory", create_in(Path::new("."))),
        ("write in the temporary directory", create_in(&std::env::temp_dir())),
        ("write elsewhere (pinfold's home)", create_in(Path::new(&home))),
        ("listen on a TCP port", TcpListener::bind(("127.0.0.1", 0)).map(drop)),
        ("open a UDP port", UdpSocket::bind(("127.0.0.1", 0)).map(drop)),
        ("connect to pinfold's Unix socket", UnixStream::connect(Path::new(&home).join("socket")).map(drop)),
        (
            "signal a process outside (its keeper)",
            parent.map_or(Ok(()), |parent| rustix::process::test_kill_process(parent).map_err(io::Error::from)),
        ),
        ("create a user namespace", new_user_namespace()),
        ("see a network interface other than loopback", other_interface()),
        ("change the mode of a file elsewhere (pinfold's home)", chmod_to_itself(Path::new(&home))),
        ("write Git's hooks in the working directory", create_in(Path::new(".git/hooks"))),
        ("list ~/.ssh", list_secrets()),
    ];
    let mut text = String::new();
    for (what, result) in attempts {
        let result = match result {
            Ok(()) => ALLOWED.to_owned(),
            Err(error) => format!("{REFUSED}: {error}"),
        };
        text.push_str(&format!("{what}\t{result}\n"));
    }
    console.text(&text)?;
    Ok(0)
}

/// Creates a file there and removes it again.
fn create_in(directory: &Path) -> io::Result<()> {
    let path = directory.join(format!(".pinfold-sandbox-check-{}", std::process::id()));
    std::fs::File::create_new(&path)?;
    std::fs::remove_file(path)
}

/// In a child of its own, which then ends.
fn new_user_namespace() -> io::Result<()> {
    let status = std::process::Command::new("unshare").args(["--user", "true"]).output()?.status;
    if status.success() { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
}

/// Whether there is a network interface besides loopback.
fn other_interface() -> io::Result<()> {
    let list = std::fs::read_to_string("/proc/self/net/dev")?;
    let names = list.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| name.trim());
    match names.filter(|name| *name != "lo").count() {
        0 => Err(io::Error::new(io::ErrorKind::NotFound, "there is none")),
        _ => Ok(()),
    }
}

/// Gives a file the mode that it has.
fn chmod_to_itself(path: &Path) -> io::Result<()> {
    std::fs::set_permissions(path, std::fs::metadata(path)?.permissions())
}

/// Whether there is anything in ~/.ssh.
fn list_secrets() -> io::Result<()> {
    let home = std::env::var_os("HOME").unwrap_or_default();
    match std::fs::read_dir(Path::new(&home).join(".ssh"))?.count() {
        0 => Err(io::Error::new(io::ErrorKind::NotFound, "it is empty")),
        _ => Ok(()),
    }
}
