//! `gc`: remove old ended processes.

use clap::Args;
use pinfold_api::input::Span;
use pinfold_api::types::{GcAnswer, GcRequest};

use crate::console::Console;
use crate::failure::Failure;
use crate::render::quantity::{render_count, render_size};
use crate::session::Session;

/// Remove ended processes and their output
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  pinfold gc --older-than 1d --dry-run")]
pub(crate) struct GcArgs {
    /// Remove what ended longer ago than this [default: the configured retention]
    #[arg(long, value_name = "DURATION")]
    pub(crate) older_than: Option<String>,
    /// Print what would be removed, and remove nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Sends the request and prints the result.
pub(crate) async fn run(session: &Session, args: &GcArgs, console: &mut Console) -> Result<u8, Failure> {
    let request = GcRequest { older_than: args.older_than.as_deref().map(Span::from), dry_run: args.dry_run };
    let answer = session.ask(async |client| client.gc(&request).await).await?;
    if console.json {
        console.document(&answer)?;
    } else {
        console.text(&render(&answer))?;
    }
    Ok(0)
}

fn render(answer: &GcAnswer) -> String {
    let count = render_count(answer.removed.len() as u64, "process", "processes");
    let verb = if answer.dry_run { "would remove" } else { "removed" };
    let ids: String = answer.removed.iter().map(|id| format!("  {id}\n")).collect();
    format!("{verb} {count}, {}\n{ids}", render_size(answer.freed_bytes))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Args, Command};

    #[test]
    fn arguments_are_taken() {
        let args = Args::try_parse_from(["pinfold", "gc", "--older-than", "1d", "--dry-run"]).expect("parses");
        let Command::Gc(args) = args.command else { panic!("not gc") };
        assert!(args.dry_run && args.older_than.as_deref() == Some("1d"));
    }

    #[test]
    fn a_dry_run_says_would() {
        let answer = GcAnswer { removed: vec!["a".into()], freed_bytes: 2048, dry_run: true };
        assert_eq!(render(&answer), "would remove 1 process, 2.0 KiB\n  a\n");
    }
}
