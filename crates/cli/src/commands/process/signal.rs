//! `signal`: send a signal to whole process trees.

use clap::Args;
use pinfold_api::types::{SignalAnswer, SignalRequest};

use crate::console::Console;
use crate::exit;
use crate::failure::Failure;
use crate::render::summary::render_signal;
use crate::session::Session;

/// Send a signal to a process and everything it started
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  pinfold signal HUP web")]
pub(crate) struct SignalArgs {
    /// Signal: HUP, SIGHUP or 1
    pub(crate) signal: String,
    /// Processes: ids, unique prefixes of ids, or names of live processes
    #[arg(value_name = "ID", required = true)]
    pub(crate) ids: Vec<String>,
}

/// Sends the signal to one process after the other.
pub(crate) async fn run(session: &Session, args: &SignalArgs, console: &mut Console) -> Result<u8, Failure> {
    let request = SignalRequest { signal: args.signal.clone(), by: Some("pinfold signal".into()) };
    let verb = format!("{} reached", args.signal.to_uppercase());
    let mut code = 0;
    for id in &args.ids {
        // No retry: a repeated request would send the signal twice.
        let answer = session.once().signal(id, &request).await.map_err(Failure::from);
        code = code.max(print(answer, &verb, console)?);
    }
    Ok(code)
}

/// Prints how many processes were reached; returns the exit code.
pub(super) fn print(answer: Result<SignalAnswer, Failure>, verb: &str, console: &mut Console) -> Result<u8, Failure> {
    let answer = match answer {
        Ok(answer) => answer,
        Err(failure) => return Ok(console.report(&failure)),
    };
    if console.json {
        console.json_line(&answer)?;
    } else {
        console.text(&render_signal(&answer, verb, console.paint()))?;
    }
    Ok(if answer.refused.is_empty() { 0 } else { exit::FAILED })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use crate::args::{Args, Command};

    #[test]
    fn the_signal_comes_first() {
        let args = Args::try_parse_from(["pinfold", "signal", "HUP", "a", "b"]).expect("parses");
        let Command::Signal(args) = args.command else { panic!("not signal") };
        assert_eq!((args.signal.as_str(), args.ids.len()), ("HUP", 2));
        assert!(Args::try_parse_from(["pinfold", "signal", "HUP"]).is_err());
    }
}
