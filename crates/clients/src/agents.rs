//! The agents: where they are installed, their configuration for the model and for pinfold, and the parts of their
//! output that tests need.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use pinfold_testkit::Pinfold;
use serde_json::{Value, json};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agent {
    Codex,
    Claude,
    Gemini,
    Opencode,
}

/// A client that is installed.
#[derive(Clone, Debug)]
pub struct Program {
    agent: Agent,
    path: PathBuf,
    /// The directory of `node`.
    node: PathBuf,
}

/// How a client is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// One prompt, non-interactive.
    Headless,
    /// The same, continuing the last chat in this home and directory; `chat` is its id, if the client prints one.
    Resumed { chat: Option<String> },
    /// On a terminal.
    Interactive,
}

/// How a client reaches pinfold.
#[derive(Clone, Debug)]
pub enum ServerAccess {
    /// Not at all.
    None,
    /// Over stdio: the client starts this binary as its server, for the daemon of this home.
    Stdio { binary: PathBuf, home: PathBuf },
    /// Over HTTP with a token.
    Http { url: String, token: String },
}

impl ServerAccess {
    /// Over stdio, for this daemon.
    pub fn of(pinfold: &Pinfold) -> Self {
        ServerAccess::Stdio { binary: pinfold.binary().to_owned(), home: pinfold.home().to_owned() }
    }
}

impl Agent {
    pub const ALL: [Agent; 4] = [Agent::Codex, Agent::Claude, Agent::Gemini, Agent::Opencode];

    pub fn name(self) -> &'static str {
        match self {
            Agent::Codex => "codex",
            Agent::Claude => "claude",
            Agent::Gemini => "gemini",
            Agent::Opencode => "opencode",
        }
    }

    /// The program; prints that it is skipped if it is not installed.
    pub fn installed(self) -> Option<Program> {
        self.installed_as(self.name())
    }

    /// The program in a directory of this name, since there may be several versions.
    pub fn installed_as(self, directory: &str) -> Option<Program> {
        let place = std::env::var_os("PINFOLD_TEST_CLIENTS").map(PathBuf::from).or_else(|| {
            let own = std::env::current_exe().ok()?;
            own.ancestors().map(|above| above.join("clients")).find(|place| place.is_dir())
        })?;
        let bin = |name: &str| place.join(name).join("node_modules/.bin");
        let (path, node) = (bin(directory).join(self.name()), bin("node"));
        if path.exists() && node.join("node").exists() {
            return Some(Program { agent: self, path, node });
        }
        let name = directory;
        let place = place.display();
        // Directly to stderr, which the test harness does not capture.
        let _ = writeln!(std::io::stderr(), "skipped: {name} is not in {place}: `cargo xtask clients` installs it");
        None
    }

    /// The prefix of its owner name.
    pub fn owner_prefix(self) -> &'static str {
        match self {
            Agent::Codex => "codex-",
            Agent::Claude => "claude-",
            Agent::Gemini | Agent::Opencode => "mcp-",
        }
    }

    /// The owner name, from what the client prints about its chat.
    pub fn owner(self, printed: &str) -> Option<String> {
        self.chat_id(printed).map(|chat| format!("{}{chat}", self.owner_prefix()))
    }
}

impl Program {
    pub fn agent(&self) -> Agent {
        self.agent
    }

    /// The client with its configuration, and its own home and working directory below `scratch`.
    pub fn command(&self, scratch: &Path, model: SocketAddr, access: &ServerAccess) -> Command {
        self.command_in(&Mode::Headless, scratch, model, access)
    }

    pub fn command_in(&self, mode: &Mode, scratch: &Path, model: SocketAddr, access: &ServerAccess) -> Command {
        let (home, work, temporary) = (scratch.join("home"), scratch.join("work"), scratch.join("tmp"));
        for directory in [&home, &work, &temporary] {
            std::fs::create_dir_all(directory).expect("a scratch directory");
        }
        let mut command = Command::new(&self.path);
        let path = std::env::join_paths([&self.node, Path::new("/usr/bin"), Path::new("/bin")]).expect("a PATH");
        command.env_clear().env("HOME", &home).env("PATH", path).env("USER", "agent").env("LANG", "C.UTF-8");
        // Temporary files of clients are removed with the chat.
        command.env("TMPDIR", &temporary);
        command.current_dir(&work);
        match self.agent {
            Agent::Codex => codex(&mut command, &home, model, access),
            Agent::Claude => claude(&mut command, &home, model, access),
            Agent::Gemini => gemini(&mut command, &home, model, access),
            Agent::Opencode => opencode(&mut command, &work, model, access),
        }
        command.args(self.agent.arguments(mode));
        if self.agent == Agent::Claude && !matches!(access, ServerAccess::None) {
            command.arg("--mcp-config").arg(home.join("mcp.json"));
        }
        command
    }
}

impl Agent {
    fn arguments(self, mode: &Mode) -> Vec<String> {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let headless = match self {
            Agent::Codex => words(&["exec", "--json", "--skip-git-repo-check"]),
            Agent::Claude => words(&["-p", "go", "--output-format", "stream-json", "--verbose"]),
            Agent::Gemini => words(&["-p", "go", "--yolo", "--output-format", "stream-json", "-m", "gemini-2.5-flash"]),
            Agent::Opencode => words(&["run", "go", "--format", "json"]),
        };
        let further = match (self, mode) {
            (Agent::Codex, Mode::Headless) => words(&["go"]),
            (Agent::Codex, Mode::Resumed { .. }) => words(&["resume", "--last", "go"]),
            (Agent::Claude, Mode::Resumed { chat: Some(chat) }) => words(&["--resume", chat]),
            (Agent::Claude | Agent::Opencode, Mode::Resumed { .. }) => words(&["--continue"]),
            (Agent::Gemini, Mode::Resumed { .. }) => words(&["--resume", "latest"]),
            (_, Mode::Headless) => vec![],
            (Agent::Claude, Mode::Interactive) => return words(&CLAUDE_ALLOWS),
            (_, Mode::Interactive) => panic!("{self:?} is driven headless only"),
        };
        let allows = if self == Agent::Claude { words(&CLAUDE_ALLOWS) } else { vec![] };
        [headless, further, allows].concat()
    }

    /// The id of a chat, from the client's output.
    pub fn chat_id(self, printed: &str) -> Option<String> {
        let (event, key) = match self {
            Agent::Codex => ("thread.started", "thread_id"),
            Agent::Claude => ("system", "session_id"),
            Agent::Gemini | Agent::Opencode => return None,
        };
        let mut lines = printed.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        Some(lines.find(|line| line["type"] == event)?[key].as_str()?.to_owned())
    }
}

/// No servers but ours, and no permission prompts.
const CLAUDE_ALLOWS: [&str; 2] = ["--strict-mcp-config", "--dangerously-skip-permissions"];

fn write(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
    std::fs::write(path, text).expect("a configuration");
}

fn codex(command: &mut Command, home: &Path, model: SocketAddr, access: &ServerAccess) {
    let mut config = format!(
        "model = \"scripted\"\nmodel_provider = \"scripted\"\napproval_policy = \"never\"\n\
         sandbox_mode = \"danger-full-access\"\n\
         [model_providers.scripted]\nname = \"scripted\"\nbase_url = \"http://{model}/v1\"\nwire_api = \"responses\"\n\
         request_max_retries = 0\nstream_max_retries = 0\nsupports_websockets = false\n"
    );
    if !matches!(access, ServerAccess::None) {
        config.push_str("[mcp_servers.pinfold]\n");
    }
    let done = match access {
        ServerAccess::None => Ok(()),
        ServerAccess::Stdio { binary, home } => {
            writeln!(config, "command = {binary:?}\nargs = [\"mcp\"]\nenv = {{ PINFOLD_HOME = {home:?} }}")
        }
        ServerAccess::Http { url, token } => {
            command.env("PINFOLD_TOKEN", token);
            writeln!(config, "url = \"{url}\"\nbearer_token_env_var = \"PINFOLD_TOKEN\"")
        }
    };
    done.expect("text");
    if !matches!(access, ServerAccess::None) {
        // Without this, codex in non-interactive mode refuses tools that are not read-only.
        config.push_str("default_tools_approval_mode = \"approve\"\n");
    }
    write(&home.join(".codex/config.toml"), &config);
    command.env("CODEX_HOME", home.join(".codex"));
}

/// The server configuration that most clients use.
fn servers(access: &ServerAccess) -> Value {
    match access {
        ServerAccess::None => json!({}),
        ServerAccess::Stdio { binary, home } => {
            json!({ "pinfold": { "command": binary, "args": ["mcp"], "env": { "PINFOLD_HOME": home } } })
        }
        ServerAccess::Http { url, token } => {
            let headers = json!({ "Authorization": format!("Bearer {token}") });
            json!({ "pinfold": { "type": "http", "url": url, "headers": headers } })
        }
    }
}

fn claude(command: &mut Command, home: &Path, model: SocketAddr, access: &ServerAccess) {
    write(&home.join("mcp.json"), &json!({ "mcpServers": servers(access) }).to_string());
    command.env("ANTHROPIC_BASE_URL", format!("http://{model}")).env("ANTHROPIC_API_KEY", "none");
    command.env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1").env("DISABLE_AUTOUPDATER", "1");
    // As root, Claude Code skips permissions only in a sandbox. Its first turn waits for the servers.
    command.env("IS_SANDBOX", "1").env("MCP_CONNECTION_NONBLOCKING", "false");
}

fn gemini(command: &mut Command, home: &Path, model: SocketAddr, access: &ServerAccess) {
    let settings = json!({
        "security": { "auth": { "selectedType": "gemini-api-key" } },
        "general": { "disableAutoUpdate": true },
        "privacy": { "usageStatisticsEnabled": false },
        "mcpServers": servers(access),
    });
    write(&home.join(".gemini/settings.json"), &settings.to_string());
    command.env("GOOGLE_GEMINI_BASE_URL", format!("http://{model}")).env("GEMINI_API_KEY", "none");
    command.env("GEMINI_CLI_TRUST_WORKSPACE", "true");
}

fn opencode(command: &mut Command, work: &Path, model: SocketAddr, access: &ServerAccess) {
    let servers = match access {
        ServerAccess::None => json!({}),
        ServerAccess::Stdio { binary, home } => {
            let environment = json!({ "PINFOLD_HOME": home });
            json!({ "pinfold": { "type": "local", "command": [binary, "mcp"], "environment": environment } })
        }
        ServerAccess::Http { .. } => panic!("opencode is driven over stdio only"),
    };
    let provider = json!({
        "npm": "@ai-sdk/openai-compatible",
        "name": "scripted",
        "options": { "baseURL": format!("http://{model}/v1"), "apiKey": "none" },
        "models": { "m": { "name": "m" } },
    });
    let config = json!({
        "model": "scripted/m",
        "small_model": "scripted/m",
        "autoupdate": false,
        "share": "disabled",
        "provider": { "scripted": provider },
        "mcp": servers,
        "permission": { "*": "allow" },
    });
    write(&work.join("opencode.json"), &config.to_string());
    for off in ["MODELS_FETCH", "AUTOUPDATE", "LSP_DOWNLOAD", "DEFAULT_PLUGINS", "SHARE"] {
        command.env(format!("OPENCODE_DISABLE_{off}"), "1");
    }
}
