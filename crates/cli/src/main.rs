//! The binary `pinfold`: commands and rendering over the api client, and the composition of daemon and keeper.
//!
//! Owns arguments, exit codes and what people read. Must not reach around the api client to state.

mod agent_config;
mod args;
mod commands;
mod console;
mod daemon_on_demand;
mod exit;
mod failure;
mod offload;
mod options;
mod paths;
mod render;
mod session;

use std::process::ExitCode;

fn main() -> ExitCode {
    // Before anything else: keepers are forked from this process, and what it allocates, each of them carries.
    if std::env::args_os().nth(1).is_some_and(|word| word == "nursery") {
        pinfold_keeper::nursery::main()
    }
    let args = args::Args::read();
    let mut screen = console::Screen::new(args.global.json);
    match commands::dispatch(args, &mut screen).and_then(|code| screen.finish().map(|()| code)) {
        Ok(code) => ExitCode::from(code),
        Err(mut failure) => {
            // With --json the API's own words are what was asked for.
            if !screen.json {
                let line = args::line_of(std::env::args_os().skip(1).collect());
                failure.error.message = options::in_options(&failure.error.message, &line);
            }
            ExitCode::from(screen.report(&failure))
        }
    }
}
