import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";

import type { SpawnedProcess, SpawnOptions } from "@anthropic-ai/claude-agent-sdk";
import type { Process } from "pinfold";
import { LABEL, pinfoldSpawner, type SpawnerOptions } from "pinfold/claude-agent-sdk";

import { ScriptedModel } from "./model.js";
import { installExample, runExample } from "./pages.js";
import { Stage, until } from "./stage.js";

/** What Claude Code needs to use a scripted model, and nothing of this user's. */
function agentEnvironment(stage: Stage, url: string): Record<string, string> {
  const config = join(stage.home, "claude");
  mkdirSync(config, { recursive: true });
  return {
    ANTHROPIC_BASE_URL: url, ANTHROPIC_API_KEY: "none", CLAUDE_CONFIG_DIR: config, HOME: config, IS_SANDBOX: "1",
    CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1", DISABLE_AUTOUPDATER: "1", DISABLE_TELEMETRY: "1",
  };
}

/** A program in place of Claude Code. The types of the SDK are what this package says it takes and gives. */
function spawnWith(stage: Stage, args: string[], options: SpawnerOptions = {}): { child: SpawnedProcess; abort: AbortController } {
  const abort = new AbortController();
  const make: (options: SpawnOptions) => SpawnedProcess = pinfoldSpawner({ home: stage.home, ...options });
  return { child: make({ command: "/bin/sh", args: ["-c", ...args], cwd: stage.home, env: { PATH: process.env["PATH"], GONE: undefined }, signal: abort.signal }), abort };
}

async function text(child: SpawnedProcess): Promise<string> {
  const pieces: Buffer[] = [];
  for await (const piece of child.stdout) pieces.push(piece as Buffer);
  return Buffer.concat(pieces).toString();
}

function exit(child: SpawnedProcess): Promise<[number | null, NodeJS.Signals | null]> {
  return new Promise((done, fail) => {
    child.once("exit", (code, signal) => done([code, signal]));
    child.once("error", fail);
  });
}

test("input, output, stderr and exit of the agent are passed on, over kill -9 of the daemon", async () => {
  await using stage = new Stage();
  let errors = "";
  const { child } = spawnWith(stage, ["read line; echo got $line; read line; echo ${GONE-unset} $line; echo warning >&2; exit 7"], { onStderr: (piece) => (errors += piece) });
  const [exited, output] = [exit(child), text(child)];
  child.stdin.write("one\n");
  await until("it runs", async () => (await stage.client().list({ label: [`${LABEL}=process`] }).next()).value !== undefined);
  await stage.killDaemon();
  child.stdin.write("two\n");
  assert.equal(await output, "got one\nunset two\n");
  assert.deepEqual(await exited, [7, null]);
  assert.deepEqual([child.exitCode, child.signalCode, child.kill("SIGTERM"), errors], [7, null, false, "warning\n"]);
});

test("the end of input is passed on, and an abort and a kill end the whole tree", async () => {
  await using stage = new Stage();
  const ended = spawnWith(stage, ["cat; echo over"]);
  ended.child.stdin.end("last\n");
  assert.equal(await text(ended.child), "last\nover\n");
  for (const end of [({ abort }: typeof ended) => abort.abort(), ({ child }: typeof ended) => child.kill("SIGKILL")]) {
    const started = spawnWith(stage, ["setsid sleep 600 & echo ready; wait"]);
    const exited = exit(started.child);
    await once(started.child.stdout, "data");
    end(started);
    assert.ok(["SIGTERM", "SIGKILL"].includes((await exited)[1]!));
    assert.ok(started.child.killed);
    assert.equal((await stage.client().list({ status: "live" }).next()).value, undefined);
  }
});

test("what cannot be started is an error event", async () => {
  await using stage = new Stage();
  const { child } = spawnWith(stage, ["true"], { home: join(stage.home, "none"), binary: "/nowhere/pinfold" });
  await assert.rejects(exit(child), /install pinfold/);
});

test("the example of the page works as it stands there, with the real Claude Code", async () => {
  await using stage = new Stage();
  await using model = new ScriptedModel([{ bash: "echo compiling; exit 3" }, { text: "The build fails." }]);
  await runExample(stage, "claude-agent-sdk", agentEnvironment(stage, await model.listen()));
  assert.match(JSON.stringify(model.requests[1]?.messages), /compiling/);
});

test("Claude Code outlives its host program and finishes its turn", async () => {
  await using stage = new Stage();
  let host: ChildProcess | undefined;
  const mark = join(stage.home, "mark");
  // The second step is given when the host program is dead.
  const gate = async (step: number) => {
    if (step !== 1) return;
    const dead = once(host!, "exit");
    host!.kill("SIGKILL");
    await dead;
  };
  await using model = new ScriptedModel([{ bash: "echo first" }, { bash: `echo after > ${mark}` }, { text: "All is done." }], gate);
  const { program } = installExample(stage, "claude-agent-sdk");
  const env = { ...process.env, PINFOLD_HOME: stage.home, ...agentEnvironment(stage, await model.listen()) };
  host = spawn(process.execPath, [program], { cwd: dirname(program), env, stdio: "ignore" });
  await until("the agent acts without its host", () => existsSync(mark));
  assert.equal(host.signalCode, "SIGKILL");
  const agent: Process = await stage.client().get("builder");
  await agent.wait({ until: "match", pattern: "All is done", timeout: "2m" });
  assert.equal((await agent.refresh()).status, "running");
  assert.deepEqual((await agent.stop()).survivors, []);
});
