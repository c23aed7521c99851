//! `top`: everything on one screen, live.

use std::io::IsTerminal;

use clap::Args;
use pinfold_api::client::Client;
use pinfold_top::{Ended, Options};

use crate::args::Global;
use crate::commands::block_on;
use crate::console::{Console, wants_colour};
use crate::failure::Failure;
use crate::paths;
use crate::session::Session;

/// See everything on one screen: live output, one key to stop, an inbox of what waits for you
///
/// Processes by owner, their logs, trees and terminals, agents and their questions, events. `?` lists the keys.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  pinfold top\n\n\
                        Processes keep running after you quit (q). Without a terminal, use `pinfold ps`.")]
pub(crate) struct TopArgs {}

/// Takes over the terminal until the person leaves.
pub(crate) fn run(global: &Global, console: &Console) -> Result<u8, Failure> {
    if console.json {
        return Err(Failure::invalid("top is a screen: for JSON use `pinfold ps --json` or `pinfold events --json`"));
    }
    if !std::io::stdin().is_terminal() || !console.is_terminal() {
        return Err(Failure::invalid("top needs a terminal: use `pinfold ps`, `pinfold logs` or `pinfold events`"));
    }
    let paths = paths::resolve(global)?;
    let socket = paths.socket();
    // Starts the daemon if there is none, as every command does.
    block_on(Session::open(paths, global))?;
    // A client of its own: the connections of that session belong to a runtime that has ended.
    let operator = Client::new(socket);
    let client = match &global.acting_as {
        Some(owner) => operator.acting_as(owner, None),
        None => operator,
    };
    match pinfold_top::run(Options { client, colour: wants_colour() })? {
        Ended::Left => Ok(0),
        Ended::Signalled(signal) => Ok(128 + signal as u8),
    }
}
