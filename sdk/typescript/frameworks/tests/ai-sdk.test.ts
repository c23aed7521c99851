import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

import type { Experimental_SandboxSession } from "ai";
import { BadCwdError, NotInstalledError } from "pinfold";
import { PinfoldSandbox, type PinfoldSandboxOptions } from "pinfold/ai-sdk";

import { isGone, DETACHING } from "./trees.js";
import { rejection, Stage, until } from "./stage.js";
import { runExample } from "./pages.js";

/** The type of the framework is what this package says it has. */
function open(stage: Stage, options: PinfoldSandboxOptions = {}): { session: Experimental_SandboxSession; work: string } {
  const work = join(stage.home, "work");
  mkdirSync(work, { recursive: true });
  const sandbox = new PinfoldSandbox({ home: stage.home, workingDirectory: work, ...options });
  stage.defer(() => sandbox.close());
  return { session: sandbox, work };
}

test("a command has its exit code, its two streams, its directory and its environment", async () => {
  await using stage = new Stage();
  process.env["SOME_API_KEY"] = "secret";
  const { session, work } = open(stage, { env: { OWN: "1" } });
  mkdirSync(join(work, "sub"));
  assert.deepEqual(await session.run({ command: "echo out; echo err >&2; exit 3" }), { exitCode: 3, stdout: "out\n", stderr: "err\n" });
  assert.equal((await session.run({ command: "kill -9 $$" })).exitCode, 137);
  assert.equal((await session.run({ command: "pwd", workingDirectory: "sub" })).stdout, `${work}/sub\n`);
  assert.equal((await session.run({ command: "echo ${SOME_API_KEY-unset} $OWN $MORE", env: { MORE: "2" } })).stdout, "unset 1 2\n");
  assert.equal((await open(stage, { inheritEnv: true }).session.run({ command: "echo $SOME_API_KEY" })).stdout, "secret\n");
});

test("an abort stops the whole tree and rejects with its reason", async () => {
  await using stage = new Stage();
  const { session, work } = open(stage);
  for (const start of [(abortSignal: AbortSignal) => session.run({ command: DETACHING, abortSignal }), async (abortSignal: AbortSignal) => (await session.spawn({ command: DETACHING, abortSignal })).wait()]) {
    const controller = new AbortController();
    const running = Promise.resolve(start(controller.signal)).then(() => assert.fail("it was aborted"), (error: unknown) => error);
    await until("it is set up", () => existsSync(join(work, "ready")));
    controller.abort(new Error("enough"));
    assert.equal(((await running) as Error).message, "enough");
    assert.ok(isGone(work));
    await session.deleteFile({ path: "ready" });
  }
  await assert.rejects(async () => session.run({ command: "true", abortSignal: AbortSignal.abort(new Error("before")) }), /before/);
});

test("a spawned process streams, takes input over kill -9 of the daemon, and is killed", async () => {
  await using stage = new Stage();
  const { session } = open(stage);
  const cat = await session.spawn({ command: "cat; echo over >&2", stdin: true });
  const writer = cat.stdin.getWriter();
  const reader = cat.stdout.getReader();
  await writer.write(new Uint8Array([0, 255]));
  assert.deepEqual([...(await reader.read()).value!], [0, 255]);
  await stage.killDaemon();
  await writer.write(Buffer.from("again"));
  assert.equal(Buffer.from((await reader.read()).value!).toString(), "again");
  await writer.close();
  assert.ok((await reader.read()).done);
  assert.deepEqual(await cat.wait(), { exitCode: 0 });
  assert.equal(await new Response(cat.stderr).text(), "over\n");
  const sleeping = await session.spawn({ command: "exec sleep 600" });
  assert.ok(!("stdin" in sleeping));
  await sleeping.kill();
  await sleeping.kill();
  assert.deepEqual(await sleeping.wait(), { exitCode: 143 });
});

test("files are read, written, listed and deleted as the interface says", async () => {
  await using stage = new Stage();
  const { session, work } = open(stage);
  const bytes = new Uint8Array(300_000).map((_, index) => index);
  await session.writeBinaryFile({ path: "a/b/bytes", content: bytes });
  assert.deepEqual(new Uint8Array((await session.readBinaryFile({ path: "a/b/bytes" }))!), bytes);
  assert.deepEqual(new Uint8Array(await new Response(await session.readFile({ path: join(work, "a/b/bytes") })).arrayBuffer()), bytes);
  await session.writeFile({ path: "-stream", content: new Blob(["one\n", "two\n", "three"]).stream() });
  assert.equal(readFileSync(join(work, "-stream"), "utf8"), "one\ntwo\nthree");
  assert.equal(await session.readTextFile({ path: "-stream", startLine: 2, endLine: 9 }), "two\nthree");
  assert.equal(await session.readTextFile({ path: "-stream", startLine: 2, endLine: 2 }), "two\n");
  await session.writeTextFile({ path: "latin", content: "ä", encoding: "latin1" });
  assert.equal(await session.readTextFile({ path: "latin", encoding: "latin1" }), "ä");
  symlinkSync("latin", join(work, "link"));
  assert.deepEqual(await session.stat({ path: "link" }), { type: "file", size: 1 });
  assert.equal((await session.stat({ path: "a" }))?.type, "directory");
  const names = ["-stream file", "a directory", "latin file", "link symlink"];
  assert.deepEqual((await session.listDirectory({ path: "." }))!.map(({ name, type }) => `${name} ${type}`).sort(), names);
  assert.equal(await session.deleteFile({ path: "link" }), true);
  assert.ok(existsSync(join(work, "latin")));
  assert.equal(await session.deleteFile({ path: "link" }), false);
  for (const read of ["readFile", "readBinaryFile", "readTextFile", "stat", "listDirectory"] as const) assert.equal(await session[read]({ path: "none" }), null, read);
  for (const wrong of [() => session.listDirectory({ path: "latin" }), () => session.deleteFile({ path: "a" }), () => session.writeTextFile({ path: "a", content: "x" }), () => session.readTextFile({ path: "a" })]) {
    await assert.rejects(async () => wrong(), /not of the right kind/);
  }
  writeFileSync(join(work, "file"), "");
  await assert.rejects(async () => session.writeTextFile({ path: "file/below", content: "x" }), /./);
  let left = 0;
  for await (const _ of stage.client().list()) left += 1;
  assert.equal(left, 0, "no copy of a file is kept");
});

test("what is wrong is said", async () => {
  await using stage = new Stage();
  await rejection(BadCwdError, Promise.resolve(open(stage, { workingDirectory: "/nowhere" }).session.run({ command: "true" })));
  await rejection(NotInstalledError, Promise.resolve(open(stage, { home: join(stage.home, "none"), binary: "/nowhere/pinfold" }).session.run({ command: "true" })));
  await assert.rejects(async () => open(stage).session.writeTextFile({ path: "x", content: "x", encoding: "klingon" }), /cannot be written/);
});

test("the example of the page works as it stands there", async () => {
  await using stage = new Stage();
  await runExample(stage, "ai-sdk");
});
