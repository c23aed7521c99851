//! Turns a spec into the arguments of exec: program, environment, standard streams.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use pinfold_model::facts::Intent;
use pinfold_model::outcome::StartStep;
use pinfold_model::spec::{DEFAULT_PATH, Program, PtySize, RESERVED_ENV, Spec, Stdin, Streams};
use pinfold_os::cgroup::Cgroup;
use pinfold_os::fsio;
use pinfold_os::proc::{explain_shortage, is_exhausted};
use pinfold_os::pty;
use pinfold_os::spawn::{Child, EXEC_TIMEOUT, Launch, Spawner, Step};
use pinfold_store::record::RecordWriter;

use crate::limit_watch::LimitWatch;
use crate::not_found::explain_not_found;
use crate::pump::OutputStream;
use crate::sandbox::{self, OwnTmp, RunningSandbox, TMP_ENV};
use crate::stdin::StdinWriter;

/// The kernel's limit for one argument; a longer script is passed as a file.
const MAX_ARGUMENT: usize = 128 * 1024 - 1;

/// The terminal type that pinfold's screen emulates; a request may set another.
const TERM: &str = "xterm-256color";

/// A running leader, the read ends of its output, and the write end of its stdin.
#[derive(Debug)]
pub(crate) struct Launched {
    pub(crate) child: Child,
    pub(crate) sources: Vec<OutputStream<OwnedFd>>,
    pub(crate) stdin_writer: Option<StdinWriter>,
    pub(crate) sandbox: Option<RunningSandbox>,
}

/// A start that failed.
#[derive(Debug)]
pub struct LaunchError {
    pub step: StartStep,
    pub error: String,
    /// The leader hung before exec and was killed; it may not have ended yet.
    pub stuck: bool,
    /// Leave no record: the directory or program does not exist, or the kernel is out of processes.
    pub refused: bool,
}

impl LaunchError {
    pub fn new(step: StartStep, error: String) -> Self {
        Self { step, error, stuck: false, refused: false }
    }
}

/// The cgroups a leader is spawned into.
#[derive(Debug)]
pub(crate) struct SpawnPlacement<'a> {
    cgroup: Option<BorrowedFd<'a>>,
    entries: Vec<BorrowedFd<'a>>,
    path: Option<&'a Path>,
    /// The record file: the leader must close its copy, since the lock belongs to the keeper alone.
    lock: BorrowedFd<'a>,
    /// Whether the cgroup enforces limits: without it the process must not start.
    limited: bool,
}

impl<'a> SpawnPlacement<'a> {
    /// Prefers the cgroup made for limits over the keeper's own.
    pub(crate) fn new(
        keeper_cgroup: Option<&'a Cgroup>,
        watch: Option<&'a LimitWatch>,
        record: &'a RecordWriter,
    ) -> Self {
        let limiting = watch.and_then(LimitWatch::cgroup);
        let entries = watch.map_or(vec![], |watch| watch.limited().entries());
        let cgroup = limiting.or(keeper_cgroup);
        let (path, limited) = (cgroup.map(Cgroup::path), limiting.is_some());
        Self { cgroup: cgroup.map(Cgroup::fd), entries, path, lock: record.fd(), limited }
    }
}

pub(crate) fn launch(
    spawner: &mut Spawner,
    inherited: &Inherited,
    intent: &Intent,
    env: BTreeMap<String, Option<String>>,
    directory: &Path,
    placement: &SpawnPlacement<'_>,
) -> Result<Launched, LaunchError> {
    let spawn_failed = |error: io::Error| LaunchError::new(StartStep::Spawn, error.to_string());
    let spec = &intent.spec;
    let streams = StandardStreams::new(spec)?;
    let terminal = spec.pty.is_some().then(|| streams.stdout.as_fd());
    let prepared = sandbox::prepare(spec, directory, terminal);
    let prepared =
        prepared.map_err(|error| LaunchError::new(StartStep::Spawn, format!("cannot prepare its sandbox: {error}")))?;
    let own_tmp = prepared.as_ref().and_then(|prepared| prepared.tmp.as_ref());
    let environment = Environment::new(inherited, intent, env, own_tmp);
    let (name, argv) = arguments(&spec.program, directory).map_err(spawn_failed)?;
    let programs = candidates(&name, &environment, &spec.cwd);
    let env = environment.entries();
    let cwd = c_string(spec.cwd.as_os_str().as_bytes());
    let null = io::stdin();
    let launch = Launch {
        programs: &programs,
        argv: &argv,
        env: &env,
        cwd: &cwd,
        // The keeper's own stdin is /dev/null.
        stdin: streams.stdin.as_ref().map_or(null.as_fd(), AsFd::as_fd),
        stdout: streams.stdout.as_fd(),
        stderr: streams.stderr.as_ref().unwrap_or(&streams.stdout).as_fd(),
        terminal: spec.pty.is_some(),
        cgroup: placement.cgroup,
        entries: &placement.entries,
        lock: Some(placement.lock),
        sandbox: prepared.as_ref().map(|prepared| &prepared.restrictions),
    };
    let spawned = spawner.spawn(&launch).or_else(|error| {
        // A removed or refusing cgroup must not prevent the start, unless it enforces limits: kills then walk /proc.
        let retry = error.step == Step::Clone && !error.stuck && launch.cgroup.is_some() && !placement.limited;
        if retry { spawner.spawn(&Launch { cgroup: None, ..launch }) } else { Err(error) }
    });
    if spawned.is_err() {
        own_tmp.inspect(|tmp| tmp.remove());
    }
    match spawned {
        Ok(child) => {
            let sandbox = prepared.map(RunningSandbox::new);
            Ok(Launched { child, sources: streams.sources, stdin_writer: streams.stdin_writer, sandbox })
        }
        Err(failure) if failure.stuck => {
            let program = programs.get(failure.program).map_or(name.to_string_lossy(), |path| path.to_string_lossy());
            Err(explain_stuck(failure.step, spec, &program, placement))
        }
        Err(failure) => {
            let explained = explain(failure.step, &failure.error, spec, &name);
            Err(match explain_not_found(failure.step, spec, &name, &programs) {
                Some(error) => LaunchError { error, refused: true, ..explained },
                None => explained,
            })
        }
    }
}

/// Names the failed step and what it failed on.
fn explain(step: Step, error: &io::Error, spec: &Spec, program: &OsStr) -> LaunchError {
    let program = program.to_string_lossy();
    match step {
        Step::Clone | Step::Setup => {
            let failure =
                LaunchError::new(StartStep::Spawn, format!("cannot create a process: {}", explain_shortage(error)));
            LaunchError { refused: step == Step::Clone && is_exhausted(error), ..failure }
        }
        Step::Cwd => {
            LaunchError::new(StartStep::Cwd, format!("cannot enter directory `{}`: {error}", spec.cwd.display()))
        }
        Step::Terminal => LaunchError::new(StartStep::Pty, format!("cannot make it the controlling terminal: {error}")),
        Step::Sandbox => LaunchError::new(
            StartStep::Spawn,
            format!("cannot apply its sandbox: {error}; `pinfold sandbox check` shows what works here"),
        ),
        Step::Exec => {
            let what = match spec.program {
                Program::Shell { .. } => "shell",
                Program::Argv { .. } => "program",
            };
            LaunchError::new(StartStep::Exec, format!("cannot execute {what} `{program}`: {error}"))
        }
    }
}

/// Names the step at which the leader hung, and the path that did not respond.
fn explain_stuck(step: Step, spec: &Spec, program: &str, placement: &SpawnPlacement<'_>) -> LaunchError {
    let within = format!("within {}s", EXEC_TIMEOUT.as_secs());
    let (step, error) = match step {
        Step::Clone => {
            let path = placement.path.map_or(String::new(), |path| format!(" {}", path.display()));
            (StartStep::Spawn, format!("the new process did not run {within}: is its cgroup{path} frozen?"))
        }
        Step::Setup => (StartStep::Spawn, format!("the new process was not set up {within}")),
        Step::Sandbox => (StartStep::Spawn, format!("its sandbox was not applied {within}")),
        Step::Terminal => (StartStep::Pty, format!("the terminal did not become its controlling terminal {within}")),
        Step::Cwd => {
            let cwd = spec.cwd.display();
            (StartStep::Cwd, format!("cannot enter directory `{cwd}`: its file system did not answer {within}"))
        }
        Step::Exec => (StartStep::Exec, format!("cannot execute `{program}`: its file system did not answer {within}")),
    };
    LaunchError { stuck: true, ..LaunchError::new(step, error) }
}

/// The pipes or the terminal of one process: the child's ends and ours.
struct StandardStreams {
    /// `None` means /dev/null.
    stdin: Option<OwnedFd>,
    stdout: OwnedFd,
    stderr: Option<OwnedFd>,
    sources: Vec<OutputStream<OwnedFd>>,
    stdin_writer: Option<StdinWriter>,
}

impl StandardStreams {
    fn new(spec: &Spec) -> Result<Self, LaunchError> {
        let failed = |step| move |error: io::Error| LaunchError::new(step, explain_shortage(&error));
        match spec.pty {
            None => Self::pipes(spec).map_err(failed(StartStep::Spawn)),
            Some(size) => Self::terminal(size).map_err(|error| {
                let error = io::Error::other(format!("cannot open a terminal: {error}"));
                failed(StartStep::Pty)(error)
            }),
        }
    }

    /// One terminal for all three streams.
    fn terminal(size: PtySize) -> io::Result<Self> {
        let pty = pty::open(size.rows, size.cols)?;
        let writer = StdinWriter::terminal(pty.master.try_clone()?, pty.slave.as_fd(), size);
        let (stdin, stdout) = (Some(pty.slave.try_clone()?), pty.slave);
        Ok(Self {
            stdin,
            stdout,
            stderr: None,
            sources: vec![OutputStream::terminal(pty.master)],
            stdin_writer: Some(writer),
        })
    }

    fn pipes(spec: &Spec) -> io::Result<Self> {
        let out = fsio::pipe()?;
        let mut sources = vec![OutputStream::stdout(out.read)];
        let stderr = match spec.streams {
            Streams::Merged => None,
            Streams::Separate => {
                let err = fsio::pipe()?;
                sources.push(OutputStream::stderr(err.read));
                Some(err.write)
            }
        };
        let (stdin, stdin_writer) = match spec.stdin {
            Stdin::Null => (None, None),
            Stdin::Pipe => {
                let input = fsio::input_pipe()?;
                (Some(input.read), Some(StdinWriter::pipe(input.write)))
            }
        };
        Ok(Self { stdin, stdout: out.write, stderr, sources, stdin_writer })
    }
}

/// The program's name and argument list. A script that is too long for an argument is written to a file.
fn arguments(program: &Program, directory: &Path) -> io::Result<(OsString, Vec<CString>)> {
    match program {
        Program::Argv { argv } => {
            let name = argv.first().map(OsString::from).unwrap_or_default();
            Ok((name, argv.iter().map(|argument| c_string(argument.as_bytes())).collect()))
        }
        Program::Shell { shell, script } if script.len() <= MAX_ARGUMENT => {
            let argv = [shell.as_str(), "-c", script].map(|argument| c_string(argument.as_bytes()));
            Ok((shell.into(), argv.into()))
        }
        Program::Shell { shell, script } => {
            let path = directory.join("script");
            let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path)?;
            file.write_all(script.as_bytes())?;
            Ok((shell.into(), vec![c_string(shell.as_bytes()), c_string(path.as_os_str().as_bytes())]))
        }
    }
}

/// The environment of the nursery as `NAME=value` strings, built once and shared by all its keepers.
#[derive(Debug)]
pub(crate) struct Inherited(Vec<(OsString, CString)>);

impl Inherited {
    pub(crate) fn from_env() -> Self {
        let whole = |(name, value): (OsString, OsString)| entry(&name, &value).map(|entry| (name, entry));
        Self(std::env::vars_os().filter_map(whole).collect())
    }
}

/// The environment of one process.
struct Environment<'a> {
    inherited: &'a [(OsString, CString)],
    /// Variables to set (`Some`) or to leave out (`None`).
    own: BTreeMap<OsString, Option<CString>>,
    /// Decides which inherited variables are passed.
    spec: &'a Spec,
}

impl<'a> Environment<'a> {
    /// The inherited environment, then the request's, then pinfold's marks, which nothing overrides. Without what its
    /// sandbox does not pass.
    fn new(
        inherited: &'a Inherited,
        intent: &'a Intent,
        env: BTreeMap<String, Option<String>>,
        own_tmp: Option<&OwnTmp>,
    ) -> Self {
        let mut own = BTreeMap::new();
        let mut put = |name: OsString, value: Option<&str>| {
            let value = value.and_then(|value| entry(&name, OsStr::new(value)));
            own.insert(name, value);
        };
        if intent.spec.pty.is_some() {
            put("TERM".into(), Some(TERM));
        }
        let passed = env.into_iter().filter(|(name, _)| sandbox::passes(&intent.spec, name));
        passed.for_each(|(name, value)| put(name.into(), value.as_deref()));
        if let Some(tmp) = own_tmp {
            TMP_ENV.iter().for_each(|name| put((*name).into(), tmp.path().to_str()));
        }
        let marks = [intent.id.as_str(), &intent.spec.owner, &intent.mark];
        RESERVED_ENV.into_iter().zip(marks).for_each(|(name, value)| put(name.into(), Some(value)));
        Self { inherited: if intent.spec.inherit_env { &inherited.0 } else { &[] }, own, spec: &intent.spec }
    }

    fn entries(&self) -> Vec<&CStr> {
        let kept = self.inherited.iter().filter(|(name, _)| !self.own.contains_key(name) && self.inherits(name));
        kept.map(|(_, entry)| entry).chain(self.own.values().flatten()).map(CString::as_c_str).collect()
    }

    fn inherits(&self, name: &OsStr) -> bool {
        self.spec.sandbox.is_none() || name.to_str().is_some_and(|name| sandbox::passes(self.spec, name))
    }

    fn get(&self, name: &str) -> Option<&OsStr> {
        let entry = match self.own.get(OsStr::new(name)) {
            Some(own) => own.as_ref(),
            None if !self.inherits(OsStr::new(name)) => None,
            None => self.inherited.iter().find(|(inherited, _)| inherited == name).map(|(_, entry)| entry),
        };
        entry.map(|entry| OsStr::from_bytes(&entry.as_bytes()[name.len() + 1..]))
    }
}

/// The paths to try: the name itself if it contains a slash, else each directory of the process's PATH.
fn candidates(name: &OsStr, environment: &Environment<'_>, cwd: &Path) -> Vec<CString> {
    if name.as_bytes().contains(&b'/') {
        return vec![c_string(name.as_bytes())];
    }
    std::env::split_paths(environment.get("PATH").unwrap_or(OsStr::new(DEFAULT_PATH)))
        .map(|directory| c_string(cwd.join(directory).join(name).as_os_str().as_bytes()))
        .collect()
}

fn entry(name: &OsStr, value: &OsStr) -> Option<CString> {
    CString::new([name.as_bytes(), b"=", value.as_bytes()].concat()).ok()
}

/// Cannot hold a NUL: specs are checked (`model::spec`), and inherited values never do.
fn c_string(bytes: &[u8]) -> CString {
    CString::new(bytes).unwrap_or_default()
}
