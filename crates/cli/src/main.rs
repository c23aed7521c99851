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
mod option_names;
mod output_threads;
mod paths;
mod progress_line;
mod project;
mod render;
mod session;
mod version;

use std::process::ExitCode;

fn main() -> ExitCode {
    // Before anything else: keepers are forked from this process and inherit everything it has allocated.
    if std::env::args_os().nth(1).is_some_and(|word| word == "nursery") {
        pinfold_keeper::nursery::main()
    }
    commands::shell::completions::answer_script();
    let args = args::Args::read();
    let mut console = console::Console::new(args.global.json);
    match commands::dispatch(args, &mut console).and_then(|code| console.finish().map(|()| code)) {
        Ok(code) => ExitCode::from(code),
        Err(mut failure) => {
            // With --json the error is the API's own; otherwise it names options instead of request fields.
            if !console.json {
                let line = args::command_line(std::env::args_os().skip(1).collect());
                failure.error.message = option_names::in_options(&failure.error.message, &line);
            }
            ExitCode::from(console.report(&failure))
        }
    }
}
