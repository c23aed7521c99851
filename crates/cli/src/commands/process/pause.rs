//! `pause` and `resume` a whole process tree.

use clap::Args;

use super::signal::print;
use crate::console::Console;
use crate::failure::Failure;
use crate::session::Session;

/// Pause a process and everything it started
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  pinfold pause web")]
pub(crate) struct PauseArgs {
    /// Processes: ids, unique prefixes of ids, or names of live processes
    #[arg(value_name = "ID", required = true)]
    pub(crate) ids: Vec<String>,
}

/// Resume a paused process and everything it started
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  pinfold resume web")]
pub(crate) struct ResumeArgs {
    /// Processes: ids, unique prefixes of ids, or names of live processes
    #[arg(value_name = "ID", required = true)]
    pub(crate) ids: Vec<String>,
}

/// Pauses one after the other.
pub(crate) async fn pause(session: &Session, args: &PauseArgs, console: &mut Console) -> Result<u8, Failure> {
    let mut code = 0;
    for id in &args.ids {
        let answer = session.ask(async |client| client.pause(id).await).await;
        code = code.max(print(answer, "paused", console)?);
    }
    Ok(code)
}

/// Resumes one after the other.
pub(crate) async fn resume(session: &Session, args: &ResumeArgs, console: &mut Console) -> Result<u8, Failure> {
    let mut code = 0;
    for id in &args.ids {
        let answer = session.ask(async |client| client.resume(id).await).await;
        code = code.max(print(answer, "resumed", console)?);
    }
    Ok(code)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use crate::args::Args;

    #[test]
    fn several_may_be_named_and_one_must() {
        assert!(Args::try_parse_from(["pinfold", "pause", "a", "b"]).is_ok());
        assert!(Args::try_parse_from(["pinfold", "resume", "a"]).is_ok());
        assert!(Args::try_parse_from(["pinfold", "pause"]).is_err());
    }
}
