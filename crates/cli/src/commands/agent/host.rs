//! `agent run`: start and host an agent.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use pinfold_api::input::{Size, Span};
use pinfold_api::types::{AgentMode, AgentRequest, AgentStatus, Approvals, Lifetime, Strays, Transport};
use serde_json::{Map, Value};

use super::environment_for_agent;
use crate::args::Global;
use crate::commands::run::{directory, fresh_key, inherited_owner, parse_pair, strays_of};
use crate::console::Console;
use crate::exit;
use crate::failure::Failure;
use crate::render::agent::render_fault;
use crate::session::Session;

/// Start an agent and wait until it is ready for turns
///
/// The agent gets this environment and working directory. Values of the environment are never written to disk: each
/// `agent turn` sends them again.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  pinfold agent run codex --name fixer --approvals allow\n  \
                        pinfold agent run claude --mode fresh --model sonnet\n  \
                        pinfold agent run codex --setting sandbox=read-only --resume 019a…\n\n\
                        Exits with 1 if the agent failed before it was ready; see `pinfold logs` for its output.")]
pub(crate) struct HostArgs {
    /// Agent: codex or claude
    #[arg(value_name = "KIND")]
    pub(crate) kind: String,
    #[command(flatten)]
    pub(crate) options: HostOptions,
    /// Name that other commands accept instead of the id
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Continue this thread or session; the id is the agent's own
    #[arg(long, value_name = "ID")]
    pub(crate) resume: Option<String>,
    /// Print the id and return without waiting until it is ready
    #[arg(short, long)]
    pub(crate) detach: bool,
    /// Idempotency key: if an agent with this key exists, show that one and start nothing
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<String>,
    /// Arguments for the program of the agent
    #[arg(last = true)]
    pub(crate) args: Vec<String>,
}

/// Options that `agent run` and `agent loop` share.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct HostOptions {
    /// Program to run, if it is not named like the agent
    #[arg(long, value_name = "PATH")]
    pub(crate) program: Option<String>,
    /// Model to use
    #[arg(long)]
    pub(crate) model: Option<String>,
    /// Field of the request that opens a thread, as JSON or text; may be repeated (codex)
    #[arg(long = "setting", value_name = "KEY=VALUE", value_parser = parse_pair)]
    pub(crate) settings: Vec<(String, String)>,
    /// How permission requests are answered [default: deny]
    #[arg(long, value_parser = PossibleValuesParser::new(["deny", "allow", "ask"]).map(approvals_of))]
    pub(crate) approvals: Option<Approvals>,
    /// One process and session for all turns, or a new one for each [default: persistent]
    #[arg(long, value_parser = PossibleValuesParser::new(["persistent", "fresh"]).map(mode_of))]
    pub(crate) mode: Option<AgentMode>,
    /// Connection to the agent [default: stdio]
    #[arg(long, value_parser = PossibleValuesParser::new(["stdio", "websocket"]).map(transport_of))]
    pub(crate) transport: Option<Transport>,
    /// Working directory [default: the current one]
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
    /// Set an environment variable; may be repeated
    #[arg(long = "env", short = 'e', value_name = "KEY=VALUE", value_parser = parse_pair)]
    pub(crate) env: Vec<(String, String)>,
    /// Chat, session or agent that it belongs to
    #[arg(long)]
    pub(crate) owner: Option<String>,
    /// What to do with it when its owner ends [default: keep]
    #[arg(long, value_parser = PossibleValuesParser::new(["keep", "owner", "parent"]).map(lifetime_of))]
    pub(crate) lifetime: Option<Lifetime>,
    /// With --lifetime owner or parent: the owner counts as ended after this long without contact
    #[arg(long, value_name = "DURATION")]
    pub(crate) owner_grace: Option<String>,
    /// What to do with descendants that outlive the program [default: keep]
    #[arg(long, value_parser = PossibleValuesParser::new(["keep", "stop"]).map(strays_of))]
    pub(crate) strays: Option<Strays>,
    /// Time between TERM and KILL when it is stopped
    #[arg(long, value_name = "DURATION")]
    pub(crate) grace: Option<String>,
    /// Memory limit of the whole tree (2G)
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory_limit: Option<String>,
    /// Time to become ready [default: 60s]
    #[arg(long, value_name = "DURATION")]
    pub(crate) ready_timeout: Option<String>,
    /// Time after which a turn is interrupted
    #[arg(long, value_name = "DURATION")]
    pub(crate) turn_limit: Option<String>,
    /// Maximum number of queued turns [default: 16]
    #[arg(long, value_name = "N")]
    pub(crate) queue: Option<u32>,
}

/// Starts the agent.
pub(super) async fn run(
    session: &Session,
    args: &HostArgs,
    global: &Global,
    console: &mut Console,
) -> Result<u8, Failure> {
    let mut request = args.options.request(session, &args.kind, global)?;
    request.name = args.name.clone();
    request.resume = args.resume.clone();
    request.args = args.args.clone();
    request.idempotency_key = args.key.clone().or_else(fresh_key);
    if !args.detach {
        request.wait = Some(request.ready_timeout.clone().unwrap_or_else(|| Span::from("61s")));
    }
    let agent = session.ask(async |client| client.host_agent(&request).await).await?;
    match console.json {
        true => console.document(&agent)?,
        false => console.text(&format!("{}\n", agent.id))?,
    }
    if agent.status == AgentStatus::Failed {
        console.note(&render_fault(&agent));
        return Ok(exit::FAILED);
    }
    Ok(0)
}

impl HostOptions {
    /// The request for these options.
    pub(super) fn request(&self, session: &Session, kind: &str, global: &Global) -> Result<AgentRequest, Failure> {
        let mut env = environment_for_agent(session)?;
        let cwd = directory(self.cwd.as_deref())?;
        env.insert("PWD".into(), Some(cwd.clone()));
        env.extend(self.env.iter().cloned().map(|(name, value)| (name, Some(value))));
        let span = |text: &Option<String>| text.as_deref().map(Span::from);
        Ok(AgentRequest {
            kind: kind.to_owned(),
            program: self.program.clone(),
            model: self.model.clone(),
            settings: self
                .settings
                .iter()
                .map(|(key, value)| (key.clone(), json_or_text(value)))
                .collect::<Map<_, _>>(),
            cwd: Some(cwd),
            env,
            inherit_env: Some(false),
            owner: self.owner.clone().or_else(|| inherited_owner(global)),
            lifetime: self.lifetime,
            owner_grace: span(&self.owner_grace),
            strays: self.strays,
            grace: span(&self.grace),
            memory_limit: self.memory_limit.as_deref().map(Size::from),
            approvals: self.approvals,
            mode: self.mode,
            transport: self.transport,
            ready_timeout: span(&self.ready_timeout),
            turn_limit: span(&self.turn_limit),
            queue: self.queue,
            ..AgentRequest::default()
        })
    }
}

/// `true`, `3` and `{"a":1}` are JSON; everything else is text.
fn json_or_text(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

fn approvals_of(word: String) -> Approvals {
    match word.as_str() {
        "allow" => Approvals::Allow,
        "ask" => Approvals::Ask,
        _ => Approvals::Deny,
    }
}

fn mode_of(word: String) -> AgentMode {
    if word == "fresh" { AgentMode::Fresh } else { AgentMode::Persistent }
}

fn transport_of(word: String) -> Transport {
    if word == "websocket" { Transport::Websocket } else { Transport::Stdio }
}

fn lifetime_of(word: String) -> Lifetime {
    match word.as_str() {
        "owner" => Lifetime::Owner,
        "parent" => Lifetime::Parent,
        _ => Lifetime::Keep,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::Args;

    #[test]
    fn a_kind_is_named_and_arguments_come_last() {
        for line in ["pinfold agent run codex", "pinfold agent run claude --mode fresh -d -- --max-turns 3"] {
            assert!(Args::try_parse_from(line.split(' ')).is_ok(), "{line}");
        }
        for line in ["pinfold agent", "pinfold agent run", "pinfold agent run codex --mode often"] {
            assert!(Args::try_parse_from(line.split(' ')).is_err(), "{line}");
        }
    }

    #[test]
    fn settings_are_json_where_they_can_be() {
        assert_eq!(json_or_text("true"), Value::Bool(true));
        assert_eq!(json_or_text("read-only"), Value::String("read-only".into()));
    }
}
