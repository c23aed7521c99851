//! Runs schemathesis with docs/openapi.json against a real daemon over TCP: no crash, no hang, no 500, every response as
//! documented, and requests that the document forbids are refused.
//!
//! Generated commands would be executed, so schemathesis_hooks.py replaces commands, URLs and durations by harmless ones before a
//! request is sent. In addition the daemon has low limits, and runs as user nobody if we are root.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, ensure};
use clap::Args;
use pinfold_api::types::{StartRequest, TokenRequest};
use pinfold_testkit::environments::{NOBODY, is_root};
use pinfold_testkit::{Pinfold, Setup, until};

use crate::cargo_build;

const VERSION: &str = "4.32.5";
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,negative_data_rejection";
/// Fixed, for the same requests in each run.
const SEED: &str = "7";
/// Timeout of the install.
const DEADLINE: &str = "240";
/// Timeout of a request.
const SECONDS_AN_ANSWER: &str = "30";
const CONFIG: &str = "[tcp]\nlisten = \"127.0.0.1:0\"\n[limits]\nprocesses = 100\ntime_limit = \"10s\"\npids_limit = 20\n\
                      memory_limit = \"256M\"\nstore = \"64M\"\n";

/// Options of the command.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Total duration in seconds
    #[arg(long, default_value_t = 60)]
    seconds: u32,
}

/// Installs schemathesis below target/ and runs it; prints that it is skipped if PyPI cannot be reached.
pub fn run(root: &Path, options: &Options) -> anyhow::Result<ExitCode> {
    let program = match install() {
        Ok(program) => program,
        Err(reason) => {
            println!("SKIPPED: schemathesis {VERSION} cannot be installed: {reason:#}");
            return Ok(ExitCode::SUCCESS);
        }
    };
    let [pinfold] = cargo_build::build(root, cargo_build::Profile::Dev, ["pinfold"])?;
    let user = is_root().then_some(NOBODY);
    // The user nobody cannot enter root's home, the default working directory.
    let setup = Setup { config: CONFIG.to_owned(), user, env: vec![("HOME".to_owned(), "/".to_owned())] };
    let daemon = Pinfold::start_with(&pinfold.to_string_lossy(), setup);
    let (pid, address) = (daemon.daemon_pid(), daemon.health().tcp.context("it listens on TCP")?);
    let token = daemon.block(daemon.client().add_token(&TokenRequest::default()))?.token;
    let ids = [started(&daemon, "while :; do echo tick; sleep 1; done"), started(&daemon, "echo done; exit 3")];
    let mut command = Command::new(program);
    command.arg("run").arg(root.join("docs/openapi.json")).args(["--url", &format!("http://{address}")]);
    command.args(["--header", &format!("Authorization: Bearer {token}"), "--checks", CHECKS]);
    // This route stops the daemon.
    command.args(["--exclude-path", "/v1/shutdown", "--request-timeout", SECONDS_AN_ANSWER]);
    command.args(["--max-time", &options.seconds.to_string(), "--continue-on-failure", "--warnings", "off"]);
    command.args(["--no-color", "--generation-database", "none", "--seed", SEED]);
    command.env("SCHEMATHESIS_HOOKS", "schemathesis_hooks").env("PYTHONPATH", root.join("crates/xtask"));
    command.env("PINFOLD_IDS", ids.join(",")).env("PYTHONDONTWRITEBYTECODE", "1");
    command.current_dir(daemon.home()).stdin(Stdio::null());
    let passed = command.status().context("schemathesis cannot be run")?.success();
    ensure!(daemon.daemon_pid() == pid, "the daemon was restarted");
    let log = std::fs::read_to_string(daemon.home().join("daemon.log"))?;
    ensure!(!log.contains("panicked"), "the daemon panicked:\n{log}");
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Starts a process for requests to refer to.
fn started(daemon: &Pinfold, command: &str) -> String {
    let request =
        StartRequest { command: Some(command.to_owned()), time_limit: Some("10m".into()), ..StartRequest::default() };
    let id = daemon.start_request(&request).record.id;
    until("it has said something", || daemon.show(&id).output.bytes > 0);
    id
}

/// Creates a Python virtual environment with schemathesis.
fn install() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("own executable")?;
    let place = own.ancestors().nth(2).context("not built by cargo")?.join("schemathesis");
    let (program, version) = (place.join("bin/schemathesis"), place.join("version"));
    if program.exists() && std::fs::read_to_string(&version).is_ok_and(|installed| installed == VERSION) {
        return Ok(program);
    }
    quietly(Command::new("python3").args(["-m", "venv"]).arg(&place))?;
    let mut pip = Command::new("timeout");
    pip.arg(DEADLINE).arg(place.join("bin/pip")).args([
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--timeout",
        "15",
        "--retries",
        "1",
    ]);
    quietly(pip.arg(format!("schemathesis=={VERSION}")))?;
    // Written last, so that an incomplete install is not taken for a complete one.
    std::fs::write(&version, VERSION)?;
    Ok(program)
}

fn quietly(command: &mut Command) -> anyhow::Result<()> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("{:?}", command.get_program()))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{}", said.trim_end().lines().last().unwrap_or("it failed"));
    Ok(())
}
