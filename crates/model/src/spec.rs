//! One command (a shell command or an argv) and its options. A [`Spec`] is the one shape of it: the daemon makes it from a request, the keeper writes it
//! to the record, and a restart reads it back. The daemon starts only what passed [`Spec::check`].

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::limits::{BadLimit, ProcessLimits, TreeLimits};
use crate::notify::{self, Notify};
use crate::sandbox::Enforcement;
use crate::service::{BadService, READY_SOCKET, Service};
use crate::signal::Signal;
use crate::trace::{BadTraceparent, TraceParent};

/// Marks that pinfold sets in every process's environment; a request cannot override them.
pub const RESERVED_ENV: [&str; 3] = ["PINFOLD_ID", "PINFOLD_OWNER", "PINFOLD_MARK"];
/// The variable that names a home. Each process gets the home that it is kept in, unless the request sets or unsets it.
pub const HOME_ENV: &str = "PINFOLD_HOME";
/// The shell of a `command`, unless the request names another.
pub const DEFAULT_SHELL: &str = "/bin/sh";
/// Where programs are looked for when the environment has no PATH, as the C library has it.
pub const DEFAULT_PATH: &str = "/usr/local/bin:/bin:/usr/bin";
/// The owner of a process that is started without one.
pub const DEFAULT_OWNER: &str = "default";

/// What to run: a script for a shell, or a program with its arguments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Program {
    Shell { shell: String, script: String },
    Argv { argv: Vec<String> },
}

/// How the two output streams are captured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Streams {
    // One pipe for both: the order of writes is exact.
    #[default]
    Merged,
    // One pipe each: they can be read separately; their order is the order of arrival.
    Separate,
}

/// The standard input of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Stdin {
    /// Nothing: `/dev/null`.
    #[default]
    Null,
    /// A pipe that clients write to with `POST /v1/processes/{id}/input`, until they close it.
    Pipe,
}

impl Stdin {
    fn is_null(&self) -> bool {
        *self == Self::Null
    }
}

/// The size of a terminal: 1 to 500 rows, 1 to 1000 columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
    /// Checks that a screen of this size can be kept in memory.
    pub fn check(self) -> Result<Self, SpecError> {
        let fits = (1..=MAX_PTY_ROWS).contains(&self.rows) && (1..=MAX_PTY_COLS).contains(&self.cols);
        if fits { Ok(self) } else { Err(SpecError::BadPtySize { rows: self.rows, cols: self.cols }) }
    }
}

/// What happens to descendants that outlive the command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Strays {
    // They stay listed, their output is captured, and a stop ends them.
    #[default]
    Keep,
    // They are stopped as soon as the leader has exited.
    Stop,
}

/// What happens to a process when its owner is ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "until", rename_all = "snake_case")]
pub enum Lifetime {
    /// It runs until it finishes or is stopped.
    #[default]
    Keep,
    /// It is stopped, also if its owner had no contact for longer than the grace.
    Owner { grace: Option<Duration> },
    /// It is handed over to the owner's parent, and stopped if there is none.
    Parent { grace: Option<Duration> },
}

impl Lifetime {
    /// How long the owner may have no contact before it counts as ended.
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

/// One command and its options.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    pub program: Program,
    pub cwd: PathBuf,
    /// Whether `env` is added to the daemon's environment, or to an empty one.
    pub inherit_env: bool,
    /// `None` unsets a variable. Values are in memory only, see [`Spec::without_values`].
    pub env: BTreeMap<String, Option<String>>,
    pub owner: String,
    /// The owner's parent, the parent's parent, and so on, as known at the start.
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
    /// A terminal for all three streams, with this size at the start.
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
    /// What it may do, if that is restricted, and what the kernel enforces of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<Enforcement>,
    #[serde(default)]
    pub notify: Notify,
    #[serde(default, skip_serializing_if = "Service::is_none")]
    pub service: Service,
    pub output_limit: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// The span that it was started from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<TraceParent>,
    /// The model's tool that started it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
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

    /// The spec with every environment value blanked: what may be written to disk or shown.
    pub fn without_values(mut self) -> Self {
        for value in self.env.values_mut().flatten() {
            value.clear();
        }
        self
    }
}

/// What a process gets that is started without these options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Defaults {
    pub cwd: String,
    /// What `~` stands for in a working directory.
    pub home: String,
    pub grace: Duration,
    pub output_limit: u64,
    pub limits: ProcessLimits,
}

/// Why a spec is refused. Each names the field and says what to give instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    #[error("command is empty: give a shell command in `command`, or a program in `argv`")]
    EmptyCommand,
    #[error("both `command` and `argv` are given: give `command` for a shell, or `argv` for a program, not both")]
    TwoCommands,
    #[error("`shell` can only be used with `command`: leave it out, or give `command` instead of `argv`")]
    ShellWithArgv,
    #[error("`{field}` contains a NUL byte, which Linux cannot pass to a program: remove it")]
    NulByte { field: &'static str },
    #[error("cwd `{cwd}` is not absolute: give an absolute directory, or one that begins with `~/`")]
    RelativeCwd { cwd: String },
    #[error("environment name `{name}` is not usable: names are not empty and hold no `=` and no NUL byte")]
    BadEnvName { name: String },
    #[error("environment name `{name}` is pinfold's own mark and cannot be set: leave it out")]
    ReservedEnv { name: String },
    #[error("{field} `{value}` is not usable: use 1 to {max} characters, letters, digits, spaces and `. _ - : @ /`")]
    BadName { field: &'static str, value: String, max: usize },
    #[error("too many labels ({count}): give at most {max}")]
    TooManyLabels { count: usize, max: usize },
    #[error("`{field}` is longer than {max} bytes")]
    TooLong { field: &'static str, max: usize },
    #[error("`{field}` is empty: give 1 to {max} bytes, or leave it out")]
    Empty { field: &'static str, max: usize },
    #[error("output_limit {value} is too small: give at least {min} bytes")]
    SmallOutputLimit { value: u64, min: u64 },
    #[error("{field} is zero: leave it out for no limit")]
    ZeroLimit { field: &'static str },
    #[error("`pty` is one terminal for all three streams: leave `{field}` out, or leave `pty` out")]
    WithPty { field: &'static str },
    #[error(
        "a terminal of {rows} rows and {cols} columns: give 1 to {MAX_PTY_ROWS} rows and 1 to {MAX_PTY_COLS} columns"
    )]
    BadPtySize { rows: u16, cols: u16 },
    #[error(transparent)]
    BadLimit(#[from] BadLimit),
    #[error(transparent)]
    BadNotify(#[from] notify::BadNotify),
    #[error(transparent)]
    BadService(#[from] BadService),
    #[error(transparent)]
    BadTraceparent(#[from] BadTraceparent),
}

/// Longest owner, name, label key or idempotency key.
const MAX_NAME: usize = 128;
/// Characters of an intent.
const MAX_INTENT: usize = 200;
const MAX_LABEL_VALUE: usize = 1024;
const MAX_LABELS: usize = 32;
/// The largest terminal: its screen is kept in memory.
pub const MAX_PTY_ROWS: u16 = 500;
pub const MAX_PTY_COLS: u16 = 1000;
/// Less than this would not hold a head and a tail worth reading.
pub const MIN_OUTPUT_LIMIT: u64 = 64 * 1024;
/// A grace is at most this long, so that every stop is bounded.
pub const MAX_GRACE: Duration = Duration::from_secs(3600);

impl Program {
    /// A `command` for a `shell`, or an `argv`: exactly one of the two.
    pub fn parse(command: Option<String>, argv: Option<Vec<String>>, shell: Option<&str>) -> Result<Self, SpecError> {
        match (command, argv) {
            (Some(_), Some(_)) => Err(SpecError::TwoCommands),
            (None, None) => Err(SpecError::EmptyCommand),
            (Some(script), None) => {
                if script.trim().is_empty() {
                    return Err(SpecError::EmptyCommand);
                }
                no_nul("command", &script)?;
                let shell = shell.map_or(DEFAULT_SHELL, str::trim);
                no_nul("shell", shell)?;
                let shell = if shell.is_empty() { DEFAULT_SHELL } else { shell };
                Ok(Program::Shell { shell: shell.to_owned(), script })
            }
            (None, Some(argv)) => {
                if argv.first().is_none_or(|program| program.is_empty()) {
                    return Err(SpecError::EmptyCommand);
                }
                if shell.is_some() {
                    return Err(SpecError::ShellWithArgv);
                }
                argv.iter().try_for_each(|arg| no_nul("argv", arg))?;
                Ok(Program::Argv { argv })
            }
        }
    }
}

impl Defaults {
    /// The working directory for this request: absolute, with `~` replaced.
    pub fn resolve_cwd(&self, cwd: Option<&str>) -> Result<PathBuf, SpecError> {
        let cwd = cwd.unwrap_or(&self.cwd);
        no_nul("cwd", cwd)?;
        let resolved = match cwd.strip_prefix('~') {
            Some("") => self.home.clone(),
            Some(rest) if rest.starts_with('/') => format!("{}{rest}", self.home),
            _ => cwd.to_owned(),
        };
        if resolved.starts_with('/') {
            Ok(PathBuf::from(resolved))
        } else {
            Err(SpecError::RelativeCwd { cwd: cwd.to_owned() })
        }
    }
}

impl Spec {
    /// This program in this directory, with the defaults for all other options.
    pub fn new(program: Program, cwd: PathBuf, defaults: &Defaults) -> Self {
        Self {
            program,
            cwd,
            inherit_env: true,
            env: BTreeMap::new(),
            owner: DEFAULT_OWNER.to_owned(),
            ancestors: vec![],
            lifetime: Lifetime::Keep,
            name: None,
            intent: None,
            labels: BTreeMap::new(),
            streams: Streams::Merged,
            stdin: Stdin::Null,
            pty: None,
            strays: Strays::Keep,
            stop: StopManner { signal: Signal::TERM, grace: defaults.grace.min(MAX_GRACE) },
            time_limit: defaults.limits.time,
            idle_limit: defaults.limits.idle,
            limits: defaults.limits.tree,
            sandbox: None,
            notify: Notify::default(),
            service: Service::default(),
            output_limit: defaults.output_limit,
            idempotency_key: None,
            traceparent: None,
            tool: None,
        }
    }

    /// Checks every option, without looking at the machine.
    pub fn check(self) -> Result<Self, SpecError> {
        self.check_env()?;
        self.check_names()?;
        if self.output_limit < MIN_OUTPUT_LIMIT {
            return Err(SpecError::SmallOutputLimit { value: self.output_limit, min: MIN_OUTPUT_LIMIT });
        }
        for (field, limit) in [("time_limit", self.time_limit), ("idle_limit", self.idle_limit)] {
            if limit.is_some_and(|limit| limit.is_zero()) {
                return Err(SpecError::ZeroLimit { field });
            }
        }
        self.check_pty()?;
        self.limits.check()?;
        self.notify.check()?;
        self.service.check()?;
        Ok(self)
    }

    fn check_pty(&self) -> Result<(), SpecError> {
        let Some(size) = self.pty else { return Ok(()) };
        if self.streams == Streams::Separate {
            return Err(SpecError::WithPty { field: "streams" });
        }
        if self.stdin == Stdin::Pipe {
            return Err(SpecError::WithPty { field: "stdin" });
        }
        size.check().map(drop)
    }

    fn check_env(&self) -> Result<(), SpecError> {
        for (name, value) in &self.env {
            if name.is_empty() || name.contains(['=', '\0']) {
                return Err(SpecError::BadEnvName { name: name.replace('\0', "\\0") });
            }
            if RESERVED_ENV.contains(&name.as_str()) || name == READY_SOCKET {
                return Err(SpecError::ReservedEnv { name: name.clone() });
            }
            if value.as_deref().is_some_and(|value| value.contains('\0')) {
                return Err(SpecError::NulByte { field: "env" });
            }
        }
        Ok(())
    }

    fn check_names(&self) -> Result<(), SpecError> {
        check_name("owner", &self.owner)?;
        self.name.as_deref().map_or(Ok(()), |name| check_name("name", name))?;
        self.tool.as_deref().map_or(Ok(()), |tool| check_name("tool", tool))?;
        if self.intent.as_ref().is_some_and(|intent| intent.chars().count() > MAX_INTENT) {
            return Err(SpecError::TooLong { field: "intent", max: MAX_INTENT });
        }
        match self.idempotency_key.as_ref().map(String::len) {
            Some(0) => return Err(SpecError::Empty { field: "idempotency_key", max: MAX_NAME }),
            Some(length) if length > MAX_NAME => {
                return Err(SpecError::TooLong { field: "idempotency_key", max: MAX_NAME });
            }
            _ => {}
        }
        if self.labels.len() > MAX_LABELS {
            return Err(SpecError::TooManyLabels { count: self.labels.len(), max: MAX_LABELS });
        }
        for (key, value) in &self.labels {
            check_name("label", key)?;
            if value.len() > MAX_LABEL_VALUE {
                return Err(SpecError::TooLong { field: "labels", max: MAX_LABEL_VALUE });
            }
        }
        Ok(())
    }
}

/// Whether a text can name an owner, a process or a label.
pub fn check_name(field: &'static str, value: &str) -> Result<(), SpecError> {
    let plain = |c: char| c.is_alphanumeric() || "._-:@/ ".contains(c);
    let fits = !value.trim().is_empty() && value.len() <= MAX_NAME && value.chars().all(plain);
    if fits {
        Ok(())
    } else {
        Err(SpecError::BadName { field, value: value.chars().take(40).collect(), max: MAX_NAME })
    }
}

fn no_nul(field: &'static str, text: &str) -> Result<(), SpecError> {
    if text.contains('\0') { Err(SpecError::NulByte { field }) } else { Ok(()) }
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

    fn parse(command: &str) -> Result<Program, SpecError> {
        Program::parse(Some(command.into()), None, None)
    }

    fn spec(command: &str) -> Spec {
        Spec::new(parse(command).expect("a command"), "/work".into(), &defaults())
    }

    #[test]
    fn a_plain_command_gets_the_defaults() {
        let spec = spec("make").check().expect("valid");
        assert_eq!(spec.program, Program::Shell { shell: "/bin/sh".into(), script: "make".into() });
        assert_eq!(spec.owner, "default");
        assert_eq!(spec.stop, StopManner { signal: Signal::TERM, grace: Duration::from_secs(5) });
        assert_eq!(defaults().resolve_cwd(None), Ok(PathBuf::from("/work")));
    }

    #[test]
    fn home_is_expanded_and_a_relative_cwd_is_refused() {
        let at = |cwd: &str| defaults().resolve_cwd(Some(cwd));
        assert_eq!(at("~"), Ok(PathBuf::from("/home/ann")));
        assert_eq!(at("~/src"), Ok(PathBuf::from("/home/ann/src")));
        for cwd in ["src", "", ".", "~bob"] {
            assert!(matches!(at(cwd), Err(SpecError::RelativeCwd { .. })), "{cwd}");
        }
    }

    #[test]
    fn a_request_names_one_program() {
        let refuse = |program: Result<Program, SpecError>| program.expect_err("refused").to_string();
        assert!(refuse(parse("")).contains("command is empty"));
        assert!(refuse(parse(" \n\t")).contains("command is empty"));
        assert!(refuse(Program::parse(None, None, None)).contains("command is empty"));
        assert!(refuse(Program::parse(None, Some(vec![]), None)).contains("command is empty"));
        let argv = Some(vec!["ls".to_owned()]);
        assert!(refuse(Program::parse(Some("ls".into()), argv.clone(), None)).contains("not both"));
        assert!(refuse(Program::parse(None, argv, Some("sh"))).contains("`shell`"));
        assert!(refuse(parse("a\0b")).contains("NUL"));
    }

    #[test]
    fn each_kind_of_bad_option_is_refused_by_name() {
        let refuse = |spec: Spec| spec.check().expect_err("refused").to_string();
        let env = |name: &str| Spec { env: [(name.to_owned(), None)].into(), ..spec("true") };
        assert!(refuse(env("")).contains("not usable"));
        assert!(refuse(env("A=B")).contains("not usable"));
        assert!(refuse(env("PINFOLD_ID")).contains("pinfold's own"));
        let owner = |owner: &str| Spec { owner: owner.into(), ..spec("true") };
        assert!(refuse(owner("")).contains("owner"));
        assert!(refuse(owner("a\nb")).contains("owner"));
        assert!(refuse(owner(&"x".repeat(129))).contains("owner"));
        assert!(refuse(Spec { output_limit: 1, ..spec("true") }).contains("65536"));
        assert!(refuse(Spec { time_limit: Some(Duration::ZERO), ..spec("true") }).contains("time_limit"));
        let terminal = || Spec { pty: Some(PtySize::default()), ..spec("true") };
        assert!(refuse(Spec { streams: Streams::Separate, ..terminal() }).contains("`streams`"));
        assert!(refuse(Spec { stdin: Stdin::Pipe, ..terminal() }).contains("`stdin`"));
        assert!(refuse(Spec { pty: Some(PtySize { rows: 0, cols: 80 }), ..spec("true") }).contains("0 rows"));
        let limits = TreeLimits { memory: Some(1), ..TreeLimits::default() };
        assert!(refuse(Spec { limits, ..spec("true") }).contains("memory_limit"));
    }

    #[test]
    fn values_of_the_environment_are_not_written_down() {
        let env = [("TOKEN".to_owned(), Some("s3cret".to_owned())), ("GONE".to_owned(), None)].into();
        let spec = Spec { env, ..spec("true") }.check().expect("valid");
        let text = serde_json::to_string(&spec.without_values()).expect("serialises");
        assert!(text.contains("TOKEN") && !text.contains("s3cret"), "{text}");
    }
}
