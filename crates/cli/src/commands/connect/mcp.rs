//! `mcp`: the MCP server on stdin and stdout.

use std::io::IsTerminal;
use std::os::unix::fs::FileTypeExt;
use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use pinfold_api::client::Client;
use pinfold_api::types::Lifetime;
use pinfold_mcp::{Ensure, Options, Shape};

use crate::args::Global;
use crate::commands::block_on;
use crate::console::Console;
use crate::failure::Failure;
use crate::output_threads::start_thread;
use crate::{daemon_on_demand, paths};

/// Run the MCP server for an AI agent on stdin and stdout
///
/// Started by the agent itself: `pinfold connect` sets that up. Starts a daemon if none is running. When the agent ends the
/// server, the daemon and all processes keep running.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  pinfold mcp\n  pinfold mcp --owner review-bot --tools process_list,process_output"
)]
pub(crate) struct McpArgs {
    /// Owner of everything that is started here [default: as the client says, otherwise one per connection]
    #[arg(long)]
    pub(crate) owner: Option<String>,
    /// Parent of that owner; it sees and may stop what is started
    #[arg(long)]
    pub(crate) parent: Option<String>,
    /// Offer only these tools
    #[arg(long, value_delimiter = ',', value_name = "TOOL")]
    pub(crate) tools: Vec<String>,
    /// Set of tools to offer
    #[arg(long, default_value = "native", value_parser = shapes())]
    pub(crate) shape: Shape,
    /// What to do with processes when their owner ends, unless the call says so [default: keep]
    #[arg(long, value_parser = PossibleValuesParser::new(["keep", "owner", "parent"]).map(lifetime_of))]
    pub(crate) lifetime: Option<Lifetime>,
    /// Grace period after the owner disconnects, before --lifetime applies [default: 60s]
    #[arg(long, value_name = "DURATION")]
    pub(crate) owner_grace: Option<String>,
    /// Maximum duration of a call; it then returns the id and the output so far [default: `mcp.longest_call` of the
    /// configuration, otherwise the known timeout of the client]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) longest_call: Option<u64>,
}

/// Parser of the names of tool sets.
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

/// Serves until the client disconnects.
pub(crate) fn run(args: &McpArgs, global: &Global, console: &mut Console) -> Result<u8, Failure> {
    let paths = paths::resolve(global)?;
    let known = pinfold_mcp::names(args.shape);
    if let Some(unknown) = args.tools.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(Failure::invalid(format!("there is no tool `{unknown}`: use {}", known.join(", "))));
    }
    // If the configuration cannot be read, the first call reports it; no variable is passed on until then.
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
        console.note(
            "MCP server on stdin and stdout, meant to be started by an agent: see `pinfold connect`; Ctrl-D ends it",
        );
    }
    // If stdin or stdout is not a pipe, the SDK uses threads and panics if none can be started: fail here with an error.
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
