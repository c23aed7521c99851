//! Costs for an agent: one `execute` over MCP compared with the same through `/v1`, the bytes of the tool list in every chat, and
//! the calls and bytes needed to find out why a build failed.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};

use super::Scale;
use super::report::{Row, Target};
use super::stats::{Better, Samples, Summary};
use super::test_bed::{Daemon, TestDir, runtime, settle, start_and_wait};

/// Measured round trips on each side.
const ROUNDS: usize = 300;
/// A build whose log is 2 MB, with two errors early in it and a summary at its end.
const BUILD: &str = "awk 'BEGIN {
    for (i = 1; i <= 30000; i++) {
        printf \"[%5d/30000] Compiling module_%05d of the project, with its usual flags\\n\", i, i
        if (i == 12345) print \"src/widget.c:42:17: error: use of undeclared identifier '\\''frobnicate'\\''\"
        if (i == 23456) print \"src/gadget.c:7:1: error: unknown type name '\\''gizmo_t'\\''\"
    }
    print \"make: *** [Makefile:12: all] Error 1\"
    exit 2
}'";
/// The lines that explain the failure.
const WHY: [&str; 2] = ["src/widget.c:42:17: error", "src/gadget.c:7:1: error"];

/// An MCP server on pipes, as an agent uses it.
struct Server {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    next: u64,
}

impl Server {
    fn start(stage: &TestDir, daemon: &Daemon) -> anyhow::Result<Self> {
        let mut command = Command::new(stage.binary());
        command.args(["mcp", "--owner", "bench"]).env("PINFOLD_HOME", daemon.home()).current_dir("/");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let requests = child.stdin.take().context("no stdin")?;
        let answers = BufReader::new(child.stdout.take().context("no stdout")?);
        let mut server = Server { child, requests, answers, next: 0 };
        let client = json!({ "name": "bench", "version": "1" });
        let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
        server.ask("initialize", &hello)?;
        server.write(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))?;
        Ok(server)
    }

    fn write(&mut self, message: &Value) -> anyhow::Result<()> {
        self.requests.write_all(format!("{message}\n").as_bytes())?;
        Ok(self.requests.flush()?)
    }

    /// Sends a request and returns its result; skips notifications.
    fn ask(&mut self, method: &str, params: &Value) -> anyhow::Result<Value> {
        self.next += 1;
        self.write(&json!({ "jsonrpc": "2.0", "id": self.next, "method": method, "params": params }))?;
        loop {
            let mut line = String::new();
            ensure!(self.answers.read_line(&mut line)? > 0, "the server ended");
            let mut answer: Value = serde_json::from_str(&line)?;
            if answer["id"] == self.next {
                ensure!(answer["error"].is_null(), "{method}: {}", answer["error"]);
                return Ok(answer["result"].take());
            }
        }
    }

    fn call(&mut self, tool: &str, arguments: &Value) -> anyhow::Result<Value> {
        let result = self.ask("tools/call", &json!({ "name": tool, "arguments": arguments }))?;
        ensure!(result["isError"] != true, "{tool}: {result}");
        Ok(result)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(super) fn measure(stage: &TestDir, scale: Scale) -> anyhow::Result<Vec<Row>> {
    let daemon = stage.daemon("mcp")?;
    let mut server = Server::start(stage, &daemon)?;
    let mut rows = vec![round_trips(&mut server, &daemon, scale)?, tool_list(&mut server)?];
    rows.extend(failing_build(&mut server)?);
    Ok(rows)
}

fn round_trips(server: &mut Server, daemon: &Daemon, scale: Scale) -> anyhow::Result<Row> {
    let (runtime, client) = (runtime()?, daemon.client());
    let (mut through_mcp, mut through_api) = (Samples::new(), Samples::new());
    for round in 0..scale.of(ROUNDS) + 5 {
        let started = Instant::now();
        let result = server.call("execute", &json!({ "command": "true" }))?;
        let took = started.elapsed();
        ensure!(result["structuredContent"]["exit_code"] == 0, "`true` came out wrong: {result}");
        settle();
        let started = Instant::now();
        runtime.block_on(start_and_wait(&client))?;
        let bare = started.elapsed();
        settle();
        // The first ones warm up both sides.
        if round >= 5 {
            through_mcp.push_ms(took);
            through_api.push_ms(bare);
        }
    }
    let row = Row::new("mcp_execute", "MCP `execute` of `true` over stdio", "ms", through_mcp.summary(Better::Less));
    Ok(row.against("the same through /v1", through_api.summary(Better::Less)))
}

fn tool_list(server: &mut Server) -> anyhow::Result<Row> {
    let list = server.ask("tools/list", &json!({}))?;
    let bytes = list.to_string().len() as f64;
    let row = Row::new("mcp_tools_list", "the whole `tools/list`", "bytes", Summary::of_one(bytes));
    Ok(row.target(Target::AtMost(6.0 * 1024.0)))
}

/// Acts as a model that reads the result, and searches the output if the errors are not in it.
fn failing_build(server: &mut Server) -> anyhow::Result<Vec<Row>> {
    let knows = |seen: &str| WHY.iter().all(|why| seen.contains(why));
    let mut rows = Vec::new();
    for (id, what, structured) in [
        ("mcp_failing_build_text", "a failing build with 2 MB of log, as text", false),
        ("mcp_failing_build_structured", "a failing build with 2 MB of log, as structured content", true),
    ] {
        let (mut calls, mut seen) = (1, String::new());
        let mut read = |result: &Value| {
            let text = || result["content"][0]["text"].as_str().unwrap_or_default().to_owned();
            seen.push_str(&if structured { result["structuredContent"].to_string() } else { text() });
            knows(&seen).then_some(seen.len())
        };
        let result = server.call("execute", &json!({ "command": BUILD, "timeout": "40s" }))?;
        ensure!(result["structuredContent"]["exit_code"] == 2, "the build did not fail: {result}");
        let mut bytes = read(&result);
        if bytes.is_none() {
            calls += 1;
            let id = &result["structuredContent"]["id"];
            let result = server.call("process_output", &json!({ "id": id, "grep": "error:", "max_output": 1024 }))?;
            bytes = read(&result);
        }
        let Some(bytes) = bytes else { bail!("two calls did not tell why it failed") };
        let bytes = Summary::of_one(bytes as f64);
        rows.push(
            Row::new(id, format!("{what}: to know why, in {calls} calls"), "bytes", bytes)
                .target(Target::AtMost(2048.0)),
        );
    }
    Ok(rows)
}
