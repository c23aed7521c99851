//! One file per command: its arguments, what it asks of the daemon, what it prints.

pub(crate) mod agent;
pub(crate) mod attach;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod connect;
pub(crate) mod daemon;
pub(crate) mod doctor;
mod environment;
pub(crate) mod events;
mod feed;
mod foreground;
mod foreground_restarts;
pub(crate) mod gc;
pub(crate) mod handover;
pub(crate) mod hook;
mod interrupts;
pub(crate) mod logs;
pub(crate) mod man;
pub(crate) mod mcp;
mod notify;
pub(crate) mod owner;
pub(crate) mod pause;
pub(crate) mod ps;
mod pump;
pub(crate) mod restart;
pub(crate) mod run;
pub(crate) mod send;
mod service_options;
pub(crate) mod show;
pub(crate) mod show_screen;
pub(crate) mod signal;
pub(crate) mod stop;
pub(crate) mod token;
pub(crate) mod tools;
pub(crate) mod wait;

use std::future::Future;

use crate::args::{Args, Command, Global};
use crate::console::Screen;
use crate::failure::Failure;
use crate::paths;
use crate::session::Session;

/// Runs the command and gives its exit code.
pub(crate) fn dispatch(args: Args, screen: &mut Screen) -> Result<u8, Failure> {
    let global = &args.global;
    check_scope(global, &args.command)?;
    match args.command {
        Command::Run(args) => {
            talk(global, async |session| run::run(session, &args, global, screen).await).map_err(Failure::of_run)
        }
        Command::Ps(args) => talk(global, async |session| ps::run(session, &args, screen).await),
        Command::Show(args) => talk(global, async |session| show::run(session, &args, screen).await),
        Command::Logs(args) => talk(global, async |session| logs::run(session, &args, screen).await),
        Command::Wait(args) => {
            talk(global, async |session| wait::run(session, &args, screen).await).map_err(Failure::of_run)
        }
        Command::Stop(args) => talk(global, async |session| stop::run(session, &args, screen).await),
        Command::Attach(args) => talk(global, async |session| attach::run(session, &args, screen).await),
        Command::Restart(args) => talk(global, async |session| restart::run(session, &args, screen).await),
        Command::Send(args) => talk(global, async |session| send::run(session, &args, screen).await),
        Command::Screen(args) => talk(global, async |session| show_screen::show(session, &args, screen).await),
        Command::Resize(args) => talk(global, async |session| show_screen::resize(session, &args, screen).await),
        Command::Signal(args) => talk(global, async |session| signal::run(session, &args, screen).await),
        Command::Pause(args) => talk(global, async |session| pause::pause(session, &args, screen).await),
        Command::Resume(args) => talk(global, async |session| pause::resume(session, &args, screen).await),
        Command::Events(args) => talk(global, async |session| events::run(session, &args, screen).await),
        Command::Handover(args) => talk(global, async |session| handover::run(session, &args, screen).await),
        Command::Agent(args) => talk(global, async |session| agent::run(session, &args, global, screen).await),
        Command::Owner(args) => talk(global, async |session| owner::run(session, &args, screen).await),
        Command::Token(args) => talk(global, async |session| token::run(session, &args, screen).await),
        Command::Gc(args) => talk(global, async |session| gc::run(session, &args, screen).await),
        Command::Mcp(args) => mcp::run(&args, global, screen),
        Command::Tools(args) => tools::run(&args, screen),
        Command::Daemon(args) => daemon::run(&args, global, screen),
        Command::Connect(args) => connect::run(&args, global, screen),
        Command::Hook(args) => hook::run(&args, global, screen),
        Command::Doctor(_) => doctor::run(global, screen),
        Command::Config(args) => config::run(&args, global, screen),
        Command::Completions(args) => completions::run(&args, screen),
        Command::Man(args) => man::run(&args, screen),
    }
}

/// Nobody acts as an owner towards the machine itself; not to be heard would be a wider view than was asked for.
fn check_scope(global: &Global, command: &Command) -> Result<(), Failure> {
    let is_machines = matches!(
        command,
        Command::Daemon(_)
            | Command::Doctor(_)
            | Command::Config(_)
            | Command::Connect(_)
            | Command::Hook(_)
            | Command::Mcp(_)
            | Command::Tools(_)
            | Command::Completions(_)
            | Command::Man(_)
    );
    if is_machines && global.acting_as.is_some() {
        return Err(Failure::refused("--as is for commands about processes, owners and events: leave it out here"));
    }
    Ok(())
}

/// Opens a session and does the work in it.
fn talk(global: &Global, work: impl AsyncFnOnce(&Session) -> Result<u8, Failure>) -> Result<u8, Failure> {
    let paths = paths::resolve(global)?;
    block_on(async {
        let session = Session::open(paths, global).await?;
        work(&session).await
    })
}

/// A runtime on this thread, for commands that talk to the daemon.
fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(work);
    // A write to a terminal that nobody reads may still be blocked; it must not keep us.
    runtime.shutdown_background();
    result
}
