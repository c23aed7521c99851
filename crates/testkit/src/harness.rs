//! A daemon for one test.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use pinfold_api::client::{Client, ClientError};
use pinfold_api::error::{ApiError, ErrorCode};
use pinfold_api::types::{
    EventPage, EventsQuery, Health, ListQuery, OutputPage, OutputQuery, ProcessList, Record, ShutdownRequest,
    SignalRequest, StartRequest, Started, StopAnswer, StopRequest, WaitAnswer, WaitQuery,
};
use tokio::runtime::Runtime;

use crate::place::place_program;
use crate::procs::{Pidfd, alive, parent_of, until, until_some};

/// The setup of a daemon.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// The content of its config.toml.
    pub config: String,
    /// Run daemon and commands as this uid and gid, with setpriv.
    pub user: Option<u32>,
    /// Environment variables to set for the daemon, in addition to the test's own.
    pub env: Vec<(String, String)>,
}

/// A daemon in a home of its own. Everything is removed when it is dropped.
#[derive(Debug)]
pub struct Pinfold {
    binary: PathBuf,
    home: PathBuf,
    setup: Setup,
    runtime: Runtime,
    client: Client,
}

/// The result of running the command line.
#[derive(Clone, Debug)]
pub struct Cli {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Pinfold {
    /// A daemon with the defaults. `binary` is `env!("CARGO_BIN_EXE_pinfold")`.
    pub fn start(binary: &str) -> Self {
        Self::start_with(binary, Setup::default())
    }

    /// A daemon that contains trees without cgroups.
    pub fn start_without_cgroup(binary: &str) -> Self {
        Self::start_with(binary, Setup { config: "containment = \"subreaper\"\n".into(), ..Setup::default() })
    }

    /// A daemon with this setup; it responds when this returns.
    pub fn start_with(binary: &str, setup: Setup) -> Self {
        let pinfold = Self::prepare(binary, setup);
        pinfold.start_daemon();
        pinfold
    }

    /// A home without a daemon.
    pub fn prepare(binary: &str, setup: Setup) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("pinfold-test-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let home = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&home).expect("a home can be made");
        use std::os::unix::fs::{PermissionsExt, chown};
        std::fs::set_permissions(&home, PermissionsExt::from_mode(0o700)).expect("its mode can be set");
        if !setup.config.is_empty() {
            std::fs::write(home.join("config.toml"), &setup.config).expect("a configuration can be written");
        }
        if let Some(user) = setup.user {
            for path in [home.clone(), home.join("config.toml")] {
                if path.exists() {
                    chown(&path, Some(user), Some(user)).expect("the home can be chowned to the test user");
                }
            }
        }
        // Another user may not be able to enter the directory that the tests were built in.
        let shared = setup.user.map(|_| shared_binary(binary, &home));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let client = Client::new(home.join("socket"));
        Self { binary: shared.unwrap_or_else(|| binary.into()), home, setup, runtime, client }
    }

    /// The binary under test.
    pub fn binary(&self) -> &Path {
        &self.binary
    }

    pub fn home(&self) -> &Path {
        &self.home
    }

    /// The directory of a process.
    pub fn directory(&self, id: &str) -> PathBuf {
        self.home.join("processes").join(id)
    }

    /// A command of the binary in this home, as the user of the setup.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("/usr/bin/env");
        // If the tests run in the background of a script, or under nohup, they inherit ignored INT or HUP signals.
        command.arg("--default-signal=HUP,INT,QUIT,TERM");
        if let Some(user) = self.setup.user {
            command.args(["setpriv", &format!("--reuid={user}"), &format!("--regid={user}"), "--clear-groups"]);
        }
        command.arg(&self.binary).args(arguments).env("PINFOLD_HOME", &self.home).envs(self.setup.env.iter().cloned());
        command.current_dir("/").stdin(Stdio::null());
        command
    }

    /// Runs the command line and waits for its end.
    pub fn cli(&self, arguments: &[&str]) -> Cli {
        Cli::from(self.command(arguments).output().expect("pinfold can be executed"))
    }

    /// Sets or unsets a variable for later commands and daemons.
    pub fn set_env(&mut self, name: &str, value: Option<String>) {
        self.setup.env.retain(|(known, _)| known != name);
        self.setup.env.extend(value.map(|value| (name.to_owned(), value)));
    }

    /// Runs another binary from now on.
    pub fn set_binary(&mut self, binary: PathBuf) {
        self.binary = binary;
    }

    /// Starts the daemon, as a person would.
    pub fn start_daemon(&self) {
        let cli = self.cli(&["daemon", "start"]);
        assert_eq!(cli.code, Some(0), "daemon start: {}{}", cli.stdout, cli.stderr);
        // One request, so that the client drops its pooled connections to a daemon that is dead.
        self.health();
    }

    pub fn health(&self) -> Health {
        self.block(self.client.health()).expect("the daemon answers")
    }

    pub fn daemon_pid(&self) -> u32 {
        self.health().pid
    }

    /// `kill -9` of the daemon; returns when it has exited.
    pub fn kill_daemon(&self) {
        Pidfd::open(self.daemon_pid()).expect("the daemon lives").kill();
    }

    /// `kill -9` of the daemon, then a new one.
    pub fn crash_and_restart(&self) {
        self.kill_daemon();
        self.start_daemon();
    }

    /// The keeper's pid of a process that has started.
    pub fn keeper_pid(&self, id: &str) -> u32 {
        let daemon = self.daemon_pid();
        let above = |pid: &u32| parent_of(*pid).filter(|parent| *parent > 1 && *parent != daemon);
        let listens = |pid: &u32| self.home.join("keepers").join(pid.to_string()).exists();
        // The keeper is the first ancestor with a socket in keepers/. Retried, because an ancestor may exit meanwhile.
        until_some("the keeper of a process", || {
            let first = self.show(id).tree.first()?.pid;
            std::iter::successors(Some(first), above).skip(1).find(listens)
        })
    }

    /// The asynchronous client, for requests without a wrapper below.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Runs a future to completion on the test's own runtime.
    pub fn block<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// Starts a shell command.
    pub fn sh(&self, command: &str) -> Record {
        self.start_request(&StartRequest { command: Some(command.into()), ..StartRequest::default() }).record
    }

    /// Starts a process; fails the test if it does not start.
    pub fn start_request(&self, request: &StartRequest) -> Started {
        self.try_start(request).expect("it starts")
    }

    pub fn try_start(&self, request: &StartRequest) -> Result<Started, ApiError> {
        self.block(self.client.start(request)).map_err(api_error)
    }

    /// Starts a shell command and waits for the leader's exit; returns the record and all output.
    pub fn run(&self, command: &str) -> (Record, String) {
        let record = self.sh(command);
        let record = self.wait_exit(&record.id);
        let text = self.text(&record.id);
        (record, text)
    }

    pub fn show(&self, id: &str) -> Record {
        self.try_show(id).expect("it is known")
    }

    pub fn try_show(&self, id: &str) -> Result<Record, ApiError> {
        self.block(self.client.show(id)).map_err(api_error)
    }

    pub fn list(&self, query: &ListQuery) -> ProcessList {
        self.block(self.client.list(query)).expect("a list")
    }

    pub fn wait(&self, id: &str, query: &WaitQuery) -> WaitAnswer {
        self.try_wait(id, query).expect("a wait")
    }

    pub fn try_wait(&self, id: &str, query: &WaitQuery) -> Result<WaitAnswer, ApiError> {
        self.block(self.client.wait(id, query)).map_err(api_error)
    }

    /// Waits for the leader's exit.
    pub fn wait_exit(&self, id: &str) -> Record {
        self.wait_until(id, "exit")
    }

    /// Waits until the record is final.
    pub fn wait_finished(&self, id: &str) -> Record {
        self.wait_until(id, "finished")
    }

    fn wait_until(&self, id: &str, until: &str) -> Record {
        let query = WaitQuery { until: Some(until.into()), timeout: Some("60s".into()), ..WaitQuery::default() };
        let answer = self.wait(id, &query);
        let timeout = pinfold_api::types::WaitReason::Timeout;
        assert_ne!(answer.reason, timeout, "timed out waiting for {until}: {:?}", answer.record);
        answer.record
    }

    /// All output as text; fails if it does not fit into 16 MiB.
    pub fn text(&self, id: &str) -> String {
        self.output(id, &OutputQuery { max_bytes: Some("16M".into()), ..OutputQuery::default() }).text
    }

    pub fn output(&self, id: &str, query: &OutputQuery) -> OutputPage {
        self.try_output(id, query).expect("output")
    }

    pub fn try_output(&self, id: &str, query: &OutputQuery) -> Result<OutputPage, ApiError> {
        self.block(self.client.output(id, query)).map_err(api_error)
    }

    pub fn stop(&self, id: &str) -> StopAnswer {
        self.stop_request(id, &StopRequest::default())
    }

    pub fn stop_request(&self, id: &str, request: &StopRequest) -> StopAnswer {
        self.block(self.client.stop(id, request)).expect("a stop")
    }

    pub fn signal(&self, id: &str, signal: &str) -> Result<(), ApiError> {
        let request = SignalRequest { signal: signal.into(), ..SignalRequest::default() };
        self.block(self.client.signal(id, &request)).map(drop).map_err(api_error)
    }

    /// All events after this number.
    pub fn events(&self, after: u64) -> EventPage {
        let query = EventsQuery { after: Some(after.to_string()), limit: Some(1000), ..EventsQuery::default() };
        self.block(self.client.events(&query)).expect("events")
    }

    /// The pids of the living processes of a tree.
    pub fn tree(&self, id: &str) -> Vec<u32> {
        self.show(id).tree.iter().map(|member| member.pid).collect()
    }

    /// Waits until the tree has this many living processes.
    pub fn until_tree(&self, id: &str, count: usize) -> Vec<u32> {
        until_some(&format!("a tree of {count}"), || Some(self.tree(id)).filter(|tree| tree.len() == count))
    }

    fn stop_everything(&self) {
        let request = ShutdownRequest { stop_processes: true };
        let pid = self.block(self.client.health()).map(|health| health.pid).or_else(|_| {
            // The test killed the daemon: start a new one, which finds and stops what is left.
            self.cli(&["daemon", "start"]);
            self.block(self.client.health()).map(|health| health.pid)
        });
        let Ok(pid) = pid else { return };
        let _ = self.block(self.client.shutdown(&request));
        until("the daemon has exited", || !alive(pid));
        until("all keepers have exited", || self.keepers().is_empty());
    }

    /// The pids of the living keepers.
    pub fn keepers(&self) -> Vec<u32> {
        let Ok(entries) = std::fs::read_dir(self.home.join("keepers")) else { return vec![] };
        let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter(|pid| alive(*pid)).collect()
    }
}

impl Drop for Pinfold {
    fn drop(&mut self) {
        if self.home.join("lock").exists() {
            self.stop_everything();
        }
        // A keeper that is exiting may still remove its own files at the same time: retry.
        let removed = |_: &u32| std::fs::remove_dir_all(&self.home).is_ok() || !self.home.exists();
        let _ = (0..100).inspect(|_| std::thread::sleep(Duration::from_millis(5))).find(removed);
        if self.setup.user.is_some() {
            let _ = std::fs::remove_file(&self.binary);
        }
    }
}

/// Puts the binary next to the home, where every user may execute it.
fn shared_binary(binary: &str, home: &Path) -> PathBuf {
    let shared = home.with_extension("binary");
    place_program(Path::new(binary), &shared);
    shared
}

impl From<Output> for Cli {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

fn api_error(error: ClientError) -> ApiError {
    match error {
        ClientError::Api { error, .. } => error,
        other => ApiError { code: ErrorCode::Internal, message: other.to_string(), id: None },
    }
}
