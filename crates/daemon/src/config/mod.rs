//! Paths and configuration: built-in defaults, overlaid with the checked configuration file.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pinfold_model::admission::Limits;
use pinfold_model::environment::EnvironmentFilter;
use pinfold_model::limits::ProcessLimits;
use pinfold_model::spec::MIN_OUTPUT_LIMIT;
use pinfold_model::units::{parse_duration, parse_size};
use pinfold_store::Durability;
use serde::{Deserialize, Serialize};

mod coder;
mod limits;
mod mcp;
mod sandbox;
mod telemetry;
mod webhook_secret;

pub use coder::Coder;
use coder::FileCoder;
use limits::FileLimits;
use mcp::FileMcp;
pub use mcp::Mcp;
use sandbox::FileSandbox;
pub use sandbox::{OwnerSandbox, SandboxConfig};
use telemetry::FileTelemetry;
pub use telemetry::{SecretText, Telemetry};
pub(crate) use webhook_secret::SECRET_MARK;
pub use webhook_secret::Secret;

/// Where state and configuration are. `PINFOLD_HOME` alone moves both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// State, socket and log.
    pub home: PathBuf,
    /// The configuration file, which need not exist.
    pub config: PathBuf,
}

/// Why the paths cannot be determined.
#[derive(Debug, thiserror::Error)]
pub enum PathsError {
    #[error("{variable} is `{value}`, which is not an absolute path: set it to an absolute directory")]
    Relative { variable: &'static str, value: String },
    #[error("neither PINFOLD_HOME nor HOME is set: set PINFOLD_HOME to a directory for pinfold's state")]
    NoHome,
}

impl Paths {
    /// From the environment.
    pub fn resolve() -> Result<Self, PathsError> {
        match absolute("PINFOLD_HOME")? {
            Some(home) => Ok(Self::at(home)),
            None => Self::usual(),
        }
    }

    /// With state, socket and configuration in this directory; but if it is the default state directory, the
    /// configuration stays at its default place. Managed processes have that directory as PINFOLD_HOME.
    pub fn at(home: PathBuf) -> Self {
        match Self::usual() {
            Ok(usual) if usual.home == home => usual,
            _ => Self::in_home(home),
        }
    }

    /// The default places.
    fn usual() -> Result<Self, PathsError> {
        let user = absolute("HOME")?;
        let below = |variable, fallback: &str| -> Result<PathBuf, PathsError> {
            let base = absolute(variable)?.or_else(|| user.as_ref().map(|user| user.join(fallback)));
            Ok(base.ok_or(PathsError::NoHome)?.join("pinfold"))
        };
        let home = below("XDG_STATE_HOME", ".local/state")?;
        let config = below("XDG_CONFIG_HOME", ".config")?.join("config.toml");
        Ok(Self { home, config })
    }

    /// Everything below one directory.
    pub fn in_home(home: PathBuf) -> Self {
        let config = home.join("config.toml");
        Self { home, config }
    }

    /// The home, if it was moved and a child needs PINFOLD_HOME to find it.
    pub fn moved_home(&self) -> Option<&Path> {
        (self.config == self.home.join("config.toml")).then_some(self.home.as_path())
    }

    /// Where the daemon listens.
    pub fn socket(&self) -> PathBuf {
        self.home.join("socket")
    }

    /// Where the daemon logs.
    pub fn log(&self) -> PathBuf {
        self.home.join("daemon.log")
    }
}

fn absolute(variable: &'static str) -> Result<Option<PathBuf>, PathsError> {
    match std::env::var_os(variable) {
        None => Ok(None),
        Some(value) if value.is_empty() => Ok(None),
        Some(value) if Path::new(&value).is_absolute() => Ok(Some(value.into())),
        Some(value) => Err(PathsError::Relative { variable, value: value.to_string_lossy().into_owned() }),
    }
}

/// How a process tree is contained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Containment {
    /// By subreaper and tree walk, and by a cgroup where one can be created.
    #[default]
    Auto,
    /// By subreaper and tree walk alone.
    Subreaper,
}

/// TCP, for clients that cannot open the socket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tcp {
    /// The address, if it listens at all.
    pub listen: Option<SocketAddr>,
    /// Names of this machine that a `Host` header may have, besides loopback's own.
    pub hosts: Vec<String>,
    /// Origins whose web pages may send requests.
    pub origins: Vec<String>,
}

/// The effective configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Default time between a stop's signal and KILL.
    pub grace: Duration,
    /// Default bytes of output kept for each process.
    pub output_limit: u64,
    pub limits: Limits,
    pub process_limits: ProcessLimits,
    pub containment: Containment,
    pub durability: Durability,
    /// Maximum number of events in the log.
    pub events: u64,
    pub tcp: Tcp,
    /// Whether a socket connection from inside a managed process acts as the operator instead of the process's owner.
    pub trust_children: bool,
    /// The key that signs webhooks; if unset, the daemon generates one and stores it in the home.
    pub webhook_secret: Option<Secret>,
    /// Which variables pass to processes from the daemon's environment, or from that of `pinfold run` and `pinfold
    /// mcp`.
    pub environment: EnvironmentFilter,
    /// Settings of `/api/v0/processes`.
    pub coder: Coder,
    /// Settings of the MCP server.
    pub mcp: Mcp,
    /// Default sandboxes and floors.
    pub sandbox: SandboxConfig,
    /// Traces and metrics.
    pub telemetry: Telemetry,
    /// The log filter, in `tracing` syntax.
    pub log: String,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            grace: Duration::from_secs(5),
            output_limit: 64 << 20,
            limits: Limits::default(),
            process_limits: ProcessLimits::default(),
            containment: Containment::Auto,
            durability: Durability::Programs,
            events: 100_000,
            tcp: Tcp::default(),
            trust_children: false,
            webhook_secret: None,
            environment: EnvironmentFilter::default(),
            coder: Coder::default(),
            mcp: Mcp::default(),
            sandbox: SandboxConfig::default(),
            telemetry: Telemetry::default(),
            log: "info".to_owned(),
        }
    }
}

/// The file's contents.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    grace: Option<Text>,
    output_limit: Option<Text>,
    containment: Option<Containment>,
    durability: Option<Durability>,
    events: Option<u64>,
    log: Option<String>,
    #[serde(default)]
    limits: FileLimits,
    #[serde(default)]
    tcp: FileTcp,
    #[serde(default)]
    security: FileSecurity,
    #[serde(default)]
    environment: FileEnvironment,
    #[serde(default)]
    coder: FileCoder,
    #[serde(default)]
    mcp: FileMcp,
    #[serde(default)]
    sandbox: FileSandbox,
    #[serde(default)]
    telemetry: FileTelemetry,
    #[serde(default)]
    webhook: FileWebhook,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileWebhook {
    secret: Option<String>,
}

/// A secret is never printed.
impl std::fmt::Debug for FileWebhook {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("FileWebhook")
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileSecurity {
    trust_children: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileEnvironment {
    allow: Option<Vec<String>>,
    #[serde(default)]
    deny: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileTcp {
    listen: Option<String>,
    #[serde(default)]
    hosts: Vec<String>,
    #[serde(default)]
    origins: Vec<String>,
}

/// A number or a text: `30`, `"30s"`.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected a number, or text with a unit such as \"30s\" or \"64M\"")]
enum Text {
    Number(u64),
    Text(String),
}

impl Text {
    fn text(&self) -> String {
        match self {
            Text::Number(number) => number.to_string(),
            Text::Text(text) => text.clone(),
        }
    }
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read {path}: {source}")]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("{path} is not a configuration: {problem}run `pinfold config default` to see all settings")]
    Malformed { path: PathBuf, problem: String },
    #[error("{path}: {setting}: {problem}")]
    BadValue { path: PathBuf, setting: &'static str, problem: String },
}

impl Config {
    /// The defaults, overlaid with the file if there is one.
    pub fn load(paths: &Paths) -> Result<Self, ConfigError> {
        let path = &paths.config;
        match std::fs::read_to_string(path) {
            Ok(text) => Self::parse(&text, path),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(source) => Err(ConfigError::Unreadable { path: path.clone(), source }),
        }
    }

    /// The defaults, overlaid with the text of the file at this path.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        let malformed =
            |error: toml::de::Error| ConfigError::Malformed { path: path.to_owned(), problem: error.to_string() };
        let file: File = toml::from_str(text).map_err(malformed)?;
        let bad = |setting, problem: String| ConfigError::BadValue { path: path.to_owned(), setting, problem };
        let duration = |setting, text: Option<Text>, default| match text {
            Some(text) => parse_duration(&text.text()).map_err(|error| bad(setting, error.to_string())),
            None => Ok(default),
        };
        let size = |setting, text: Option<Text>, default| match text {
            Some(text) => parse_size(&text.text()).map_err(|error| bad(setting, error.to_string())),
            None => Ok(default),
        };
        let default = Self::default();
        let config = Self {
            grace: duration("grace", file.grace, default.grace)?,
            output_limit: size("output_limit", file.output_limit, default.output_limit)?,
            limits: file.limits.limits().map_err(|(setting, problem)| bad(setting, problem))?,
            process_limits: file.limits.process().map_err(|(setting, problem)| bad(setting, problem))?,
            environment: EnvironmentFilter { allow: file.environment.allow, deny: file.environment.deny },
            containment: file.containment.unwrap_or_default(),
            durability: file.durability.unwrap_or_default(),
            events: file.events.unwrap_or(default.events),
            webhook_secret: {
                let secret = file.webhook.secret.as_deref().map(Secret::parse).transpose();
                secret.map_err(|error| bad("webhook.secret", error.to_string()))?
            },
            tcp: Tcp {
                listen: file.tcp.listen.as_deref().map(loopback).transpose().map_err(|p| bad("tcp.listen", p))?,
                hosts: file.tcp.hosts,
                origins: file.tcp.origins,
            },
            trust_children: file.security.trust_children.unwrap_or(default.trust_children),
            coder: file.coder.try_into_coder().map_err(|(setting, problem)| bad(setting, problem))?,
            mcp: file.mcp.try_into_mcp().map_err(|(setting, problem)| bad(setting, problem))?,
            sandbox: file.sandbox.try_into_config().map_err(|(setting, problem)| bad(setting, problem))?,
            telemetry: file.telemetry.try_into_telemetry().map_err(|(setting, problem)| bad(setting, problem))?,
            log: file.log.unwrap_or(default.log),
        };
        if config.output_limit < MIN_OUTPUT_LIMIT {
            return Err(bad("output_limit", format!("give at least {MIN_OUTPUT_LIMIT} bytes")));
        }
        Ok(config)
    }

    /// Renders the configuration as a file.
    pub fn render_toml(&self) -> String {
        let seconds = |duration: Duration| format!("\"{}s\"", duration.as_secs_f64());
        let lower = |value: &dyn std::fmt::Debug| format!("\"{value:?}\"").to_lowercase();
        let settings = [
            ("how long a stop waits before KILL", "grace", seconds(self.grace)),
            (
                "bytes of output kept for each process: the first and the latest",
                "output_limit",
                render_bytes(self.output_limit),
            ),
            (
                "\"auto\": by subreaper, and by a cgroup where one can be created; \"subreaper\": without cgroup",
                "containment",
                lower(&self.containment),
            ),
            (
                "\"programs\": records survive the crash of any program; \"power\": flushed to disk as well",
                "durability",
                lower(&self.durability),
            ),
            ("maximum number of events in the log", "events", self.events.to_string()),
            ("what is logged: error, warn, info, debug or trace", "log", render_text(&self.log)),
        ];
        let mut text = String::new();
        let mut write = |(about, name, value): &(&str, &str, String)| {
            let _ = write!(text, "# {about}\n{name} = {value}\n");
        };
        settings.iter().for_each(&mut write);
        text.push_str(&limits::render(&self.limits, &self.process_limits));
        text.push_str(&self.tcp.render_toml());
        text.push_str(&render_security(self.trust_children));
        text.push_str(&render_environment(&self.environment));
        text.push_str(&self.coder.render_toml());
        text.push_str(&self.mcp.render_toml());
        text.push_str(&self.sandbox.render_toml());
        text.push_str(&self.telemetry.render_toml());
        text.push_str(render_webhook(self.webhook_secret.as_ref()));
        text
    }
}

impl Tcp {
    fn render_toml(&self) -> String {
        let listen = match self.listen {
            Some(address) => format!("listen = \"{address}\"\n"),
            None => "# listen = \"127.0.0.1:7373\"\n".to_owned(),
        };
        format!(
            "\n[tcp]\n# loopback address to listen on besides the socket; every request needs a token (pinfold token add)\n\
             {listen}# names a Host header may have, besides localhost and loopback addresses\nhosts = {}\n\
             # origins whose web pages may send requests\norigins = {}\n",
            render_texts(&self.hosts),
            render_texts(&self.origins)
        )
    }
}

fn render_security(trust_children: bool) -> String {
    format!(
        "\n[security]\n# true: a connection from inside a managed process acts as the operator; false: as that process's owner\n\
         trust_children = {trust_children}\n"
    )
}

fn render_environment(filter: &EnvironmentFilter) -> String {
    let allow = match &filter.allow {
        Some(allow) => format!("allow = {}\n", render_texts(allow)),
        None => "# allow = [\"PATH\", \"HOME\", \"LC_*\"]\n".to_owned(),
    };
    format!(
        "\n[environment]\n# variables that processes inherit, by default all; `*` matches any characters\n\
         {allow}# variables that processes do not inherit\ndeny = {}\n",
        render_texts(&filter.deny)
    )
}

/// A string in TOML syntax.
fn render_text(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

fn render_texts(texts: &[String]) -> String {
    let texts: Vec<String> = texts.iter().map(|text| render_text(text)).collect();
    format!("[{}]", texts.join(", "))
}

/// A number of bytes, as a string if it does not fit into TOML's 63 bits.
fn render_bytes(bytes: u64) -> String {
    if i64::try_from(bytes).is_ok() { bytes.to_string() } else { format!("\"{bytes}\"") }
}

/// A configured secret is not shown: this text is read by more people than the file.
fn render_webhook(secret: Option<&Secret>) -> &'static str {
    match secret {
        Some(_) => "\n[webhook]\n# the key that signs webhooks: set, and not shown\n",
        None => {
            "\n[webhook]\n# the key that signs webhooks; by default webhook.key in the home, which is created at first use\n\
             # secret = \"whsec_...\"\n"
        }
    }
}

/// Parses a loopback address.
fn loopback(text: &str) -> Result<SocketAddr, String> {
    let bad = || format!("`{text}` is not an address with a port: write \"127.0.0.1:7373\"");
    let address: SocketAddr = text.parse().map_err(|_| bad())?;
    match address.ip().is_loopback() {
        true => Ok(address),
        false => Err(format!("`{text}` is not a loopback address: use one, and put a TLS proxy in front of it")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, ConfigError> {
        Config::parse(text, Path::new("/c/config.toml"))
    }

    #[test]
    fn an_empty_file_gives_the_defaults_and_the_defaults_render_to_themselves() {
        assert_eq!(parse("").expect("valid"), Config::default());
        assert_eq!(parse(&Config::default().render_toml()).expect("valid"), Config::default());
    }

    #[test]
    fn every_setting_is_taken() {
        let text = "grace = \"2s\"\noutput_limit = \"1M\"\ncontainment = \"subreaper\"\ndurability = \"power\"\n\
                    events = 10\nlog = \"debug\"\n[security]\ntrust_children = true\n[environment]\nallow = [\"PATH\"]\ndeny = [\"*_KEY\"]\n\
                    [coder]\nwait_cap = \"2s\"\nlist_for = 60\nworkdir = \"/w\"\nenv_command = \"printf '%s' \\\"A=1\\\"\"\n[mcp]\nlongest_call = \"10m\"\n[limits]\nprocesses = 3\nstore = \"1G\"\nretention = \"1d\"\n";
        let config = parse(text).expect("valid");
        assert_eq!(config.grace, Duration::from_secs(2));
        assert_eq!(config.output_limit, 1 << 20);
        assert_eq!(config.containment, Containment::Subreaper);
        assert_eq!(config.durability, Durability::Power);
        assert_eq!(config.limits.processes, 3);
        assert!(config.trust_children && !Config::default().trust_children);
        assert!(config.environment.passes("PATH") && !config.environment.passes("HOME"));
        assert_eq!(config.limits.retention, Duration::from_secs(86_400));
        assert_eq!((config.coder.wait_cap.as_secs(), config.coder.list_for.as_secs()), (2, 60));
        assert_eq!(config.coder.workdir.as_deref(), Some("/w"));
        assert_eq!(config.mcp.longest_call, Some(Duration::from_secs(600)));
        assert!(parse("[mcp]\nlongest_call = \"10ms\"").is_err());
        assert_eq!(config.coder.env_command.as_deref(), Some("printf '%s' \"A=1\""));
        assert_eq!(parse(&config.render_toml()).expect("valid"), config);
    }

    #[test]
    fn limits_of_processes_and_owners_are_taken_and_none_is_set_without() {
        assert_eq!(Config::default().process_limits, ProcessLimits::default());
        let text = "[limits]\ntime_limit = \"2h\"\nidle_limit = 60\nmemory_limit = \"1G\"\npids_limit = 100\ncpus = 0.5\n\
                    cpu_time_limit = \"5m\"\n[limits.owner]\nprocesses = 4\nmemory = \"2G\"\nstore = \"1M\"\n";
        let config = parse(text).expect("valid");
        let tree = &config.process_limits.tree;
        assert_eq!((tree.memory, tree.pids, tree.millicpus), (Some(1 << 30), Some(100), Some(500)));
        assert_eq!(
            (config.process_limits.time, tree.cpu_time.map(|time| time.as_secs())),
            (Some(Duration::from_secs(7200)), Some(300))
        );
        let owner = &config.limits.owner;
        assert_eq!((owner.processes, owner.memory_bytes, owner.store_bytes), (Some(4), Some(2 << 30), Some(1 << 20)));
        assert_eq!(parse(&config.render_toml()).expect("valid"), config);
    }

    #[test]
    fn every_valid_configuration_survives_rendering() {
        let odd = r#"["a\"b", "\u0000\u001b\\", "é\n'"]"#;
        let text = format!(
            "output_limit = \"16777215T\"\nlog = \"a\\\"b\\u0301\"\n[limits]\nstore = \"16777215T\"\n\
             memory_limit = \"9999999T\"\n[tcp]\nhosts = {odd}\norigins = {odd}\n[environment]\nallow = {odd}\ndeny = {odd}\n"
        );
        let config = parse(&text).expect("valid");
        assert_eq!(parse(&config.render_toml()).expect("valid"), config);
    }

    #[test]
    fn mistakes_name_the_file_and_the_setting() {
        for (text, named) in [
            ("grase = 1", "grase"),
            ("grace = \"soon\"", "grace"),
            ("output_limit = 12", "output_limit"),
            ("containment = \"jail\"", "jail"),
            ("[limits]\nstore = \"lots\"", "limits.store"),
            ("[limits]\nmemory_limit = 12", "memory_limit"),
            ("[limits]\ncpus = 0", "limits.cpus"),
            ("[limits]\ntime_limit = 0", "limits.time_limit"),
            ("[limits.owner]\nmemory = \"much\"", "limits.owner.memory"),
            ("[limits.owner]\nfiles = 3", "files"),
            ("[tcp]\nlisten = \"0.0.0.0:80\"", "tcp.listen"),
            ("[tcp]\nlisten = \"here\"", "tcp.listen"),
            ("[coder]\nwait_cap = \"soon\"", "coder.wait_cap"),
            ("[coder]\nworkdir = \"src\"", "coder.workdir"),
            ("[webhook]\nsecret = \"guess\"", "webhook.secret"),
            ("= =", "config.toml"),
        ] {
            let error = parse(text).expect_err(text).to_string();
            assert!(error.contains(named) && error.contains("/c/config.toml"), "{error}");
        }
    }
}
