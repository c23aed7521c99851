//! `mcp`: serve a model's tools on stdin and stdout.

use std::io::IsTerminal;
use std::os::unix::fs::FileTypeExt;
use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use pinfold_api::client::Client;
use pinfold_api::types::Lifetime;
use pinfold_mcp::{Ensure, Options, Shape};

use super::block_on;
use crate::args::Global;
use crate::console::Screen;
use crate::failure::Failure;
use crate::offload::start_thread;
use crate::{daemon_on_demand, paths};

/// Serve the tools of an AI agent over MCP, on stdin and stdout
///
/// An agent starts this itself; see docs/mcp.md. The daemon is started if none runs. When the agent ends this
/// command, the daemon and all processes live on.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  pinfold mcp\n  pinfold mcp --owner review-bot --tools process_list,process_output"
)]
pub(crate) struct McpArgs {
    /// The owner of everything started here [default: as the client says, else one per connection]
    #[arg(long)]
    pub(crate) owner: Option<String>,
    /// The owner above it, who sees and may stop what it starts
    #[arg(long)]
    pub(crate) parent: Option<String>,
    /// Offer only these tools
    #[arg(long, value_delimiter = ',', value_name = "TOOL")]
    pub(crate) tools: Vec<String>,
    /// Which set of tools
    #[arg(long, default_value = "native", value_parser = shapes())]
    pub(crate) shape: Shape,
    /// What becomes of processes when their owner is ended or gone, unless a call says so [default: keep]
    #[arg(long, value_parser = PossibleValuesParser::new(["keep", "owner", "parent"]).map(lifetime_of))]
    pub(crate) lifetime: Option<Lifetime>,
    /// How long an owner may be gone before such processes go the way of their lifetime [default: 60s]
    #[arg(long, value_name = "D")]
    pub(crate) owner_grace: Option<String>,
    /// No call takes longer (seconds); it then hands over the id and the output so far [default: `mcp.longest_call`, else
    /// what is known of the client: docs/mcp.md]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) longest_call: Option<u64>,
}

/// The sets of tools by name.
pub(super) fn shapes() -> impl TypedValueParser<Value = Shape> {
    PossibleValuesParser::new(["native", "coder"]).map(|name| match name.as_str() {
        "coder" => Shape::Coder,
        _ => Shape::Native,
    })
}

fn lifetime_of(word: String) -> Lifetime {
    match word.as_str() {
        "owner" => Lifetime::Owner,
        "parent" => Lifetime::Parent,
        _ => Lifetime::Keep,
    }
}

fn is_pipe(descriptor: u32) -> bool {
    std::fs::metadata(format!("/proc/self/fd/{descriptor}")).is_ok_and(|file| file.file_type().is_fifo())
}

/// Serves until the client leaves.
pub(crate) fn run(args: &McpArgs, global: &Global, screen: &mut Screen) -> Result<u8, Failure> {
    let paths = paths::resolve(global)?;
    let known = pinfold_mcp::names(args.shape);
    if let Some(unknown) = args.tools.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(Failure::refused(format!("there is no tool `{unknown}`: there are {}", known.join(", "))));
    }
    // A configuration that cannot be read is told of by the first call; until then nothing passes.
    let config = paths::load_config(&paths).ok();
    let passes = |name: &String| config.as_ref().is_some_and(|config| config.environment.passes(name));
    let names = std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
    let withheld = names.filter(|name| !passes(name)).collect();
    let configured = config.as_ref().and_then(|config| config.mcp.longest_call);
    let options = Options {
        owner: args.owner.clone(),
        parent: args.parent.clone(),
        tools: args.tools.clone(),
        shape: args.shape,
        lifetime: args.lifetime.unwrap_or_default(),
        owner_grace: args.owner_grace.clone(),
        withheld,
        longest_call: args.longest_call.map(Duration::from_secs).or(configured),
        ..Options::default()
    };
    if std::io::stdin().is_terminal() {
        screen.note("serving MCP on stdin and stdout: an agent starts this itself, see docs/mcp.md; Ctrl-D ends it");
    }
    // Where stdin and stdout are not pipes, the SDK reads and writes by threads, and panics if there is none to be had.
    if !(is_pipe(0) && is_pipe(1)) {
        start_thread(|| {})?;
    }
    let client = Client::new(paths.socket());
    let ensure = {
        let client = client.clone();
        Ensure::new(move || {
            let (client, paths) = (client.clone(), paths.clone());
            Box::pin(
                async move { daemon_on_demand::ensure(&client, &paths).await.map_err(|failure| failure.error.message) },
            )
        })
    };
    block_on(async { Ok(pinfold_mcp::serve_stdio(client, ensure, options).await?) })?;
    Ok(0)
}
