//! `signal`: a signal to whole trees.

use clap::Args;
use pinfold_api::types::{SignalAnswer, SignalRequest};

use crate::console::Screen;
use crate::exit;
use crate::failure::Failure;
use crate::render::summary::render_signal;
use crate::session::Session;

/// Send a signal to every process of a tree
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  pinfold signal HUP web")]
pub(crate) struct SignalArgs {
    /// The signal: HUP, SIGHUP or 1
    pub(crate) signal: String,
    /// Ids, beginnings of ids, or names of live processes
    #[arg(value_name = "ID", required = true)]
    pub(crate) ids: Vec<String>,
}

/// Sends it to one after the other.
pub(crate) async fn run(session: &Session, args: &SignalArgs, screen: &mut Screen) -> Result<u8, Failure> {
    let request = SignalRequest { signal: args.signal.clone(), by: Some("pinfold signal".into()) };
    let verb = format!("{} reached", args.signal.to_uppercase());
    let mut code = 0;
    for id in &args.ids {
        // A signal sent twice is two signals: asked once.
        let answer = session.once().signal(id, &request).await.map_err(Failure::from);
        code = code.max(print(answer, &verb, screen)?);
    }
    Ok(code)
}

/// Prints what it reached; gives the exit code for it.
pub(super) fn print(answer: Result<SignalAnswer, Failure>, verb: &str, screen: &mut Screen) -> Result<u8, Failure> {
    let answer = match answer {
        Ok(answer) => answer,
        Err(failure) => return Ok(screen.report(&failure)),
    };
    if screen.json {
        screen.json_line(&answer)?;
    } else {
        screen.text(&render_signal(&answer, verb, screen.paint()))?;
    }
    Ok(if answer.refused.is_empty() { 0 } else { exit::TROUBLE })
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
