//! `pause` and `resume`: a whole tree stands still, or goes on.

use clap::Args;

use super::signal::print;
use crate::console::Screen;
use crate::failure::Failure;
use crate::session::Session;

/// Pause every process of a tree
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  pinfold pause web")]
pub(crate) struct PauseArgs {
    /// Ids, beginnings of ids, or names of live processes
    #[arg(value_name = "ID", required = true)]
    pub(crate) ids: Vec<String>,
}

/// Let every process of a paused tree go on
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  pinfold resume web")]
pub(crate) struct ResumeArgs {
    /// Ids, beginnings of ids, or names of live processes
    #[arg(value_name = "ID", required = true)]
    pub(crate) ids: Vec<String>,
}

/// Pauses one after the other.
pub(crate) async fn pause(session: &Session, args: &PauseArgs, screen: &mut Screen) -> Result<u8, Failure> {
    let mut code = 0;
    for id in &args.ids {
        let answer = session.ask(async |client| client.pause(id).await).await;
        code = code.max(print(answer, "paused", screen)?);
    }
    Ok(code)
}

/// Resumes one after the other.
pub(crate) async fn resume(session: &Session, args: &ResumeArgs, screen: &mut Screen) -> Result<u8, Failure> {
    let mut code = 0;
    for id in &args.ids {
        let answer = session.ask(async |client| client.resume(id).await).await;
        code = code.max(print(answer, "resumed", screen)?);
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
