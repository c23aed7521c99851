//! From a spec to the arguments of exec: program, environment, standard streams.

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
use pinfold_os::pty::{self, Size};
use pinfold_os::spawn::{Child, EXEC_TIMEOUT, Launch, Spawner, Step};
use pinfold_store::record::RecordWriter;

use crate::feed::Feed;
use crate::missing::explain_missing;
use crate::pump::Source;
use crate::watch::Watch;

/// The kernel takes no single argument longer than this; a longer script goes through a file.
const ARGUMENT_MOST: usize = 128 * 1024 - 1;

/// What a terminal is called, unless the request says so: what its screen understands.
const TERM: &str = "xterm-256color";

/// A leader that runs, the read ends of its output, and the way to its stdin.
#[derive(Debug)]
pub(crate) struct Launched {
    pub(crate) child: Child,
    pub(crate) sources: Vec<Source<OwnedFd>>,
    pub(crate) feed: Option<Feed>,
}

/// A start that failed.
#[derive(Debug)]
pub struct Failure {
    pub step: StartStep,
    pub error: String,
    /// The leader hung before its exec, and was killed; it may not be gone yet.
    pub stuck: bool,
    /// Nothing is to be kept of the attempt: the directory or program that was asked for does not exist, or the kernel has
    /// no process to give.
    pub refused: bool,
}

impl Failure {
    pub fn of(step: StartStep, error: String) -> Self {
        Self { step, error, stuck: false, refused: false }
    }
}

/// The cgroups that a leader is born into, and what it has to give up there.
#[derive(Debug)]
pub(crate) struct Birthplace<'a> {
    cgroup: Option<BorrowedFd<'a>>,
    entries: Vec<BorrowedFd<'a>>,
    path: Option<&'a Path>,
    /// The record, whose lock is the keeper's alone.
    lock: BorrowedFd<'a>,
    /// Without its cgroup it would run without its limits.
    limited: bool,
}

impl<'a> Birthplace<'a> {
    /// The cgroup made for limits goes before the keeper's own.
    pub(crate) fn of(keepers_own: Option<&'a Cgroup>, watch: Option<&'a Watch>, record: &'a RecordWriter) -> Self {
        let limiting = watch.and_then(Watch::cgroup);
        let entries = watch.map_or(vec![], |watch| watch.limited().entries());
        let cgroup = limiting.or(keepers_own);
        let (path, limited) = (cgroup.map(Cgroup::path), limiting.is_some());
        Self { cgroup: cgroup.map(Cgroup::fd), entries, path, lock: record.fd(), limited }
    }
}

/// Starts the leader of a process.
pub(crate) fn launch(
    spawner: &mut Spawner,
    inherited: &Inherited,
    intent: &Intent,
    env: BTreeMap<String, Option<String>>,
    directory: &Path,
    birthplace: &Birthplace<'_>,
) -> Result<Launched, Failure> {
    let spawn_failed = |error: io::Error| Failure::of(StartStep::Spawn, error.to_string());
    let spec = &intent.spec;
    let environment = Environment::new(inherited, intent, env);
    let (name, argv) = arguments(&spec.program, directory).map_err(spawn_failed)?;
    let programs = candidates(&name, &environment, &spec.cwd);
    let env = environment.entries();
    let cwd = c_string(spec.cwd.as_os_str().as_bytes());
    let streams = StandardStreams::new(spec)?;
    let null = io::stdin();
    let launch = Launch {
        programs: &programs,
        argv: &argv,
        env: &env,
        cwd: &cwd,
        // The keeper's own is /dev/null.
        stdin: streams.stdin.as_ref().map_or(null.as_fd(), AsFd::as_fd),
        stdout: streams.stdout.as_fd(),
        stderr: streams.stderr.as_ref().unwrap_or(&streams.stdout).as_fd(),
        terminal: spec.pty.is_some(),
        cgroup: birthplace.cgroup,
        entries: &birthplace.entries,
        lock: Some(birthplace.lock),
    };
    let spawned = spawner.spawn(&launch).or_else(|error| {
        // A cgroup that vanished or refuses us must not keep the command from running: the walk contains it.
        let retry = error.step == Step::Clone && !error.stuck && launch.cgroup.is_some() && !birthplace.limited;
        if retry { spawner.spawn(&Launch { cgroup: None, ..launch }) } else { Err(error) }
    });
    match spawned {
        Ok(child) => Ok(Launched { child, sources: streams.sources, feed: streams.feed }),
        Err(failure) if failure.stuck => {
            let program = programs.get(failure.program).map_or(name.to_string_lossy(), |path| path.to_string_lossy());
            Err(explain_stuck(failure.step, spec, &program, birthplace))
        }
        Err(failure) => {
            let explained = explain(failure.step, &failure.error, spec, &name);
            Err(match explain_missing(failure.step, spec, &name, &programs) {
                Some(error) => Failure { error, refused: true, ..explained },
                None => explained,
            })
        }
    }
}

/// The failed step, with the name of the thing that failed.
fn explain(step: Step, error: &io::Error, spec: &Spec, program: &OsStr) -> Failure {
    let program = program.to_string_lossy();
    match step {
        Step::Clone | Step::Setup => {
            let failure = Failure::of(StartStep::Spawn, format!("cannot make a process: {}", explain_shortage(error)));
            Failure { refused: step == Step::Clone && is_exhausted(error), ..failure }
        }
        Step::Cwd => Failure::of(StartStep::Cwd, format!("cannot enter directory `{}`: {error}", spec.cwd.display())),
        Step::Terminal => Failure::of(StartStep::Pty, format!("cannot make the terminal its own: {error}")),
        Step::Exec => {
            let what = match spec.program {
                Program::Shell { .. } => "shell",
                Program::Argv { .. } => "program",
            };
            Failure::of(StartStep::Exec, format!("cannot execute {what} `{program}`: {error}"))
        }
    }
}

/// The step at which a leader hung, with the path that did not answer.
fn explain_stuck(step: Step, spec: &Spec, program: &str, birthplace: &Birthplace<'_>) -> Failure {
    let within = format!("within {}s", EXEC_TIMEOUT.as_secs());
    let (step, error) = match step {
        Step::Clone => {
            let place = birthplace.path.map_or(String::new(), |path| format!(" {}", path.display()));
            (StartStep::Spawn, format!("the new process did not run {within}: is its cgroup{place} frozen?"))
        }
        Step::Setup => (StartStep::Spawn, format!("the new process was not set up {within}")),
        Step::Terminal => (StartStep::Pty, format!("the terminal was not made its own {within}")),
        Step::Cwd => {
            let cwd = spec.cwd.display();
            (StartStep::Cwd, format!("cannot enter directory `{cwd}`: its file system did not answer {within}"))
        }
        Step::Exec => (StartStep::Exec, format!("cannot execute `{program}`: its file system did not answer {within}")),
    };
    Failure { stuck: true, ..Failure::of(step, error) }
}

/// The pipes or the terminal of one process: the child's ends, and ours for pump and feed.
struct StandardStreams {
    /// `None` stands for `/dev/null`.
    stdin: Option<OwnedFd>,
    stdout: OwnedFd,
    stderr: Option<OwnedFd>,
    sources: Vec<Source<OwnedFd>>,
    feed: Option<Feed>,
}

impl StandardStreams {
    fn new(spec: &Spec) -> Result<Self, Failure> {
        let failed = |step| move |error: io::Error| Failure::of(step, explain_shortage(&error));
        match spec.pty {
            None => Self::pipes(spec).map_err(failed(StartStep::Spawn)),
            Some(size) => Self::terminal(size).map_err(|error| {
                let error = io::Error::other(format!("cannot make a terminal: {error}"));
                failed(StartStep::Pty)(error)
            }),
        }
    }

    /// One terminal for all three.
    fn terminal(size: PtySize) -> io::Result<Self> {
        let pty = pty::open(Size { rows: size.rows, cols: size.cols })?;
        let feed = Feed::terminal(pty.master.try_clone()?, pty.slave.as_fd(), size);
        let (stdin, stdout) = (Some(pty.slave.try_clone()?), pty.slave);
        Ok(Self { stdin, stdout, stderr: None, sources: vec![Source::terminal(pty.master)], feed: Some(feed) })
    }

    fn pipes(spec: &Spec) -> io::Result<Self> {
        let out = fsio::pipe()?;
        let mut sources = vec![Source::stdout(out.read)];
        let stderr = match spec.streams {
            Streams::Merged => None,
            Streams::Separate => {
                let err = fsio::pipe()?;
                sources.push(Source::stderr(err.read));
                Some(err.write)
            }
        };
        let (stdin, feed) = match spec.stdin {
            Stdin::Null => (None, None),
            Stdin::Pipe => {
                let input = fsio::input_pipe()?;
                (Some(input.read), Some(Feed::pipe(input.write)))
            }
        };
        Ok(Self { stdin, stdout: out.write, stderr, sources, feed })
    }
}

/// The program's name and its argument list; a script too long for an argument is put into a file.
fn arguments(program: &Program, directory: &Path) -> io::Result<(OsString, Vec<CString>)> {
    match program {
        Program::Argv { argv } => {
            let name = argv.first().map(OsString::from).unwrap_or_default();
            Ok((name, argv.iter().map(|argument| c_string(argument.as_bytes())).collect()))
        }
        Program::Shell { shell, script } if script.len() <= ARGUMENT_MOST => {
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

/// The environment that a nursery was given, as exec wants it: made once, and shared by all its keepers.
#[derive(Debug)]
pub(crate) struct Inherited(Vec<(OsString, CString)>);

impl Inherited {
    /// That of this program.
    pub(crate) fn look() -> Self {
        let whole = |(name, value): (OsString, OsString)| entry(&name, &value).map(|entry| (name, entry));
        Self(std::env::vars_os().filter_map(whole).collect())
    }
}

/// The environment of one process.
struct Environment<'a> {
    inherited: &'a [(OsString, CString)],
    /// What is added, replaced (a value) or left out (none).
    own: BTreeMap<OsString, Option<CString>>,
}

impl<'a> Environment<'a> {
    /// Base, then what was asked for, then pinfold's own marks, which nothing overrides.
    fn new(inherited: &'a Inherited, intent: &Intent, env: BTreeMap<String, Option<String>>) -> Self {
        let mut own = BTreeMap::new();
        let mut put = |name: OsString, value: Option<&str>| {
            let value = value.and_then(|value| entry(&name, OsStr::new(value)));
            own.insert(name, value);
        };
        if intent.spec.pty.is_some() {
            put("TERM".into(), Some(TERM));
        }
        env.into_iter().for_each(|(name, value)| put(name.into(), value.as_deref()));
        let marks = [intent.id.as_str(), &intent.spec.owner, &intent.mark];
        RESERVED_ENV.into_iter().zip(marks).for_each(|(name, value)| put(name.into(), Some(value)));
        Self { inherited: if intent.spec.inherit_env { &inherited.0 } else { &[] }, own }
    }

    fn entries(&self) -> Vec<&CStr> {
        let kept = self.inherited.iter().filter(|(name, _)| !self.own.contains_key(name));
        kept.map(|(_, entry)| entry).chain(self.own.values().flatten()).map(CString::as_c_str).collect()
    }

    fn get(&self, name: &str) -> Option<&OsStr> {
        let entry = match self.own.get(OsStr::new(name)) {
            Some(own) => own.as_ref(),
            None => self.inherited.iter().find(|(inherited, _)| inherited == name).map(|(_, entry)| entry),
        };
        entry.map(|entry| OsStr::from_bytes(&entry.as_bytes()[name.len() + 1..]))
    }
}

/// Where exec should look: the name itself if it is a path, else each directory of the process's own PATH.
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

/// A C string; specs hold no NUL (see `model::spec`), and an inherited one cannot either.
fn c_string(bytes: &[u8]) -> CString {
    CString::new(bytes).unwrap_or_default()
}
