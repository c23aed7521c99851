//! Runs the official MCP conformance suite for the stateful revision 2025-11-25 and the stateless revision 2026-07-28.
//!
//! It runs twice: against the fixtures that the suite expects, served by pinfold's HTTP service, where everything required must
//! pass; and against the real daemon, where scenarios that need a fixture must fail as listed with the reason in
//! crates/mcp/conformance-*.yml. There an unlisted failure is an error, and so is a listed one that passes. The
//! optional scenarios of the Tasks extension run against the daemon's tasks.

use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Output, Stdio};
use std::thread;

use anyhow::{Context, ensure};
use pinfold_testkit::{Pinfold, Setup};

use crate::cargo_build;
use crate::external::clients::{self, NODE, SUITE};

/// The revisions that are tested.
const REVISIONS: &[&str] = &["2025-11-25", "2026-07-28"];

/// Scenarios of the Tasks extension that processes can serve.
const TASKS: &[&str] = &[
    "tasks-lifecycle",
    "tasks-capability-negotiation",
    "tasks-wire-fields",
    "tasks-request-state-removal",
    "tasks-request-headers",
    "tasks-dispatch-and-envelope",
];

/// The suite, ready to run.
struct Suite {
    node: PathBuf,
    script: PathBuf,
    results: PathBuf,
}

/// Installs the suite and runs it; prints that it is skipped if npm is missing.
pub fn run(root: &Path) -> anyhow::Result<ExitCode> {
    let suite = match Suite::install() {
        Ok(suite) => suite,
        Err(reason) => {
            println!("skipped: the conformance suite cannot be installed: {reason:#}");
            return Ok(ExitCode::SUCCESS);
        }
    };
    let [pinfold, fixture] = cargo_build::program_and_example(root, "pinfold", "conformance")?;
    let fixtures = Fixture::start(&fixture, None)?;
    let door = Door::open()?;
    let config = format!("[tcp]\norigins = [\"http://{}\"]\n", door.address);
    let daemon = Pinfold::start_with(&pinfold.to_string_lossy(), Setup { config, ..Setup::default() });
    door.lead_to(daemon.home().join("socket"));
    let aliases = Fixture::start(&fixture, Some(&daemon.home().join("socket")))?;
    let mut passed = suite.judge_tasks(&aliases.url, &root.join("crates/mcp/conformance-tasks.yml"))?;
    for revision in REVISIONS {
        passed &= suite.judge("fixtures", revision, &fixtures.url, None)?;
        let listed = root.join(format!("crates/mcp/conformance-{revision}.yml"));
        passed &= suite.judge("pinfold", revision, &format!("http://{}/mcp", door.address), Some(&listed))?;
    }
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Suite {
    fn install() -> anyhow::Result<Self> {
        let node = clients::install(&NODE)?.join("node_modules/.bin/node");
        let script = clients::install(&SUITE)?.join("node_modules").join(SUITE.package).join("dist/index.js");
        Ok(Suite { node, script, results: clients::place()?.join("conformance-results") })
    }

    /// Runs the requirements of a revision against a server; returns whether they passed.
    fn judge(&self, what: &str, revision: &str, url: &str, listed: Option<&Path>) -> anyhow::Result<bool> {
        let output = self.run(url, &["--requirements", revision], &format!("{what}-{revision}"), listed)?;
        let text = String::from_utf8_lossy(&output.stdout);
        let total = text.lines().find(|line| line.starts_with("Total: ")).unwrap_or("Total: nothing was run");
        let passed = output.status.success() && total.contains(" passed");
        let verdict = if passed { "as expected" } else { "NOT as expected" };
        println!("conformance {revision}, {what}: {} ({verdict})", total.trim_start_matches("Total: "));
        if !passed {
            let summary = text.find("=== SUMMARY").map_or(&*text, |at| &text[at..]);
            println!("{summary}{}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(passed)
    }

    /// Runs the scenarios of the Tasks extension, one by one.
    fn judge_tasks(&self, url: &str, listed: &Path) -> anyhow::Result<bool> {
        let mut passed = true;
        for scenario in TASKS {
            let which = ["--scenario", scenario, "--spec-version", "2026-07-28", "--force"];
            let output = self.run(url, &which, "tasks", Some(listed))?;
            let text = String::from_utf8_lossy(&output.stdout);
            let total = text.lines().find(|line| line.starts_with("Passed: ")).unwrap_or("nothing was run");
            let fine = output.status.success() && total.starts_with("Passed: ");
            let verdict = if fine { "as expected" } else { "NOT as expected" };
            println!("conformance {scenario}, pinfold: {} ({verdict})", total.trim_start_matches("Passed: "));
            if !fine {
                println!("{text}{}", String::from_utf8_lossy(&output.stderr));
            }
            passed &= fine;
        }
        Ok(passed)
    }

    fn run(&self, url: &str, which: &[&str], results: &str, listed: Option<&Path>) -> anyhow::Result<Output> {
        let mut command = Command::new(&self.node);
        command.arg(&self.script).args(["server", "--url", url]).args(which);
        command.arg("-o").arg(self.results.join(results));
        if let Some(listed) = listed {
            command.arg("--expected-failures").arg(listed);
        }
        command.stdin(Stdio::null()).output().context("the suite cannot be run")
    }
}

/// The fixture program; stopped on drop.
struct Fixture {
    program: Child,
    url: String,
}

impl Fixture {
    /// With a daemon's socket it serves the tools of that daemon under the names of fixtures.
    fn start(program: &Path, socket: Option<&Path>) -> anyhow::Result<Self> {
        let mut program = Command::new(program).args(socket).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut url = String::new();
        let stdout = program.stdout.take().context("its output")?;
        BufReader::new(stdout).read_line(&mut url)?;
        let url = url.trim_end().to_owned();
        ensure!(url.starts_with("http://"), "the fixture did not print its URL: {url:?}");
        Ok(Fixture { program, url })
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        // It exits when its stdin is closed; kill it if it does not.
        drop(self.program.stdin.take());
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

/// A TCP proxy to the daemon's socket: the suite supports neither Unix sockets nor tokens.
struct Door {
    listener: TcpListener,
    address: SocketAddr,
}

impl Door {
    fn open() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        Ok(Door { listener, address })
    }

    /// Forwards every connection from now on.
    fn lead_to(&self, socket: PathBuf) {
        let Ok(listener) = self.listener.try_clone() else { return };
        thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let Ok(inside) = UnixStream::connect(&socket) else { continue };
                let (Ok(near), Ok(far)) = (connection.try_clone(), inside.try_clone()) else { continue };
                thread::spawn(move || carry(near, inside, |side| side.shutdown(Shutdown::Write)));
                thread::spawn(move || carry(far, connection, |side: &TcpStream| side.shutdown(Shutdown::Write)));
            }
        });
    }
}

/// Copies bytes until one side closes.
fn carry<To: Write>(mut from: impl std::io::Read, mut to: To, close: impl Fn(&To) -> std::io::Result<()>) {
    let _ = std::io::copy(&mut from, &mut to);
    let _ = close(&to);
}
