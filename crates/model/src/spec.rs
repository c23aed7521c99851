//! What is asked for: one command and how it is to be kept. A `Spec` that exists is valid.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::limits::{BadLimit, TreeLimits};
use crate::notify::{self, Notify};
use crate::service::{BadService, READY_SOCKET, Service};
use crate::signal::Signal;

/// Marks that pinfold sets in every process's environment; a request cannot override them.
pub const RESERVED_ENV: [&str; 3] = ["PINFOLD_ID", "PINFOLD_OWNER", "PINFOLD_MARK"];
/// The variable that names a home. Each process gets the home that it is kept in, unless the request sets or unsets it.
pub const HOME_ENV: &str = "PINFOLD_HOME";
/// The shell of a `command`, unless the request names another.
pub const DEFAULT_SHELL: &str = "/bin/sh";
/// Where programs are looked for when the environment has no PATH, as the C library has it.
pub const DEFAULT_PATH: &str = "/usr/local/bin:/bin:/usr/bin";
/// The owner of what nobody claims.
pub const DEFAULT_OWNER: &str = "default";

/// What to run: a script for a shell, or a program with its arguments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Program {
    Shell { shell: String, script: String },
    Argv { argv: Vec<String> },
}

/// How the two output streams are captured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Streams {
    /// One pipe for both: the order of writes is exact.
    #[default]
    Merged,
    /// One pipe each: they can be read apart; their order is that of arrival.
    Separate,
}

/// What a process reads as its standard input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stdin {
    /// Nothing: `/dev/null`.
    #[default]
    Null,
    /// What clients send, until they end it.
    Pipe,
}

impl Stdin {
    fn is_null(&self) -> bool {
        *self == Self::Null
    }
}

/// The size of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PtySize {
    pub rows: u16,
    pub cols: u16,
}

impl Default for PtySize {
    fn default() -> Self {
        Self { rows: 24, cols: 80 }
    }
}

impl PtySize {
    /// A size that a screen can be kept for.
    pub fn check(self) -> Result<Self, Refusal> {
        let fits = (1..=PTY_ROWS_MOST).contains(&self.rows) && (1..=PTY_COLS_MOST).contains(&self.cols);
        if fits { Ok(self) } else { Err(Refusal::BadPtySize { rows: self.rows, cols: self.cols }) }
    }
}

/// What becomes of descendants that outlive the leader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Strays {
    /// They stay listed, captured and stoppable.
    #[default]
    Keep,
    /// They are stopped as soon as the leader is gone.
    Stop,
}

/// What becomes of a process when its owner is ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "until", rename_all = "snake_case")]
pub enum Lifetime {
    /// It lives until it finishes or is stopped.
    #[default]
    Keep,
    /// It is stopped, also when its owner was not heard of for the grace.
    Owner { grace: Option<Duration> },
    /// It is handed over to the owner's parent; without one it is stopped.
    Parent { grace: Option<Duration> },
}

impl Lifetime {
    /// How long the owner may be silent before it counts as ended.
    pub fn grace(self) -> Option<Duration> {
        match self {
            Lifetime::Keep => None,
            Lifetime::Owner { grace } | Lifetime::Parent { grace } => grace,
        }
    }

    /// The same lifetime with this grace, if it ends with its owner and has no grace of its own.
    pub fn or_grace(self, default: Option<Duration>) -> Self {
        match self {
            Lifetime::Owner { grace: None } => Lifetime::Owner { grace: default },
            Lifetime::Parent { grace: None } => Lifetime::Parent { grace: default },
            kept => kept,
        }
    }
}

/// How a stop proceeds: this signal, then after the grace KILL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopManner {
    pub signal: Signal,
    pub grace: Duration,
}

/// One command and how it is to be kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    pub program: Program,
    pub cwd: PathBuf,
    /// Whether the daemon's environment lies under `env`.
    pub inherit_env: bool,
    /// Laid over the base; `None` unsets. Values live in memory only, see [`Spec::without_values`].
    pub env: BTreeMap<String, Option<String>>,
    pub owner: String,
    /// The owner's parent, its parent, and so on, as known at the start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ancestors: Vec<String>,
    #[serde(default)]
    pub lifetime: Lifetime,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What it is for, in words for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intent: Option<String>,
    pub labels: BTreeMap<String, String>,
    pub streams: Streams,
    #[serde(default, skip_serializing_if = "Stdin::is_null")]
    pub stdin: Stdin,
    /// A terminal for all three streams, of this size at the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pty: Option<PtySize>,
    pub strays: Strays,
    pub stop: StopManner,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_limit: Option<Duration>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_limit: Option<Duration>,
    #[serde(default, skip_serializing_if = "TreeLimits::is_none")]
    pub limits: TreeLimits,
    #[serde(default)]
    pub notify: Notify,
    #[serde(default, skip_serializing_if = "Service::is_none")]
    pub service: Service,
    pub output_limit: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
}

impl Spec {
    /// The command as people see it.
    pub fn command_text(&self) -> String {
        match &self.program {
            Program::Shell { script, .. } => script.clone(),
            Program::Argv { argv } => argv.join(" "),
        }
    }

    /// Whether input can be sent to it.
    pub fn takes_input(&self) -> bool {
        self.stdin == Stdin::Pipe || self.pty.is_some()
    }

    /// The spec with every environment value blanked: what may be written down or shown.
    pub fn without_values(mut self) -> Self {
        for value in self.env.values_mut().flatten() {
            value.clear();
        }
        self
    }
}

/// What a request asks for, before it is checked. Text as it came, defaults not yet filled in.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    pub command: Option<String>,
    pub argv: Option<Vec<String>>,
    pub shell: Option<String>,
    pub cwd: Option<String>,
    pub inherit_env: bool,
    pub env: BTreeMap<String, Option<String>>,
    pub owner: Option<String>,
    pub ancestors: Vec<String>,
    pub lifetime: Lifetime,
    pub name: Option<String>,
    pub intent: Option<String>,
    pub labels: BTreeMap<String, String>,
    pub streams: Streams,
    pub stdin: Option<Stdin>,
    pub pty: Option<PtySize>,
    pub strays: Strays,
    pub stop_signal: Option<Signal>,
    pub grace: Option<Duration>,
    pub time_limit: Option<Duration>,
    pub idle_limit: Option<Duration>,
    pub limits: TreeLimits,
    pub notify: Notify,
    pub service: Service,
    pub output_limit: Option<u64>,
    pub idempotency_key: Option<String>,
}

/// What the daemon fills in where a request is silent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Defaults {
    pub cwd: String,
    pub home: String,
    pub grace: Duration,
    pub output_limit: u64,
    pub time_limit: Option<Duration>,
    pub idle_limit: Option<Duration>,
    pub limits: TreeLimits,
}

/// Why a request is refused. Each names the field and the way out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("command is empty: give a shell command in `command`, or a program in `argv`")]
    EmptyCommand,
    #[error("both `command` and `argv` are given: give `command` for a shell, or `argv` for a program, not both")]
    TwoCommands,
    #[error("`shell` goes with `command`, not with `argv`")]
    ShellWithArgv,
    #[error("`{field}` holds a NUL byte, which no program can be given")]
    NulByte { field: &'static str },
    #[error("cwd `{cwd}` is not absolute: give an absolute directory, or one that begins with `~/`")]
    RelativeCwd { cwd: String },
    #[error("environment name `{name}` is not usable: names are not empty and hold no `=` and no NUL byte")]
    BadEnvName { name: String },
    #[error("environment name `{name}` is pinfold's own mark and cannot be set: leave it out")]
    ReservedEnv { name: String },
    #[error("{field} `{value}` is not usable: use 1 to {most} characters, letters, digits, spaces and `. _ - : @ /`")]
    BadName { field: &'static str, value: String, most: usize },
    #[error("too many labels ({count}): give at most {most}")]
    TooManyLabels { count: usize, most: usize },
    #[error("`{field}` is longer than {most} bytes")]
    TooLong { field: &'static str, most: usize },
    #[error("`{field}` is empty: give 1 to {most} bytes, or leave it out")]
    Empty { field: &'static str, most: usize },
    #[error("output_limit {value} is too small: give at least {least} bytes")]
    SmallOutputLimit { value: u64, least: u64 },
    #[error("{field} is zero: leave it out for no limit")]
    ZeroLimit { field: &'static str },
    #[error("`pty` is one terminal for all three streams: leave `{field}` out, or leave `pty` out")]
    WithPty { field: &'static str },
    #[error(
        "a terminal of {rows} rows and {cols} columns: give 1 to {PTY_ROWS_MOST} rows and 1 to {PTY_COLS_MOST} columns"
    )]
    BadPtySize { rows: u16, cols: u16 },
    #[error(transparent)]
    BadLimit(#[from] BadLimit),
    #[error(transparent)]
    BadNotify(#[from] notify::BadNotify),
    #[error(transparent)]
    BadService(#[from] BadService),
}

/// Longest owner, name, label key or idempotency key.
const NAME_MOST: usize = 128;
/// Characters of an intent.
const INTENT_MOST: usize = 200;
const LABEL_VALUE_MOST: usize = 1024;
const LABELS_MOST: usize = 32;
/// The largest terminal: its screen is kept in memory.
pub const PTY_ROWS_MOST: u16 = 500;
pub const PTY_COLS_MOST: u16 = 1000;
/// Less than this would not hold a head and a tail worth reading.
pub const OUTPUT_LIMIT_LEAST: u64 = 64 * 1024;
/// A grace is at most this long, so that every stop is bounded.
pub const GRACE_MOST: Duration = Duration::from_secs(3600);

impl Draft {
    /// Nothing goes beside a terminal without being said.
    fn check_pty(&self) -> Result<Option<PtySize>, Refusal> {
        let Some(size) = self.pty else { return Ok(None) };
        if self.streams == Streams::Separate {
            return Err(Refusal::WithPty { field: "streams" });
        }
        if self.stdin.is_some() {
            return Err(Refusal::WithPty { field: "stdin" });
        }
        size.check().map(Some)
    }

    /// Checks everything that needs no look at the machine.
    pub fn try_into_spec(self, defaults: &Defaults) -> Result<Spec, Refusal> {
        let program = self.program()?;
        let cwd = self.resolve_cwd(defaults)?;
        self.check_env()?;
        self.check_names()?;
        let output_limit = self.output_limit.unwrap_or(defaults.output_limit);
        if output_limit < OUTPUT_LIMIT_LEAST {
            return Err(Refusal::SmallOutputLimit { value: output_limit, least: OUTPUT_LIMIT_LEAST });
        }
        for (field, limit) in [("time_limit", self.time_limit), ("idle_limit", self.idle_limit)] {
            if limit.is_some_and(|limit| limit.is_zero()) {
                return Err(Refusal::ZeroLimit { field });
            }
        }
        let pty = self.check_pty()?;
        let limits = self.limits.or(defaults.limits);
        limits.check()?;
        self.notify.check()?;
        self.service.check()?;
        Ok(Spec {
            program,
            cwd,
            inherit_env: self.inherit_env,
            env: self.env,
            owner: self.owner.unwrap_or_else(|| DEFAULT_OWNER.to_owned()),
            ancestors: self.ancestors,
            lifetime: self.lifetime,
            name: self.name,
            intent: self.intent,
            labels: self.labels,
            streams: self.streams,
            stdin: self.stdin.unwrap_or_default(),
            pty,
            strays: self.strays,
            stop: StopManner {
                signal: self.stop_signal.unwrap_or(Signal::TERM),
                grace: self.grace.unwrap_or(defaults.grace).min(GRACE_MOST),
            },
            time_limit: self.time_limit.or(defaults.time_limit),
            idle_limit: self.idle_limit.or(defaults.idle_limit),
            limits,
            notify: self.notify,
            service: self.service,
            output_limit,
            idempotency_key: self.idempotency_key,
        })
    }

    fn program(&self) -> Result<Program, Refusal> {
        match (&self.command, &self.argv) {
            (Some(_), Some(_)) => Err(Refusal::TwoCommands),
            (None, None) => Err(Refusal::EmptyCommand),
            (Some(script), None) => {
                if script.trim().is_empty() {
                    return Err(Refusal::EmptyCommand);
                }
                no_nul("command", script)?;
                let shell = self.shell.as_deref().map_or(DEFAULT_SHELL, str::trim);
                no_nul("shell", shell)?;
                let shell = if shell.is_empty() { DEFAULT_SHELL } else { shell };
                Ok(Program::Shell { shell: shell.to_owned(), script: script.clone() })
            }
            (None, Some(argv)) => {
                if argv.first().is_none_or(|program| program.is_empty()) {
                    return Err(Refusal::EmptyCommand);
                }
                if self.shell.is_some() {
                    return Err(Refusal::ShellWithArgv);
                }
                argv.iter().try_for_each(|arg| no_nul("argv", arg))?;
                Ok(Program::Argv { argv: argv.clone() })
            }
        }
    }

    fn resolve_cwd(&self, defaults: &Defaults) -> Result<PathBuf, Refusal> {
        let cwd = self.cwd.as_deref().unwrap_or(&defaults.cwd);
        no_nul("cwd", cwd)?;
        let resolved = match cwd.strip_prefix('~') {
            Some("") => defaults.home.clone(),
            Some(rest) if rest.starts_with('/') => format!("{}{rest}", defaults.home),
            _ => cwd.to_owned(),
        };
        if resolved.starts_with('/') {
            Ok(PathBuf::from(resolved))
        } else {
            Err(Refusal::RelativeCwd { cwd: cwd.to_owned() })
        }
    }

    fn check_env(&self) -> Result<(), Refusal> {
        for (name, value) in &self.env {
            if name.is_empty() || name.contains(['=', '\0']) {
                return Err(Refusal::BadEnvName { name: name.replace('\0', "\\0") });
            }
            if RESERVED_ENV.contains(&name.as_str()) || name == READY_SOCKET {
                return Err(Refusal::ReservedEnv { name: name.clone() });
            }
            if value.as_deref().is_some_and(|value| value.contains('\0')) {
                return Err(Refusal::NulByte { field: "env" });
            }
        }
        Ok(())
    }

    fn check_names(&self) -> Result<(), Refusal> {
        for (field, value) in [("owner", &self.owner), ("name", &self.name)] {
            value.as_deref().map_or(Ok(()), |value| check_name(field, value))?;
        }
        if self.intent.as_ref().is_some_and(|intent| intent.chars().count() > INTENT_MOST) {
            return Err(Refusal::TooLong { field: "intent", most: INTENT_MOST });
        }
        match self.idempotency_key.as_ref().map(String::len) {
            Some(0) => return Err(Refusal::Empty { field: "idempotency_key", most: NAME_MOST }),
            Some(length) if length > NAME_MOST => {
                return Err(Refusal::TooLong { field: "idempotency_key", most: NAME_MOST });
            }
            _ => {}
        }
        if self.labels.len() > LABELS_MOST {
            return Err(Refusal::TooManyLabels { count: self.labels.len(), most: LABELS_MOST });
        }
        for (key, value) in &self.labels {
            check_name("label", key)?;
            if value.len() > LABEL_VALUE_MOST {
                return Err(Refusal::TooLong { field: "labels", most: LABEL_VALUE_MOST });
            }
        }
        Ok(())
    }
}

/// Whether a text can name an owner, a process or a label.
pub fn check_name(field: &'static str, value: &str) -> Result<(), Refusal> {
    let plain = |c: char| c.is_alphanumeric() || "._-:@/ ".contains(c);
    let fits = !value.trim().is_empty() && value.len() <= NAME_MOST && value.chars().all(plain);
    if fits {
        Ok(())
    } else {
        Err(Refusal::BadName { field, value: value.chars().take(40).collect(), most: NAME_MOST })
    }
}

fn no_nul(field: &'static str, text: &str) -> Result<(), Refusal> {
    if text.contains('\0') { Err(Refusal::NulByte { field }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn defaults() -> Defaults {
        Defaults {
            cwd: "/work".into(),
            home: "/home/ann".into(),
            grace: Duration::from_secs(5),
            output_limit: 64 << 20,
            ..Defaults::default()
        }
    }

    fn draft(command: &str) -> Draft {
        Draft { command: Some(command.into()), inherit_env: true, ..Draft::default() }
    }

    #[test]
    fn a_plain_command_gets_the_defaults() {
        let spec = draft("make").try_into_spec(&defaults()).expect("valid");
        assert_eq!(spec.program, Program::Shell { shell: "/bin/sh".into(), script: "make".into() });
        assert_eq!(spec.cwd, PathBuf::from("/work"));
        assert_eq!(spec.owner, "default");
        assert_eq!(spec.stop, StopManner { signal: Signal::TERM, grace: Duration::from_secs(5) });
    }

    #[test]
    fn home_is_expanded_and_a_relative_cwd_is_refused() {
        let at = |cwd: &str| Draft { cwd: Some(cwd.into()), ..draft("true") }.try_into_spec(&defaults());
        assert_eq!(at("~").expect("valid").cwd, PathBuf::from("/home/ann"));
        assert_eq!(at("~/src").expect("valid").cwd, PathBuf::from("/home/ann/src"));
        for cwd in ["src", "", ".", "~bob"] {
            assert!(matches!(at(cwd), Err(Refusal::RelativeCwd { .. })), "{cwd}");
        }
    }

    #[test]
    fn each_kind_of_bad_request_is_refused_by_name() {
        let refuse = |draft: Draft| draft.try_into_spec(&defaults()).expect_err("refused").to_string();
        assert!(refuse(draft("")).contains("command is empty"));
        assert!(refuse(draft(" \n\t")).contains("command is empty"));
        assert!(refuse(Draft::default()).contains("command is empty"));
        assert!(refuse(Draft { argv: Some(vec![]), ..Draft::default() }).contains("command is empty"));
        assert!(refuse(Draft { argv: Some(vec!["ls".into()]), ..draft("ls") }).contains("not both"));
        assert!(refuse(draft("a\0b")).contains("NUL"));
        let env = |name: &str| Draft { env: [(name.to_owned(), None)].into(), ..draft("true") };
        assert!(refuse(env("")).contains("not usable"));
        assert!(refuse(env("A=B")).contains("not usable"));
        assert!(refuse(env("PINFOLD_ID")).contains("pinfold's own"));
        let owner = |owner: &str| Draft { owner: Some(owner.into()), ..draft("true") };
        assert!(refuse(owner("")).contains("owner"));
        assert!(refuse(owner("a\nb")).contains("owner"));
        assert!(refuse(owner(&"x".repeat(129))).contains("owner"));
        assert!(refuse(Draft { output_limit: Some(1), ..draft("true") }).contains("65536"));
        assert!(refuse(Draft { time_limit: Some(Duration::ZERO), ..draft("true") }).contains("time_limit"));
        let terminal = || Draft { pty: Some(PtySize::default()), ..draft("true") };
        assert!(refuse(Draft { streams: Streams::Separate, ..terminal() }).contains("`streams`"));
        assert!(refuse(Draft { stdin: Some(Stdin::Pipe), ..terminal() }).contains("`stdin`"));
        assert!(refuse(Draft { pty: Some(PtySize { rows: 0, cols: 80 }), ..draft("true") }).contains("0 rows"));
        let limits = TreeLimits { memory: Some(1), ..TreeLimits::default() };
        assert!(refuse(Draft { limits, ..draft("true") }).contains("memory_limit"));
    }

    #[test]
    fn the_configuration_limits_what_a_request_does_not() {
        let pids = |pids| TreeLimits { pids: Some(pids), ..TreeLimits::default() };
        let time_limit = Some(Duration::from_secs(9));
        let defaults = Defaults { time_limit, limits: pids(7), ..defaults() };
        let spec = draft("true").try_into_spec(&defaults).expect("valid");
        assert_eq!((spec.time_limit, spec.idle_limit, spec.limits), (time_limit, None, pids(7)));
        let spec = Draft { limits: pids(99), ..draft("true") }.try_into_spec(&defaults).expect("valid");
        assert_eq!(spec.limits, pids(99));
    }

    #[test]
    fn values_of_the_environment_are_not_written_down() {
        let env = [("TOKEN".to_owned(), Some("s3cret".to_owned())), ("GONE".to_owned(), None)].into();
        let spec = Draft { env, ..draft("true") }.try_into_spec(&defaults()).expect("valid");
        let text = serde_json::to_string(&spec.without_values()).expect("serialises");
        assert!(text.contains("TOKEN") && !text.contains("s3cret"), "{text}");
    }
}
