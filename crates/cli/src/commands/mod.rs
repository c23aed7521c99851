//! The commands, in folders by subject: arguments, requests to the daemon, what is printed.
//!
//! One file for each command. A folder that is named like a command has that command in its `mod.rs`.

pub(crate) mod agent;
pub(crate) mod connect;
pub(crate) mod daemon;
pub(crate) mod input;
mod interrupts;
pub(crate) mod output;
pub(crate) mod owner;
pub(crate) mod process;
pub(crate) mod run;
pub(crate) mod shell;

use std::future::Future;

use self::connect::{hook, mcp, tools};
use self::daemon::{config, dashboard, doctor, upgrade};
use self::input::{attach, send};
use self::output::{events, logs, terminal, top};
use self::owner::{handover, token};
use self::process::{gc, pause, ps, rerun, restart, rm, sandbox, show, signal, stats, stop, up, wait};
use self::shell::{completions, man};
use crate::args::{Args, Command, Global};
use crate::console::Console;
use crate::failure::Failure;
use crate::paths;
use crate::session::Session;

/// Runs the command and returns its exit code.
pub(crate) fn dispatch(args: Args, console: &mut Console) -> Result<u8, Failure> {
    let global = &args.global;
    check_scope(global, &args.command)?;
    match args.command {
        Command::Run(args) => {
            talk(global, async |session| run::run(session, &args, global, console).await).map_err(Failure::of_run)
        }
        Command::Ps(args) => talk(global, async |session| ps::run(session, &args, console).await),
        Command::Top(_) => top::run(global, console),
        Command::Show(args) => talk(global, async |session| show::run(session, &args, console).await),
        Command::Logs(args) => talk(global, async |session| logs::run(session, &args, console).await),
        Command::Wait(args) => {
            talk(global, async |session| wait::run(session, &args, console).await).map_err(Failure::of_run)
        }
        Command::Stop(args) => talk(global, async |session| stop::run(session, &args, console).await),
        Command::Rm(args) => talk(global, async |session| rm::run(session, &args, console).await),
        Command::Up(args) => talk(global, async |session| up::up(session, &args, global, console).await),
        Command::Down(args) => talk(global, async |session| up::down(session, &args, console).await),
        Command::Attach(args) => talk(global, async |session| attach::run(session, &args, console).await),
        Command::Restart(args) => talk(global, async |session| restart::run(session, &args, console).await),
        Command::Rerun(args) => {
            talk(global, async |session| rerun::run(session, &args, console).await).map_err(Failure::of_run)
        }
        Command::Send(args) => talk(global, async |session| send::run(session, &args, console).await),
        Command::Screen(args) => talk(global, async |session| terminal::show(session, &args, console).await),
        Command::Resize(args) => talk(global, async |session| terminal::resize(session, &args, console).await),
        Command::Signal(args) => talk(global, async |session| signal::run(session, &args, console).await),
        Command::Pause(args) => talk(global, async |session| pause::pause(session, &args, console).await),
        Command::Resume(args) => talk(global, async |session| pause::resume(session, &args, console).await),
        Command::Events(args) => talk(global, async |session| events::run(session, &args, console).await),
        Command::Handover(args) => talk(global, async |session| handover::run(session, &args, console).await),
        Command::Agent(args) => talk(global, async |session| agent::run(session, &args, global, console).await),
        Command::Owner(args) => talk(global, async |session| owner::run(session, &args, console).await),
        Command::Token(args) => talk(global, async |session| token::run(session, &args, console).await),
        Command::Stats(args) => talk(global, async |session| stats::run(session, &args, console).await),
        Command::Gc(args) => talk(global, async |session| gc::run(session, &args, console).await),
        Command::Mcp(args) => mcp::run(&args, global, console),
        Command::Tools(args) => tools::run(&args, console),
        Command::Daemon(args) => daemon::run(&args, global, console),
        Command::Upgrade(args) => {
            let paths = paths::resolve(global)?;
            block_on(upgrade::run(&args, &paths, console))
        }
        Command::Connect(args) => connect::run(&args, global, console),
        Command::Hook(args) => hook::run(&args, global, console),
        Command::Dashboard(args) => talk(global, async |session| dashboard::run(session, &args, console).await),
        Command::Doctor(_) => doctor::run(global, console),
        Command::Sandbox(args) if args.is_probe() => sandbox::probe(console),
        Command::Sandbox(args) => talk(global, async |session| sandbox::run(session, &args, console).await),
        Command::Config(args) => config::run(&args, global, console),
        Command::Completions(args) => completions::run(&args, console),
        Command::Man(args) => man::run(&args, console),
    }
}

/// Rejects `--as` for commands that are not about an owner's processes: ignoring it would silently run as operator.
fn check_scope(global: &Global, command: &Command) -> Result<(), Failure> {
    let ignores_owner = matches!(
        command,
        Command::Daemon(_)
            | Command::Upgrade(_)
            | Command::Doctor(_)
            | Command::Config(_)
            | Command::Connect(_)
            | Command::Hook(_)
            | Command::Mcp(_)
            | Command::Tools(_)
            | Command::Completions(_)
            | Command::Man(_)
    );
    if ignores_owner && global.acting_as.is_some() {
        return Err(Failure::invalid(
            "--as works only with commands about processes, owners and events: leave it out here",
        ));
    }
    Ok(())
}

/// Opens a session and runs the command in it.
fn talk(global: &Global, work: impl AsyncFnOnce(&Session) -> Result<u8, Failure>) -> Result<u8, Failure> {
    let paths = paths::resolve(global)?;
    block_on(async {
        let session = Session::open(paths, global).await?;
        work(&session).await
    })
}

/// Runs a command that talks to the daemon on a single-threaded runtime.
fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(work);
    // A write to a terminal may still be blocked: do not wait for it.
    runtime.shutdown_background();
    result
}
